/* simulate_meta.h - what a recorded trace says of the model and the session
 * that made it: enough to make the same plan again. */
#ifndef MODEL_SIM_SIMULATE_META_H
#define MODEL_SIM_SIMULATE_META_H

#include "model/k3/k3.h"

struct simulate_meta {
    struct config     config;
    struct k3_options k3; /* memory_bytes 0: not known; no drives */
};

/* `model`: a folder whose config counts instead, or NULL. -EINVAL: there is no
 * config. To be given back also after a failure. */
int simulate_meta_open(struct simulate_meta *m, const char *trace,
                       const char *model, struct error *error);
void simulate_meta_close(struct simulate_meta *m);

#endif
