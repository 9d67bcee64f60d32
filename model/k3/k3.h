/* k3.h - Kimi K3 as rows in, logits out, within one memory budget.
 *
 * A row is one position of one sequence. A pass takes any set of rows through
 * all layers once and reads every weight byte it needs once. Prefill, decode,
 * batch and the verification of drafts are the same call. The result of a row
 * does not depend on the other rows.
 *
 *     k3_open -> { k3_set_readahead, k3_pass, k3_logits, k3_accept, k3_reset }
 *     -> k3_quiesce, before the bytes of all reads are counted -> k3_close
 *
 * Bytes    everything large comes from one arena that k3_open fills; after it
 *          nothing allocates. Peak memory stays under options.memory_bytes.
 * Threads  one caller; k3_cancel may come from anywhere, also from a signal
 *          handler.
 * Errors   a negative errno and a sentence in `error`. After a failed pass no
 *          other may follow: a row that lost bytes has no result.
 */
#ifndef MODEL_K3_K3_H
#define MODEL_K3_K3_H

#include <stdbool.h>
#include <stdint.h>

#include "io/reader.h"
#include "model/ckpt/config.h"
#include "model/ckpt/error.h"
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

/* Where an expert was when a row requested it: enum fetch_source, or, if an
 * earlier row of the pass had requested it too, K3_SOURCE_SHARED. */
enum { K3_SOURCE_SHARED = FETCH_SOURCES, K3_SOURCES };

/* Called for every routing decision, in the order of layers and rows: arrays of
 * [top_k], best first. */
typedef void k3_routed_fn(void *arg, uint32_t layer, uint32_t row,
                          const uint32_t *ids, const float *weights,
                          const uint8_t *source);

/* Where the time of a row's pass through one MoE layer went, microseconds. */
struct k3_moe_times {
    uint32_t wait_trunk_us, attention_us; /* attention: up to the choice */
    uint32_t wait_expert_us, experts_us;  /* experts: after it */
};

/* Called before the first layer of a pass, and after a pass that did not fail;
 * times is [moe layers]. */
typedef void k3_began_fn(void *arg, const struct k3_row *rows, uint32_t n);
typedef void k3_passed_fn(void *arg, const struct k3_moe_times *times);
/* Called by k3_accept. */
typedef void k3_accepted_fn(void *arg, uint32_t sequence, uint32_t n);

/* Called by the pass at every layer. */
typedef void k3_progress_fn(void *arg, uint32_t layer, uint32_t layers);

/* Called by k3_open as resident weights come: payload bytes of all that are
 * there; the plan's resident_payload_bytes will be. */
typedef void k3_loaded_fn(void *arg, uint64_t bytes);

/* Called by k3_open when config, tiles and plan are known, before any read.
 * An error ends k3_open. */
typedef int k3_planned_fn(void *arg, const struct k3 *k, struct error *error);

struct ckpt;
struct event_ring;
struct k3_guest;
struct owned;
struct peers;
struct parts;
struct sidecars;
struct weights;

/* When checksums of coded weights are compared: at the first use in a session,
 * at every one, or never. Their structure is checked in any case. */
enum k3_check { K3_CHECK_FIRST, K3_CHECK_ALWAYS, K3_CHECK_OFF };

/* How several drives share the model: each file is on one of them, every tensor
 * is on all, in parts, or each has a copy of every file. */
enum k3_layout { K3_SHARDS, K3_PARTS, K3_MIRRORS };

/* How resident tiles of coded weights are kept: coded, or decoded when they are
 * read, as far as the memory has room once all of the trunk is resident. AUTO:
 * decoded where a short timing at open says that it is much faster. */
enum k3_resident { K3_RESIDENT_AUTO, K3_RESIDENT_CODED, K3_RESIDENT_DECODED };
struct decode_time;

/* Between the processes, a direction of each one's link. */
struct k3_network {
    double  bytes_per_s;
    int64_t latency_ns;
};

