/* synth_out.c - files that appear whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "model/tools/synth_internal.h"

enum { BUFFER_BYTES = 1 << 20 };

static void failed(struct synth_out *o, int code)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&o->code, &none, code))
        error_set(o->error, code, "%s: %s", o->path, strerror(-code));
}

int synth_out_open(struct synth_out *o, const char *dir, const char *name,
                   struct error *error)
{
    *o = (struct synth_out){ .r.fd = -1, .error = error };
    if (asprintf(&o->path, "%s/%s", dir, name) < 0)
        o->path = NULL;
    o->buffer = malloc(BUFFER_BYTES);
    if (!o->path || !o->buffer)
        o->code = error_set(error, -ENOMEM, "%s: no memory", dir);
    if (!o->code) {
        int err = replace_open(&o->r, o->path, O_NOFOLLOW);
        if (err)
            failed(o, err);
    }
    int code = o->code;
    if (code)
        synth_out_close(o, false);
    return code;
}

void synth_out_at(struct synth_out *o, const void *bytes, size_t length,
                  uint64_t offset)
{
    int err = o->code ? 0 : file_write_all(o->r.fd, bytes, length, offset);
    if (err)
        failed(o, err);
}

static void flush(struct synth_out *o)
{
    int err = o->code ? 0 : file_append_all(o->r.fd, o->buffer, o->used);
    if (err)
        failed(o, err);
    o->used = 0;
}

void synth_out_text(struct synth_out *o, const char *format, ...)
{
    for (int attempt = 0; !o->code && attempt < 2; attempt++) {
        va_list args;
        size_t room = BUFFER_BYTES - o->used;
        va_start(args, format);
        int n = vsnprintf(o->buffer + o->used, room, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < room) {
            o->used += (size_t)n;
            return;
        }
        flush(o);
    }
    if (!o->code)
        failed(o, -EINVAL); /* a text longer than the buffer */
}

int synth_out_close(struct synth_out *o, bool sync)
{
    if (o->r.fd >= 0) {
        flush(o);
        int err = o->code ? 0 : replace_commit(&o->r, sync);
        if (err)
            failed(o, err);
        if (o->code)
            replace_abort(&o->r);
    }
    free(o->path);
    free(o->buffer);
    o->path = o->buffer = NULL;
    return o->code;
}
