#include "bin/serve/engine.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bin/serve/feeds.h"
#include "bin/serve/follow.h"
#include "bin/serve/kept.h"
#include "io/clock.h"
#include "model/sim/forecast.h"
#include "model/sim/machine.h"

enum {
    SEQUENCES = 16, /* chosen; fewer where the memory is short */
    AGAIN_SECONDS = 5,
    SLICE = 64,     /* ids after which a request may have to wait for others */
    SLICE_FAIR = 8, /* ... of a client that has more than others */
    HEAP = 16 << 20, /* queued requests and connections */
};

/* ---- what the session tells ---- */

static bool token(void *arg, const struct sluice_token *t)
{
    struct batch_job *j = arg;
    struct work *w = j->owner;
    if (t->id == SLUICE_NO_ID)
        return false;
    int stop = batch_job_token(j, t);
    pthread_mutex_lock(&w->room->lock);
    work_say(w, j);
    w->new_ids++;
    w->broken |= stop < 0;
    bool broken = w->broken;
    pthread_mutex_unlock(&w->room->lock);
    return stop || broken;
}

static void unlink_running(struct room *r, struct work *w)
{
    struct work **link = &r->running;
    while (*link != w)
        link = &(*link)->after;
    *link = w->after;
    w->after = NULL;
}

static void end_work(struct room *r, struct work *w)
{
    unlink_running(r, w);
    queue_done(&r->queue, w);
    room_ended(r, w);
}

/* A request that gives way waits again when all its jobs have left. */
static void settle(struct room *r, struct work *w)
{
    if (!w->suspending || w->returned < w->left)
        return;
    if (w->cancel) { /* since some had left */
        work_drop_jobs(w, WORK_CANCELLED);
        end_work(r, w);
        return;
    }
    bool begun = w->new_ids > w->placed_ids;
    w->suspending = false;
    w->returned = 0;
    w->state = WORK_QUEUED;
    unlink_running(r, w);
    queue_return(&r->queue, w, !begun);
}

/* One job less; the room's lock is held. */
static void end_job(struct room *r, struct work *w, struct batch_job *j,
                    uint32_t count, enum sluice_finish finish)
{
    if (finish == SLUICE_CANCELLED && w->suspending && !w->cancel) {
        w->returned++;
        settle(r, w);
        return;
    }
    if (work_job_end(w, j, count, finish))
        end_work(r, w);
    else
        settle(r, w);
}

static void finished(void *arg, const struct sluice_result *result)
{
    struct batch_job *j = arg;
    struct work *w = j->owner;
    struct room *r = w->room;
    pthread_mutex_lock(&r->lock);
    end_job(r, w, j, result->count, result->finish);
    pthread_mutex_unlock(&r->lock);
}

/* Why a drafter does not draft any more; NULL: it does, or there is none. */
static const char *drafter_failure(const struct room *r)
{
    const struct dspark *d = knobs_drafter(r->s);
    return d ? dspark_failure(d) : NULL;
}

/* Once: what keeps one state from being kept keeps all. The drafter's sentence
 * is said after the pass, since lines of batches have no note. */
static void note(void *arg, const char *sentence, bool lost)
{
    struct batch_job *j = arg;
    struct room *r = ((struct work *)j->owner)->room;
    const char *why = drafter_failure(r);
    (void)lost;
    if (why && !strncmp(sentence, why, strlen(why)))
        return;
    if (!r->noted)
        fprintf(stderr, "sluice: %s\n", sentence);
    r->noted = true;
}

static void layer(void *arg, uint32_t layer, uint32_t layers)
{
    struct room *r = arg;
    atomic_store(&r->layer, layer);
    atomic_store(&r->layers, layers);
}

static int planned(void *arg, const struct k3 *k, struct error *error)
{
    struct room *r = arg;
    (void)error;
    atomic_store(&r->loaded_bytes, 0);
    atomic_store(&r->to_load_bytes, k3_plan_of(k)->resident_payload_bytes);
    return 0;
}

