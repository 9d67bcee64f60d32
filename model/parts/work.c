/* work.c - threads that take things in order. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/parts/parts_internal.h"

enum { PAGE = 4096 };

struct crew {
    const struct work *w;
    pthread_mutex_t lock;
    uint32_t taken;
    int      code;
    struct error *error;
};

static void failed(struct crew *c, int code, const struct error *why)
{
    pthread_mutex_lock(&c->lock);
    if (!c->code) {
        c->code = code;
        error_set(c->error, code, "%s", why->code ? why->text
                                                  : strerror(-code));
    }
    pthread_mutex_unlock(&c->lock);
}

static bool take(struct crew *c, uint32_t *thing)
{
    pthread_mutex_lock(&c->lock);
    bool more = !c->code && c->taken < c->w->things;
    if (more)
        *thing = c->taken++;
    pthread_mutex_unlock(&c->lock);
    return more;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    struct error why = { 0 };
    void *bench = NULL;
    uint32_t thing;
    int code = c->w->open(c->w->arg, &bench);
    if (code)
        failed(c, code, &why);
    while (!code && take(c, &thing)) {
        code = c->w->one(c->w->arg, bench, thing, &why);
        if (code)
            failed(c, code, &why);
    }
    c->w->close(bench);
    return NULL;
}

int work_run(const struct work *w, struct error *error)
{
    struct crew c = { .w = w, .error = error };
    pthread_t thread[SPREAD_JOBS_MAX];
    uint32_t n = 0;
    pthread_mutex_init(&c.lock, NULL);
    for (; n + 1 < w->jobs && n + 1 < w->things; n++)
        if (pthread_create(&thread[n], NULL, work, &c))
            break; /* fewer do it too */
    work(&c);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c.lock);
    return c.code;
}

uint8_t *work_pages(uint64_t bytes)
{
    return aligned_alloc(PAGE, (bytes / PAGE + 3) * PAGE);
}

int work_write(int fd, const void *from, uint64_t bytes, uint64_t at)
{
    const uint8_t *next = from;
    while (bytes) {
        ssize_t n = pwrite(fd, next, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        next += n;
        bytes -= (size_t)n;
        at += (size_t)n;
    }
    return 0;
}
