/* store_batches.c - the lives of batches. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/store/store_internal.h"
#include "model/json/jv_write.h"

static const char *const status_name[BATCH_STATUSES] = {
    [BATCH_VALIDATING] = "validating",
    [BATCH_IN_PROGRESS] = "in_progress",
    [BATCH_FINALIZING] = "finalizing",
    [BATCH_COMPLETED] = "completed",
    [BATCH_IS_FAILED] = "failed",
    [BATCH_CANCELLING] = "cancelling",
    [BATCH_IS_CANCELLED] = "cancelled",
};
/* Of the fields with the time at which it became so. */
static const char *const at_name[BATCH_STATUSES] = {
    [BATCH_VALIDATING] = "created_at",
    [BATCH_IN_PROGRESS] = "in_progress_at",
    [BATCH_FINALIZING] = "finalizing_at",
    [BATCH_COMPLETED] = "completed_at",
    [BATCH_IS_FAILED] = "failed_at",
    [BATCH_CANCELLING] = "cancelling_at",
    [BATCH_IS_CANCELLED] = "cancelled_at",
};

static bool is_over(const struct store_batch *b)
{
    return b->status == BATCH_COMPLETED || b->status == BATCH_IS_FAILED ||
           b->status == BATCH_IS_CANCELLED;
}

void store_batch_path(const struct store *s, const char *id, const char *end,
                      char path[STORE_PATH])
{
    store_path(s, "batches", id, end, path);
}

bool store_is_read(const struct store *s, const char *file)
{
    const struct store_batch *b = s->batches;
    while (b && (is_over(b) || strcmp(b->input, file)))
        b = b->after;
    return b;
}

struct store_batch *store_find_batch(struct store *s, const char *id)
{
    struct store_batch *b = s->batches;
    while (b && strcmp(b->id, id))
        b = b->after;
    return b;
}

static int missing(struct api_error *e, const char *id)
{
    snprintf(e->field, sizeof e->field, "id");
    return api_fail(e, 404, "not_found", "there is no batch %.80s", id);
}

/* ---- objects ---- */

static void put_text_or_null(struct buffer *out, const char *name,
                             const char *text)
{
    buffer_format(out, ",\"%s\":", name);
    if (*text)
        api_text(out, text);
    else
        buffer_text(out, "null");
}

static void put_batch(struct buffer *out, const struct store_batch *b)
{
    buffer_format(out, "{\"id\":\"%s\",\"object\":\"batch\",\"endpoint\":",
                  b->id);
    api_text(out, b->endpoint);
    buffer_text(out, ",\"errors\":");
    if (*b->message) {
        buffer_text(out, "{\"object\":\"list\",\"data\":[{\"code\":"
                         "\"batch_failed\",\"line\":null,\"param\":null,"
                         "\"message\":");
        api_text(out, b->message);
        buffer_text(out, "}]}");
    } else {
        buffer_text(out, "null");
    }
    put_text_or_null(out, "input_file_id", b->input);
    put_text_or_null(out, "completion_window", b->window);
    buffer_format(out, ",\"status\":\"%s\"", status_name[b->status]);
    put_text_or_null(out, "output_file_id", b->output);
    put_text_or_null(out, "error_file_id", b->errors);
    for (int i = 0; i < BATCH_STATUSES; i++)
        if (b->at[i])
            buffer_format(out, ",\"%s\":%" PRId64, at_name[i], b->at[i]);
        else
            buffer_format(out, ",\"%s\":null", at_name[i]);
    buffer_format(out,
                  ",\"expires_at\":%" PRId64 ",\"expired_at\":null,"
                  "\"request_counts\":{\"total\":%" PRIu64
                  ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64
                  "},\"metadata\":%s}",
                  b->expires, b->total, b->completed, b->failed,
                  b->metadata ? b->metadata : "null");
}

static int save(struct store *s, const struct store_batch *b,
                struct error *error)
{
    struct buffer json = { 0 };
    put_batch(&json, b);
    return store_save(s, "batches", b->id, &json, error);
}

static char *metadata_of(const struct jv *v)
{
    struct buffer text = { 0 };
    if (!jv_is_type(v, JV_OBJECT))
        return NULL;
    jv_write(&text, v, JV_COMPACT);
    if (text.failed)
        buffer_free(&text);
    return text.failed ? NULL : text.bytes;
}

