/* flow.h - runs a pass along the table of steps: what the engine and the
 * simulator share.
 *
 * The flow brings weights to compute: it owns stream, cache, fetch, prefetches,
 * and the counters of where time and bytes went. It holds each tile when a step
 * needs it, hands the piece to the ops, and releases the tile after its last
 * use. It requests experts, hands them out as they arrive, and while it waits
 * for them runs the steps marked STEP_BESIDE. What is done with the weights is
 * up to the ops: the engine computes, the simulator lets time pass, a bench
 * wraps the ops of either.
 *
 *     flow_prepare -> flow_open -> { flow_begin, flow_walk, flow_end }
 *     -> flow_quiesce -> flow_close
 *
 * Bytes    a frame is valid until the op that gets it returns.
 * Threads  one: that of the pass.
 * Errors   a negative errno; the sentence is the ops' (failed) or set in
 *          `error`. After a failed pass there is no further one.
 */
#ifndef MODEL_K3_FLOW_H
#define MODEL_K3_FLOW_H

#include <stdatomic.h>

#include "model/ckpt/ckpt.h"
#include "model/k3/k3.h"
#include "model/k3/limits.h"
#include "model/k3/tiles.h"
#include "sched/cache/cache.h"
#include "sched/event_ring.h"

struct flow;
struct k3_shape;
struct prefetching;

/* Some or all of the rows that chose one expert, which has arrived: those
 * numbered [from, from + rows) become rows [row, row + rows) of the batch. */
struct expert_part {
    uint32_t item;      /* the expert: index in flow.uses */
    uint32_t from;
    uint32_t row, rows;
    bool     last;      /* the last rows of this expert */
    const struct load *load; /* its frame, and part_at for its tensors */
};

/* Experts that are computed together. */
struct expert_batch {
    struct expert_part part[K3_EXPERT_ROWS];
    uint32_t parts, rows;
};

/* All return 0 or a negative errno. `arg` is flow.arg. */
struct flow_ops {
    /* Work with one piece of a step's weights. */
    int (*piece)(void *arg, const struct step *s,
                 const struct tile_piece *piece, const uint8_t *frame);
    /* Do a step without pieces. For STEP_CHOOSE: fill flow.ids and tell the
     * cache (cache_row). */
    int (*step)(void *arg, const struct step *s);
    /* The bytes of a row's embedding, bf16. */
    int (*embedded)(void *arg, uint32_t row, const uint8_t *bytes);
    /* The experts of the layer have been requested: flow.uses. */
    void (*requested)(void *arg, const struct step *s);
    /* Compute these experts for these rows. */
    int (*experts)(void *arg, const struct step *s,
                   const struct expert_batch *batch);
    /* With owned rows: `experts` has computed all parts of a wave as far as it
     * can without what other processes have; do the rest. */
    int (*experts_down)(void *arg, const struct step *s,
                        const struct expert_batch *batch);
    /* Make the sentence for a read that failed, or for -ECANCELED; returns err.
     * `piece` is the first of the tile that was waited for, or NULL. */
    int (*failed)(void *arg, int err, const struct step *s,
                  const struct tile_piece *piece);
    /* Wait for weights: flow_hold and flow_next, or another schedule of a
     * bench. */
    int (*hold)(void *arg, struct flow *f, uint32_t tile,
                const uint8_t **frame);
    int (*next)(void *arg, struct flow *f, uint32_t *item,
                const struct load **load);
};

/* Consecutive rows of one sequence. */
struct flow_run {
    uint32_t sequence, first, count;
    uint32_t kept;  /* of them, before the draft rows */
    uint32_t draft; /* index of its first draft row among those of the pass */
};

/* Counters at the end of the last part of a pass (flow_watch_part), and the
 * totals of layers and kernels. */
struct flow_watch {
    enum k3_phase phase;
    int64_t  ns, wait_trunk_ns, wait_expert_ns;
    uint64_t trunk_bytes;
    struct fetch_counts experts;
    struct k3_layer_totals  *layer[K3_PHASES]; /* [layers + 1] */
    struct k3_kernel_totals *kernel[K3_PHASES]; /* [K3_KERNELS] */
    struct k3_moe_times     *times; /* of this pass, [moe layers] */
};

/* All counters at one moment; a pass is the difference of two of these. */
struct flow_counters {
    int64_t  ns, wait_trunk_ns, wait_expert_ns, wait_embed_ns, idle_ns;
    int64_t  all_idle_ns;
    uint64_t trunk_bytes, embed_bytes, expert_items;
    struct fetch_counts experts;
};

