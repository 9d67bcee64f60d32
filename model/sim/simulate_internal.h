/* simulate_internal.h - the simulated session, and what compute takes. */
#ifndef MODEL_SIM_SIMULATE_INTERNAL_H
#define MODEL_SIM_SIMULATE_INTERNAL_H

#include "model/ckpt/layout.h"
#include "model/k3/flow.h"
#include "model/k3/rates.h"
#include "model/k3/shape.h"
#include "model/sim/passes.h"
#include "model/sim/simulate.h"
#include "sched/prefetch/prefetcher.h"
#include "sched/virtual.h"

/* What a pass of one phase takes. */
struct phase_cost {
    bool   known; /* the report had such passes */
    double rows;
    double kernel_s[K3_KERNELS];
    double item_s;  /* one expert, with all of its rows */
    double other_s; /* outside kernels and waits */
};

struct simulate_cost {
    struct phase_cost phase[K3_PHASES];
    bool coded; /* the times of products include decoding */
    struct decode_time decode; /* of the run; product 0: not known */
    /* In a pass: bytes of weights that a kernel works through, and how often it
     * runs without weights. */
    uint64_t kernel_bytes[K3_KERNELS];
    uint32_t kernel_steps[K3_KERNELS];
};

/* Nanoseconds of a part, for a pass of `rows` rows. */
enum cost_part { COST_KERNEL, COST_ITEM, COST_OTHER };
double simulate_ns(const struct simulate_cost *cost, enum cost_part part,
                   uint32_t kernel, uint32_t rows);

struct sim {
    const struct simulate_options *o;
    const struct simulate_cost    *cost;
    struct error *error;
    struct passes    *passes;
    struct layout    *layout; /* NULL with parts */
    struct weights    weights;
    struct expert_form form;
    uint32_t         *place; /* of files on drives: weights_place */
    struct config     c; /* the caller's */
    struct k3_options k3; /* as a session for this trace would have them */
    struct flow       flow;
    uint64_t          expert_frame_bytes;
    bool              perfect; /* the gate is always right */
    struct virtual_drives *drives;
    uint8_t          *space; /* addresses without memory: nobody writes there */
    uint64_t          space_bytes;
    uint32_t         *ids;   /* flow.ids */
    struct k3_row    *row;   /* [rows_max] of the pass */
    const struct trace_pass *pass;
    bool             *ended; /* [slots] the last row was of a prompt, in a
                              * pass with decode rows */
    double            owed_ns; /* compute time below 1 ns, not yet passed */
    int64_t           compute_ns, network_ns;
};

/* simulate_gate.c: what the next layer's router would say; arg is a sim. */
prefetch_gate_fn simulate_gate;
/* simulate.c */
extern const struct flow_ops simulate_ops;
/* Run all passes. */
int simulate_passes(struct sim *s, struct simulate_result *out);

#endif
