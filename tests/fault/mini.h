/* mini.h - a checkpoint of half a megabyte, made with any settings, and a run
 * of it that keeps every bit: for tests that run the whole model a thousand
 * times.
 *
 *     mini_make -> { mini_floor, mini_run ... mini_forget } -> mini_remove
 */
#ifndef TESTS_FAULT_MINI_H
#define TESTS_FAULT_MINI_H

#include <stdbool.h>
#include <stdint.h>

#include "model/k3/k3.h"
#include "model/tools/synth.h"

enum { MINI_PROMPT = 4, MINI_NEW = 3, MINI_ROWS = MINI_PROMPT + MINI_NEW - 1 };

struct mini {
    char dir[64];
    char wrong[480]; /* why there is none */
};

/* What a run gave, up to its end or its failure. */
struct mini_run {
    float   *logits; /* [rows][vocab] */
    uint32_t vocab, rows, ids[MINI_NEW], count;
    uint64_t reads, broken, failed; /* all; by the plan; that gave an error */
    uint64_t prefetched, late;
    struct error error;
};

/* 3 layers: KDA and dense, KDA, MLA; later settings override. False when
 * synth refuses it: then `wrong` says why and there is nothing to remove. */
bool mini_make(struct mini *m, const struct synth_setting *setting,
               uint32_t settings);
void mini_remove(struct mini *m);

/* 2 threads, 64 positions, 3 rows, 4 MiB of reads in flight. */
struct k3_options mini_options(uint64_t memory_bytes);
/* The floor of these options, from the sentence; 0 when it is another one,
 * which is then in m->wrong. */
uint64_t mini_floor(struct mini *m, struct k3_options o);
/* Generate greedily; 0 or the error, with its sentence in run->why. */
int  mini_run(const struct mini *m, const struct k3_options *o,
              struct mini_run *run);
void mini_forget(struct mini_run *run);
/* The rows that `run` has are those of `want`, to the bit. */
bool mini_agrees(const struct mini_run *run, const struct mini_run *want);

#endif
