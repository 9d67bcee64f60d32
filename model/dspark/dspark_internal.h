/* dspark_internal.h - the drafter's parts: weights in tiles, memory, and the
 * steps of a sweep. */
#ifndef MODEL_DSPARK_DSPARK_INTERNAL_H
#define MODEL_DSPARK_DSPARK_INTERNAL_H

#include "model/dspark/dspark.h"
#include "model/dspark/rope.h"
#include "model/dspark/weights.h"
#include "model/k3/flow.h"
#include "sched/stream.h"

enum {
    DSPARK_SLOTS = 8,     /* frames that tiles pass through */
    DSPARK_PENDING = 128, /* rows whose context waits to be made */
};

/* Whole rows of one tensor. */
struct weight_tile {
    enum dspark_role role;
    uint32_t index; /* layer or tap */
    uint32_t row, rows;
    struct segment segment;
    uint64_t frame_bytes;
    bool     always;  /* in memory at every budget */
    uint8_t *home;    /* NULL: it is streamed */
};

/* One tile of a sweep, in the order of use: its own, or one of K3's head. */
struct sweep_tile {
    const struct weight_tile *own; /* NULL: */
    uint32_t head;                 /* a tile of K3's */
    const uint8_t *home;           /* NULL: it is streamed */
};

struct sweep {
    struct sweep_tile *tile; /* [room] */
    uint32_t count, room;
    uint32_t at;      /* the next to use */
    uint32_t posted;  /* the next to post */
    uint32_t given, freed; /* slots, counted over the sweep */
};

/* The context of a sequence: positions [first, end) are in the cache, and
 * [end, known) wait as pending rows. Position p is in entry (p - first) mod
 * room. */
struct context {
    uint32_t first, end, known;
};

struct pending {
    uint32_t sequence, position;
};

/* Floats, [rows][...] unless said. C: rows of context, B: rows of blocks. */
struct buffers {
    float *pending;        /* packed taps [C][taps * hidden] */
    float *fused, *fused_packed; /* [C][hidden] */
    float *tap;            /* one row of normed taps */
    float *turn, *block_turn; /* cos and sin [C], [B] of rope_at */
    float *kept;           /* of the context: K, or kv_a [C] */
    float *kept_v;         /* V [C] */
    float *block_kept, *block_v; /* the same of blocks [B] */
    float *x, *h_packed, *out;   /* [B][hidden] */
    float *query;          /* [B][heads * query] */
    float *query_latent, *query_latent_packed; /* [B][q_rank] */
    float *attended, *attended_packed; /* [B][heads * value] */
    float *gate, *up, *active_packed;  /* [B][inter] */
    float *hidden;         /* [B][hidden] */
    float *logits;         /* [B][vocab] */
    float *markov, *u, *u_packed; /* [DSPARK_BATCH][vocab], [rank] */
    float *mask;           /* the embedding of the mask id [hidden] */
    float *worker;         /* [threads][worker_floats] */
    struct best { float value; uint32_t id; } *best; /* [threads][BATCH] */
    uint8_t *cache;        /* [sequences][layers][room * kept] floats */
    uint8_t *frames;       /* DSPARK_SLOTS frames */
    uint8_t *embed;        /* DSPARK_BATCH frames of embedding rows */
    uint8_t *homes;        /* of tiles that stay */
};

struct dspark {
    struct dspark_config c;
    struct dspark_options o;
    struct dspark_weights weights;
    struct rope rope;
    struct k3_guest guest;
    char   path[4096];
    struct weight_tile *tile; /* [tiles], by role and index, rows ascending */
    uint32_t tiles;
    uint64_t frame_bytes;     /* of a slot */
    uint32_t slots;
    uint64_t embed_frame_bytes;
    uint64_t worker_floats;
    uint32_t rows, batch;     /* of a block; blocks of a draft */
    uint32_t room;            /* entries of a context */
    struct buffers b;
    struct context *context;  /* [sequences] */
    struct pending  pending[DSPARK_PENDING];
    uint32_t pendings;
    struct k3 *k;
    struct k3_lent lent;
    struct load load[DSPARK_SLOTS], embed_load[DSPARK_BATCH];
    struct sweep sweep;
    struct dspark_ask *ask;   /* of this draft */
    uint32_t asks;
    struct dspark_facts facts;
    struct error error;       /* code 0: none */
};

static inline bool dspark_is_mla(const struct dspark *d)
{
    return d->c.kind == DSPARK_MLA;
}

/* Keys and values of a sequence's layer: MLA [room][latent | key]; GQA
 * [kv_heads][room][value | key]. */
static inline float *dspark_layer(const struct dspark *d, uint32_t sequence,
                                  uint32_t layer)
{
    uint64_t floats = (uint64_t)d->room * dspark_kept(&d->c);
    return (float *)(void *)d->b.cache +
           ((uint64_t)sequence * d->c.layers + layer) * floats;
}

/* A tensor of one tile that stays. */
const uint8_t *dspark_vector(const struct dspark *d, enum dspark_role role,
                             uint32_t index);
/* The first tile of a tensor; it is followed by the others. */
const struct weight_tile *dspark_first(const struct dspark *d,
                                       enum dspark_role role, uint32_t index);

/* memory.c */
/* Cut the drafter's memory; base NULL: only measure. Returns its bytes. */
uint64_t dspark_cut(struct dspark *d, uint8_t *base, bool resident);

/* sweep.c */
int  dspark_read_homes(struct dspark *d);
/* List the tiles of a sweep and begin to read them. */
void dspark_sweep_begin(struct dspark *d, bool block);
/* The next tile's bytes of the tensor's rows. */
int  dspark_sweep_hold(struct dspark *d, const struct sweep_tile **tile,
                       const uint8_t **bytes);
void dspark_sweep_release(struct dspark *d);
/* After an error: nothing is in flight any more. */
void dspark_sweep_drop(struct dspark *d);
/* Wait for a load. */
int  dspark_wait(struct dspark *d, const struct load *load);
/* Set the sentence; returns code. */
int  dspark_fail(struct dspark *d, int code, enum dspark_role role,
                 uint32_t index, const char *what);

/* A product's rows and where they go; xp is packed. */
struct dspark_rows {
    float *y;
    size_t ldy;
    const float *xp;
    uint32_t rows;
};
/* graph.c: y = W x for all rows of a tensor, for up to two sets of rows. */
int  dspark_product(struct dspark *d, enum dspark_role role, uint32_t index,
                    struct dspark_rows a, struct dspark_rows b);
/* y [rows][n] = rms(x) * vector; y NULL: packed alone. */
int  dspark_norm(struct dspark *d, float *packed, float *y, const float *x,
                 uint32_t rows, enum dspark_role role, uint32_t index);
/* Blocks of asks, or with none the context alone, over all layers. */
int  dspark_run(struct dspark *d);

/* attend.c: of one layer, whose products are in the buffers. */
int  dspark_store(struct dspark *d, uint32_t layer);
int  dspark_attend(struct dspark *d, uint32_t layer);
/* heads.c */
int  dspark_choose(struct dspark *d);

#endif
