/* advice.h - what bounds a run and what would help, from its report.
 *
 * A token takes the longer of reading and computing, and what of the shorter
 * did not fit beside it: rest = seconds - max(io, compute). Every forecast here
 * changes io or compute and keeps the rest.
 */
#ifndef BIN_ADVICE_H
#define BIN_ADVICE_H

#include <jansson.h>
#include <stdbool.h>

enum advice_bound { ADVICE_IO, ADVICE_COMPUTE, ADVICE_BOTH };

struct advice {
    enum advice_bound bound;
    bool   decode;      /* of decode tokens; else the run only had a prompt */
    double tokens, seconds, bytes, rate; /* a token; rate: of all drives */
    double io_s, compute_s, wait_trunk_s, wait_expert_s, rest_s; /* a token */
    double drive_share; /* of the drives' rate that was used */
    double hit_share;   /* of expert requests */
    double more_bytes, more_s; /* that much more memory would save; bytes 0:
                                * not known */
    double more_hits;          /* share of hits then; 0: trunk, not experts */
    double all_bytes, all_s;   /* memory for all of the trunk; 0: it is */
    double drive_s;   /* another drive of the same rate would save */
    double compute2_s; /* compute twice as fast would save */
};

/* 0, or -1 when the report lacks what this needs. */
int  advice_make(struct advice *out, const json_t *report);
/* With all of the trunk resident, more memory holds more experts: how many of
 * them would be hits, and what that saves, is simulated on the run's own trace.
 * Nothing changes if that cannot be. */
void advice_simulate(struct advice *a, const json_t *report,
                     const char *trace);
/* "I/O-bound: the drive worked at 92 % of its rate.", and what would help. */
void advice_words(const struct advice *a, char *bold, size_t bold_size,
                  char *text, size_t text_size);

#endif
