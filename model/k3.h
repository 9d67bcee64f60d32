/* k3.h - Kimi K3 as rows in, logits out, within one memory budget.
 *
 * A row is one position of one sequence. A pass takes any set of rows through
 * all layers once and reads every weight byte it needs once; prefill, decode,
 * batch and draft verification are the same call. The result of a row does not
 * depend on its company.
 *
 *     k3_open -> { k3_allow, k3_pass, k3_logits, k3_accept, k3_reset }
 *     -> k3_finish, for whoever wants the bytes of all reads -> k3_close
 *
 * Bytes    everything large comes from one arena that k3_open fills; after it
 *          nothing allocates. Peak memory stays under options.memory_bytes.
 * Threads  one caller; cancel may be set from anywhere, also a signal handler.
 * Errors   a negative errno and a sentence in `why`. After a failed pass there
 *          is no further one: a row that lost bytes has no result.
 */
#ifndef MODEL_K3_H
#define MODEL_K3_H

#include <stdbool.h>
#include <stdint.h>

#include "io/reader.h"
#include "model/config.h"
#include "model/why.h"
#include "sched/fetch.h"
#include "sched/plan.h"

struct k3;

enum k3_phase { K3_PREFILL, K3_DECODE, K3_PHASES };

struct k3_row {
    uint32_t sequence; /* 0 .. sequences-1 */
    uint32_t position;
    uint32_t id;
    bool     logits; /* wants a row of logits */
    bool     draft;  /* state changes wait for k3_accept */
    uint8_t  phase;  /* enum k3_phase */
};

/* How far reads run ahead of compute. The engine knows one way; the others are
 * what other engines do, for bench/overlap. */
enum k3_look_ahead {
    K3_LOOK_RING,  /* as far as the ring goes, round and round */
    K3_LOOK_NONE,  /* read, then compute */
    K3_LOOK_LAYER, /* the whole next layer; experts of a layer are joined */
};

/* Told of every routing decision, in the order of layers and rows. */
typedef void k3_routed_fn(void *arg, uint32_t layer, uint32_t row,
                          const uint32_t *ids, const float *weights,
                          const uint8_t *how);

/* Where the time of a row's pass through one MoE layer went, microseconds. */
struct k3_moe_times {
    uint32_t wait_trunk_us, attention_us; /* attention: up to the choice */
    uint32_t wait_expert_us, experts_us;  /* experts: after it */
};

/* Told of a pass before its first layer, and, if it was whole, when it is
 * over; times is [moe layers]. */
typedef void k3_began_fn(void *arg, const struct k3_row *rows, uint32_t n);
typedef void k3_passed_fn(void *arg, const struct k3_moe_times *times);
/* Told by k3_accept. */
typedef void k3_accepted_fn(void *arg, uint32_t sequence, uint32_t n);

/* Called by the pass at every layer. */
typedef void k3_progress_fn(void *arg, uint32_t layer, uint32_t layers);

/* Called by k3_open when config, tiles and plan are known, before any read.
 * An error ends k3_open. */
typedef int k3_planned_fn(void *arg, const struct k3 *k, struct why *why);

struct journal;

struct k3_options {
    uint64_t memory_bytes;
    uint32_t threads;   /* 0: the physical cores we may use */
    uint32_t context;   /* positions a sequence */
    uint32_t rows;      /* most rows a pass; the plan may lower it */
    uint32_t logits;    /* most rows of logits a pass, beside those of drafts;
                         * 0: as many as rows */
    uint32_t sequences;
    uint32_t drafts;    /* most draft rows a pass; the plan may lower it, and
                         * sees to it that there are so many rows and one */
    const char *io;       /* "auto", "uring", "pread" */
    const char *policy;   /* NULL: the default */
    const char *prefetch; /* NULL: "auto": gate where it pays */
    const char *pin_file; /* of static-pin */
    const struct paced_drive *paced;
    uint32_t    paced_count;
    const struct fault_plan *fault;
    float    mla_latent_eps;   /* 0: the config's */
    struct journal *journal;   /* the caller's, or NULL: no timeline */
    uint32_t kernel_repeat;    /* benches: every product so many times */
    uint8_t  look_ahead;       /* benches: enum k3_look_ahead */
    uint8_t  isa;              /* tests: 1 + the most of enum isa; 0: best */
    uint64_t ring_bytes;       /* benches: at least so much ring */
    uint64_t in_flight_bytes;  /* 0: probe */
    uint64_t heap_bytes;       /* what the caller keeps beside us */
    k3_began_fn    *began;     /* these four, or NULL, with routed_arg */
    k3_routed_fn   *routed;
    k3_passed_fn   *passed;
    k3_accepted_fn *accepted;
    void           *routed_arg;
    k3_planned_fn  *planned;   /* or NULL */
    void           *planned_arg;
    k3_progress_fn *progress; /* or NULL */
    void         *progress_arg;
};

