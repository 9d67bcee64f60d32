/* work.h - threads that take things in order.
 *
 *     work_run
 *
 * Threads  `jobs`, or fewer where no more can be had; `one` is called from all
 *          of them, `open` and `close` once from each.
 * Errors   of `open` and `one`: the first is returned, with its sentence or
 *          else with `name` and the errno's; nothing is taken after it.
 */
#ifndef MODEL_PACK_WORK_H
#define MODEL_PACK_WORK_H

#include <stdint.h>

#include "model/ckpt/error.h"

enum { WORK_JOBS_MAX = 1024 };

struct work {
    uint32_t jobs, things; /* jobs: 1..WORK_JOBS_MAX */
    const char *name;      /* what the things are of, for a sentence */
    void    *arg;
    int    (*open)(void *arg, void **bench); /* what a thread works with */
    int    (*one)(void *arg, void *bench, uint32_t thing, struct error *why);
    void   (*close)(void *bench); /* also of a failed open; NULL bench too */
};

/* Call `one` for each number below `things`. */
int work_run(const struct work *w, struct error *error);

#endif
