/* k3_internal.h - what the files k3*.c share: the session and one pass. */
#ifndef MODEL_K3_INTERNAL_H
#define MODEL_K3_INTERNAL_H

#include <stdatomic.h>

#include "compute/team.h"
#include "io/arena.h"
#include "model/ckpt.h"
#include "model/k3.h"
#include "model/state.h"
#include "model/tiles.h"
#include "sched/journal.h"

/* What the timeline calls the work between two waits; product kernels have the
 * number of their tensor role. */
enum k3_kernel { K3_MIX = T_COUNT, K3_RECURRENCE, K3_ATTEND, K3_ROUTE,
                 K3_EXPERTS, K3_REDUCE, K3_GUESS,
                 K3_KERNELS };

/* The vectors of the layer at hand, copied out of their tile so that it can
 * leave the ring: [role] or NULL. */
struct smalls {
    uint8_t *buffer; /* as large as the largest small tile's vectors */
    const uint8_t *at[T_COUNT];
    uint64_t bytes[T_COUNT];
};

/* All float scratch of a pass, [rows][...]. Buffers of attention and of the MLP
 * share memory where k3_scratch_layout says so. */
struct scratch {
    float *snapshots;        /* [snapshot][rows][hidden] */
    float *sum, *mix, *x;    /* [rows][hidden] */
    float *xp;               /* packed x */
    float *out;              /* what a module gives back, [rows][hidden] */
    float *logits;           /* [logit rows][vocab] */
    /* KDA */
    float *raw[3];           /* q, k, v before the convolution [rows][width] */
    float *conv[3];          /* after it; conv[0] becomes the output */
    float *decay, *gate;     /* [rows][width] */
    float *beta;             /* [rows][kda_heads] */
    float *fa, *fap;         /* [rows][kda_dim], packed */
    /* MLA */
    float *ql, *qlp, *q;     /* [rows][q_rank], packed, [rows][heads*192] */
    float *c;                /* [rows][kv_rank + rope] */
    float *o, *mla_gate;     /* [rows][heads*v_dim] */
    float *op;               /* packed input of o_proj, both kinds */
    /* MLP */
    float *g, *u, *up;       /* dense or shared: [rows][inter], packed */
    float *shared;           /* [rows][hidden] */
    float *z, *zp;           /* latent rows, packed */
    float *scores;           /* [rows][experts] */
    float *partial;          /* [rows][top_k][latent] */
    float *latent, *latentp; /* reduced, normed; packed */
    uint32_t *ids;           /* [rows][top_k] */
    float *weights;          /* [rows][top_k] */
    uint32_t *row_of, *rank_of, *first_of, *use_of; /* k3_moe.c */
    float *expert_x, *expert_g, *expert_u, *expert_a, *expert_y;
    uint8_t *worker;         /* [threads][worker_bytes] */
    uint64_t worker_bytes;
    uint8_t *embed;          /* frames of embedding rows */
    uint64_t embed_frame_bytes;
    /* Draft rows' inputs, kept for k3_accept:
     * [kda layer][draft][6*width + kda_heads]. */
    float *drafts;
};

struct run { /* consecutive rows of one sequence */
    uint32_t sequence, first, count, kept; /* kept: rows before the drafts */
    uint32_t draft; /* number of its first draft row in the pass */
};

/* Where the counters stood when the last part of a pass ended. */
struct watch {
    enum k3_phase phase;
    int64_t  ns, wait_trunk_ns, wait_expert_ns;
    uint64_t trunk_bytes;
    struct fetch_counts experts;
    struct k3_layer_totals  *layer[K3_PHASES]; /* [layers + 1] */
    struct k3_kernel_totals *kernel[K3_PHASES];
    struct k3_moe_times     *times; /* of this pass, [moe layers] */
};

struct k3 {
    struct config  c;
    struct k3_options o;
    struct ckpt   *ckpt;
    struct tiles  *tiles;
    bool          *resident;
    struct plan    plan;
    struct arena  *arena;
    struct reader *reader;
    double         rate; /* bytes a second of all drives */
    struct stream *stream;
    struct cache  *cache;
    struct fetch  *fetch;
    struct team   *team;
    struct watch   watch;
    struct guesser *guesser; /* or NULL */
    struct state_shape shape;
    uint8_t       *state; /* [sequences][shape.bytes] */
    struct scratch s;
    struct smalls  small, model_small;
    struct load   *embed_load; /* [rows] */
    uint32_t      *index_in_kind; /* [layers]: among KDA or MLA layers */
    struct run    *run;
    uint32_t       runs, drafts_kept;
    _Atomic bool   cancel;
    uint64_t       passes;
    uint64_t       end;    /* of the trunk that coming passes will need */
    int64_t        wait_expert_ns;
    uint64_t       trunk_bytes, embed_bytes, expert_items;
    struct k3_totals totals[K3_PHASES], last;
    enum k3_phase  last_phase;
    bool           finished;
    const char    *isa;
};