static void add(struct store *s, struct store_batch *b)
{
    struct store_batch **link = &s->batches;
    while (*link && (*link)->at[0] > b->at[0])
        link = &(*link)->after;
    b->after = *link;
    *link = b;
}

static uint64_t count_of(const struct jv *counts, const char *name)
{
    int64_t n;
    return jv_integer(jv_get(counts, name), &n) && n > 0 ? (uint64_t)n : 0;
}

static int load(struct store *s, const char *id, const struct jv *o)
{
    struct store_batch *b = calloc(1, sizeof *b);
    const struct jv *counts = jv_get(o, "request_counts");
    const struct jv *list = jv_get(jv_get(o, "errors"), "data");
    if (!b)
        return -ENOMEM;
    snprintf(b->id, sizeof b->id, "%s", id);
    store_copy_text(b->input, STORE_ID, jv_get(o, "input_file_id"));
    store_copy_text(b->output, STORE_ID, jv_get(o, "output_file_id"));
    store_copy_text(b->errors, STORE_ID, jv_get(o, "error_file_id"));
    store_copy_text(b->endpoint, sizeof b->endpoint, jv_get(o, "endpoint"));
    store_copy_text(b->window, sizeof b->window,
                    jv_get(o, "completion_window"));
    store_copy_text(b->message, sizeof b->message,
                    jv_get(jv_first(list), "message"));
    for (int i = 0; i < BATCH_STATUSES; i++) {
        if (jv_is(jv_get(o, "status"), status_name[i]))
            b->status = (enum batch_status)i;
        jv_integer(jv_get(o, at_name[i]), &b->at[i]);
    }
    jv_integer(jv_get(o, "expires_at"), &b->expires);
    b->total = count_of(counts, "total");
    b->completed = count_of(counts, "completed");
    b->failed = count_of(counts, "failed");
    b->metadata = metadata_of(jv_get(o, "metadata"));
    add(s, b);
    return 0;
}

int store_load_batches(struct store *s, struct error *error)
{
    return store_scan(s, "batches", load, error);
}

/* ---- what clients ask ---- */

static int check(struct store *s, const struct jv *body,
                 struct api_error *e)
{
    static const char *const known[] = { "input_file_id", "endpoint",
                                         "completion_window", "metadata",
                                         "output_expires_after" };
    const struct jv *input = jv_get(body, "input_file_id");
    const struct jv *endpoint = jv_get(body, "endpoint");
    const struct jv *meta = jv_get(body, "metadata");
    if (body->type != JV_OBJECT)
        return api_fail(e, 400, "invalid_request", "the body is not an object");
    for (const struct jv *k = jv_first(body); k; k = jv_next(body, k)) {
        size_t i = 0;
        while (i < 5 && !jv_is(k, known[i]))
            i++;
        if (i < 5 || jv_is_empty(k + 1))
            continue;
        snprintf(e->field, sizeof e->field, "%.80s", k->text);
        return api_fail(e, 400, "unknown_field",
                        "%.80s: this field is not known", k->text);
    }
    if (!jv_is_type(input, JV_STRING) || !store_find_file(s, input->text)) {
        snprintf(e->field, sizeof e->field, "input_file_id");
        return api_fail(e, 400, "invalid_request",
                        "input_file_id: there is no such file");
    }
    if (!jv_is(endpoint, "/v1/chat/completions") &&
        !jv_is(endpoint, "/v1/completions")) {
        snprintf(e->field, sizeof e->field, "endpoint");
        return api_fail(e, 400, "invalid_request",
                        "endpoint: it is neither /v1/chat/completions nor "
                        "/v1/completions");
    }
    if (!meta || meta->type == JV_OBJECT)
        return 0;
    snprintf(e->field, sizeof e->field, "metadata");
    return api_fail(e, 400, "invalid_request",
                    "metadata: it is not an object");
}

/* Its input gets a second name: the first may be deleted. */
static int make(struct store *s, struct store_batch *b, struct api_error *e)
{
    char from[STORE_PATH], to[STORE_PATH];
    struct error error = { 0 };
    store_path(s, "files", b->input, "", from);
    store_path(s, "batches", b->id, ".in", to);
    if (link(from, to))
        return api_fail(e, errno == ENOSPC ? 507 : 500, "storage",
                        "the batch cannot be stored: %s", strerror(errno));
    if (!save(s, b, &error))
        return 0;
    unlink(to);
    return store_fault(e, &error);
}

