#include "bin/serve/feeds.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch/feed.h"
#include "bin/batch/partial.h"
#include "bin/serve/store/store.h"

/* A line that was read and not answered yet. */
struct line {
    struct line *after;
    struct feeding *feeding;
    struct batch_job *job;
    uint64_t id;    /* the session's */
    bool running;   /* the session has it; else it waits to be given again */
    bool yielding;  /* it was asked to give its place back */
};

struct feeding {
    struct feeding *after;
    struct room *room;
    char   id[STORE_ID];
    struct batch_feed feed;
    struct batch_partial partial;
    struct line *lines;
    uint32_t running;
    bool   over;      /* the input came to its end */
    bool   cancelled;
    struct error error; /* the first */
};

struct feeds {
    struct room *room;
    struct feeding *first; /* whose turn it is */
    uint32_t running;
};

/* ---- what the session tells ---- */

static bool token(void *arg, const struct sluice_token *t)
{
    struct batch_job *j = arg;
    struct line *l = j->owner;
    if (t->id == SLUICE_NO_ID)
        return false;
    int stop = batch_job_token(j, t);
    if (stop < 0)
        error_set(&l->feeding->error, stop, "no memory for an answer");
    return stop;
}

static void drop(struct line *l)
{
    struct line **link = &l->feeding->lines;
    while (*link != l)
        link = &(*link)->after;
    *link = l->after;
    batch_job_free(l->job);
    free(l->job);
    free(l);
}

static void finished(void *arg, const struct sluice_result *result)
{
    struct batch_job *j = arg;
    struct line *l = j->owner;
    struct feeding *g = l->feeding;
    struct room *r = g->room;
    enum sluice_finish how = result->finish;
    bool answered = how != SLUICE_CANCELLED && how != SLUICE_FAILED;
    l->running = l->yielding = false;
    g->running--;
    r->feeds->running--;
    if (!answered && !g->cancelled)
        return; /* it is given again, with what it has */
    if (answered && !g->error.code) {
        batch_feed_answer(&g->feed, j, result->count, how, &g->error);
        pthread_mutex_lock(&r->lock);
        r->counts.answered[1]++;
        pthread_mutex_unlock(&r->lock);
    }
    drop(l);
}

/* ---- batches ---- */

static void start(struct feeds *f, const struct store_batch *b)
{
    char in[STORE_PATH], out[STORE_PATH];
    struct store *s = f->room->store;
    struct feeding *g = calloc(1, sizeof *g), **end = &f->first;
    if (!g)
        return; /* the next news tries again */
    g->room = f->room;
    snprintf(g->id, sizeof g->id, "%s", b->id);
    store_batch_path(s, b->id, ".in", in);
    store_batch_path(s, b->id, ".out", out);
    /* The feed keeps the path of its input. */
    char *name = strdup(in);
    if (!name)
        error_set(&g->error, -ENOMEM, "no memory for a batch");
    else if (!batch_feed_open(&g->feed, name, out, false, &g->error)) {
        batch_partial_open(&g->partial, out);
        g->feed.rules = f->room->rules;
        store_batch_turn(s, b->id, BATCH_IN_PROGRESS, "", &g->error);
    }
    g->over = !name;
    while (*end)
        end = &(*end)->after;
    *end = g;
}

static struct feeding *find(struct feeds *f, const char *id)
{
    struct feeding *g = f->first;
    while (g && strcmp(g->id, id))
        g = g->after;
    return g;
}

static void cancel(struct feeding *g)
{
    struct line *next;
    if (g->cancelled)
        return;
    g->cancelled = true;
    for (struct line *l = g->lines; l; l = next) {
        next = l->after;
        if (l->running)
            sluice_cancel(g->room->s, l->id);
        else
            drop(l);
    }
}

/* What clients have asked for since the last look. */
static void look(struct feeds *f)
{
    struct store *s = f->room->store;
    struct store_batch b = { .id = "" };
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    bool news = s->news;
    s->news = false;
    pthread_mutex_unlock(&s->lock);
    if (!news)
        return;
    for (bool there = store_batch_next(s, "", &b); there;
         there = store_batch_next(s, b.id, &b)) {
        struct feeding *g = find(f, b.id);
        if (!g)
            start(f, &b);
        g = find(f, b.id);
        if (g && b.status == BATCH_CANCELLING)
            cancel(g);
    }
}

static void stop(struct feeds *f, struct feeding *g, bool complete)
{
    struct feeding **link = &f->first;
    while (*link != g)
        link = &(*link)->after;
    *link = g->after;
    while (g->lines)
        drop(g->lines);
    batch_partial_close(&g->partial, complete);
    char *name = (char *)g->feed.in.path;
    batch_feed_close(&g->feed, complete);
    free(name);
    free(g);
}

/* ---- lines ---- */

