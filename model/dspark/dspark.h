/* dspark.h - a DSpark drafter: a small network that reads hidden states of K3
 * and proposes the next ids, up to seven for a sequence, in one sweep over its
 * weights. The ids are verified as draft rows (decode/batch.h), so it changes
 * the time that a text takes, never the text.
 *
 *     dspark_open -> k3_options.guest = dspark_guest -> k3_open
 *     -> dspark_start -> { dspark_begin, dspark_copy, k3_pass, dspark_keep,
 *        dspark_draft } -> k3_close -> dspark_close
 *
 * Context  For every position of a sequence whose K3 row has run and counts,
 *          the drafter keeps keys and values made from that row's taps
 *          (dspark_keep). Draft rows that were not accepted are not kept. The
 *          context of a sequence may begin late, where its state was loaded
 *          from a file, and holds the last `window` positions. What is kept is
 *          worked off later, many rows at once, or with the next draft.
 * Block    dspark_draft runs seven rows a sequence: the newest id, at the
 *          position after the context, and six mask ids. All rows see the whole
 *          context and each other. Row k proposes the id k + 1 places on.
 * Weights  are read from memory if the plan found room (k3_guest), else in
 *          tiles through a few frames of its own; so is K3's head, which is
 *          used a second time.
 * Threads  that of the passes.
 * Errors   of open and start: a negative errno and a sentence. A failure later
 *          (a read, a value that is not finite) ends the drafter, not the
 *          session: dspark_failure then says why, and nothing is proposed.
 */
#ifndef MODEL_DSPARK_DSPARK_H
#define MODEL_DSPARK_DSPARK_H

#include "model/dspark/config.h"
#include "model/k3/guest.h"

enum {
    DSPARK_BATCH = 16,    /* sequences of one draft */
    DSPARK_WINDOW = 8192, /* positions of a context, unless told */
};

struct dspark;

struct dspark_options {
    enum dspark_stream stream;
    uint32_t context;   /* max positions of a sequence, as of the engine */
    uint32_t sequences; /* of the engine */
    uint32_t threads;   /* 0: the engine's default */
    uint32_t window;    /* 0: DSPARK_WINDOW */
    uint32_t rows;      /* of a block, 1..7, as some engines run it; 0: 7 */
};

int  dspark_open(struct dspark **out, const char *dir, const struct config *k3,
                 const struct dspark_options *o, struct error *error);
void dspark_close(struct dspark *d); /* NULL is fine */
/* What it needs of the engine; lives as long as the drafter. */
const struct k3_guest *dspark_guest(const struct dspark *d);
const struct dspark_config *dspark_config(const struct dspark *d);
/* Read what stays in memory. */
int  dspark_start(struct dspark *d, struct k3 *k, struct error *error);

/* The sequence has no context before this position. */
void dspark_begin(struct dspark *d, uint32_t sequence, uint32_t position);
/* `to` gets the context of `from`. */
void dspark_copy(struct dspark *d, uint32_t to, uint32_t from);
/* Rows [row, row + count) of the last pass are positions [position, + count)
 * of the sequence, and count. */
void dspark_keep(struct dspark *d, uint32_t sequence, uint32_t position,
                 uint32_t row, uint32_t count);

/* Where its context ends: the position of the next row to keep. */
uint32_t dspark_position(const struct dspark *d, uint32_t sequence);

struct dspark_ask {
    uint32_t sequence;
    uint32_t id;       /* the newest one, whose row has not run */
    uint32_t ids[DSPARK_BLOCK];        /* the answer, `rows` of them */
    float    confidence[DSPARK_BLOCK]; /* that it is right if those before it
                                        * are: untested */
};
/* Propose ids for n <= DSPARK_BATCH sequences. 0, or an error, after which
 * nothing is proposed any more; -ECANCELED: the pass after it will say so. */
int  dspark_draft(struct dspark *d, struct dspark_ask *ask, uint32_t n);
/* Why it has ended; NULL: it has not. */
const char *dspark_failure(const struct dspark *d);
uint32_t dspark_rows(const struct dspark *d);

struct dspark_facts {
    uint64_t drafts;       /* calls of dspark_draft */
    uint64_t sweeps;       /* over the weights: drafts, and context alone */
    uint64_t read_bytes;   /* payload, its own and K3's head */
    int64_t  ns;           /* in dspark_draft and dspark_keep */
    bool     resident;
    uint64_t sweep_bytes;  /* of its weights, for a draft */
    uint64_t memory_bytes;
};
void dspark_facts(const struct dspark *d, struct dspark_facts *out);

/* What the last draft computed, for tests: hidden states [rows][hidden] after
 * the last norm, and logits [rows][vocab] with the Markov head's part, of ask
 * `i`. */
const float *dspark_hidden(const struct dspark *d, uint32_t i);
const float *dspark_logits(const struct dspark *d, uint32_t i);
/* The i-th position's fused taps in the last sweep, [hidden]. */
const float *dspark_fused(const struct dspark *d, uint32_t i);
/* Work off what was kept, then copy a position's keys and values of a layer
 * (dspark_kept floats: K of all heads and V of all heads, or latent and rotated
 * key). False: it is not in the context. */
bool dspark_cache(struct dspark *d, uint32_t sequence, uint32_t layer,
                  uint32_t position, float *out);

#endif