int store_batch_make(struct store *s, const struct jv *body,
                     struct buffer *out, struct api_error *e)
{
    struct store_batch *b = calloc(1, sizeof *b);
    if (!b)
        return api_fail(e, 503, "no_memory", "no memory for a batch");
    pthread_mutex_lock(&s->lock);
    int err = check(s, body, e);
    if (!err) {
        store_new_id(s, "batch", b->id);
        store_copy_text(b->input, STORE_ID, jv_get(body, "input_file_id"));
        store_copy_text(b->endpoint, sizeof b->endpoint,
                        jv_get(body, "endpoint"));
        store_copy_text(b->window, sizeof b->window,
                        jv_get(body, "completion_window"));
        b->metadata = metadata_of(jv_get(body, "metadata"));
        b->at[BATCH_VALIDATING] = time(NULL);
        b->expires = b->at[BATCH_VALIDATING] + s->seconds;
        err = make(s, b, e);
    }
    if (!err) {
        add(s, b);
        put_batch(out, b);
        s->news = true;
    }
    pthread_mutex_unlock(&s->lock);
    if (err) {
        free(b->metadata);
        free(b);
    }
    return err;
}

int store_batch_json(struct store *s, const char *id, struct buffer *out,
                     struct api_error *e)
{
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = store_find_batch(s, id);
    if (b)
        put_batch(out, b);
    pthread_mutex_unlock(&s->lock);
    return b ? 0 : missing(e, id);
}

static int turn(struct store *s, struct store_batch *b, enum batch_status to,
                struct error *error)
{
    b->status = to;
    if (!b->at[to])
        b->at[to] = time(NULL);
    return save(s, b, error);
}

int store_batch_cancel(struct store *s, const char *id, struct buffer *out,
                       struct api_error *e)
{
    struct error error = { 0 };
    int err = 0;
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = store_find_batch(s, id);
    if (!b)
        err = missing(e, id);
    else if (is_over(b))
        err = api_fail(e, 409, "batch_over", "the batch is %s already",
                       status_name[b->status]);
    else if (turn(s, b, BATCH_CANCELLING, &error))
        err = store_fault(e, &error);
    if (!err) {
        s->news = true;
        put_batch(out, b);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

int store_batch_list(struct store *s, const char *behind, uint32_t most,
                     struct buffer *out, struct api_error *e)
{
    uint32_t n = 0;
    const char *first = "", *last = "";
    int err = 0;
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = s->batches;
    if (*behind) {
        b = store_find_batch(s, behind);
        if (!b)
            err = missing(e, behind);
        else
            b = b->after;
    }
    buffer_text(out, "{\"object\":\"list\",\"data\":[");
    for (; b && n < most; b = b->after) {
        buffer_text(out, n++ ? "," : "");
        put_batch(out, b);
        first = n == 1 ? b->id : first;
        last = b->id;
    }
    buffer_text(out, "]");
    put_text_or_null(out, "first_id", first);
    put_text_or_null(out, "last_id", last);
    buffer_format(out, ",\"has_more\":%s}", b ? "true" : "false");
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* ---- the engine's ---- */

bool store_batch_next(struct store *s, const char *behind,
                      struct store_batch *out)
{
    const struct store_batch *best = NULL;
    pthread_mutex_lock(&s->lock);
    /* The newest is the first: the last before `behind` comes next. */
    for (const struct store_batch *b = s->batches; b; b = b->after) {
        if (!strcmp(b->id, behind))
            break;
        if (!is_over(b))
            best = b;
    }
    if (best) {
        *out = *best;
        out->after = NULL;
        out->metadata = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return best;
}

void store_batch_count(struct store *s, const char *id, uint64_t total,
                       uint64_t completed, uint64_t failed)
{
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = store_find_batch(s, id);
    if (b) {
        b->total = total;
        b->completed = completed;
        b->failed = failed;
    }
    pthread_mutex_unlock(&s->lock);
}

int store_batch_turn(struct store *s, const char *id, enum batch_status to,
                     const char *message, struct error *error)
{
    int err = 0;
    pthread_mutex_lock(&s->lock);
    struct store_batch *b = store_find_batch(s, id);
    /* One that is to be cancelled does not begin. */
    if (b && !(to == BATCH_IN_PROGRESS && b->status == BATCH_CANCELLING)) {
        snprintf(b->message, sizeof b->message, "%s", message);
        err = turn(s, b, to, error);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}
