#include "bin/batch/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum { INPUT_BYTES = 64 << 10 };

struct unpack {
    enum unpack_kind kind;
    bool   inside; /* of a stream */
    size_t at, used; /* of the input */
    char   input[INPUT_BYTES];
#ifdef HAVE_ZLIB
    z_stream gzip;
#endif
#ifdef HAVE_ZSTD
    ZSTD_DStream *zstd;
#endif
};

enum unpack_kind unpack_kind(const char *text, size_t bytes)
{
#ifdef HAVE_ZLIB
    if (bytes >= 2 && !memcmp(text, "\x1f\x8b", 2))
        return UNPACK_GZIP;
#endif
#ifdef HAVE_ZSTD
    if (bytes >= 4 && !memcmp(text, "\x28\xb5\x2f\xfd", 4))
        return UNPACK_ZSTD;
#endif
    (void)text;
    (void)bytes;
    return UNPACK_NONE;
}

#ifdef HAVE_ZLIB

static int open_gzip(struct unpack *u)
{
    return inflateInit2(&u->gzip, 15 + 16) == Z_OK ? 0 : -ENOMEM;
}

static ssize_t take_gzip(struct unpack *u, char *out, size_t room)
{
    z_stream *z = &u->gzip;
    if (!u->inside && inflateReset(z) != Z_OK)
        return -EBADMSG;
    u->inside = true;
    z->next_in = (unsigned char *)u->input + u->at;
    z->avail_in = (unsigned)(u->used - u->at);
    z->next_out = (unsigned char *)out;
    z->avail_out = room < 1u << 30 ? (unsigned)room : 1u << 30;
    size_t before = z->avail_out;
    int said = inflate(z, Z_NO_FLUSH);
    u->at = u->used - z->avail_in;
    u->inside = said != Z_STREAM_END;
    if (said != Z_OK && said != Z_STREAM_END && said != Z_BUF_ERROR)
        return said == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
    return (ssize_t)(before - z->avail_out);
}

#endif

#ifdef HAVE_ZSTD

static int open_zstd(struct unpack *u, size_t window_bytes)
{
    int log = __builtin_ctzl(window_bytes);
    u->zstd = ZSTD_createDStream();
    return u->zstd &&
                   !ZSTD_isError(ZSTD_DCtx_setParameter(
                       u->zstd, ZSTD_d_windowLogMax, log))
               ? 0
               : -ENOMEM;
}

static ssize_t take_zstd(struct unpack *u, char *out, size_t room)
{
    ZSTD_inBuffer in = { u->input, u->used, u->at };
    ZSTD_outBuffer to = { out, room, 0 };
    size_t said = ZSTD_decompressStream(u->zstd, &to, &in);
    u->at = in.pos;
    if (ZSTD_isError(said))
        return ZSTD_getErrorCode(said) ==
                       ZSTD_error_frameParameter_windowTooLarge
                   ? -E2BIG
                   : -EBADMSG;
    u->inside = said != 0;
    return (ssize_t)to.pos;
}

#endif

int unpack_open(struct unpack **out, enum unpack_kind kind,
                size_t window_bytes)
{
    struct unpack *u = calloc(1, sizeof *u);
    int err = u ? -ENOTSUP : -ENOMEM;
    *out = NULL;
    if (u)
        u->kind = kind;
    (void)window_bytes;
#ifdef HAVE_ZLIB
    if (u && kind == UNPACK_GZIP)
        err = open_gzip(u);
#endif
#ifdef HAVE_ZSTD
    if (u && kind == UNPACK_ZSTD)
        err = open_zstd(u, window_bytes);
#endif
    if (err) {
        unpack_close(u);
        return err;
    }
    *out = u;
    return 0;
}

void unpack_close(struct unpack *u)
{
    if (!u)
        return;
#ifdef HAVE_ZLIB
    if (u->kind == UNPACK_GZIP)
        inflateEnd(&u->gzip);
#endif
#ifdef HAVE_ZSTD
    ZSTD_freeDStream(u->zstd);
#endif
    free(u);
}

size_t unpack_room(struct unpack *u, char **to)
{
    memmove(u->input, u->input + u->at, u->used - u->at);
    u->used -= u->at;
    u->at = 0;
    *to = u->input + u->used;
    return sizeof u->input - u->used;
}

void unpack_fed(struct unpack *u, size_t bytes)
{
    u->used += bytes;
}

ssize_t unpack_take(struct unpack *u, char *out, size_t room)
{
    ssize_t got = 0;
    /* A stream may end, and the next begin, without a byte of text. */
    while (!got && u->at < u->used) {
        size_t at = u->at;
#ifdef HAVE_ZLIB
        if (u->kind == UNPACK_GZIP)
            got = take_gzip(u, out, room);
#endif
#ifdef HAVE_ZSTD
        if (u->kind == UNPACK_ZSTD)
            got = take_zstd(u, out, room);
#endif
        if (!got && u->at == at)
            break;
    }
    (void)out;
    (void)room;
    return got;
}

bool unpack_end(const struct unpack *u)
{
    return !u->inside && u->at == u->used;
}
