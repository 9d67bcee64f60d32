/* batch.h - many requests through one engine: continuous batching.
 *
 * Sequences join and leave between passes. A pass has one row of every sequence
 * that decodes, draft rows where they pay, and what is left of the rows goes to
 * the sequences whose prompts are still being read, in equal shares: so nobody
 * waits for a long prompt, neither those that decode nor the shorter prompts
 * beside it. Ids and logits of a sequence are those it has alone. One prompt is
 * a batch of one.
 *
 * Where a mask leaves one id only, that id is said without a pass, and read
 * beside the one before it: the next pass has several rows of the sequence.
 *
 *     batch_open -> { batch_step: next, pass, (logits | token)*, finished }
 *     -> batch_close
 *
 * A request's tag comes back with everything that is said about it. Every
 * request that `next` gave is finished exactly once, at the latest by
 * batch_close. Random numbers are f(seed, position): a request gives the same
 * text in any company, and two requests with the same prompt and seed the same
 * text.
 *
 * Nothing is read twice that is known: a request may begin at a state that
 * `begin` loads, and with `share` prompts that begin alike are read once and
 * the state is copied (share.h), also to requests that come later, as long as
 * one of `held` states has it, or what `parted` keeps and `begin` loads. Only
 * rows that were computed have logits.
 *
 * Bytes    nothing large; after batch_open nothing allocates. The ids belong to
 *          the caller and stay where they are from `next` to `finished`.
 * Threads  one; all callbacks come from it, from inside batch_step or
 *          batch_close.
 * Errors   -ENOMEM from batch_open; from batch_step what k3_pass returns. A
 *          failed pass finishes all its requests with BATCH_FAILED, and no step
 *          may follow.
 */
#ifndef MODEL_DECODE_BATCH_H
#define MODEL_DECODE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "model/decode/draft.h"
#include "model/dspark/dspark.h"
#include "model/decode/sample.h"
#include "model/k3/k3.h"

struct batch;

struct batch_request {
    uint64_t  tag;
    uint32_t *ids; /* the prompt; new ids go behind it, there is room for max */
    uint32_t  prompt_count; /* >= 1 */
    uint32_t  max;   /* new ids; 0: read the prompt and finish */
    uint32_t  given; /* new ids that an earlier run found and that are in `ids`
                      * already: read like the prompt; 0, or fewer than max */
    struct sample_options sample;
    uint32_t  common; /* so many first ids begin later requests, too; 0: not
                       * known */
    bool      ignore_end; /* go on past end ids */
    bool      logits;     /* hand out the logits of every position */
    bool      masked;     /* ask `mask` before each new id */
    bool      saved;      /* begin() may know a state of it */
    bool      chosen;     /* tell `chosen` of each new id, before `token` */
};

/* 0, or -EINVAL: there is no prompt, an id is not in the vocabulary, or
 * prompt_count + max - 1 positions do not fit the context. */
int batch_check(const struct k3 *k, const struct batch_request *request,
                struct error *error);

enum batch_reason {
    BATCH_LENGTH,    /* max new ids */
    BATCH_END,       /* an end id */
    BATCH_STOPPED,   /* a callback said so */
    BATCH_CANCELLED, /* cancelled(), or batch_close */
    BATCH_FAILED     /* the pass did */
};

/* Where drafts come from: the text so far, a trained drafter, or the form that
 * the text has to have. */
enum { BATCH_FROM_TEXT, BATCH_FROM_DRAFTER, BATCH_FROM_FORM, BATCH_SOURCES };

/* Draft rows by their place behind the known id. */
struct batch_drafts {
    uint64_t drafted[DRAFT_FIXED_MAX], accepted[DRAFT_FIXED_MAX];
};

struct batch_counts {
    uint32_t running;    /* sequences that have a place */
    uint64_t finished;   /* requests, for whatever reason */
    uint64_t prompt_ids; /* that went through the model, given ones too */
    uint64_t ids;        /* sampled, end ids included */
    uint64_t decode_ids; /* of those, in passes with a decode row */
    uint64_t forced;     /* of the ids: no other could have come */
    uint64_t drafted, accepted; /* draft rows */
    struct batch_drafts source[BATCH_SOURCES]; /* the same, in detail */
    uint64_t passes;
    uint64_t copied_ids; /* of prompts, not read: another request had */
    uint64_t loaded_ids; /* of prompts, not read: begin() knew their state */
};

