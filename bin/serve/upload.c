#include "bin/serve/upload.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/api/convert.h"

enum { POST_BUFFER = 65536, PURPOSE_MAX = 31 };

static enum MHD_Result part(void *arg, enum MHD_ValueKind kind,
                            const char *key, const char *filename,
                            const char *type, const char *encoding,
                            const char *data, uint64_t offset, size_t size)
{
    struct upload *u = arg;
    struct api_error *e = &u->call->error;
    (void)kind, (void)type, (void)encoding;
    if (e->status)
        return MHD_NO;
    if (!strcmp(key, "purpose")) {
        buffer_put(&u->purpose, data, size);
        if (u->purpose.count > PURPOSE_MAX)
            convert_refuse(e, "purpose", "it is too long");
    } else if (!strcmp(key, "file")) {
        if (!offset && u->has_file)
            convert_refuse(e, "file", "there are two");
        else if (!offset) {
            u->has_file = true;
            store_upload_begin(u->file.store, &u->file, e);
            snprintf(u->file.file.name, sizeof u->file.file.name, "%s",
                     filename ? filename : "file");
        }
        if (!e->status)
            store_upload_put(&u->file, data, size, e);
    } else if (strncmp(key, "expires_after", 13)) {
        snprintf(e->field, sizeof e->field, "%.80s", key);
        api_fail(e, 400, "unknown_field", "%.80s: this field is not known",
                 key);
    }
    return e->status ? MHD_NO : MHD_YES;
}

void upload_begin(struct call *c)
{
    if (!c->room->store) {
        api_fail(&c->error, 404, "not_found",
                 "this server keeps no files: it runs without --data");
        return;
    }
    struct upload *u = calloc(1, sizeof *u);
    if (!u) {
        api_fail(&c->error, 503, "no_memory", "no memory for an upload");
        return;
    }
    u->call = c;
    u->file.fd = -1;
    u->file.store = c->room->store;
    u->post = MHD_create_post_processor(c->connection, POST_BUFFER, part, u);
    c->upload = u;
    if (!u->post)
        api_fail(&c->error, 400, "invalid_request",
                 "the body is not multipart/form-data");
}

void upload_put(struct call *c, const char *bytes, size_t n)
{
    if (MHD_post_process(c->upload->post, bytes, n) != MHD_YES)
        api_fail(&c->error, 400, "invalid_request",
                 "the body is not multipart/form-data as it should be");
}

int upload_end(struct call *c, struct buffer *json)
{
    struct upload *u = c->upload;
    struct api_error *e = &c->error;
    if (u->post && MHD_destroy_post_processor(u->post) != MHD_YES)
        api_fail(e, 400, "invalid_request", "the multipart body is cut off");
    u->post = NULL;
    if (!u->has_file)
        convert_refuse(e, "file", "there is none");
    if (!u->purpose.count)
        convert_refuse(e, "purpose", "there is none");
    if (e->status)
        return -1;
    snprintf(u->file.file.purpose, sizeof u->file.file.purpose, "%s",
             u->purpose.bytes);
    return store_upload_end(&u->file, json, e);
}

void upload_free(struct call *c)
{
    struct upload *u = c->upload;
    if (!u)
        return;
    if (u->post)
        MHD_destroy_post_processor(u->post);
    if (u->has_file)
        store_upload_drop(&u->file);
    buffer_free(&u->purpose);
    free(u);
    c->upload = NULL;
}