struct flow {
    const struct config     *c;
    const struct k3_options *o; /* defaults filled in */
    const struct flow_ops   *ops;
    void *arg;
    _Atomic bool   cancel; /* the pass returns -ECANCELED at its next wait */
    struct tiles  *tiles;
    bool          *resident; /* [tiles->count] as planned */
    bool          *decoded;  /* [tiles->count]: coded, and kept decoded */
    /* What a pass streams, and an expert, without coding over as stored. */
    double         trunk_factor, expert_factor;
    struct plan    plan;
    struct stream *stream;
    struct cache  *cache; /* NULL without experts, as are the next two */
    struct fetch  *fetch;
    struct prefetching *prefetching; /* or NULL */
    double         bytes_per_s; /* of all drives */
    struct flow_watch watch;
    /* The embedding: one load a row. */
    struct tiles_slice embedding[TILES_SLICES_MAX]; /* of the table */
    uint32_t       embedding_slices;
    struct load   *embed_load; /* [rows] */
    uint8_t       *embed_frame;
    uint64_t       embed_frame_stride; /* bytes */
    /* The current pass. */
    const struct k3_row *row;
    uint32_t       rows;
    struct flow_run *run; /* [rows] */
    uint32_t       runs, drafts;
    uint32_t      *ids; /* [rows][top_k]: the experts that rows chose */
    const struct cache_use *uses; /* the distinct experts among them */
    uint32_t       items; /* how many */
    const struct load **lent; /* [experts] those that have arrived, by item;
                               * with owned rows */
    const uint8_t **frame; /* [tiles->count]: of the tiles that are held */
    uint32_t       held, released; /* tiles of this pass, in order */
    struct flow_counters before;
    /* All passes. */
    uint64_t       passes;
    uint64_t       readahead_end; /* as stream_set_readahead takes it */
    int64_t        wait_expert_ns, wait_embed_ns; /* embed: of these */
    uint64_t       trunk_bytes, embed_bytes, expert_items;
    struct k3_totals totals[K3_PHASES], last;
    enum k3_phase  last_phase;
    bool           quiet; /* after flow_quiesce: no pass follows */
};

struct flow_options {
    struct reader *reader; /* or NULL, and: */
    struct virtual_drives *simulated;
    const uint32_t *file_place; /* stream_options.place */
    double   bytes_per_s;  /* of all drives */
    uint8_t *ring;         /* plan.ring_bytes */
    uint8_t *expert_frames; /* plan.expert_frames, then staging_frames */
    uint64_t expert_frame_bytes;
    uint8_t *embed_frame;
    uint64_t embed_frame_stride; /* bytes; 0: one frame for all rows */
    const struct tiles_slice *embedding; /* of the table */
    uint32_t embedding_slices; /* 1..TILES_SLICES_MAX */
    uint32_t *ids; /* [rows][top_k] */
    fetch_place_fn *place; /* its layers are MoE layers, from 0 */
    fetch_landed_fn *landed; /* or NULL */
    void           *place_arg;
};

/* Take tiles, residents and plan from a shape, and make the tables for passes
 * of `rows` rows. `c` and `o` are kept by the caller. -ENOMEM. */
int  flow_prepare(struct flow *f, struct k3_shape *shape,
                  const struct config *c, const struct k3_options *o,
                  uint32_t rows, struct error *error);
/* Start stream, cache, fetch and prefetches, and read the resident tiles. The
 * caller has set f->ops and the tiles' homes. Errors of stream_open,
 * cache_open, fetch_open and k3_prefetch_open, or of a read. */
int  flow_open(struct flow *f, const struct flow_options *options,
               struct error *error);
/* Also after a failure, or if all is zero. */
void flow_close(struct flow *f);

/* Let the trunk be read ahead for `passes` more passes. */
void flow_set_readahead(struct flow *f, uint64_t passes);
/* A pass of these rows, which stay until flow_end. */
void flow_begin(struct flow *f, const struct k3_row *row, uint32_t rows,
                enum k3_phase phase);
/* Run its steps. 0, or the error of an op. */
int  flow_walk(struct flow *f);
/* Count the pass, whether it is complete or failed. */
void flow_end(struct flow *f);
/* As k3_quiesce. */
void flow_quiesce(struct flow *f);

/* The file that has a row of the embedding, and where; not yet placed. */
struct segment flow_embedding_row(const struct flow *f, uint32_t id);

/* flow_ops.hold: wait for a tile and count its bytes. */
int flow_hold(void *arg, struct flow *f, uint32_t tile, const uint8_t **frame);
/* flow_ops.next: as fetch_next. */
int flow_next(void *arg, struct flow *f, uint32_t *item,
              const struct load **load);
/* stream_sleep, counted as waiting for the experts of `layer`, or for
 * EVENT_EMBEDDING. 0 or -ECANCELED. */
int flow_wait(struct flow *f, uint32_t seen, uint32_t layer);

/* ---- watch.c: counters ---- */
int  flow_watch_open(struct flow *f);
void flow_watch_close(struct flow *f);
/* Count a kernel that has run on a layer since begin_ns. */
void flow_watch_kernel(struct flow *f, uint8_t kernel, int32_t layer,
                       int64_t begin_ns);
/* A pass begins. */
void flow_watch_pass(struct flow *f, enum k3_phase phase);
/* A part of the pass has ended: a layer's attention, which includes the choice
 * of experts, or its MLP. Count what was done since the part before. Layer
 * TENSOR_MODEL_LEVEL: outside the layers. */
void flow_watch_part(struct flow *f, int32_t layer, bool mlp);
/* The counters now. */
struct flow_counters flow_counters(const struct flow *f);
/* What the bytes that passes read and used stand for: without coding. */
uint64_t flow_decoded_bytes(const struct flow *f, const struct k3_totals *t);
/* A pass has ended: set `last`, add to the totals of its phase, and let the
 * prefetches learn from it. */
void flow_account(struct flow *f, enum k3_phase phase, uint32_t rows,
                  const struct flow_counters *before,
                  const struct flow_counters *after);

/* The flow of a session, for benches that wrap its ops. */
struct flow *k3_flow(struct k3 *k);

#endif
