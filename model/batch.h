/* batch.h - many requests through one session: continuous batching.
 *
 * Sequences join and leave between passes. A pass has one row of every sequence
 * that decodes, draft rows where they pay, and what is left of the rows goes to
 * the sequences whose prompts are still being read, in equal shares: so nobody
 * ever waits for a long prompt, neither those that decode nor the shorter
 * prompts beside it. Ids and logits of a sequence are those it has alone.
 *
 *     batch_run { next, (token | logits)*, finished, pass }
 *
 * A request's tag comes back with everything that is said about it. The ids
 * belong to the caller and stay where they are from `next` to `finished`.
 * Random numbers are f(seed, position): a request gives the same text in any
 * company, and two requests with the same prompt and seed the same text.
 *
 * Bytes    nothing large; after the tables at the start nothing allocates.
 * Threads  one; all callbacks come from it.
 * Errors   what k3_pass and the callbacks return, -ENOMEM. What was finished
 *          before is finished.
 */
#ifndef MODEL_BATCH_H
#define MODEL_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "model/draft.h"
#include "model/k3.h"
#include "model/sample.h"

struct batch_request {
    uint64_t  tag;
    uint32_t *ids; /* the prompt, each below vocab; new ids go behind it */
    uint32_t  prompt_count, most; /* >= 1; ids has room for their sum, and
                                   * their sum less one fits the context */
    uint32_t given; /* new ids that an earlier job found and that are there
                     * already, fewer than `most`: read like the prompt */
    struct sample_options sample;
    bool      ignore_end; /* go on past end ids */
};

enum batch_next { BATCH_NOTHING_NOW, BATCH_TAKEN, BATCH_OVER };
enum batch_reason { BATCH_LENGTH, BATCH_END, BATCH_STOPPED };

struct batch_counts {
    uint32_t running;    /* sequences that have a place */
    uint64_t finished;
    uint64_t prompt_ids; /* that went through the model, given ones too */
    uint64_t ids;        /* sampled, end ids included */
    uint64_t decode_ids; /* of those, in passes with a decode row */
    uint64_t drafted, accepted, passes;
};

struct batch_options {
    uint32_t sequences; /* at one time; no more than the session has */
    struct draft_options draft;
    /* enum batch_next, or a negative errno. With `wait` there is nothing else
     * to do: BATCH_NOTHING_NOW is asked again at once. */
    int  (*next)(void *arg, bool wait, struct batch_request *out);
    bool (*is_end)(void *arg, uint32_t id);
    /* A new id, not an end id. True: it is the last, BATCH_STOPPED. */
    bool (*token)(void *arg, uint64_t tag, uint32_t id);
    /* NULL, or the logits of every position, in order; the session then has
     * options.logits 0, else at least `sequences`. */
    int  (*logits)(void *arg, uint64_t tag, const float *row);
    /* `count` new ids, given ones too; an end id is not among them. */
    int  (*finished)(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason);
    /* After each pass; an error ends the job between two passes. */
    int  (*pass)(void *arg, const struct batch_counts *counts);
    void *arg;
};

int batch_run(struct k3 *k, const struct batch_options *o,
              struct batch_counts *counts, struct why *why);

#endif