static int submit(struct feeding *g, struct line *l)
{
    struct batch_job *j = l->job;
    struct sluice_error e = { 0 };
    struct sluice_request q = j->r;
    q.ids = j->ids;
    q.count = j->prompt_count + j->count;
    q.given = j->count;
    q.arg = j;
    q.token = token;
    q.finished = finished;
    l->running = true;
    g->running++;
    g->room->feeds->running++;
    if (!sluice_submit(g->room->s, &q, &l->id, &e))
        return 0;
    l->running = false;
    g->running--;
    g->room->feeds->running--;
    return knobs_error_back(&g->error, &e);
}

static struct line *waiting(struct feeding *g)
{
    struct line *l = g->lines;
    while (l && l->running)
        l = l->after;
    return l;
}

static bool give_one(struct feeding *g)
{
    struct line *l = waiting(g);
    struct batch_job *j;
    if (g->cancelled || g->error.code)
        return false;
    if (l)
        return !submit(g, l);
    if (g->over)
        return false;
    int got = batch_feed_next(&g->feed, false, &j, &g->error);
    g->over = got == -ENODATA;
    if (got != 1)
        return false;
    l = calloc(1, sizeof *l);
    if (!l) {
        batch_job_free(j);
        free(j);
        error_set(&g->error, -ENOMEM, "no memory for a line");
        return false;
    }
    *l = (struct line){ .after = g->lines, .feeding = g, .job = j };
    g->lines = l;
    j->owner = l;
    batch_partial_give(&g->partial, j, &g->feed.rules,
                       g->room->o->s.mla_latent_eps);
    pthread_mutex_lock(&g->room->lock);
    g->room->counts.asked[1]++;
    pthread_mutex_unlock(&g->room->lock);
    return !submit(g, l);
}

/* The first batch becomes the last. */
static void turn(struct feeds *f)
{
    struct feeding *g = f->first, **end = &f->first;
    while (*end)
        end = &(*end)->after;
    *end = g;
    f->first = g->after;
    g->after = NULL;
}

bool feeds_give(struct feeds *f)
{
    struct feeding *last = NULL;
    look(f);
    for (struct feeding *g = f->first; g; g = g->after)
        last = g;
    for (struct feeding *g = f->first; g; g = f->first) {
        bool given = give_one(g);
        if (g->after)
            turn(f);
        if (given)
            return true;
        if (g == last)
            break;
    }
    return false;
}

uint32_t feeds_running(const struct feeds *f)
{
    return f->running;
}

/* The line that loses least. */
static struct line *least(struct feeds *f, uint32_t *asked)
{
    struct line *best = NULL;
    *asked = 0;
    for (struct feeding *g = f->first; g; g = g->after)
        for (struct line *l = g->lines; l; l = l->after) {
            *asked += l->yielding;
            if (l->running && !l->yielding &&
                (!best || l->job->count < best->job->count))
                best = l;
        }
    return best;
}

void feeds_yield(struct feeds *f, uint32_t places)
{
    uint32_t asked;
    struct line *l;
    while ((l = least(f, &asked)) && asked < places) {
        l->yielding = true;
        sluice_suspend(f->room->s, l->id);
    }
}

/* ---- after a pass ---- */

static void save(struct feeding *g, bool now)
{
    struct batch_job *chain = NULL;
    for (struct line *l = g->lines; l; l = l->after) {
        l->job->after = chain;
        chain = l->job;
    }
    batch_partial_save(&g->partial, chain, now);
}

static void tell(struct feeding *g)
{
    const struct batch_feed *f = &g->feed;
    store_batch_count(g->room->store, g->id, f->in.lines - f->blank,
                      f->answered + f->before, f->refused);
}

/* Finish it or let it fail, when nothing of it runs any more. */
static void settle(struct feeds *f, struct feeding *g)
{
    struct store *s = f->room->store;
    struct error error = { 0 };
    bool complete = g->cancelled || (g->over && !g->lines);
    if (g->error.code && !g->cancelled)
        cancel(g);
    if (g->running || !(complete || g->error.code))
        return;
    char id[STORE_ID];
    struct error failed = g->error;
    snprintf(id, sizeof id, "%s", g->id);
    stop(f, g, !failed.code);
    int err = failed.code ? failed.code : store_batch_finish(s, id, &error);
    if (err)
        store_batch_turn(s, id, BATCH_IS_FAILED,
                         failed.code ? failed.text : error.text, &error);
}

void feeds_after_step(struct feeds *f, bool now)
{
    struct feeding *next;
    if (!now)
        look(f); /* also when no place is free: one may be cancelled */
    for (struct feeding *g = f->first; g; g = next) {
        next = g->after;
        if (!g->error.code)
            batch_feed_flush(&g->feed, &g->error);
        if (!g->error.code) {
            save(g, now);
            tell(g);
        }
        if (!now)
            settle(f, g);
    }
}

/* ---- open and close ---- */

int feeds_open(struct feeds **out, struct room *r, struct error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_set(error, -ENOMEM, "no memory for batches");
    (*out)->room = r;
    return 0;
}

void feeds_close(struct feeds *f)
{
    if (!f)
        return;
    while (f->first)
        stop(f, f->first, false);
    free(f);
}
