/* route_info.c - models, ids and texts, health, the queue. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/api/convert.h"
#include "bin/serve/ask.h"
#include "bin/serve/metrics.h"
#include "bin/serve/routes.h"
#include "io/clock.h"
#include "model/json/jv_write.h"

/* ---- models ---- */

static void put_model(struct buffer *out, const struct room *r,
                      const char *name)
{
    buffer_text(out, "{\"id\":");
    api_text(out, name);
    buffer_format(out,
                  ",\"object\":\"model\",\"type\":\"model\",\"created\":0,"
                  "\"created_at\":\"1970-01-01T00:00:00Z\","
                  "\"owned_by\":\"sluice\",\"max_model_len\":%" PRIu64
                  ",\"display_name\":",
                  r->o->s.context);
    api_text(out, name);
    buffer_text(out, "}");
}

void route_models(struct call *c)
{
    struct buffer json = { 0 };
    const struct serve_options *o = c->room->o;
    buffer_text(&json, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < o->names; i++) {
        buffer_text(&json, i ? "," : "");
        put_model(&json, c->room, o->name[i]);
    }
    buffer_text(&json, "],\"has_more\":false,\"first_id\":");
    api_text(&json, o->name[0]);
    buffer_text(&json, ",\"last_id\":");
    api_text(&json, o->name[o->names - 1]);
    buffer_text(&json, "}");
    call_json(c, 200, &json);
}

void route_model(struct call *c)
{
    struct buffer json = { 0 };
    const struct serve_options *o = c->room->o;
    for (uint32_t i = 0; i < o->names; i++) {
        if (strcmp(c->id, o->name[i]))
            continue;
        put_model(&json, c->room, o->name[i]);
        call_json(c, 200, &json);
        return;
    }
    api_fail(&c->error, 404, "model_not_found", "model %.80s is not here",
             c->id);
}

/* ---- texts and ids ---- */

static bool parse(struct call *c, struct jv_doc *doc)
{
    struct jv_wrong wrong = { "it is empty", 0 };
    if (jv_parse(doc, c->body.count ? c->body.bytes : "", c->body.count,
                 JV_STRICT, &wrong)) {
        api_fail(&c->error, 400, "invalid_json",
                 "the body is not JSON: %s at byte %zu", wrong.what,
                 wrong.at + 1);
        return false;
    }
    if (doc->root->type == JV_OBJECT)
        return true;
    jv_free(doc);
    api_fail(&c->error, 400, "invalid_request", "the body is not an object");
    return false;
}

static void put_ids(struct call *c, const uint32_t *ids, size_t count)
{
    struct buffer json = { 0 };
    buffer_format(&json, "{\"count\":%zu,\"max_model_len\":%" PRIu64
                         ",\"tokens\":[",
                  count, c->room->o->s.context);
    for (size_t i = 0; i < count; i++)
        buffer_format(&json, i ? ",%" PRIu32 : "%" PRIu32, ids[i]);
    buffer_text(&json, "]}");
    call_json(c, 200, &json);
}

void route_tokenize(struct call *c)
{
    struct jv_doc doc;
    struct sluice_ids ids = { 0 };
    struct sluice_reply reply;
    struct sluice_error e = { 0 };
    if (!parse(c, &doc))
        return;
    const struct jv *text = jv_get(doc.root, "prompt");
    int err = 0;
    if (jv_get(doc.root, "messages"))
        err = sluice_chat(c->room->text, c->body.bytes, c->body.count, &ids,
                          &reply, &e);
    else if (jv_is_type(text, JV_STRING))
        err = sluice_tokenize(c->room->text, text->text, text->bytes, &ids);
    else
        convert_refuse(&c->error, "prompt",
                       "there is neither a text nor are there messages");
    if (err && text)
        snprintf(c->error.field, sizeof c->error.field, "prompt");
    else if (err)
        snprintf(c->error.field, sizeof c->error.field, "messages");
    if (err)
        api_fail(&c->error, err == -ENOMEM ? 503 : 400, "invalid_request",
                 "%s", *e.text ? e.text : "no memory for the ids");
    if (!c->error.status)
        put_ids(c, ids.ids, ids.count);
    jv_free(&doc);
    sluice_ids_free(&ids);
}