int  k3_open(struct k3 **out, const char *dir, const struct k3_options *o,
             struct why *why);
void k3_close(struct k3 *k);

/* Fill *plan for a folder that may hold nothing but config.json; nothing is
 * allocated and this machine is not asked. -ENOBUFS below the floor. */
int k3_plan(struct plan *plan, const char *dir, const struct k3_options *o,
            struct why *why);

const struct config *k3_config(const struct k3 *k);
const struct plan   *k3_plan_of(const struct k3 *k);
/* As it was opened with, defaults filled in. */
const struct k3_options *k3_options_of(const struct k3 *k);
uint32_t k3_rows(const struct k3 *k); /* most rows a pass, as planned */
uint32_t k3_drafts(const struct k3 *k); /* most draft rows, the same */
uint32_t k3_threads(const struct k3 *k);

/* Let the trunk be read ahead for `passes` passes more than have been run. */
void k3_allow(struct k3 *k, uint64_t passes);
/* Rows of one sequence are consecutive, in order, drafts last. n >= 1. */
int  k3_pass(struct k3 *k, const struct k3_row *rows, uint32_t n,
             struct why *why);
/* The logits of the i-th row of the last pass that wanted some: [vocab]. */
const float *k3_logits(const struct k3 *k, uint32_t i);
/* Of the sequence's draft rows in the last pass the first n come true; the
 * others never were. Must follow a pass with drafts before the next pass. */
void k3_accept(struct k3 *k, uint32_t sequence, uint32_t n);
/* An empty sequence again. */
void k3_reset(struct k3 *k, uint32_t sequence);
/* Make a running pass return -ECANCELED at its next tile. */
void k3_cancel(struct k3 *k);

/* No pass follows: look-ahead ends, what is on its way lands, and what was read
 * for no pass (tiles ahead of an end id, guesses that came too late to be
 * judged) is wasted in the last pass's phase. */
void k3_finish(struct k3 *k);

/* What the passes of a phase did. A pass with a decode row is a decode pass.
 * Bytes are payload and count in the pass that consumes them; those of experts
 * that were guessed and then not chosen, in the pass that finds that out. */
struct k3_totals {
    uint64_t passes, rows;
    int64_t  ns, wait_trunk_ns, wait_expert_ns;
    uint64_t trunk_bytes, embed_bytes, demand_bytes, guess_bytes;
    uint64_t wasted_bytes; /* read and not used */
    uint64_t expert_items; /* experts computed: distinct a pass and layer */
    int64_t  idle_ns; /* summed over drives: nothing was in flight */
};

/* The sum of its five kinds of bytes: all that the phase read. */
uint64_t k3_read_bytes(const struct k3_totals *t);

/* The last pass alone. */
const struct k3_totals *k3_last(const struct k3 *k);

struct k3_facts {
    struct k3_totals    totals[K3_PHASES];
    struct fetch_counts experts;
    struct reader_facts reader;
    uint64_t resident_read_bytes; /* payload read at open */
    double   huge_page_share;
    const char *arena_note;
    uint32_t nodes;  /* NUMA nodes the memory lies on */
    uint32_t threads;
    uint32_t drives;
    const char *isa;
    const char *policy, *prefetch;
};
/* From the caller's thread. Inside a pass, as progress is, totals are those of
 * the passes before it. */
void k3_facts(struct k3 *k, struct k3_facts *out);
struct stream  *k3_stream(struct k3 *k);
const struct tiles *k3_tiles(const struct k3 *k);
uint64_t k3_in_flight_budget(const struct k3 *k, uint32_t drive);

/* Where a layer's time and bytes went, over the passes of a phase. */
struct k3_layer_totals {
    int64_t  wait_trunk_ns, wait_expert_ns;
    int64_t  attention_ns; /* up to the choice of experts, waits left out */
    int64_t  mlp_ns;       /* the rest of the layer, waits left out */
    uint64_t trunk_bytes, expert_bytes; /* read for it, payload */
    uint64_t requests, loads, guess_hits, late;
};
/* [layers + 1]; the last is what is outside the layers: embedding and head. */
const struct k3_layer_totals *k3_layers(const struct k3 *k,
                                        enum k3_phase phase);

/* Compute by kernel, over the passes of a phase: [k3_kernels_count()]. */
struct k3_kernel_totals {
    int64_t  ns;
    uint64_t calls;
};
uint32_t k3_kernels_count(void);
const struct k3_kernel_totals *k3_kernels(const struct k3 *k,
                                          enum k3_phase phase);

enum { K3_NAME_BYTES = 64 };
/* "q_proj", "recurrence"; the numbers of journal events and of k3_kernels. */
void k3_kernel_name(char out[K3_NAME_BYTES], uint32_t kernel);
/* What a tile of the trunk holds, "q_proj", "vectors", and of which layer; -1:
 * of none. */
int32_t k3_tile_name(char out[K3_NAME_BYTES], const struct tiles *t,
                     uint32_t tile);

#endif
