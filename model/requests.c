/* requests.c - sluice.h: the queue of requests, and the batch that runs them.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/session_internal.h"

/* ---- lists; the lock is held ---- */

static void list_add(struct request_list *l, struct request *q)
{
    q->after = NULL;
    *l->end = q;
    l->end = &q->after;
}

static void list_remove(struct request_list *l, struct request *q)
{
    struct request **link = &l->first;
    while (*link != q)
        link = &(*link)->after;
    *link = q->after;
    if (!q->after)
        l->end = link;
}

static struct request *list_find(const struct request_list *l, uint64_t id)
{
    struct request *q = l->first;
    while (q && q->id != id)
        q = q->after;
    return q;
}

static struct request *request_of(uint64_t tag)
{
    return (struct request *)(uintptr_t)tag;
}

static void request_free(struct request *q)
{
    reply_free(&q->reply);
    sampling_close(q);
    saved_free(q);
    free(q->ids);
    free(q);
}

/* ---- text of a request ---- */

enum { PART = 1024 };

/* The probabilities go with the id, not with text that follows it. */
static void add_logprobs(struct sluice_token *t, const struct request *q)
{
    bool has = t->id != SLUICE_NO_ID && q->r.logprobs;
    t->logprob = has ? q->logprob : 0;
    t->top = has ? q->top : NULL;
    t->tops = has ? q->tops : 0;
}

/* Hand out an id with its bytes, whole characters in parts of a buffer. True:
 * the callback wants no more. */
static bool say_plain(struct request *q, uint32_t id, const char *bytes,
                      size_t count)
{
    char out[PART + TOK_STREAM_HELD_MAX];
    bool stop = false;
    do {
        size_t part = count < PART ? count : PART;
        struct sluice_token t = { .request = q->id, .id = id, .text = out };
        add_logprobs(&t, q);
        t.bytes = tok_stream_push(&q->stream, bytes, part, out, sizeof out);
        if (id != SLUICE_NO_ID || t.bytes)
            stop = q->r.token(q->r.arg, &t);
        id = SLUICE_NO_ID;
        bytes += part;
        count -= part;
    } while (count && !stop);
    return stop;
}

/* Hand out an id with what it settled of a chat reply. */
static bool say_events(struct request *q, uint32_t id)
{
    static const enum sluice_kind kind[] = {
        [REPLY_THOUGHT_TEXT] = SLUICE_THOUGHTS,
        [REPLY_CONTENT_TEXT] = SLUICE_CONTENT,
        [REPLY_CALL_BEGINS] = SLUICE_CALL,
        [REPLY_CALL_ARGUMENTS] = SLUICE_ARGUMENTS };
    const struct reply *r = &q->reply;
    struct sluice_token t = { .request = q->id, .id = id, .text = "" };
    bool stop = false;
    add_logprobs(&t, q);
    if (!r->events && id != SLUICE_NO_ID)
        return q->r.token(q->r.arg, &t);
    for (uint32_t i = 0; i < r->events && !stop; i++) {
        const struct reply_event *e = &r->event[i];
        t.kind = kind[e->kind];
        t.call = e->call;
        t.text = r->event_text.bytes + e->begin;
        t.bytes = e->bytes;
        stop = q->r.token(q->r.arg, &t);
        t.id = SLUICE_NO_ID;
        add_logprobs(&t, q);
    }
    return stop;
}

/* What was held back. */
static void say_rest(struct request *q, bool cut)
{
    char out[TOK_STREAM_HELD_MAX];
    struct sluice_token t = { .request = q->id, .id = SLUICE_NO_ID,
                              .text = out };
    if (q->r.reply.chat) {
        q->broken |= reply_end(&q->reply, cut) < 0;
        say_events(q, SLUICE_NO_ID);
        return;
    }
    t.bytes = tok_stream_flush(&q->stream, out, sizeof out);
    if (t.bytes)
        q->r.token(q->r.arg, &t);
}

