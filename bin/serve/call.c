#include "bin/serve/call.h"

#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/serve/http.h"
#include "bin/serve/routes.h"

enum { BLOCK = 16384 };

const char *call_header(const struct call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

const char *call_argument(const struct call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND,
                                       name);
}

/* Headers of every answer. Nothing of the request is in them, but an Origin
 * that equals the one which is allowed. */
static void put_headers(struct call *c, struct MHD_Response *r,
                        const char *type)
{
    static const char *const always[][2] = {
        { "Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; "
          "connect-src 'self'; img-src 'self'; base-uri 'none'; "
          "form-action 'none'; frame-ancestors 'none'" },
        { "X-Content-Type-Options", "nosniff" },
        { "Referrer-Policy", "no-referrer" },
        { "Cache-Control", "no-store" },
    };
    const char *origin = call_header(c, "Origin");
    const char *cors = c->room->o->cors;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        MHD_add_response_header(r, always[i][0], always[i][1]);
    if (type)
        MHD_add_response_header(r, "Content-Type", type);
    if (!cors || !origin || (strcmp(cors, "*") && strcmp(cors, origin)))
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", cors);
    MHD_add_response_header(r, "Access-Control-Allow-Headers", "*, "
                               "Authorization");
    MHD_add_response_header(r, "Access-Control-Allow-Methods",
                            "GET, POST, DELETE");
}

static void send_response(struct call *c, int status, struct MHD_Response *r)
{
    c->status = status;
    MHD_queue_response(c->connection, (unsigned)status, r);
    MHD_destroy_response(r);
}

void call_text(struct call *c, const char *type, const char *text, size_t n)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, (void *)text,
                                        MHD_RESPMEM_PERSISTENT);
    if (!r)
        return;
    c->sent = n;
    put_headers(c, r, type);
    send_response(c, 200, r);
}

static void answer(struct call *c, int status, const char *type,
                   struct buffer *json, unsigned retry_after)
{
    char number[16];
    if (json->failed || !json->count) {
        buffer_free(json);
        *json = (struct buffer){ 0 };
        status = 503;
        buffer_text(json, "{}");
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(
        json->count, json->bytes, MHD_RESPMEM_MUST_COPY);
    c->sent = json->count;
    buffer_free(json);
    if (!r)
        return;
    put_headers(c, r, type);
    snprintf(number, sizeof number, "%u", retry_after);
    if (retry_after)
        MHD_add_response_header(r, "Retry-After", number);
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    send_response(c, status, r);
}

void call_json(struct call *c, int status, struct buffer *json)
{
    answer(c, status, "application/json", json, 0);
}

void call_buffer(struct call *c, const char *type, struct buffer *text)
{
    answer(c, 200, type, text, 0);
}

void call_error(struct call *c, const struct api_error *e)
{
    struct buffer json = { 0 };
    api_error_body(&json, c->api, e);
    answer(c, e->status, "application/json", &json, e->retry_after);
}

void call_file(struct call *c, int fd, uint64_t bytes)
{
    struct MHD_Response *r = MHD_create_response_from_fd64(bytes, fd);
    if (!r) {
        close(fd);
        return;
    }
    c->sent = bytes;
    put_headers(c, r, "application/octet-stream");
    send_response(c, 200, r);
}

static ssize_t read_follow(void *arg, uint64_t at, char *out, size_t room)
{
    ssize_t n = follow_read(arg, out, room);
    (void)at;
    return n == -1   ? MHD_CONTENT_READER_END_OF_STREAM
           : n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR
                     : n;
}

void call_follow(struct call *c, struct work *w, enum api api, bool stream)
{
    struct room *room = c->room;
    const char *progress = call_header(c, "X-Sluice-Progress");
    pthread_mutex_lock(&room->lock);
    struct follow *f = follow_open(room, w, api, stream);
    if (f) {
        f->connection = c->connection;
        f->render.progress = progress && !strcmp(progress, "1");
    }
    work_release(w); /* the follow has its own */
    pthread_mutex_unlock(&room->lock);
    c->follow = f;
    struct MHD_Response *r =
        f ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK,
                                              read_follow, f, NULL)
          : NULL;
    if (!r)
        return;
    put_headers(c, r, stream ? "text/event-stream; charset=utf-8"
                             : "application/json");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    MHD_add_response_header(r, "X-Request-Id", w->id);
    MHD_add_response_header(r, "request-id", w->id);
    send_response(c, 200, r);
}
