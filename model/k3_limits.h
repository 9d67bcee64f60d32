/* k3_limits.h - the numbers that bound a pass. */
#ifndef MODEL_K3_LIMITS_H
#define MODEL_K3_LIMITS_H

enum {
    K3_ROWS_MAX = 512,      /* rows of a pass, as the product kernels take */
    K3_EXPERT_ROWS = 64,    /* rows of ready experts computed together */
    K3_HEAD_GROUP = 8,      /* MLA heads that share a walk over the cache */
    K3_TOP_K_MAX = 256,     /* experts a row may choose */
    K3_HOW_SHARED = 4,      /* another row of the pass asked for it */
};

#endif