struct k3_options {
    uint64_t memory_bytes; /* the budget */
    uint32_t threads;   /* 0: one a physical core we may use */
    uint32_t context;   /* max positions of a sequence */
    uint32_t rows;      /* max a pass; the plan may lower it */
    uint32_t logits;    /* max rows with logits a pass, without draft rows; 0:
                         * as many as rows */
    uint32_t sequences; /* max in a pass; their states stay in memory */
    uint32_t drafts;    /* max draft rows a pass; the plan may lower it. A pass
                         * gets at least drafts + 1 rows */
    const char *io;       /* "auto", "uring", "pread" */
    const char *policy;   /* NULL: the default */
    const char *prefetch; /* NULL: "auto" (shape.c, plan_prefetches) */
    const char *pin_file; /* the trace of policy "static-pin" */
    const char *packed;   /* as sidecars.h has it; NULL: "off" */
    enum k3_check check_reads;
    /* What of the coded weights is left unused, bits of sidecar.h: k3_shape_of
     * adds to it where they lie on drives so slow that the shards are read
     * faster; but not with "require". */
    uint32_t packed_skip;
    /* Only for plans: measured bytes a second of each drive, or NULL. */
    const double *drive_rate;
    enum k3_resident resident;
    /* Only for plans: what decoding costs, or NULL: nothing. k3_open measures
     * it where `resident` is AUTO. */
    const struct decode_time *decode;
    /* Only for plans: coded weights, or NULL. k3_open finds them itself. */
    const struct sidecars *sidecars;
    enum k3_layout layout; /* only for plans: how the drives share the model */
    /* Rows of weights that this process computes, and how it gets the others;
     * NULL: all are its own. A plan needs only `owned`. */
    const struct owned *owned;
    const struct peers *peers;
    const struct k3_network *network; /* only for plans, or NULL */
    /* Parts (model/parts) instead of shards: their folders; or, only for plans,
     * what parts_open gave. */
    const char *const *part_dir; /* [part_dirs] */
    uint32_t part_dirs;          /* 0: shards */
    const struct parts *parts;
    /* Folders with more copies of shards (ckpt/mirrors.h), or NULL. */
    const char *const *mirror;
    uint32_t    mirrors;
    const struct paced_drive *paced; /* simulated speeds of drives, or NULL */
    uint32_t    paced_count;
    const struct fault_plan *fault; /* tests, or NULL */
    float    mla_latent_eps;   /* 0: the config's */
    struct event_ring *event_ring; /* the caller's, or NULL: no timeline */
    uint8_t  isa;              /* tests: 1 + the highest enum isa; 0: best */
    uint64_t ring_bytes;       /* benches: min size of the ring */
    uint64_t in_flight_bytes;  /* of a drive; 0: measure (io/probe.c) */
    bool     realtime; /* ask for SCHED_FIFO for the reader's thread */
    uint64_t heap_bytes;       /* the caller's heap, part of the budget */
    const struct k3_guest *guest; /* guest.h; the caller's, or NULL */
    k3_began_fn    *began;     /* these four get routed_arg; or NULL */
    k3_routed_fn   *routed;
    k3_passed_fn   *passed;
    k3_accepted_fn *accepted;
    void           *routed_arg;
    k3_planned_fn  *planned;   /* or NULL */
    void           *planned_arg;
    k3_progress_fn *progress; /* these two get progress_arg; or NULL */
    k3_loaded_fn   *loaded;
    void         *progress_arg;
};

int k3_open(struct k3 **out, const char *dir, const struct k3_options *o,
            struct error *error);
void k3_close(struct k3 *k);

/* Fill *plan for a folder that may hold nothing but config.json; nothing is
 * allocated and this machine is not asked. -ENOBUFS below the floor. */
int k3_plan(struct plan *plan, const char *dir, const struct k3_options *o,
            struct error *error);

const struct config *k3_config(const struct k3 *k);
const struct weights *k3_weights(const struct k3 *k);
const struct plan   *k3_plan_of(const struct k3 *k);
/* As it was opened with, defaults filled in. */
const struct k3_options *k3_options_of(const struct k3 *k);
uint32_t k3_rows(const struct k3 *k); /* max rows a pass, as planned */
uint32_t k3_drafts(const struct k3 *k); /* max draft rows, the same */
uint32_t k3_threads(const struct k3 *k);