/* Callbacks may be NULL, except next and finished. */
struct batch_options {
    uint32_t sequences; /* at one time; no more than the engine has */
    struct draft_options draft;
    struct dspark *drafter; /* started, or NULL: drafts from the text alone. It
                             * gets the engine's sequences, held ones too */
    /* Tests and benches: other ids in the place of those that the drafter has
     * proposed behind the first `count` ids of the request; or NULL. */
    void (*instead)(void *arg, uint64_t tag, uint32_t count, uint32_t *ids,
                    uint32_t n);
    /* Is there a request? It has passed batch_check. Asked for one more than
     * there are places, so that reads can run ahead of the next prompt. */
    bool (*next)(void *arg, struct batch_request *out);
    /* Asked between passes, for each request that runs. */
    bool (*cancelled)(void *arg, uint64_t tag);
    bool (*is_end)(void *arg, uint32_t id);
    /* A new id, not an end id. True: it is the last, BATCH_STOPPED. */
    bool (*token)(void *arg, uint64_t tag, uint32_t id);
    /* For requests that want them, [vocab] of each position, in order. The
     * engine's options.logits is then 0, else at least `sequences`. True: stop,
     * BATCH_STOPPED. */
    bool (*logits)(void *arg, uint64_t tag, const float *row);
    /* The ids that may come next, as sample_context.mask; NULL: all. */
    const uint64_t *(*mask)(void *arg, uint64_t tag);
    /* For these requests, after a new id: is there one id only that may come
     * next? Then it is said at once, and read with the one before it. */
    bool (*only)(void *arg, uint64_t tag, uint32_t *id);
    /* For these requests, before a pass: at most `max` ids that probably come.
     * Their number. */
    uint32_t (*likely)(void *arg, uint64_t tag, uint32_t *ids, uint32_t max);
    /* The id that was chosen, an end id too, and the logits as they came from
     * the model. */
    void (*chosen)(void *arg, uint64_t tag, uint32_t id, const float *logits);
    /* `count` new ids, given ones too; an end id is not among them. */
    void (*finished)(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason);
    void *arg;
    /* Prompts that begin alike are read once. */
    bool share;
    uint32_t held; /* states of common beginnings that are kept: the engine has
                    * `sequences` and these */
    /* A request gets a place, the engine's `sequence`, which holds the state of
     * its first `have` ids. Returns the positions it then has, fewer than there
     * are ids: `have`, more after a longer state was loaded, 0 after that
     * failed. */
    uint32_t (*begin)(void *arg, uint64_t tag, uint32_t sequence,
                      uint32_t have);
    /* The next position above `position` at which the rows of the prompt end,
     * so that `passed` sees its state; or UINT32_MAX. Costs up to one pass. */
    uint32_t (*pause)(void *arg, uint64_t tag, uint32_t position);
    /* A pass with rows of the request is over, and its `count` new ids have
     * been said. `over`: `finished` comes next. */
    void (*passed)(void *arg, uint64_t tag, uint32_t sequence, uint32_t count,
                   bool over);
    /* A cancelled request leaves its place: a last look at its state. */
    void (*leaves)(void *arg, uint64_t tag, uint32_t sequence);
    /* With share: requests that have no place yet part from this one at the end
     * of the state that `sequence` has. */
    void (*parted)(void *arg, uint64_t tag, uint32_t sequence);
};

int  batch_open(struct batch **out, struct k3 *k, const struct batch_options *o,
                struct error *error);
/* NULL is fine. What still runs is cancelled. */
void batch_close(struct batch *b);
/* Give free places to requests and run one pass. 1; 0 when nobody is there, and
 * nothing was run; or an error. */
int  batch_step(struct batch *b, struct error *error);
/* So far; a pointer that stays good until batch_close. */
const struct batch_counts *batch_counts(const struct batch *b);

#endif