static void loaded(void *arg, uint64_t bytes)
{
    struct room *r = arg;
    atomic_store(&r->loaded_bytes, bytes);
}

/* ---- places ---- */

/* All jobs of a request; the lock is held. */
static void submit(struct room *r, struct work *w)
{
    struct batch_job *next;
    uint32_t i = 0;
    w->state = WORK_RUNNING;
    w->placed_ids = w->new_ids;
    w->after = r->running;
    r->running = w;
    if (!w->run_ns) {
        w->run_ns = clock_ns();
        r->counts.waited++;
        r->counts.wait_ns += (uint64_t)(w->run_ns - w->begin_ns);
    }
    w->refs++; /* it may end in here */
    for (struct batch_job *j = w->job; j; j = next) {
        struct sluice_error e;
        struct sluice_request q = j->r;
        next = j->next;
        j->owner = w;
        q.ids = j->ids;
        q.count = j->prompt_count + j->count;
        q.given = j->count;
        q.arg = j;
        q.note = note;
        q.token = token;
        q.finished = finished;
        if (!sluice_submit(r->s, &q, &w->engine_id[i++], &e))
            continue;
        api_fail(&w->error, e.code == -EINVAL ? 400 : 500, "engine", "%s",
                 e.text);
        end_job(r, w, j, 0, SLUICE_FAILED);
    }
    work_release(w);
}

/* Requests that have a place in the session, or wait in it for one. */
static uint32_t places_taken(struct room *r)
{
    struct sluice_counters c;
    sluice_counters(r->s, &c, sizeof c);
    return c.running + c.queued;
}

/* ---- who gives way ---- */

/* Does `w`, which waits, get a place of `v`, which has one? */
static bool displaces(const struct room *r, const struct work *w,
                      const struct work *v)
{
    uint32_t ids = v->new_ids - v->placed_ids;
    if (v->suspending || v->cancel)
        return false;
    if (w->priority != v->priority)
        return w->priority < v->priority;
    if (w->client == v->client)
        return false;
    if (v->client->running > w->client->running) /* w is one of those */
        return ids >= SLICE_FAIR;
    return r->o->s.prefix_cache && ids >= SLICE;
}

/* Is `a` the better one to give way? */
static bool gives_way(const struct work *a, const struct work *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->client->running != b->client->running)
        return a->client->running > b->client->running;
    return a->new_ids - a->placed_ids > b->new_ids - b->placed_ids;
}

/* Is `next`, which waits in the session, to go behind one of the queue? */
static bool is_behind(const struct work *next, const struct work *first)
{
    if (!first || next->suspending || next->cancel)
        return false;
    if (first->priority != next->priority)
        return first->priority < next->priority;
    return first->client->running + 1 < next->client->running;
}

static void suspend(struct room *r, struct work *w)
{
    w->suspending = true;
    r->counts.suspended++;
    for (uint32_t i = 0; i < w->choices; i++)
        sluice_suspend(r->s, w->engine_id[i]);
}

/* One request that has places gives them to one that waits, if that is before
 * it. Those that wait in the session are the youngest. The lock is held. */
static void make_way(struct room *r)
{
    struct sluice_counters c;
    struct work *next = NULL, *placed = r->running, *victim = NULL;
    sluice_counters(r->s, &c, sizeof c);
    for (uint32_t n = 0; placed && n < c.queued; placed = placed->after) {
        n += placed->left;
        next = placed;
    }
    if (next && is_behind(next, queue_first(&r->queue))) {
        suspend(r, next); /* it has done nothing yet */
        return;
    }
    for (struct work *v = placed; v && next; v = v->after)
        if (displaces(r, next, v) && (!victim || gives_way(v, victim)))
            victim = v;
    if (victim)
        suspend(r, victim);
}

/* One request more than there are places, so that reads can run ahead of the
 * next prompt. */
