/* limits.h - the numbers that bound a pass. */
#ifndef MODEL_K3_LIMITS_H
#define MODEL_K3_LIMITS_H

enum {
    K3_ROWS_MAX = 512,      /* rows of a pass, as the product kernels take */
    K3_EXPERT_ROWS = 64,    /* rows of experts that are computed together */
    K3_HEAD_GROUP = 8,      /* MLA heads that share a walk over the cache */
    K3_TOP_K_MAX = 256,     /* experts a row may choose */
    K3_ROUTER_GRAIN = 8,    /* rows of a router that a thread takes at once */
    K3_CHUNK_BYTES = 1 << 20, /* max of one read */
};

#endif