bool session_is_end(void *arg, uint32_t id)
{
    const struct sluice *s = arg;
    const struct config *c = k3_config(s->k);
    for (uint32_t i = 0; i < c->ends; i++)
        if (id == c->end_id[i])
            return true;
    return s->text && tok_is_stop(s->text->tok, id);
}

/* True: it is the last. */
static bool say(const struct sluice *s, struct request *q, uint32_t id)
{
    if (!q->r.reply.chat) {
        const char *bytes = "";
        size_t n = s->text ? tok_piece(s->text->tok, id, &bytes) : 0;
        return (q->r.token && say_plain(q, id, bytes, n)) || q->broken;
    }
    int done = reply_push(&q->reply, id);
    bool stop = q->r.token && say_events(q, id);
    q->broken |= done < 0;
    q->done = done > 0 && !stop && !q->r.ignore_end;
    return stop || q->done || q->broken;
}

static void request_finish(struct request *q, uint32_t count,
                           enum sluice_finish finish)
{
    struct sluice_result result = { .request = q->id, .finish = finish,
                                    .count = count,
                                    .ids = q->ids + q->r.count - q->r.given };
    if (q->r.token)
        say_rest(q, finish == SLUICE_LENGTH);
    if (q->broken)
        result.finish = SLUICE_FAILED;
    if (q->r.finished)
        q->r.finished(q->r.arg, &result);
    request_free(q);
}

/* ---- what the batch asks and tells ---- */

/* Say the given ids, if the caller wants to hear them. True: no id comes behind
 * them, `count` of them count, and the request has ended as `finish` says. */
static bool is_whole(struct sluice *s, struct request *q, uint32_t *count,
                     enum sluice_finish *finish)
{
    const uint32_t *given = q->ids + q->r.count - q->r.given;
    for (uint32_t i = 0; i < q->r.given; i++) {
        *finish = SLUICE_END;
        *count = i;
        if (!q->r.ignore_end && session_is_end(s, given[i]))
            return true;
        *count = i + 1;
        if (q->r.say_given && say(s, q, given[i])) {
            *finish = q->done ? SLUICE_END : SLUICE_STOPPED;
            return true;
        }
    }
    *finish = SLUICE_LENGTH;
    return q->r.given && q->r.given == q->r.max_ids;
}

/* The next request that needs a pass; those that need none are finished. */
static struct request *take_next(struct sluice *s)
{
    for (;;) {
        uint32_t count = 0;
        enum sluice_finish finish = SLUICE_LENGTH;
        pthread_mutex_lock(&s->lock);
        struct request *q = s->waiting.first;
        if (q) {
            list_remove(&s->waiting, q);
            list_add(&s->running, q);
        }
        pthread_mutex_unlock(&s->lock);
        if (!q || !is_whole(s, q, &count, &finish))
            return q;
        saved_whole(q);
        pthread_mutex_lock(&s->lock);
        list_remove(&s->running, q);
        s->unplaced++;
        pthread_mutex_unlock(&s->lock);
        request_finish(q, count, finish);
    }
}

static bool next(void *arg, struct batch_request *out)
{
    struct sluice *s = arg;
    struct request *q = take_next(s);
    if (!q)
        return false;
    *out = (struct batch_request){
        .tag = (uint64_t)(uintptr_t)q, .ids = q->ids,
        .prompt_count = q->r.count - q->r.given, .given = q->r.given,
        .common = q->r.common, .max = q->r.max_ids,
        .ignore_end = q->r.ignore_end,
        .logits = q->r.logits != NULL, .masked = q->form != NULL,
        .saved = s->cache || q->saving.path,
        .chosen = q->r.logprobs > 0, .sample = sampling_options(q) };
    return true;
}

static bool cancelled(void *arg, uint64_t tag)
{
    (void)arg;
    return atomic_load(&request_of(tag)->cancelled);
}

