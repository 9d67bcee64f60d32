/* bind.c - which shard a sidecar was made from. */
#include <errno.h>
#include <inttypes.h>
#define OPENSSL_SUPPRESS_DEPRECATED /* the plain functions need no memory */
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "model/ckpt/safetensors.h"
#include "model/ckpt/slurp.h"
#include "model/pack/sidecar.h"

enum { PIECE = 1 << 16 };

/* SHA-256 of the header with the 8 bytes of its length. */
static int hash_header(uint8_t out[32], int fd, uint64_t size, const char *path,
                       struct error *error)
{
    uint8_t piece[PIECE];
    uint64_t length;
    int code = slurp_at(fd, &length, sizeof length, 0, path, error);
    if (code)
        return code;
    if (size < sizeof length || length > size - sizeof length ||
        length > SAFETENSORS_HEADER_MAX)
        return error_set(error, -EBADMSG, "%s: a header of %" PRIu64 " bytes "
                         "does not fit", path, length);
    SHA256_CTX hash;
    SHA256_Init(&hash);
    uint64_t all = length + sizeof length;
    for (uint64_t at = 0; at < all && !code; at += PIECE) {
        size_t n = all - at < PIECE ? (size_t)(all - at) : PIECE;
        code = slurp_at(fd, piece, n, at, path, error);
        if (!code)
            SHA256_Update(&hash, piece, n);
    }
    if (!code)
        SHA256_Final(out, &hash);
    return code;
}

static int hash_spot(uint32_t *crc, int fd, uint64_t at, const char *path,
                     struct error *error)
{
    uint8_t bytes[SIDECAR_SPOT];
    int code = slurp_at(fd, bytes, sizeof bytes, at, path, error);
    *crc = code ? 0 : crc32c(0, bytes, sizeof bytes);
    return code;
}

/* The shard's descriptor, with its size and time of change. */
static int open_shard(const char *shard, uint64_t *size, int64_t *mtime_ns,
                      struct error *error)
{
    struct stat st;
    int fd = slurp_open(shard, size, error);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st)) {
        int code = error_set(error, -errno, "%s: %s", shard, strerror(errno));
        close(fd);
        return code;
    }
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return fd;
}

int sidecar_source(struct sidecar_head *head, struct sidecar_spot *spot,
                   uint32_t spots, const char *shard, struct error *error)
{
    int fd = open_shard(shard, &head->source_bytes, &head->source_mtime_ns,
                        error);
    if (fd < 0)
        return fd;
    int code = hash_header(head->source_header_sha256, fd, head->source_bytes,
                           shard, error);
    for (uint32_t i = 0; i < spots && !code; i++)
        code = hash_spot(&spot[i].crc, fd, spot[i].source_at, shard, error);
    close(fd);
    return code;
}

static int compare(const struct sidecar *s, int fd, uint64_t size,
                   const char *shard, struct error *error)
{
    uint8_t sha[32];
    int code = hash_header(sha, fd, size, shard, error);
    if (!code && memcmp(sha, s->head->source_header_sha256, sizeof sha))
        return error_set(error, -ESTALE, "%s: was made from another file than "
                         "%s, whose header differs", s->path, shard);
    for (uint32_t i = 0; i < s->head->spots && !code; i++) {
        uint32_t crc;
        code = hash_spot(&crc, fd, s->spot[i].source_at, shard, error);
        if (!code && crc != s->spot[i].crc)
            return error_set(error, -ESTALE, "%s: was made from other weights "
                             "than %s has, at byte %" PRIu64, s->path, shard,
                             s->spot[i].source_at);
    }
    return code;
}

int sidecar_bind(const struct sidecar *s, const char *shard, bool *moved,
                 struct error *error)
{
    uint64_t size;
    int64_t mtime_ns;
    *moved = false;
    int fd = open_shard(shard, &size, &mtime_ns, error);
    if (fd < 0)
        return fd;
    int code = 0;
    if (size != s->head->source_bytes) {
        code = error_set(error, -ESTALE, "%s: was made from a file of %" PRIu64
                         " bytes, %s has %" PRIu64, s->path,
                         s->head->source_bytes, shard, size);
    } else if (mtime_ns != s->head->source_mtime_ns) {
        code = compare(s, fd, size, shard, error);
        *moved = !code;
    }
    close(fd);
    return code;
}
