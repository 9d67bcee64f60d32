/* trace.h - routing traces on disk: which experts each row of each pass chose.
 *
 * A file is a header of 128 bytes, a JSON object about the run, then one record
 * a row, all of one size, in the order in which the rows ran. Records with the
 * same step were one pass. README.md has every byte.
 *
 *     trace_open   -> { trace_next ... }                        -> trace_close
 *     trace_create -> { trace_begin -> { trace_row, trace_choice ... } ->
 *                       trace_commit ... }                      -> trace_finish
 *
 * The writer writes whole passes. After a crash a trace can be read up to its
 * last whole record; the counts in its header are then 0.
 *
 * Bytes   nothing in the file is trusted. A trace may be of any length: the
 *         reader keeps a window of 256 KiB, or one record if that is longer.
 * Threads one owner at a time.
 * Errors  the errno of the file; -EBADMSG: against the format; -ENOTSUP:
 *         another version, or a column this reader does not know; trace_fault
 *         says where; -ENOMEM.
 */
#ifndef SCHED_TRACE_TRACE_H
#define SCHED_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum trace_flags {
    TRACE_RANKED = 1, /* the ids of a row are in rank order, best first */
    TRACE_SCORES = 2, /* records have a column of scores */
    TRACE_HITS   = 4, /* of hits */
    TRACE_TIMES  = 8, /* of times */
    TRACE_CRC    = 16, /* a checksum ends each record */
};

enum trace_phase { TRACE_PREFILL, TRACE_DECODE, TRACE_DRAFT };

enum trace_row_flags {
    TRACE_REJECTED = 1, /* a draft that was not accepted */
    TRACE_FIRST    = 2, /* the first token of a sequence */
};

/* Where the expert was when the row chose it. */
enum trace_hit {
    TRACE_MISS,       /* not in memory, no prefetch */
    TRACE_RESIDENT,   /* in the cache */
    TRACE_PREFETCHED, /* prefetched and complete */
    TRACE_LATE,       /* its prefetch was not complete */
    TRACE_SHARED,     /* read for another row of the same pass */
};

/* The times of a layer: waiting for trunk; attention and router; waiting for
 * experts; experts. */
enum { TRACE_WAIT_TRUNK, TRACE_ATTENTION, TRACE_WAIT_EXPERT, TRACE_EXPERTS,
       TRACE_TIME_COLUMNS };

#define TRACE_TOKEN_UNKNOWN UINT32_MAX

struct trace_info {
    uint32_t flags;        /* enum trace_flags */
    uint32_t layers;       /* MoE layers: lines of a record's columns */
    uint32_t first_layer;  /* number of MoE layer 0 among all layers */
    uint32_t model_layers; /* all layers, dense ones too */
    uint32_t experts;      /* in a layer */
    uint32_t top_k;        /* experts that a row chooses in a layer */
    uint32_t sequences, steps; /* counts; 0: not finished */
    uint64_t records;          /* count; 0: not finished */
    uint64_t expert_bytes;     /* of one expert; 0: unknown */
    uint64_t trunk_bytes;      /* that a pass uses; 0: unknown */
    uint64_t model_hash;       /* 0: unknown */
    uint64_t created_us;       /* microseconds since 1970; 0: unknown */
};

/* One row of one pass. Columns that the trace lacks are NULL. Borrowed until
 * the next trace_next. */
struct trace_record {
    uint32_t sequence, position; /* position in the sequence, from 0 */
    uint32_t token; /* id, or TRACE_TOKEN_UNKNOWN */
    uint32_t step;  /* number of the pass */
    uint8_t phase;  /* enum trace_phase */
    uint8_t flags;  /* enum trace_row_flags */
    const uint16_t *ids;    /* [layers][top_k] experts */
    const uint16_t *scores; /* [layers][top_k] round(65535 x weight); NULL if
                             * the file has them as f32 */
    const uint8_t *hits;    /* [layers][top_k] enum trace_hit */
    const uint32_t *times;  /* [layers][TRACE_TIME_COLUMNS] microseconds */
};