static bool token(void *arg, uint64_t tag, uint32_t id)
{
    struct request *q = request_of(tag);
    q->broken |= q->form && constraint_push(q->form, id);
    return say(arg, q, id);
}

static const uint64_t *mask(void *arg, uint64_t tag)
{
    struct request *q = request_of(tag);
    bool failed;
    (void)arg;
    const uint64_t *word = constraint_mask(q->form, &failed);
    q->broken |= failed;
    return word;
}

static bool only(void *arg, uint64_t tag, uint32_t *id)
{
    struct request *q = request_of(tag);
    (void)arg;
    return !q->broken && constraint_choices(q->form, id) == 1;
}

static uint32_t likely(void *arg, uint64_t tag, uint32_t *ids, uint32_t max)
{
    struct request *q = request_of(tag);
    (void)arg;
    return q->broken ? 0 : constraint_likely(q->form, ids, max);
}

static void chosen(void *arg, uint64_t tag, uint32_t id, const float *row)
{
    const struct sluice *s = arg;
    sampling_chosen(request_of(tag), id, row, k3_config(s->k)->vocab);
}

static bool logits(void *arg, uint64_t tag, const float *row)
{
    struct request *q = request_of(tag);
    (void)arg;
    return q->r.logits(q->r.arg, q->id, row);
}

static void finished(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason)
{
    static const enum sluice_finish finish[] = {
        [BATCH_LENGTH] = SLUICE_LENGTH, [BATCH_END] = SLUICE_END,
        [BATCH_STOPPED] = SLUICE_STOPPED, [BATCH_CANCELLED] = SLUICE_CANCELLED,
        [BATCH_FAILED] = SLUICE_FAILED };
    struct sluice *s = arg;
    struct request *q = request_of(tag);
    pthread_mutex_lock(&s->lock);
    list_remove(&s->running, q);
    pthread_mutex_unlock(&s->lock);
    request_finish(q, count, q->done ? SLUICE_END : finish[reason]);
}

/* Take the first waiting request that is cancelled, or any, off the list. */
static struct request *take_waiting(struct sluice *s, bool any)
{
    pthread_mutex_lock(&s->lock);
    struct request *q = s->waiting.first;
    while (q && !any && !atomic_load(&q->cancelled))
        q = q->after;
    if (q) {
        list_remove(&s->waiting, q);
        s->unplaced++;
    }
    pthread_mutex_unlock(&s->lock);
    return q;
}

static void finish_waiting(struct sluice *s, bool any,
                           enum sluice_finish finish)
{
    struct request *q;
    while ((q = take_waiting(s, any)))
        request_finish(q, q->r.given, finish);
}

/* ---- open and close ---- */

int requests_open(struct sluice *s, struct batch_options *o,
                  struct error *error)
{
    o->sequences = s->sequences;
    o->next = next;
    o->begin = saved_begin;
    o->pause = saved_pause;
    o->passed = saved_passed;
    o->parted = s->cache ? saved_parted : NULL;
    o->leaves = s->cache ? saved_leaves : NULL;
    o->cancelled = cancelled;
    o->is_end = session_is_end;
    o->token = token;
    o->mask = mask;
    o->only = only;
    o->likely = likely;
    o->chosen = chosen;
    o->logits = logits;
    o->finished = finished;
    o->arg = s;
    return batch_open(&s->batch, s->k, o, error);
}

void requests_close(struct sluice *s)
{
    s->stepping = true;
    batch_close(s->batch);
    finish_waiting(s, true, SLUICE_CANCELLED);
    s->stepping = false;
}

bool requests_any(struct sluice *s)
{
    pthread_mutex_lock(&s->lock);
    bool any = s->waiting.first || s->running.first;
    pthread_mutex_unlock(&s->lock);
    return any;
}

void requests_fail(struct sluice *s, int code)
{
    pthread_mutex_lock(&s->lock);
    s->failed = code;
    pthread_mutex_unlock(&s->lock);
    finish_waiting(s, true, SLUICE_FAILED);
}