static void give_places(struct room *r)
{
    pthread_mutex_lock(&r->lock);
    if (!feeds_running(r->feeds))
        make_way(r);
    while (r->queue.count && places_taken(r) <= r->sequences) {
        uint32_t lines = feeds_running(r->feeds);
        if (places_taken(r) >= r->sequences && lines)
            break; /* a line's place is better than none */
        submit(r, queue_take(&r->queue));
    }
    uint32_t waiting = r->queue.count;
    r->batch_running = feeds_running(r->feeds);
    pthread_mutex_unlock(&r->lock);
    if (waiting)
        feeds_yield(r->feeds, waiting);
    while (!waiting && places_taken(r) < r->sequences &&
           feeds_give(r->feeds))
        ;
}

/* ---- after a pass ---- */

static void count(struct room *r)
{
    struct k3_facts f;
    struct sluice_counters c, *before = &r->counters;
    sluice_counters(r->s, &c, sizeof c);
    k3_facts(knobs_engine(r->s), &f);
    const char *why = drafter_failure(r);
    if (why && r->drafter)
        fprintf(stderr, "sluice: %s; going on without it\n", why);
    pthread_mutex_lock(&r->lock);
    double ns = (double)(c.prefill_ns + c.decode_ns) -
                (double)(before->prefill_ns + before->decode_ns);
    if (c.passes > before->passes && ns > 0) {
        double seconds = ns / 1e9 / (double)(c.passes - before->passes);
        double keep = before->passes ? 0.8 : 0;
        r->pass_seconds = keep * r->pass_seconds + (1 - keep) * seconds;
        r->pass_rate = (double)(c.read_bytes - before->read_bytes) / ns * 1e9;
        struct room_sample *s = &r->history[r->samples % ROOM_HISTORY];
        s->read_rate = (float)r->pass_rate;
        s->ids += (uint32_t)(c.new_ids - before->new_ids);
    }
    r->counters = c;
    r->expert_requests = f.experts.requests;
    r->expert_hits = f.experts.hits;
    r->drafter &= !why;
    memcpy(r->drafts, knobs_counts(r->s)->source, sizeof r->drafts);
    r->batch_running = feeds_running(r->feeds);
    follows_wake(r, NULL);
    pthread_mutex_unlock(&r->lock);
}

/* Whether to go on. */
static bool goes_on(struct room *r)
{
    pthread_mutex_lock(&r->lock);
    bool on = r->state == ROOM_READY ||
              (r->state == ROOM_DRAINING && (r->running || r->queue.count));
    pthread_mutex_unlock(&r->lock);
    return on;
}

/* Passes until there is nothing to go on for: 0, or the error of a pass. */
static int serve(struct room *r, struct error *error)
{
    while (goes_on(r)) {
        struct sluice_error e = { 0 };
        give_places(r);
        int step = sluice_step(r->s, &e);
        if (step < 0)
            return knobs_error_back(error, &e);
        if (step)
            count(r);
        feeds_after_step(r->feeds, false); /* lines may be over without one */
        if (!step && goes_on(r))
            sluice_wait(r->s, 1000);
    }
    return 0;
}

/* ---- the session ---- */

static void measure(struct room *r, const struct k3_options *o)
{
    struct forecast_machine m = { 0 };
    struct error ignored = { 0 };
    struct config c = { 0 };
    struct parts *parts = NULL;
    m.drives = o->paced_count;
    memcpy(m.drive, o->paced, o->paced_count * sizeof *o->paced);
    if (!o->paced_count && !config_load(&c, r->o->model, &ignored) &&
        !parts_find(&parts, &r->o->s.parts, &c, &ignored))
        machine_drives(&m, r->o->model, parts, o->io, &ignored);
    parts_close(parts);
    config_free(&c);
    r->drive_limit = machine_bytes_per_s(&m);
}