enum trace_problem {
    TRACE_FINE,
    TRACE_NO_HEADER,   /* found: the file's bytes, expected: the header's */
    TRACE_MAGIC,
    TRACE_VERSION,     /* found: the major version, expected: ours */
    TRACE_HEADER_CRC,  /* found, expected */
    TRACE_FLAGS,       /* found: the unknown ones */
    TRACE_SHAPE,       /* impossible counts */
    TRACE_RECORD_SIZE, /* found, expected */
    TRACE_RECORD_CRC,  /* found, expected */
    TRACE_ROWS,        /* found, expected */
    TRACE_PHASE,       /* found */
    TRACE_ID,          /* found: an id not below `expected` */
    TRACE_ID_TWICE,    /* found: the id */
    TRACE_STEP,        /* found: a step below `expected` */
    TRACE_TRUNCATED,   /* found, expected: whole records */
    TRACE_TAIL,        /* no failure. found: bytes after the last whole record,
                        * which were not read; expected: records that the
                        * header counts beyond it */
};

struct trace_fault {
    enum trace_problem problem;
    uint64_t record; /* number of the record; 0 for the header too */
    uint64_t offset; /* in bytes, where the record begins */
    uint64_t found, expected; /* as enum trace_problem says */
};

struct trace;

/* With `repair`, a trace that is shorter than its header says is read up to its
 * last whole record. One that was not finished always is. On failure *fault
 * says why. */
int  trace_open(struct trace **out, const char *path, bool repair,
                struct trace_fault *fault);
void trace_close(struct trace *t);
const struct trace_info *trace_info(const struct trace *t);
/* The `bytes` bytes of JSON after the header, without a NUL, not checked. Lives
 * until trace_close. */
const char *trace_meta(const struct trace *t, uint32_t *bytes);
/* 1: *record is the next one; 0: there are no more; negative: an error. */
int  trace_next(struct trace *t, struct trace_record *record);
/* Start again with the first record. */
void trace_rewind(struct trace *t);
/* The last failure; at the end of the trace perhaps TRACE_TAIL. */
const struct trace_fault *trace_fault(const struct trace *t);
/* The problem in words: "a record's checksum is wrong". */
const char *trace_problem_text(enum trace_problem problem);

struct trace_writer;

/* The counts in `info` are ignored; scores are written as u16. `meta` is a JSON
 * object or NULL. A pass has at most `rows_max` rows; its buffer is allocated
 * here. An existing file is replaced. -EINVAL: the format cannot hold it. */
int trace_create(struct trace_writer **out, const char *path,
                 const struct trace_info *info, const char *meta,
                 uint32_t rows_max);
/* The same to the start of an open file, which stays the caller's. */
int trace_create_at(struct trace_writer **out, int fd,
                    const struct trace_info *info, const char *meta,
                    uint32_t rows_max);
/* Begin a pass of `rows` rows, with all columns zero. Steps never decrease. The
 * next four functions may come in any order. */
void trace_begin(struct trace_writer *w, uint32_t step, uint32_t rows);
void trace_row(struct trace_writer *w, uint32_t row, uint32_t sequence,
               uint32_t position, uint32_t token, enum trace_phase phase,
               uint8_t flags);
/* What the row chose in MoE layer m: ids [top_k], and weights [top_k] that add
 * up to 1, or NULL. */
void trace_choice(struct trace_writer *w, uint32_t row, uint32_t m,
                  const uint32_t *ids, const float *weights);
/* hits [top_k]: enum trace_hit. */
void trace_hits(struct trace_writer *w, uint32_t row, uint32_t m,
                const uint8_t *hits);
void trace_times(struct trace_writer *w, uint32_t row, uint32_t m,
                 const uint32_t us[TRACE_TIME_COLUMNS]);
/* Write the pass. 0, or the errno of the write. After that nothing more is
 * written, and trace_finish is the only call. */
int  trace_commit(struct trace_writer *w);
/* Write the counts and close. After a failure the file can be read up to its
 * last whole pass. Returns the first failure. NULL is fine. */
int  trace_finish(struct trace_writer *w);

#endif