void requests_count(struct sluice *s)
{
    struct k3_facts f;
    const struct batch_counts *b = batch_counts(s->batch);
    k3_facts(s->k, &f);
    const struct k3_totals *p = &f.totals[K3_PREFILL];
    const struct k3_totals *d = &f.totals[K3_DECODE];
    struct sluice_counters c = {
        .running = b->running, .passes = p->passes + d->passes,
        .prompt_ids = b->prompt_ids, .new_ids = b->ids,
        .decode_ids = b->decode_ids, .drafted = b->drafted,
        .accepted = b->accepted, .forced_ids = b->forced,
        .copied_ids = b->copied_ids,
        .loaded_ids = b->loaded_ids,
        .read_bytes = k3_read_bytes(p) + k3_read_bytes(d),
        .wasted_bytes = p->wasted_bytes + d->wasted_bytes,
        .resident_bytes = f.resident_read_bytes,
        .prefill_ns = (uint64_t)p->ns, .decode_ns = (uint64_t)d->ns,
        .wait_ns = (uint64_t)(p->wait_trunk_ns + p->wait_expert_ns +
                              d->wait_trunk_ns + d->wait_expert_ns) };
    if (s->drafter) {
        struct dspark_facts drafter;
        dspark_facts(s->drafter, &drafter);
        c.read_bytes += drafter.read_bytes;
    }
    pthread_mutex_lock(&s->lock);
    c.finished = b->finished + s->unplaced;
    c.queued = (uint32_t)(s->ids - c.finished - c.running);
    s->counters = c;
    pthread_mutex_unlock(&s->lock);
}

/* ---- submit and cancel ---- */

static int check_request(const struct sluice *s,
                         const struct sluice_request *r, struct error *error)
{
    int err = sampling_check(s, r, error);
    if (err)
        return err;
    if (r->reply.chat && !s->text)
        return error_set(error, -EINVAL, "the model has no tokenizer");
    if (r->logits && !s->all_logits)
        return error_set(error, -EINVAL,
                         "the session was opened without options.logits");
    if (r->given && r->given >= r->count)
        return error_set(error, -EINVAL,
                         "%" PRIu32 " of %" PRIu32 " ids are given: there is "
                         "no prompt",
                         r->given, r->count);
    bool whole = r->given && r->given == r->max_ids; /* all but one are read */
    struct batch_request b = { .ids = (uint32_t *)r->ids,
                               .prompt_count = r->count - r->given,
                               .given = r->given - whole, .max = r->max_ids };
    if (whole && r->ids[r->count - 1] >= k3_config(s->k)->vocab)
        return error_set(error, -EINVAL, "a given id is out of range");
    return batch_check(s->k, &b, error);
}

static int make_request(struct request **out, const struct sluice *s,
                        const struct sluice_request *from, struct error *error)
{
    struct sluice_request r;
    *out = NULL;
    if (session_copy(&r, sizeof r, from))
        return error_set(error, -EINVAL,
                         "the request has a size of %zu bytes, or fields that "
                         "sluice %s does not know",
                         from->size, SLUICE_VERSION);
    r.top_p = r.top_p == 0 ? 1 : r.top_p;
    int err = check_request(s, &r, error);
    if (err)
        return err;
    struct request *q = calloc(1, sizeof *q);
    size_t room = (size_t)r.count - r.given + r.max_ids;
    uint32_t *ids = malloc(room * sizeof *ids);
    if (!q || !ids) {
        free(q);
        free(ids);
        return error_set(error, -ENOMEM, "no memory for %zu ids", room);
    }
    memcpy(ids, r.ids, r.count * sizeof *ids);
    for (size_t i = r.count; i < room; i++)
        ids[i] = SLUICE_NO_ID;
    q->ids = ids;
    q->r = r;
    q->r.ids = NULL;
    err = sampling_open(q, s, &r, error);
    if (!err)
        err = saved_request(q, &r, error);
    if (err) {
        saved_free(q);
        sampling_close(q);
        free(ids);
        free(q);
        return err;
    }
    struct reply_options o = { .chat = r.reply.chat,
                               .in_answer = r.reply.in_answer,
                               .calls = r.reply.calls,
                               .one_call = r.reply.one_call };
    reply_init(&q->reply, s->text ? s->text->tok : NULL, &o);
    tok_stream_init(&q->stream);
    *out = q;
    return 0;
}