int engine_open(struct room *r, struct error *error)
{
    const struct session_args *a = &r->o->s;
    struct forecast_options f = { .prompt_rows = FORECAST_PROMPT_ROWS,
                                  .drafts = session_draft(a).max,
                                  .sequence_heap =
                                      FORECAST_POSITION_HEAP * a->context };
    struct sluice_options o = session_sluice(a);
    struct sluice *s = NULL;
    o.text = r->text;
    o.forms = o.share = true;
    o.progress = layer;
    o.progress_arg = r;
    uint32_t n = r->o->sequences ? (uint32_t)r->o->sequences : SEQUENCES;
    int err;
    session_options(a, &f.o);
    f.o.heap_bytes = HEAP;
    if (r->drive_limit <= 0)
        measure(r, &f.o);
    for (;; n /= 2) {
        struct sluice_error e = { 0 };
        struct k3_options engine = forecast_session(&f, n);
        engine.planned = planned;
        engine.planned_arg = r;
        engine.loaded = loaded;
        o.held = 1;
        err = knobs_open(&s, r->o->model, &o, &engine, &e);
        o.held = 0;
        if (err == -ENOBUFS)
            err = knobs_open(&s, r->o->model, &o, &engine, &e);
        if (!err)
            break;
        if (err != -ENOBUFS || n == 1 || r->o->sequences)
            return knobs_error_back(error, &e);
    }
    struct sluice_info info;
    sluice_info(s, &info, sizeof info);
    pthread_mutex_lock(&r->lock);
    r->s = s;
    r->info = info;
    r->sequences = info.sequences;
    r->drafter = a->drafter != NULL;
    memset(r->drafts, 0, sizeof r->drafts);
    r->rules.vocab = info.vocab;
    r->counters = (struct sluice_counters){ 0 };
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* The session ends with all that it has. */
static void close_session(struct room *r, const char *why)
{
    pthread_mutex_lock(&r->lock);
    struct sluice *s = r->s;
    if (r->state == ROOM_READY)
        r->state = ROOM_LOADING;
    snprintf(r->failure, sizeof r->failure, "%s", why);
    while (r->queue.first) {
        struct work *w = r->queue.first;
        queue_remove(&r->queue, w);
        api_fail(&w->error, 500, "engine", "%s", why);
        work_drop_jobs(w, WORK_FAILED);
        room_ended(r, w);
    }
    pthread_mutex_unlock(&r->lock);
    sluice_close(s); /* requests that run are finished in here */
    feeds_after_step(r->feeds, true);
    pthread_mutex_lock(&r->lock);
    r->s = NULL;
    pthread_mutex_unlock(&r->lock);
}

static bool stopping(struct room *r)
{
    pthread_mutex_lock(&r->lock);
    bool over = r->state >= ROOM_DRAINING;
    pthread_mutex_unlock(&r->lock);
    return over;
}

/* Open it again, however long that takes. False: the server goes. */
static bool open_again(struct room *r, void (*say)(struct room *r,
                                                   const char *sentence))
{
    while (!stopping(r)) {
        struct error error = { 0 };
        if (!engine_open(r, &error))
            return true;
        say(r, error.text);
        for (int i = 0; i < AGAIN_SECONDS * 10 && !stopping(r); i++)
            nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
    return false;
}

/* Of what runs still, to the prefix cache, and its ids to --data; no pass is
 * run. */
static void save_states(struct room *r)
{
    struct sluice_error e;
    pthread_mutex_lock(&r->lock);
    for (struct work *w = r->running; w; w = w->after)
        suspend(r, w);
    pthread_mutex_unlock(&r->lock);
    feeds_yield(r->feeds, UINT32_MAX);
    sluice_step(r->s, &e);
    pthread_mutex_lock(&r->lock);
    kept_save(r);
    pthread_mutex_unlock(&r->lock);
}

void engine_run(struct room *r, void (*ready)(struct room *r),
                void (*say)(struct room *r, const char *sentence))
{
    do {
        struct error error = { 0 };
        pthread_mutex_lock(&r->lock);
        if (r->state == ROOM_LOADING)
            r->state = ROOM_READY;
        *r->failure = 0;
        pthread_mutex_unlock(&r->lock);
        if (!stopping(r))
            ready(r);
        if (!serve(r, &error)) {
            save_states(r);
            break;
        }
        say(r, error.text);
        close_session(r, error.text);
    } while (open_again(r, say));
}

void engine_close(struct room *r)
{
    if (r->s)
        close_session(r, "the server went down");
}
