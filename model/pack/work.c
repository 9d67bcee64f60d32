#include "model/pack/work.h"

#include <assert.h>
#include <errno.h>
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

void turns_open(struct turns *t)
{
    *t = (struct turns){ .next = 0 };
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->moved, NULL);
}

void turns_close(struct turns *t)
{
    pthread_cond_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
}

bool turns_begin(struct turns *t, uint32_t thing)
{
    pthread_mutex_lock(&t->lock);
    while (!t->failed && t->next != thing)
        pthread_cond_wait(&t->moved, &t->lock);
    if (!t->failed)
        return true;
    pthread_mutex_unlock(&t->lock);
    return false;
}

void turns_end(struct turns *t)
{
    t->next++;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

int turns_fail(struct turns *t, int code, const char *source,
               struct error *why)
{
    pthread_mutex_lock(&t->lock);
    t->failed = true;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    if (code == -EIO && !why->code)
        error_set(why, code, "%s: what was coded decodes to other bytes: the "
                  "memory or the processor of this machine is at fault",
                  source);
    return code;
}
