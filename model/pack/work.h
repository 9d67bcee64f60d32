/* work.h - threads that take things in order, and may hand them on in order.
 *
 *     work_run -> { one: turns_begin -> turns_end, or turns_fail }
 *
 * Threads  `jobs`, or fewer where no more can be had; `one` is called from all
 *          of them, `open` and `close` once from each.
 * Errors   of `open` and `one`: the first is returned, with its sentence or
 *          else with `name` and the errno's; nothing is taken after it.
 */
#ifndef MODEL_PACK_WORK_H
#define MODEL_PACK_WORK_H

#include <pthread.h>
#include <stdbool.h>
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

/* Things that were made in any order have their turns in order. */
struct turns {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    uint32_t next; /* whose turn it is */
    bool     failed;
};
void turns_open(struct turns *t);
void turns_close(struct turns *t);
/* Wait for the turn of a thing. True: turns_end has to follow, until when no
 * other has its turn. False: one has failed. */
bool turns_begin(struct turns *t, uint32_t thing);
void turns_end(struct turns *t);
/* A thing failed, and there are no more turns: -> code. Without a sentence,
 * -EIO is what object.h means by it, of a thing from `source`. */
int  turns_fail(struct turns *t, int code, const char *source,
                struct error *why);

#endif
