/* bench.h - what the benches share: spreads, results files, the model. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "model/tools/synth.h"

struct bench_spread {
    double min, median, max;
};
struct bench_spread bench_spread(const double *values, size_t count);

/* "2026-11-30T09:15 <commit>": when and what was measured. */
const char *bench_stamp(void);
/* Open bench/results/NAME.tsv for appending; a new file gets the header. */
FILE *bench_results(const char *name, const char *header);
/* Write build/bench/NAME.json and let go of the array. 0, or 1 after a
 * sentence. */
int bench_json(const char *name, json_t *array);
/* Make sure of a synthetic checkpoint in options->dir: 0, or 1 after a
 * sentence. */
int bench_model(const struct synth_options *options);

#endif