int sluice_submit(struct sluice *s, const struct sluice_request *request,
                  uint64_t *id, struct sluice_error *error)
{
    struct error e = { 0 };
    struct request *q;
    if (make_request(&q, s, request, &e))
        return knobs_error(error, &e);
    pthread_mutex_lock(&s->lock);
    int failed = s->failed;
    if (!failed) {
        q->id = ++s->ids;
        if (id)
            *id = q->id;
        list_add(&s->waiting, q);
        s->counters.queued++;
        pthread_cond_signal(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
    if (!failed)
        return 0;
    request_free(q);
    error_set(&e, -ESHUTDOWN, "a pass has failed");
    return knobs_error(error, &e);
}

static void cancel(struct sluice *s, uint64_t id, bool suspend)
{
    pthread_mutex_lock(&s->lock);
    struct request *q = list_find(&s->waiting, id);
    if (!q)
        q = list_find(&s->running, id);
    if (q && suspend)
        atomic_store(&q->suspended, true);
    if (q)
        atomic_store(&q->cancelled, true);
    pthread_mutex_unlock(&s->lock);
}

void sluice_cancel(struct sluice *s, uint64_t id)
{
    cancel(s, id, false);
}

void sluice_suspend(struct sluice *s, uint64_t id)
{
    cancel(s, id, true);
}

/* ---- steps ---- */

int sluice_step(struct sluice *s, struct sluice_error *error)
{
    struct error e = { 0 };
    assert(!s->stepping);
    if (s->failed) {
        error_set(&e, -ESHUTDOWN, "a pass has failed");
        return knobs_error(error, &e);
    }
    s->stepping = true;
    finish_waiting(s, false, SLUICE_CANCELLED);
    int step = batch_step(s->batch, &e);
    session_say_drafter(s);
    if (step < 0)
        requests_fail(s, step);
    if (step > 0)
        memset(s->position, 0, s->sequences * sizeof *s->position);
    s->stepping = false;
    requests_count(s);
    return step < 0 ? knobs_error(error, &e) : step;
}

int sluice_run(struct sluice *s, struct sluice_error *error)
{
    int step;
    do
        step = sluice_step(s, error);
    while (step > 0);
    return step;
}

int sluice_generate(struct sluice *s, const struct sluice_request *request,
                    struct sluice_error *error)
{
    uint64_t id;
    int step = sluice_submit(s, request, &id, error);
    bool there = !step;
    while (step >= 0 && there) {
        step = sluice_step(s, error);
        pthread_mutex_lock(&s->lock);
        there = list_find(&s->waiting, id) || list_find(&s->running, id);
        pthread_mutex_unlock(&s->lock);
    }
    return step < 0 ? step : 0;
}

bool sluice_wait(struct sluice *s, int timeout_ms)
{
    struct timespec until;
    int err = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (timeout_ms % 1000) * INT64_C(1000000);
    until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    assert(!s->stepping);
    pthread_mutex_lock(&s->lock);
    while (!s->woken && !s->waiting.first && !s->running.first && !err)
        err = timeout_ms < 0
                  ? pthread_cond_wait(&s->news, &s->lock)
                  : pthread_cond_timedwait(&s->news, &s->lock, &until);
    bool any = s->waiting.first || s->running.first;
    s->woken = false;
    pthread_mutex_unlock(&s->lock);
    return any;
}

void sluice_wake(struct sluice *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
}
