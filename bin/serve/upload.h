/* upload.h - the body of POST /v1/files: multipart/form-data, which
 * libmicrohttpd reads, to a file of the store.
 */
#ifndef BIN_SERVE_UPLOAD_H
#define BIN_SERVE_UPLOAD_H

#include "bin/serve/call.h"

struct MHD_PostProcessor;

struct upload {
    struct call *call;
    struct MHD_PostProcessor *post;
    struct store_upload file;
    bool   has_file;
    struct buffer purpose;
};

/* Errors go to c->error. */
void upload_begin(struct call *c);
void upload_put(struct call *c, const char *bytes, size_t n);
/* The file is there: its object, as JSON. 0 or -1. */
int  upload_end(struct call *c, struct buffer *json);
void upload_free(struct call *c);

#endif
