#include "bin/serve/follow.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/store/store.h"
#include "io/clock.h"

enum { ROOM_BYTES = 16384, PROGRESS_NS = 1000000000 };

struct follow *follow_open(struct room *r, struct work *w, enum api api,
                       bool stream)
{
    struct follow *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->room = r;
    f->work = w;
    f->wrote_ns = clock_ns();
    render_begin(&f->render, api, stream);
    w->refs++;
    w->followers++;
    w->alone_ns = 0;
    f->after = r->follows;
    r->follows = f;
    return f;
}

static bool has_news(const struct follow *f)
{
    const struct work *w = f->work;
    if (work_over(w))
        return true;
    return f->render.stream && f->render.event < w->events;
}

static bool is_due(const struct follow *f, int64_t now_ns)
{
    return now_ns - f->wrote_ns >=
           (int64_t)f->room->o->tick_ms * 1000000;
}

/* Where the engine is, for clients that asked for it. */
static void put_progress(struct follow *f, int64_t now_ns)
{
    const struct room *r = f->room;
    const struct work *w = f->work;
    f->progress_ns = now_ns;
    buffer_format(&f->out,
                  "event: progress\ndata: {\"state\":\"%s\",\"layer\":%" PRIu32
                  ",\"layers\":%" PRIu32 ",\"read_bytes_per_second\":%.0f,"
                  "\"seconds_per_token\":%.6g,\"new_tokens\":%" PRIu32
                  ",\"before_in_queue\":%" PRIu64
                  ",\"seconds_left\":%.3g}\n\n",
                  w->state == WORK_QUEUED ? "queued" : "running",
                  atomic_load(&r->layer), atomic_load(&r->layers),
                  r->pass_rate, r->pass_seconds, w->new_ids,
                  w->state == WORK_QUEUED ? w->queue_place : 0,
                  room_seconds_left(r, w));
}

static void fill(struct follow *f, int64_t now_ns)
{
    struct render *r = &f->render;
    bool asked = r->progress && r->stream && !work_over(f->work);
    f->out.count = 0;
    f->given = 0;
    render_more(r, f->work, &f->room->rules, &f->out, ROOM_BYTES);
    if (asked && now_ns - f->progress_ns >= PROGRESS_NS)
        put_progress(f, now_ns);
    /* The first byte is there at once: the client knows that it was heard. */
    if (!f->out.count && !r->over && (is_due(f, now_ns) || !f->sent))
        render_tick(r, &f->out);
}

static void leave_list(struct follow *f)
{
    struct follow **link = &f->room->follows;
    while (*link != f)
        link = &(*link)->after;
    *link = f->after;
}

/* A response is in --data before its client hears of its end, and may go on
 * from it. The lock is let go meanwhile. */
static void keep_response(struct follow *f)
{
    struct room *r = f->room;
    struct work *w = f->work;
    struct error error = { 0 };
    struct buffer object = { 0 };
    char id[STORE_ID];
    render_response(w, &object);
    snprintf(id, sizeof id, "resp_%s", w->id);
    pthread_mutex_unlock(&r->lock);
    int err = store_response_keep(r->store, id, w->owner, &object, &w->turns,
                                  &error);
    if (err)
        fprintf(stderr, "sluice: %s\n", error.text);
    buffer_free(&object);
    pthread_mutex_lock(&r->lock);
    w->stored = true;
    w->store &= !err;
}

ssize_t follow_read(struct follow *f, char *out, size_t room)
{
    int64_t now = clock_ns();
    ssize_t result = 0;
    pthread_mutex_lock(&f->room->lock);
    if (f->work->state == WORK_DONE && f->work->store && !f->work->stored)
        keep_response(f);
    if (f->given == f->out.count)
        fill(f, now);
    size_t n = f->out.count - f->given;
    n = n < room ? n : room;
    if (f->out.failed) {
        result = -2;
    } else if (n) {
        memcpy(out, f->out.bytes + f->given, n);
        f->given += n;
        f->sent += n;
        f->wrote_ns = now;
        result = (ssize_t)n;
    } else if (f->render.over) {
        bool good = f->work->state == WORK_DONE || f->render.stream;
        f->work->delivered |= f->work->state == WORK_DONE;
        result = good ? -1 : -2;
    } else {
        f->suspended = true;
        MHD_suspend_connection(f->connection);
    }
    pthread_mutex_unlock(&f->room->lock);
    return result;
}

void follow_close(struct follow *f)
{
    struct room *r = f->room;
    pthread_mutex_lock(&r->lock);
    leave_list(f);
    room_leave(r, f->work);
    pthread_mutex_unlock(&r->lock);
    render_free(&f->render);
    buffer_free(&f->out);
    free(f);
}

static void resume(struct follow *f)
{
    f->suspended = false;
    MHD_resume_connection(f->connection);
}

void follows_wake(struct room *r, const struct work *w)
{
    for (struct follow *f = r->follows; f; f = f->after)
        if (f->suspended && (!w || f->work == w) && has_news(f))
            resume(f);
}

void follows_tick(struct room *r, int64_t now_ns)
{
    for (struct follow *f = r->follows; f; f = f->after)
        if (f->suspended && is_due(f, now_ns))
            resume(f);
}
