#include "io/clock.h"
#include "io/method.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_PER_DRIVE 4u
#define THREADS_MAX       16u

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t  work, news; /* for the threads, for the owner */
    uint32_t depth;
    uint32_t op_head, ops, result_head, results;
    bool     closing, woken;
    uint32_t threads;
    pthread_t thread[THREADS_MAX];
    struct io_result *result; /* [depth], a ring */
    struct io_op op[];        /* [depth], a ring */
};

static int32_t read_once(const struct io_op *op)
{
    ssize_t n = pread(op->fd, op->target, op->length_bytes,
                      (off_t)op->offset_bytes);
    return n < 0 ? -errno : (int32_t)n;
}

static void *serve(void *arg)
{
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->ops == 0 && !p->closing)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->ops == 0)
            break;
        struct io_op op = p->op[p->op_head];
        p->op_head = (p->op_head + 1) % p->depth;
        p->ops--;
        pthread_mutex_unlock(&p->lock);
        struct io_result res = { op.id, read_once(&op), clock_ns() };
        pthread_mutex_lock(&p->lock);
        p->result[(p->result_head + p->results++) % p->depth] = res;
        pthread_cond_signal(&p->news);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pread_close(void *ctx)
{
    struct pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->news);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->result);
    free(p);
}

/* The threads take no signals: those are for whoever planned to handle them. */
static int start_threads(struct pool *p, uint32_t wanted)
{
    sigset_t all, before;
    int err = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (err == 0 && p->threads < wanted) {
        err = pthread_create(&p->thread[p->threads], NULL, serve, p);
        p->threads += err == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->threads > 0 ? 0 : -err;
}

static int pread_open(void **ctx, const struct io_setup *s)
{
    struct pool *p = calloc(1, sizeof *p + s->depth * sizeof p->op[0]);
    struct io_result *result = calloc(s->depth, sizeof *result);
    if (!p || !result) {
        free(result);
        free(p);
        return -ENOMEM;
    }
    p->depth = s->depth;
    p->result = result;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->news, &attr);
    pthread_cond_init(&p->work, NULL);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&p->lock, NULL);
    uint32_t wanted = s->drives * THREADS_PER_DRIVE;
    int err = start_threads(p, wanted < THREADS_MAX ? wanted : THREADS_MAX);
    if (err < 0) {
        pread_close(p);
        return err;
    }
    s->granted->threads = p->threads;
    *ctx = p;
    return 0;
}

static void pread_push(void *ctx, const struct io_op *op)
{
    struct pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    assert(p->ops < p->depth);
    p->op[(p->op_head + p->ops++) % p->depth] = *op;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static int pread_reap(void *ctx, struct io_result *out, uint32_t max,
                      int64_t deadline_ns)
{
    struct pool *p = ctx;
    struct timespec at = io_timespec(deadline_ns);
    uint32_t n = 0;
    int err = 0;
    if (max == 0)
        return 0;
    pthread_mutex_lock(&p->lock);
    while (p->results == 0 && !p->woken && deadline_ns > 0 && err == 0) {
        if (deadline_ns == IO_NO_DEADLINE)
            err = pthread_cond_wait(&p->news, &p->lock);
        else
            err = pthread_cond_timedwait(&p->news, &p->lock, &at);
    }
    p->woken = false;
    for (; n < max && p->results > 0; n++, p->results--) {
        out[n] = p->result[p->result_head];
        p->result_head = (p->result_head + 1) % p->depth;
    }
    pthread_mutex_unlock(&p->lock);
    return (int)n;
}

static void pread_wake(void *ctx)
{
    struct pool *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->woken = true;
    pthread_cond_signal(&p->news);
    pthread_mutex_unlock(&p->lock);
}

const struct io_method method_pread = {
    .name = "pread",
    .open = pread_open,
    .close = pread_close,
    .push = pread_push,
    .reap = pread_reap,
    .wake = pread_wake,
};
