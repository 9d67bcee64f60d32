#include "bin/serve/room.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bin/serve/follow.h"
#include "io/clock.h"

int room_open(struct room *r, const struct serve_options *o,
              struct error *error)
{
    struct sluice_error e = { 0 };
    memset(r, 0, sizeof *r);
    r->o = o;
    r->begin_ns = clock_ns();
    pthread_mutex_init(&r->lock, NULL);
    queue_init(&r->queue);
    if (getrandom(&r->boot, sizeof r->boot, 0) != sizeof r->boot)
        return error_set(error, -errno, "no random numbers: %s",
                         strerror(errno));
    if (sluice_text_open(&r->text, o->model, &e))
        return knobs_error_back(error, &e);
    r->rules = (struct batch_rules){
        .model = o->model, .name = o->name[0], .served = o->name,
        .tok = knobs_tok(r->text), .context = (uint32_t)o->s.context,
        .max = (uint32_t)o->max, .samplers = &o->s.samplers };
    return 0;
}

void room_close(struct room *r)
{
    while (r->kept) {
        struct work *w = r->kept;
        r->kept = w->kept_after;
        work_release(w);
    }
    sluice_text_close(r->text);
    pthread_mutex_destroy(&r->lock);
}

/* ---- how long things take ---- */

static double gap_seconds(const struct room *r)
{
    uint64_t n = r->ended < ROOM_RATES ? r->ended : ROOM_RATES;
    if (n < 2)
        return 0;
    int64_t last = r->ended_ns[(r->ended - 1) % ROOM_RATES];
    int64_t first = r->ended_ns[(r->ended - n) % ROOM_RATES];
    return (double)(last - first) / 1e9 / (double)(n - 1);
}

double room_seconds_left(const struct room *r, const struct work *w)
{
    double ids = (double)(w->max_ids - w->new_ids) / w->choices;
    if (w->state == WORK_QUEUED) {
        double gap = gap_seconds(r);
        return r->pass_seconds * ids + gap * (double)w->queue_place;
    }
    return r->pass_seconds * ids;
}

double room_wait_seconds(const struct room *r)
{
    double gap = gap_seconds(r), least = INFINITY;
    for (const struct work *w = r->running; w; w = w->after) {
        double left = room_seconds_left(r, w);
        least = left < least ? left : least;
    }
    if (gap > 0)
        return gap;
    return isfinite(least) ? least : r->pass_seconds;
}

/* ---- requests ---- */

/* Requests that will have a place as soon as the pass that runs is over: they
 * do not wait. */
static uint64_t free_places(const struct room *r)
{
    uint64_t running = 0;
    for (const struct work *w = r->running; w; w = w->after)
        running += w->left;
    return running < r->sequences ? r->sequences - running : 0;
}

int room_ask(struct room *r, struct work *w, struct api_error *e)
{
    if (r->state == ROOM_LOADING)
        return api_fail(e, 503, "loading", "%s",
                        *r->failure ? r->failure : "the model is being opened");
    if (r->state != ROOM_READY)
        return api_fail(e, 503, "shutting_down", "the server is going down");
    if (r->queue.count >= r->o->queue_max + free_places(r)) {
        double wait = ceil(room_wait_seconds(r));
        r->counts.refused_queue++;
        e->retry_after = wait < 1 ? 1 : wait > 3600 ? 3600 : (unsigned)wait;
        return api_fail(e, 429, "rate_limit_exceeded",
                        "%" PRIu32 " requests wait already, the most that "
                        "are let in: try again in %u s",
                        r->queue.count, e->retry_after);
    }
    w->number = ++r->numbers;
    if (!*w->id) /* else it has that of an earlier server */
        snprintf(w->id, sizeof w->id, "%016" PRIx64 "%08" PRIx64, r->boot,
             w->number);
    w->queue_place = r->queue.count;
    if (queue_add(&r->queue, w))
        return api_fail(e, 503, "no_memory", "no memory for a request");
    r->counts.asked[0]++;
    w->refs++; /* the queue's, then the engine's */
    sluice_wake(r->s);
    return 0;
}

void room_cancel(struct room *r, struct work *w, const char *why)
{
    if (work_over(w) || w->cancel)
        return;
    w->cancel = true;
    api_fail(&w->error, 499, "cancelled", "%s", why);
    if (w->state == WORK_QUEUED) {
        queue_remove(&r->queue, w);
        work_drop_jobs(w, WORK_CANCELLED);
        room_ended(r, w);
        return;
    }
    for (uint32_t i = 0; i < w->choices; i++)
        sluice_cancel(r->s, w->engine_id[i]);
}

static void drop_kept(struct room *r, struct work *w)
{
    struct work **link = &r->kept;
    while (*link != w)
        link = &(*link)->kept_after;
    *link = w->kept_after;
    w->kept = false;
    r->kept_count--;
    work_release(w);
}

void room_ended(struct room *r, struct work *w)
{
    if (w->state == WORK_DONE) {
        r->counts.answered[0]++;
        r->ended_ns[r->ended++ % ROOM_RATES] = w->end_ns;
    } else if (w->state == WORK_CANCELLED) {
        r->counts.cancelled[0]++;
        api_fail(&w->error, 499, "cancelled", "the request was cancelled");
    } else {
        r->counts.failed[0]++;
        api_fail(&w->error, 500, "engine", "%s",
                 w->broken ? "no memory for the answer"
                           : "a pass has failed: the server's log says why");
    }
    if (w->kept && w->state != WORK_DONE)
        drop_kept(r, w);
    follows_wake(r, w);
    work_release(w);
}

void room_leave(struct room *r, struct work *w)
{
    w->followers--;
    if (!w->followers && !work_over(w)) {
        r->counts.hung_up++;
        if (!w->keep && w->resend)
            w->alone_ns = clock_ns();
        else if (!w->keep)
            room_cancel(r, w, "the client has gone");
    }
    if (!w->followers && work_over(w))
        w->alone_ns = clock_ns();
    work_release(w);
}

struct work *room_find(struct room *r, const uint8_t name[32])
{
    struct work *w = r->kept;
    while (w && (memcmp(w->name, name, 32) || w->cancel))
        w = w->kept_after;
    return w;
}

void room_keep(struct room *r, struct work *w)
{
    w->kept = true;
    w->refs++;
    w->kept_after = r->kept;
    r->kept = w;
    r->kept_count++;
}

void room_expire(struct room *r, int64_t now_ns)
{
    int64_t linger = (int64_t)r->o->linger_ms * 1000000;
    int64_t keep = (int64_t)r->o->keep_seconds * 1000000000;
    struct work *next;
    uint32_t place = 0;
    for (struct work *w = r->queue.first; w; w = w->after)
        w->queue_place = place++;
    for (struct work *w = r->kept; w; w = next) {
        next = w->kept_after;
        bool idle = work_over(w) && !w->followers;
        /* What was written to a client may not have been read by it. */
        bool given = w->delivered && !w->keep;
        bool old = idle && ((given ? now_ns - w->alone_ns > linger
                                   : now_ns - w->end_ns > keep) ||
                            r->kept_count > ROOM_KEPT_MAX);
        if (!w->followers && w->alone_ns && !work_over(w) &&
            now_ns - w->alone_ns > linger) {
            room_cancel(r, w, "the client has gone and did not come again");
            return; /* the list may be another: the rest in the next tick */
        }
        if (old) {
            r->counts.expired += !given;
            drop_kept(r, w);
        }
    }
}
