/* unpack.h - compressed bytes as they were: gzip by zlib, zstd by libzstd.
 *
 *     unpack_open -> { unpack_room, bytes go there, unpack_fed | unpack_take }
 *     -> unpack_end, unpack_close
 *
 * Several streams behind each other are one text, as gzip and zstd have it.
 *
 * Bytes    the window, and UNPACK_MORE_BYTES.
 * Threads  one caller.
 * Errors   -ENOMEM; -EBADMSG: the bytes are damaged; -E2BIG: zstd needs a
 *          larger window.
 */
#ifndef BIN_BATCH_UNPACK_H
#define BIN_BATCH_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum unpack_kind { UNPACK_NONE, UNPACK_GZIP, UNPACK_ZSTD };
enum { UNPACK_MORE_BYTES = 1 << 20, UNPACK_MARK_BYTES = 4 };

struct unpack;

/* What a file that begins so is, if this build can read it; else UNPACK_NONE.
 */
enum unpack_kind unpack_kind(const char *text, size_t bytes);
/* `window_bytes`, a power of two: of zstd, at most. */
int  unpack_open(struct unpack **out, enum unpack_kind kind,
                 size_t window_bytes);
void unpack_close(struct unpack *u); /* NULL is fine */
/* Where compressed bytes go, after unpack_take has said 0: the room there. */
size_t unpack_room(struct unpack *u, char **to);
void   unpack_fed(struct unpack *u, size_t bytes);
/* Bytes of the text; 0: it needs more; or an error. */
ssize_t unpack_take(struct unpack *u, char *out, size_t room);
/* No more is fed: is the last stream whole. */
bool unpack_end(const struct unpack *u);

#endif
