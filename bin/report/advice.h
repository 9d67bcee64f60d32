/* advice.h - what limits a run and what would help, from its report.
 *
 * The cause is from the report alone. What a change would save is the
 * difference of two simulations of the run's trace, with the compute of its
 * report: as it was, and changed.
 *
 * Threads  one caller. Errors: as the functions return.
 */
#ifndef BIN_REPORT_ADVICE_H
#define BIN_REPORT_ADVICE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/sim/cause.h"

enum advice_bound { ADVICE_IO, ADVICE_COMPUTE, ADVICE_BOTH };

struct advice {
    enum advice_bound bound;
    enum cause cause;
    uint32_t drive;       /* the busiest */
    double busy_share, others_share; /* of it, and of the others on average */
    double expert_share;  /* of the bytes */
    bool   decode;         /* of decode tokens; else of the prompt's */
    double tokens;         /* counted */
    double seconds, bytes; /* a token */
    double rate;           /* of all drives, bytes a second */
    double io_s, compute_s, wait_trunk_s, wait_expert_s, rest_s; /* a token */
    double wait_embed_s;
    double drive_share; /* of `rate` that was used, 0 to 1 */
    double hit_share;   /* of expert requests, 0 to 1 */
    double any_share;   /* of the time, with a read on some drive */
    uint32_t drives;
    double at_once; /* of them with a read, on average over the time */
    /* Seconds a token that a change would save. */
    bool   simulated;          /* else nothing of this is known */
    double more_bytes, more_s; /* more memory */
    double more_hits;          /* hit_share then; 0: it holds more trunk */
    double all_bytes, all_s;   /* memory for the whole trunk; 0: it has that */
    double drive_s;            /* another drive of the last one's rate */
    double parts_s;            /* the model in parts over these drives */
    double compute2_s;         /* compute twice as fast */
};

/* 0, or -1 if the report has no tokens. */
int  advice_make(struct advice *out, const json_t *report);
/* Fill in what changes would save. Without success a->simulated stays false. */
void advice_simulate(struct advice *a, const json_t *report,
                     const char *trace);
/* `bold`: one sentence that names the cause, or "I/O-bound: 92 % of the drive's
 * rate, ..."; `text`: what would help. */
void advice_words(const struct advice *a, char *bold, size_t bold_size,
                  char *text, size_t text_size);

#endif
