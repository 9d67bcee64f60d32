#include "bin/serve/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void queue_init(struct queue *q)
{
    *q = (struct queue){ 0 };
    q->end = &q->first;
}

static struct client *client_of(struct queue *q, uint64_t owner)
{
    struct client *c = q->clients;
    while (c && c->owner != owner)
        c = c->after;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->owner = owner;
    c->after = q->clients;
    q->clients = c;
    return c;
}

static void forget(struct queue *q, struct client *c)
{
    struct client **link = &q->clients;
    if (c->queued || c->running)
        return;
    while (*link != c)
        link = &(*link)->after;
    *link = c->after;
    free(c);
}

int queue_add(struct queue *q, struct work *w)
{
    struct client *c = client_of(q, w->owner);
    if (!c)
        return -ENOMEM;
    c->queued++;
    w->client = c;
    w->after = NULL;
    *q->end = w;
    q->end = &w->after;
    q->count++;
    return 0;
}

static void unlink_work(struct queue *q, struct work *w)
{
    struct work **link = &q->first;
    while (*link != w)
        link = &(*link)->after;
    *link = w->after;
    if (!w->after)
        q->end = link;
    w->after = NULL;
    w->client->queued--;
    q->count--;
}

static bool before(const struct work *a, const struct work *b)
{
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->client->running != b->client->running)
        return a->client->running < b->client->running;
    return a->client->given < b->client->given;
}

struct work *queue_first(const struct queue *q)
{
    struct work *best = q->first;
    for (struct work *w = best; w; w = w->after)
        if (before(w, best))
            best = w;
    return best;
}

struct work *queue_take(struct queue *q)
{
    struct work *best = queue_first(q);
    if (!best)
        return NULL;
    unlink_work(q, best);
    best->client->running++;
    best->client->given = ++q->places;
    return best;
}

void queue_return(struct queue *q, struct work *w, bool first)
{
    struct work **link = first ? &q->first : q->end;
    assert(w->client && w->client->running);
    w->client->running--;
    w->client->queued++;
    w->after = *link;
    *link = w;
    if (!w->after)
        q->end = &w->after;
    q->count++;
}

void queue_done(struct queue *q, struct work *w)
{
    assert(w->client && w->client->running);
    w->client->running--;
    forget(q, w->client);
    w->client = NULL;
}

void queue_remove(struct queue *q, struct work *w)
{
    unlink_work(q, w);
    forget(q, w->client);
    w->client = NULL;
}
