#include "bin/serve/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/api/convert.h"
#include "bin/serve/kept.h"
#include "bin/serve/net/auth.h"
#include "model/chat/chat.h"

static int refused(struct call *c, int err, const struct batch_job *j,
                   const struct error *error)
{
    struct api_error *e = &c->error;
    if (err == -ENOMEM)
        return api_fail(e, 503, "no_memory", "%s", error->text);
    int status = j->code && !strcmp(j->code, "model_not_found") ? 404 : 400;
    snprintf(e->field, sizeof e->field, "%s", j->field);
    api_fail(e, status, j->code, "%s", error->text);
    convert_back(e, c->api);
    return -1;
}

static void drop_jobs(struct batch_job *j)
{
    while (j) {
        struct batch_job *next = j->next;
        j->next = NULL;
        batch_job_free(j);
        free(j);
        j = next;
    }
}

/* Its jobs: a chain. */
static struct batch_job *parse(struct call *c, const struct buffer *body)
{
    struct error error = { 0 };
    struct batch_rules rules;
    pthread_mutex_lock(&c->room->lock);
    rules = c->room->rules;
    pthread_mutex_unlock(&c->room->lock);
    struct batch_job *j = calloc(1, sizeof *j);
    if (!rules.vocab)
        api_fail(&c->error, 503, "loading", "the model is being opened");
    else if (!j)
        api_fail(&c->error, 503, "no_memory", "no memory for a request");
    if (c->error.status) {
        free(j);
        return NULL;
    }
    int err = batch_job_request(j, 0, body->count ? body->bytes : "",
                                body->count, &rules, &error);
    if (!err && j->stream && (j->echo.count || j->want_ids)) {
        snprintf(c->error.field, sizeof c->error.field, "%s",
                 j->want_ids ? "return_token_ids" : "echo");
        api_fail(&c->error, 400, "unsupported",
                 "%s: it is not supported in a stream",
                 c->error.field);
    }
    if (!err && !c->error.status)
        return j;
    if (!err) {
        drop_jobs(j);
        return NULL;
    }
    refused(c, err, j, &error);
    batch_job_free(j);
    free(j);
    return NULL;
}

/* An order among those that wait, from fields that say nothing of the answer.
 */
static int32_t priority_of(const struct buffer *body)
{
    struct jv_doc doc;
    int64_t n = 0;
    if (!body->count ||
        (!memmem(body->bytes, body->count, "\"priority\"", 10) &&
         !memmem(body->bytes, body->count, "\"service_tier\"", 14)))
        return 0;
    if (jv_parse(&doc, body->bytes, body->count, JV_STRICT, NULL))
        return 0;
    const struct jv *tier = jv_get(doc.root, "service_tier");
    if (!jv_integer(jv_get(doc.root, "priority"), &n))
        n = jv_is(tier, "priority") ? -1 : jv_is(tier, "flex");
    jv_free(&doc);
    return n > 1000 ? 1000 : n < -1000 ? -1000 : (int32_t)n;
}

static void put_name(struct call *c, const char *key, uint8_t name[32],
                     uint8_t of_key[32])
{
    const void *part[] = { &c->owner, c->path, key, c->body.bytes };
    const size_t bytes[] = { sizeof c->owner, strlen(c->path),
                             key ? strlen(key) : 0, c->body.count };
    auth_digest(name, part, bytes, 4);
    auth_digest(of_key, part, bytes, 3);
}

/* The same request as before, or NULL; the lock is held. */
static struct work *find_again(struct call *c, const uint8_t name[32],
                               const uint8_t of_key[32], const char *key,
                               bool again)
{
    if (key)
        for (struct work *w = c->room->kept; w; w = w->kept_after)
            if (w->keep && !memcmp(w->key, of_key, sizeof w->key) &&
                memcmp(w->name, name, sizeof w->name)) {
                api_fail(&c->error, 422, "idempotency_key_reused",
                         "this Idempotency-Key came with another body");
                return NULL;
            }
    struct work *w = key || again ? room_find(c->room, name) : NULL;
    if (w) {
        w->refs++;
        c->room->counts.attached++;
    }
    return w;
}

/* A request that is asked for the first time; NULL: refused. */
static struct work *open_work(struct call *c, const struct buffer *body)
{
    struct work *w = NULL;
    struct batch_job *j = parse(c, body);
    if (j && work_open(&w, j))
        api_fail(&c->error, 503, "no_memory", "no memory for a request");
    if (!w)
        return NULL;
    w->room = c->room;
    w->model = c->room->o->name[0];
    w->owner = c->owner;
    w->priority = priority_of(body);
    w->store = c->store;
    w->turns = c->turns; /* from here on the work's */
    w->echo = c->echo;
    c->turns = c->echo = (struct buffer){ 0 };
    return w;
}

/* Let it in: an answer that an earlier server kept, or the queue. The lock is
 * held, so that nobody asks for the same in between. */
static void let_in(struct call *c, struct work *w, bool again)
{
    struct room *r = c->room;
    bool answered = (w->keep || again) && kept_take(r, w);
    if (!answered && room_ask(r, w, &c->error))
        return;
    if (w->keep || w->resend)
        room_keep(r, w);
}

void ask(struct call *c, enum api api, const struct buffer *body)
{
    struct room *r = c->room;
    const char *key = call_header(c, "Idempotency-Key");
    const char *times = call_header(c, "X-Stainless-Retry-Count");
    bool again = times && strtol(times, NULL, 10) > 0;
    uint8_t name[32], of_key[32];
    put_name(c, key, name, of_key);
    pthread_mutex_lock(&r->lock);
    struct work *w = find_again(c, name, of_key, key, again);
    pthread_mutex_unlock(&r->lock);
    struct work *first = w || c->error.status ? NULL : open_work(c, body);
    if (first) {
        memcpy(first->name, name, sizeof name);
        memcpy(first->key, of_key, sizeof of_key);
        first->keep = key != NULL;
        first->resend = times != NULL && !first->stream;
        pthread_mutex_lock(&r->lock);
        /* The same may have come while this one was read. */
        w = find_again(c, name, of_key, key, again);
        if (!w && !c->error.status) {
            let_in(c, first, again);
            w = first;
        }
        if (w != first || c->error.status)
            work_release(first);
        pthread_mutex_unlock(&r->lock);
    }
    if (w && !c->error.status)
        call_follow(c, w, api, w->stream);
}

int ask_count(struct call *c, const struct buffer *body, uint64_t *ids)
{
    struct batch_job *jobs = parse(c, body);
    *ids = 0;
    if (!jobs)
        return -1;
    for (const struct batch_job *j = jobs; j; j = j->next)
        if (j->index % j->choices == 0)
            *ids += j->prompt_count -
                    (j->chat && !j->prefill ? CHAT_OPENING_IDS : 0);
    drop_jobs(jobs);
    return 0;
}
