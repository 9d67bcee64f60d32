/* trace.h - routing traces on disk: which experts each row of each pass chose.
 *
 * Format "MOETRACE" version 1, little-endian: a header of 128 bytes, a JSON
 * object with where it comes from, then one record a row, all of one size, in
 * the order in which the rows ran. Records with the same step were one pass.
 *
 *     trace_open   -> { trace_next ... }                        -> trace_close
 *     trace_create -> { trace_begin -> { trace_row, trace_choice ... } ->
 *                       trace_commit ... }                      -> trace_finish
 *
 * A writer hands whole passes to the kernel, so a trace that ends with a crash
 * is readable up to its last whole record; its header then counts no records.
 *
 * Bytes   nothing in the file is trusted. A trace may be of any length: one
 *         record is in memory. Threads: one owner at a time.
 * Errors  as the kernel says for the file; -EBADMSG: not what the format says,
 *         -ENOTSUP: another version or a column this reader does not know, and
 *         trace_fault says where; -ENOMEM.
 */
#ifndef SCHED_TRACE_H
#define SCHED_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum trace_flags {
    TRACE_RANKED = 1, /* ids are in the router's order, best first */
    TRACE_SCORES = 2,
    TRACE_HITS   = 4,
    TRACE_TIMES  = 8,
    TRACE_CRC    = 16, /* after each record */
};

enum trace_phase { TRACE_PREFILL, TRACE_DECODE, TRACE_DRAFT };

enum trace_row_flags {
    TRACE_REJECTED = 1, /* a draft that was not accepted */
    TRACE_FIRST    = 2, /* first token of a sequence */
};

/* Where the expert of a use was when it was wanted. */
enum trace_hit {
    TRACE_MISS,
    TRACE_RESIDENT,
    TRACE_GUESSED, /* read ahead and there */
    TRACE_LATE,    /* read ahead, not there yet */
    TRACE_SHARED,  /* read for another row of the same pass */
};

enum { TRACE_WAIT_TRUNK, TRACE_ATTENTION, TRACE_WAIT_EXPERT, TRACE_EXPERTS,
       TRACE_TIME_COLUMNS };

#define TRACE_TOKEN_UNKNOWN UINT32_MAX

struct trace_info {
    uint32_t flags;
    uint32_t layers;       /* MoE layers: rows of a record */
    uint32_t first_layer;  /* the model's number of MoE layer 0 */
    uint32_t model_layers; /* with dense ones */
    uint32_t experts, top_k;
    uint32_t sequences, steps; /* 0: not finished */
    uint64_t records;          /* 0: not finished */
    uint64_t expert_bytes;     /* 0: unknown, as are the next three */
    uint64_t trunk_bytes;      /* a pass */
    uint64_t model_hash;
    uint64_t created_us;       /* since 1970 */
};

/* One row of one pass. The columns are [layers][top_k], timing is
 * [layers][TRACE_TIME_COLUMNS] microseconds; columns that the trace lacks are
 * NULL. Borrowed until the next trace_next. */
struct trace_record {
    uint32_t sequence, position, token, step;
    uint8_t phase; /* enum trace_phase */
    uint8_t flags; /* enum trace_row_flags */
    const uint16_t *ids;
    const uint16_t *scores; /* round(65535 x weight); NULL if kept as f32 */
    const uint8_t *hits;    /* enum trace_hit */
    const uint32_t *times;
};

enum trace_problem {
    TRACE_FINE,
    TRACE_NO_HEADER,   /* ends inside the header */
    TRACE_MAGIC,
    TRACE_VERSION,     /* found: the major version */
    TRACE_HEADER_CRC,
    TRACE_FLAGS,       /* found: the unknown ones */
    TRACE_SHAPE,       /* counts that cannot be */
    TRACE_RECORD_SIZE, /* found, expected */
    TRACE_RECORD_CRC,  /* found, expected */
    TRACE_ROWS,        /* found, expected */
    TRACE_PHASE,       /* found */
    TRACE_ID,          /* found: an id not below `expected` */
    TRACE_ID_TWICE,    /* found: the id */
    TRACE_STEP,        /* found: a step below `expected` */
    TRACE_TRUNCATED,   /* found, expected: whole records */
    TRACE_TAIL,        /* not a failure: found bytes after the last whole
                        * record were left out, and the header promised
                        * `expected` more records */
};

struct trace_fault {
    enum trace_problem problem;
    uint64_t record; /* number of the record; 0 for the header too */
    uint64_t offset; /* of it in the file */
    uint64_t found, expected;
};

struct trace;

/* `repair`: a trace that is shorter than its header says is read up to its last
 * whole record; an unfinished one always is. On failure *fault says what. */
int  trace_open(struct trace **out, const char *path, bool repair,
                struct trace_fault *fault);
void trace_close(struct trace *t);
const struct trace_info *trace_info(const struct trace *t);
/* The JSON object after the header, not terminated; not checked as JSON. */
const char *trace_meta(const struct trace *t, uint32_t *bytes);
/* 1: *record is the next; 0: there is no more; negative: an error. */
int  trace_next(struct trace *t, struct trace_record *record);
/* Start again with the first record. */
void trace_rewind(struct trace *t);
/* What the last failure was, or TRACE_TAIL once the end was reached. */
const struct trace_fault *trace_fault(const struct trace *t);
/* What went wrong, as words: "a record's checksum is wrong". */
const char *trace_problem_text(enum trace_problem problem);

struct trace_writer;

/* `info` without its counts; scores are u16. `meta` is a JSON object or NULL.
 * `rows_most` is the most rows a pass can have: the buffer for one pass is
 * allocated here. An existing file is replaced. -EINVAL: a shape that the
 * format cannot hold. */
int  trace_create(struct trace_writer **out, const char *path,
                  const struct trace_info *info, const char *meta,
                  uint32_t rows_most);
/* A pass of `rows` rows begins, all with zeroed columns; steps never decrease.
 * The row functions may come in any order. */
void trace_begin(struct trace_writer *w, uint32_t step, uint32_t rows);
void trace_row(struct trace_writer *w, uint32_t row, uint32_t sequence,
               uint32_t position, uint32_t token, enum trace_phase phase,
               uint8_t flags);
/* What row chose in MoE layer m: top_k ids, and weights that add up to 1 or
 * NULL. */
void trace_choice(struct trace_writer *w, uint32_t row, uint32_t m,
                  const uint32_t *ids, const float *weights);
void trace_hits(struct trace_writer *w, uint32_t row, uint32_t m,
                const uint8_t *hits);
void trace_times(struct trace_writer *w, uint32_t row, uint32_t m,
                 const uint32_t us[TRACE_TIME_COLUMNS]);
/* Write the pass. Returns 0 or what the kernel said; then the trace has a hole
 * and only trace_finish remains. */
int  trace_commit(struct trace_writer *w);
/* Write the counts and close, also after a failure (the file stays readable up
 * to the last whole pass). Returns the first failure. NULL is fine. */
int  trace_finish(struct trace_writer *w);

#endif
