#include "model/pack/work.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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
        if (why->code)
            error_set(c->error, code, "%s", why->text);
        else
            error_set(c->error, code, "%s: %s", c->w->name, strerror(-code));
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
    pthread_t thread[WORK_JOBS_MAX];
    uint32_t n = 0;
    assert(w->jobs && w->jobs <= WORK_JOBS_MAX);
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