struct pass {
    struct k3           *k;
    const struct k3_row *row;
    uint32_t             rows;
    uint32_t             logit_rows;
    uint32_t             depth; /* snapshots taken */
    bool                 fresh; /* the running sum is empty */
    struct why          *why;
    int                  err;
};

/* k3_scratch.c */
struct scratch_size {
    uint64_t fixed_bytes, row_bytes;
};
/* Bytes of all scratch: with no row, and what each row adds. */
void k3_scratch_size(const struct config *c, const struct k3_options *o,
                     uint32_t threads, struct scratch_size *out);
/* Cut `base` (k3_scratch_size's bytes for `rows`) into the buffers. */
void k3_scratch_cut(struct scratch *s, uint8_t *base, const struct config *c,
                    const struct k3_options *o, uint32_t threads,
                    uint32_t rows);

/* k3_watch.c: where time goes */
int  k3_watch_open(struct k3 *k);
void k3_watch_close(struct k3 *k);
/* A kernel has run on a layer since begin_ns. */
void k3_note(struct k3 *k, uint8_t kernel, uint32_t layer, int64_t begin_ns);
/* Compute has waited since begin_ns for experts of a layer; UINT32_MAX: for
 * the embedding. */
void k3_waited_expert(struct k3 *k, uint32_t layer, int64_t begin_ns);
void k3_watch_pass(struct k3 *k, enum k3_phase phase);
/* What was since the last mark belongs to the layer: before its experts are
 * chosen or, `mlp`, after. The layer past the last is what is outside. */
void k3_watch_mark(struct k3 *k, uint32_t layer, bool mlp);

/* How the counters stand; what a pass did is the difference of two of these. */
struct k3_mark {
    int64_t  ns, wait_trunk_ns, wait_expert_ns, idle_ns;
    uint64_t trunk_bytes, embed_bytes, expert_items;
    struct fetch_counts experts;
};
struct k3_mark k3_mark(const struct k3 *k);
/* A pass of so many rows lies between two marks: it is the last one, adds to
 * the totals of its phase, and the guesses learn from it. */
void k3_account(struct k3 *k, enum k3_phase phase, uint32_t rows,
                const struct k3_mark *before, const struct k3_mark *after);

/* k3_pass.c: helpers for the layer files */
/* The sentence for a failed hold or fetch of a named thing. */
int k3_read_failed(struct pass *p, int err, const char *what);
int k3_tensor_failed(struct pass *p, int layer, enum tensor_role role);
/* y[rows][ldy] = W x for a matrix of the trunk, tile after tile. */
int k3_product(struct pass *p, int layer, enum tensor_role role,
               const float *xp, uint32_t rows, float *y, size_t ldy);
/* The same for rows of one tile that is held already. */
int k3_product_piece(struct pass *p, const struct tile_piece *piece,
                     const uint8_t *frame, const float *xp, uint32_t rows,
                     float *y, size_t ldy);
int k3_hold(struct pass *p, uint32_t tile, const uint8_t **frame);
void k3_release(struct pass *p, uint32_t tile);
/* Pack rows in parallel. */
void k3_pack(struct k3 *k, float *packed, const float *x, uint32_t rows,
             size_t cols);
/* up = pack(situ(g, u)) for rows of n columns; g is used up. */
void k3_situ(struct k3 *k, float *packed, float *g, const float *u,
             uint32_t rows, size_t n);
/* Add what a module gave to the running sum. */
void k3_add(struct pass *p, const float *out);

/* One module each: from s->x and s->xp to s->out. */
int k3_kda(struct pass *p, uint32_t layer);
int k3_mla(struct pass *p, uint32_t layer);
int k3_dense(struct pass *p, uint32_t layer);
int k3_moe(struct pass *p, uint32_t layer);

/* Where an expert's parts land in its frame: fills the load's segments and
 * at[6]. Returns the bytes of the frame. */
uint64_t k3_place_expert(const struct ckpt *ckpt, uint32_t layer,
                         uint32_t expert, struct load *load,
                         uint32_t at[EXPERT_TENSORS]);

#endif
