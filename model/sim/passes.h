/* passes.h - a routing trace as the passes that made it.
 *
 *     passes_open -> { passes_next ..., passes_rewind } -> passes_close
 *
 * passes_open reads the whole trace once, so a bad one is refused before
 * anything is counted, and the numbers of a later pass over it are known.
 * Sequences get slots that are used again once a sequence ended for good.
 *
 * Bytes   one pass is in memory, and 24 bytes a sequence.
 * Errors  what trace_open returns, -EOVERFLOW for 2^32 passes.
 */
#ifndef MODEL_SIM_PASSES_H
#define MODEL_SIM_PASSES_H

#include "model/ckpt/error.h"
#include "sched/trace/trace.h"

struct passes;

struct pass_row {
    uint32_t slot;   /* of its sequence */
    uint32_t age;    /* rows of the same sequence after it in the pass */
    uint32_t token;  /* TRACE_TOKEN_UNKNOWN: unknown */
    uint8_t  phase;  /* enum trace_phase */
    uint8_t  flags;  /* enum trace_row_flags */
    bool     starts; /* the slot belongs to another sequence from here on */
};

struct trace_pass {
    uint32_t step;   /* as the trace has it */
    uint32_t number; /* 0, 1, 2 ... */
    uint32_t rows;
    uint32_t tokens; /* rows that gave a token: no prefill, not rejected */
    bool     decode; /* a row is no prefill */
    const struct pass_row *row; /* [rows] */
};

struct passes_facts {
    struct trace_info info;
    uint64_t records, requests, tokens;
    uint32_t passes, decode_passes;
    uint32_t slots;      /* sequences that live at once, at most */
    uint32_t rows_max;   /* in a pass */
    uint64_t tail_bytes; /* left out after the last whole record */
    uint64_t missing;    /* records that the header promises */
};

int passes_open(struct passes **out, const char *path, bool repair,
                struct error *error);
void passes_close(struct passes *p);
const struct passes_facts *passes_facts(const struct passes *p);
/* 1: *out is the next, good until the next call; 0: no more; or an error. */
int passes_next(struct passes *p, const struct trace_pass **out,
                struct error *error);
/* The ids [top_k] of a row of the pass that passes_next gave. */
const uint16_t *passes_ids(const struct passes *p, uint32_t row,
                           uint32_t layer);
void passes_rewind(struct passes *p);

#endif