/* Let the trunk be read ahead for `passes` more passes. Without it, reads for a
 * pass begin with the pass. */
void k3_set_readahead(struct k3 *k, uint64_t passes);
/* Run n >= 1 rows. The rows of one sequence stand together and follow what its
 * state holds: positions ascend by one from the number of rows that have gone
 * into it, drafts last. These are asserted; -EINVAL for an id or a position out
 * of range, -ECANCELED, or the errno of a read. */
int k3_pass(struct k3 *k, const struct k3_row *rows, uint32_t n,
            struct error *error);
/* The logits of the i-th row of the last pass among those with `logits`:
 * [vocab], valid until the next pass. */
const float *k3_logits(const struct k3 *k, uint32_t i);
/* Accept the first n of the sequence's draft rows in the last pass: they update
 * its state, the others do not. Call it after each pass with drafts, before the
 * next pass. */
void k3_accept(struct k3 *k, uint32_t sequence, uint32_t n);
/* Make a sequence empty. */
void k3_reset(struct k3 *k, uint32_t sequence);
/* Make a running pass return -ECANCELED at its next tile. */
void k3_cancel(struct k3 *k);

/* After the last pass: stop reading ahead, wait for the reads in flight, and
 * count what no pass has used (tiles read ahead, prefetches) as wasted_bytes of
 * the last pass's phase. */
void k3_quiesce(struct k3 *k);

/* Totals over the passes of a phase. A pass with a decode row is a decode pass.
 * Bytes are payload and count in the pass that uses them; those of a prefetched
 * expert that was not chosen, in the pass that did not choose it. */
struct k3_totals {
    uint64_t passes, rows;
    int64_t  ns, wait_trunk_ns, wait_expert_ns;
    int64_t  wait_embed_ns; /* of wait_expert_ns: for rows of the embedding */
    uint64_t trunk_bytes, embed_bytes, demand_bytes, prefetch_bytes;
    uint64_t wasted_bytes; /* read and not used */
    uint64_t expert_items; /* experts computed: distinct a pass and layer */
    int64_t  idle_ns; /* summed over drives: nothing was in flight */
    int64_t  all_idle_ns; /* nothing was in flight on any drive */
};

/* Bytes that the phase read: the sum of its five kinds. */
uint64_t k3_read_bytes(const struct k3_totals *t);

/* The last pass alone. */
const struct k3_totals *k3_last(const struct k3 *k);

/* Resident tiles of coded weights, by how they are kept. */
struct k3_kept {
    uint32_t coded, decoded;
};

struct k3_facts {
    uint32_t coded_files;    /* sidecars that are open */
    uint32_t packed_skip;    /* what of them is not used, as in the options */
    uint32_t parts;          /* that are read instead of shards; 0: shards */
    /* The trunk as it is read, and decoded; resident tiles included. */
    uint64_t trunk_bytes, trunk_decoded_bytes;
    uint64_t expert_bytes, expert_decoded_bytes; /* an expert, on average */
    /* What the bytes that a phase read and used stand for. */
    uint64_t decoded_bytes[K3_PHASES];
    uint64_t mended;         /* coded blocks and objects read a second time */
    struct k3_kept kept_products, kept_rows; /* rows: decoded before use */
    const struct decode_time *decode; /* as measured at open, or NULL */
    uint32_t coded_notes;
    const char *coded_note[4]; /* sidecars that are not used, and why */
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
/* From the caller's thread. In a callback of a pass, totals are those of the
 * passes before it. */
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
    uint64_t requests, loads, prefetch_hits, late;
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
/* "q_proj", "recurrence"; the numbers of event_ring events and of k3_kernels.
 */
void k3_kernel_name(char out[K3_NAME_BYTES], uint32_t kernel);
/* What a tile of the trunk holds, like "q_proj" or "vectors". Returns its
 * layer; -1: none. */
int32_t k3_tile_name(char out[K3_NAME_BYTES], const struct tiles *t,
                     uint32_t tile);

#endif