/* The ids of a list; NULL with an error. */
static uint32_t *read_ids(struct call *c, const struct jv *list, size_t *count)
{
    uint32_t vocab = c->room->rules.vocab;
    uint32_t *ids = jv_is_type(list, JV_ARRAY)
                        ? malloc((list->bytes + 1) * sizeof *ids)
                        : NULL;
    *count = 0;
    for (const struct jv *v = jv_first(list); v && ids; v = jv_next(list, v)) {
        int64_t id;
        if (!jv_integer(v, &id) || id < 0 || id >= vocab) {
            convert_refuse(&c->error, "tokens",
                           "there is something that is no id");
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (uint32_t)id;
    }
    if (!ids)
        convert_refuse(&c->error, "tokens", "it is not a list of ids");
    return ids;
}

void route_detokenize(struct call *c)
{
    struct jv_doc doc;
    size_t count;
    if (!parse(c, &doc))
        return;
    uint32_t *ids = read_ids(c, jv_get(doc.root, "tokens"), &count);
    size_t n = ids ? sluice_detokenize(c->room->text, ids, count, NULL, 0) : 0;
    char *text = ids ? malloc(n + 1) : NULL;
    if (text) {
        struct buffer json = { 0 }, clean = { 0 };
        sluice_detokenize(c->room->text, ids, count, text, n);
        jv_clean(&clean, text, n);
        buffer_text(&json, "{\"prompt\":");
        jv_write_line_string(&json, clean.count ? clean.bytes : "",
                             clean.count);
        buffer_text(&json, "}");
        json.failed |= clean.failed;
        buffer_free(&clean);
        call_json(c, 200, &json);
    } else {
        api_fail(&c->error, 503, "no_memory", "no memory for the text");
    }
    free(text);
    free(ids);
    jv_free(&doc);
}

/* ---- the server ---- */

void route_health(struct call *c)
{
    static const char *const name[] = { "loading", "ready", "draining",
                                        "stopped" };
    struct buffer json = { 0 };
    struct room *r = c->room;
    pthread_mutex_lock(&r->lock);
    enum room_state state = r->state;
    buffer_format(&json, "{\"status\":\"%s\"", name[state]);
    if (*r->failure) {
        buffer_text(&json, ",\"error\":");
        api_text(&json, r->failure);
    }
    if (state == ROOM_LOADING)
        buffer_format(&json,
                      ",\"loaded_bytes\":%" PRIu64
                      ",\"bytes_to_load\":%" PRIu64,
                      atomic_load(&r->loaded_bytes),
                      atomic_load(&r->to_load_bytes));
    buffer_format(&json,
                  ",\"seconds\":%.1f,\"running\":%" PRIu32
                  ",\"queued\":%" PRIu32 "}",
                  (double)(clock_ns() - r->begin_ns) / 1e9,
                  r->counters.running, r->queue.count);
    pthread_mutex_unlock(&r->lock);
    call_json(c, state == ROOM_READY ? 200 : 503, &json);
}

void route_metrics(struct call *c)
{
    struct buffer text = { 0 };
    pthread_mutex_lock(&c->room->lock);
    metrics_put(&text, c->room);
    pthread_mutex_unlock(&c->room->lock);
    call_buffer(c, "text/plain; version=0.0.4; charset=utf-8", &text);
}

void route_queue(struct call *c)
{
    struct buffer json = { 0 };
    pthread_mutex_lock(&c->room->lock);
    metrics_queue(&json, c->room, c->owner);
    pthread_mutex_unlock(&c->room->lock);
    call_json(c, 200, &json);
}

/* Only of the same client. */
static struct work *find(struct room *r, const char *id, uint64_t owner)
{
    struct work *w = r->running;
    while (w && (strcmp(w->id, id) || w->owner != owner))
        w = w->after;
    if (w)
        return w;
    w = r->queue.first;
    while (w && (strcmp(w->id, id) || w->owner != owner))
        w = w->after;
    return w;
}

void route_cancel(struct call *c)
{
    struct buffer json = { 0 };
    struct room *r = c->room;
    pthread_mutex_lock(&r->lock);
    struct work *w = find(r, c->id, c->owner);
    if (w) {
        w->refs++;
        room_cancel(r, w, "it was cancelled at /queue");
        work_release(w);
    }
    pthread_mutex_unlock(&r->lock);
    if (!w) {
        api_fail(&c->error, 404, "not_found", "no such request is here");
        return;
    }
    buffer_text(&json, "{\"cancelled\":true}");
    call_json(c, 200, &json);
}
