/* route_files.c - files and batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/routes.h"
#include "bin/serve/upload.h"

enum { PAGE = 100, PAGE_MAX = 10000 };

static struct store *store_of(struct call *c)
{
    if (!c->room->store)
        api_fail(&c->error, 404, "not_found",
                 "this server keeps no files: it runs without --data");
    return c->room->store;
}

static void reply(struct call *c, int err, struct buffer *json)
{
    if (err)
        buffer_free(json);
    else
        call_json(c, 200, json);
}

/* The page of a list that is asked for; 0: refused. */
static uint32_t page(struct call *c, const char **behind)
{
    const char *limit = call_argument(c, "limit");
    const char *after = call_argument(c, "after");
    char *end = NULL;
    long n = limit ? strtol(limit, &end, 10) : PAGE;
    *behind = after ? after : "";
    if (n >= 1 && n <= PAGE_MAX && (!end || !*end))
        return (uint32_t)n;
    snprintf(c->error.field, sizeof c->error.field, "limit");
    api_fail(&c->error, 400, "invalid_request",
             "limit: it is not a number from 1 to %d", PAGE_MAX);
    return 0;
}

/* An id that is not there was that of `after`. */
static void name_after(struct call *c)
{
    if (c->room->store && c->error.status == 404)
        snprintf(c->error.field, sizeof c->error.field, "after");
}

void route_file_make(struct call *c)
{
    struct buffer json = { 0 };
    reply(c, upload_end(c, &json), &json);
}

void route_file_list(struct call *c)
{
    struct buffer json = { 0 };
    const char *behind, *purpose = call_argument(c, "purpose");
    uint32_t most = page(c, &behind);
    struct store *s = store_of(c);
    if (s && most)
        reply(c, store_file_list(s, purpose ? purpose : "", behind, most,
                                 &json, &c->error), &json);
    name_after(c);
}

void route_file_get(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c);
    if (s)
        reply(c, store_file_json(s, c->id, &json, &c->error), &json);
}

void route_file_content(struct call *c)
{
    uint64_t bytes;
    struct store *s = store_of(c);
    int fd = s ? store_file_read(s, c->id, &bytes, &c->error) : -1;
    if (fd >= 0)
        call_file(c, fd, bytes);
}

void route_file_delete(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c);
    if (s)
        reply(c, store_file_delete(s, c->id, &json, &c->error), &json);
}

void route_batch_make(struct call *c)
{
    struct buffer json = { 0 };
    struct jv_doc doc;
    struct store *s = store_of(c);
    if (!s)
        return;
    if (jv_parse(&doc, c->body.count ? c->body.bytes : "", c->body.count,
                 JV_STRICT, NULL)) {
        api_fail(&c->error, 400, "invalid_json", "the body is not JSON");
        return;
    }
    int err = store_batch_make(s, doc.root, &json, &c->error);
    jv_free(&doc);
    reply(c, err, &json);
    pthread_mutex_lock(&c->room->lock);
    if (c->room->s)
        sluice_wake(c->room->s);
    pthread_mutex_unlock(&c->room->lock);
}

void route_batch_list(struct call *c)
{
    struct buffer json = { 0 };
    const char *behind;
    uint32_t most = page(c, &behind);
    struct store *s = store_of(c);
    if (s && most)
        reply(c, store_batch_list(s, behind, most, &json, &c->error), &json);
    name_after(c);
}

void route_batch_get(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c);
    if (s)
        reply(c, store_batch_json(s, c->id, &json, &c->error), &json);
}

void route_batch_cancel(struct call *c)
{
    struct buffer json = { 0 };
    struct store *s = store_of(c);
    if (s)
        reply(c, store_batch_cancel(s, c->id, &json, &c->error), &json);
    pthread_mutex_lock(&c->room->lock);
    if (c->room->s)
        sluice_wake(c->room->s);
    pthread_mutex_unlock(&c->room->lock);
}
