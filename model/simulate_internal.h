/* simulate_internal.h - the simulated session, and what compute takes. */
#ifndef MODEL_SIMULATE_INTERNAL_H
#define MODEL_SIMULATE_INTERNAL_H

#include "model/k3_internal.h"
#include "model/k3_shape.h"
#include "model/layout.h"
#include "model/passes.h"
#include "model/simulate.h"
#include "sched/predict.h"
#include "sched/virtual.h"

/* Of one phase; a pass, if it does not say otherwise. */
struct phase_cost {
    bool   known;
    double rows;
    double kernel_s[K3_KERNELS];
    double item_s;  /* one expert, rows and all */
    double other_s; /* outside kernels and waits */
};

struct simulate_cost {
    struct phase_cost phase[K3_PHASES];
    uint64_t role_bytes[T_COUNT]; /* of all layers */
    uint32_t kda_layers;
};

/* Nanoseconds of a part, for a pass of `rows` rows. */
enum cost_part { COST_KERNEL, COST_ITEM, COST_OTHER };
double simulate_ns(const struct simulate_cost *cost, enum cost_part part,
                   uint32_t kernel, uint32_t rows);

struct sim {
    const struct simulate_options *o;
    const struct simulate_cost    *cost;
    struct why     *why;
    struct passes  *passes;
    struct layout  *layout;
    struct k3_shape shape;
    struct k3       k; /* what cache, fetch and guesses are told of a session */
    bool            perfect; /* the gate is always right */
    struct virtual_drives *drives;
    uint8_t        *space; /* addresses without memory: nobody writes there */
    uint64_t        space_bytes;
    /* The pass at hand. */
    const struct trace_pass *pass;
    struct pass     view;    /* of it, for the guesses */
    uint32_t        tile;    /* the next of the circle */
    bool           *ended;   /* [slots] the last row was of a prompt, in a
                              * pass with decode rows */
    double          owed_ns; /* computed, but less than a nanosecond */
    int64_t         compute_ns;
};

/* simulate_gate.c: what the next layer's router would say; arg is a sim. */
predict_gate_fn simulate_gate;
/* simulate.c: run all passes. */
int simulate_passes(struct sim *s, struct simulate_result *out);

#endif
