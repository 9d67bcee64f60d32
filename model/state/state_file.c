#include "model/state/state_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "io/file.h"
#include "io/replace.h"
#include "model/state/state_share.h"

enum {
    FILE_VERSION = 1,
    PAGE = 4096,
    BLOCK_BYTES = 1 << 20,
    WRITEBACK_BYTES = 8 << 20, /* between two sync_file_range */
    ORDER_MARK = 0x01020304,
    SPANS_FIXED = 3, /* ids, KDA states, histories; then one an MLA layer */
};

static const char magic[] = "SLUICESQ";

struct file_header {
    char     magic[8];
    uint32_t version, order_mark;
    uint8_t  model[IDENTITY_BYTES];
    float    mla_latent_eps;
    uint32_t positions;
    uint32_t kda_layers, mla_layers;
    uint64_t kda_bytes, conv_bytes; /* a layer */
    uint64_t latent_bytes;          /* a layer and position */
    uint64_t payload_bytes;
    uint32_t block_bytes, blocks;
    struct state_after after;
    uint32_t table_crc;  /* of the blocks' checksums */
    uint32_t header_crc; /* of all before it */
};
_Static_assert(sizeof(struct file_header) == 136, "on disk");

/* The payload as runs of bytes in memory: those listed, then those that the
 * processes share. */
struct spans {
    struct state_span *span;
    uint32_t count, given;
    const struct state_share *share; /* or NULL */
};

static uint64_t latent_row(const struct state_shape *s)
{
    return s->context ? s->mla_bytes / s->context : 0;
}

/* Of a layer, with all heads. */
static uint64_t kda_bytes(const struct state_shape *s)
{
    return s->share ? s->share->kda_bytes : s->kda_bytes;
}

static uint64_t conv_bytes(const struct state_shape *s)
{
    return s->share ? s->share->conv_bytes : s->conv_bytes;
}

static uint64_t payload_of(const struct state_shape *s, uint32_t positions)
{
    return (uint64_t)positions * sizeof(uint32_t) +
           kda_bytes(s) * s->kda_layers + conv_bytes(s) * s->kda_layers +
           latent_row(s) * positions * s->mla_layers;
}

static uint64_t blocks_of(uint64_t payload)
{
    return (payload + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static uint64_t table_bytes(uint64_t blocks)
{
    return (blocks * sizeof(uint32_t) + PAGE - 1) / PAGE * PAGE;
}

uint64_t state_file_bytes(const struct state_shape *s, uint32_t positions)
{
    uint64_t payload = payload_of(s, positions);
    return PAGE + table_bytes(blocks_of(payload)) + payload;
}

static int list_spans(struct spans *out, uint8_t *block,
                      const struct state_shape *s, uint32_t *ids,
                      uint32_t positions)
{
    *out = (struct spans){ .count = s->share ? 1 : SPANS_FIXED + s->mla_layers,
                           .share = s->share };
    out->span = calloc(out->count, sizeof *out->span);
    if (!out->span)
        return -ENOMEM;
    out->span[0] = (struct state_span){ (uint8_t *)ids,
                                        (uint64_t)positions * sizeof *ids };
    if (s->share)
        return 0;
    out->span[1] = (struct state_span){ block + s->kda_offset,
                                        s->kda_bytes * s->kda_layers };
    out->span[2] = (struct state_span){ block + s->conv_offset,
                                        s->conv_bytes * s->kda_layers };
    for (uint32_t i = 0; i < s->mla_layers; i++)
        out->span[SPANS_FIXED + i] =
            (struct state_span){ (uint8_t *)state_mla(block, s, i),
                                 latent_row(s) * positions };
    return 0;
}

static int begin_share(const struct spans *s, uint8_t *block, bool load,
                       uint32_t positions)
{
    return s->share ? s->share->begin(s->share->arg, block, load, positions)
                    : 0;
}

static int end_share(const struct spans *s, int err)
{
    return s->share ? s->share->end(s->share->arg, err) : err;
}

/* One without bytes: there are no more. */
static int next_span(struct spans *spans, struct state_span *out)
{
    *out = (struct state_span){ 0 };
    while (!out->bytes && spans->given < spans->count)
        *out = spans->span[spans->given++];
    return out->bytes || !spans->share
               ? 0
               : spans->share->next(spans->share->arg, out);
}

static void fill_header(struct file_header *h, const struct state_shape *s,
                        const struct state_owner *owner, uint32_t positions)
{
    *h = (struct file_header){
        .version = FILE_VERSION, .order_mark = ORDER_MARK,
        .mla_latent_eps = owner->mla_latent_eps,
        .positions = positions, .kda_layers = s->kda_layers,
        .mla_layers = s->mla_layers, .kda_bytes = kda_bytes(s),
        .conv_bytes = conv_bytes(s), .latent_bytes = latent_row(s),
        .payload_bytes = payload_of(s, positions),
        .block_bytes = BLOCK_BYTES,
    };
    memcpy(h->magic, magic, sizeof h->magic);
    memcpy(h->model, owner->model.byte, sizeof h->model);
    h->blocks = (uint32_t)blocks_of(h->payload_bytes);
}

static uint32_t header_crc(const struct file_header *h)
{
    return crc32c(0, h, offsetof(struct file_header, header_crc));
}

/* ---- bytes ---- */

typedef int move_fn(int fd, void *bytes, uint64_t length, uint64_t at);

static int move_out(int fd, void *bytes, uint64_t length, uint64_t at)
{
    int err = file_write_all(fd, bytes, length, at);
    uint64_t end = at + length;
    if (!err && end / WRITEBACK_BYTES != at / WRITEBACK_BYTES)
        (void)!sync_file_range(fd, 0, (off_t)end, SYNC_FILE_RANGE_WRITE);
    return err;
}

static int move_in(int fd, void *bytes, uint64_t length, uint64_t at)
{
    return file_read_all(fd, bytes, length, at);
}

/* Move the spans to or from the file, in pieces that end at the blocks' ends,
 * and compute each block's checksum. */
static int move_spans(struct spans *spans, int fd, uint64_t at, move_fn *move,
                      uint32_t *crc)
{
    struct state_span span;
    uint64_t done = 0;
    int err;
    while (!(err = next_span(spans, &span)) && span.bytes)
        for (uint64_t in = 0; in < span.bytes;) {
            uint64_t left = span.bytes - in;
            uint64_t room = BLOCK_BYTES - done % BLOCK_BYTES;
            uint64_t n = left < room ? left : room;
            uint8_t *bytes = span.at + in;
            err = move(fd, bytes, n, at + done);
            if (err)
                return err;
            uint64_t block = done / BLOCK_BYTES;
            crc[block] = crc32c(done % BLOCK_BYTES ? crc[block] : 0, bytes, n);
            in += n;
            done += n;
        }
    return err;
}

/* ---- save ---- */

static int write_file(int fd, struct spans *spans, struct file_header *h)
{
    uint64_t table = table_bytes(h->blocks);
    uint32_t *crc = calloc(1, table);
    uint8_t *page = calloc(1, PAGE);
    int err = crc && page ? 0 : -ENOMEM;
    if (!err)
        err = move_spans(spans, fd, PAGE + table, move_out, crc);
    if (!err) {
        h->table_crc = crc32c(0, crc, h->blocks * sizeof *crc);
        h->header_crc = header_crc(h);
        memcpy(page, h, sizeof *h);
        err = file_write_all(fd, page, PAGE, 0);
    }
    if (!err)
        err = file_write_all(fd, crc, table, PAGE);
    free(crc);
    free(page);
    return err;
}

int state_replaces(const char *path, struct error *error)
{
    char begin[sizeof magic - 1];
    uint32_t same = 0;
    int got = file_first(path, 0, begin, sizeof begin);
    for (int i = 0; i < got; i++)
        same += begin[i] == magic[i];
    /* It may be cut, or a byte damaged. */
    bool ours = got == sizeof begin ? same + 1 >= sizeof begin
                                    : got >= 0 && same == (uint32_t)got;
    return ours || got == -ENOENT
               ? 0
               : error_set(error, -EEXIST, "%s: is not a saved sequence, and "
                            "is left as it is", path);
}

int state_save(const char *path, const uint8_t *block,
               const struct state_shape *shape, const uint32_t *ids,
               const struct state_after *after,
               const struct state_owner *owner, bool sync, struct error *error)
{
    uint8_t *source = (uint8_t *)(uintptr_t)block; /* only read */
    uint32_t positions = state_header(source)->positions;
    struct file_header h;
    struct spans spans = { 0 };
    struct replace r;
    assert(positions <= shape->context);
    if (state_replaces(path, error))
        return -EEXIST;
    fill_header(&h, shape, owner, positions);
    h.after = after ? *after : (struct state_after){ .next = UINT32_MAX };
    int err = list_spans(&spans, source, shape, (uint32_t *)(uintptr_t)ids,
                         positions);
    if (!err)
        err = replace_open(&r, path, 0);
    if (!err) {
        err = begin_share(&spans, source, false, positions);
        if (!err)
            err = write_file(r.fd, &spans, &h);
        err = end_share(&spans, err);
        if (err)
            replace_abort(&r);
        else
            err = replace_commit(&r, sync);
    }
    free(spans.span);
    return err ? error_set(error, err, "%s: the state could not be saved: %s",
                           path, strerror(-err))
               : 0;
}

/* ---- load ---- */

static int bad(struct error *error, const char *path, const char *what)
{
    return error_set(error, -EBADMSG, "%s: %s", path, what);
}

static int failed(struct error *error, const char *path, int err)
{
    if (err == -ENODATA)
        return bad(error, path, "truncated");
    return error_set(error, err, "%s: the state could not be read: %s", path,
                     strerror(-err));
}

/* Is it a state, whole as far as the header says, of this model? */
static int check_header(const struct file_header *h, uint64_t file_bytes,
                        const struct state_shape *s,
                        const struct state_owner *owner, const char *path,
                        struct error *error)
{
    if (memcmp(h->magic, magic, sizeof h->magic))
        return bad(error, path, "not a saved sequence");
    if (h->order_mark != ORDER_MARK)
        return bad(error, path, "saved on a machine of another byte order");
    if (h->version != FILE_VERSION)
        return error_set(error, -EBADMSG, "%s: a saved sequence of version "
                         "%" PRIu32 ", this program reads version %d", path,
                         h->version, FILE_VERSION);
    if (h->header_crc != header_crc(h))
        return bad(error, path, "its header is damaged");
    if (memcmp(h->model, owner->model.byte, sizeof h->model))
        return error_set(error, -ESTALE, "%s: saved with another model", path);
    if (memcmp(&h->mla_latent_eps, &owner->mla_latent_eps,
               sizeof h->mla_latent_eps))
        return error_set(error, -ESTALE, "%s: saved with another "
                         "--mla-latent-eps, %g", path,
                         (double)h->mla_latent_eps);
    struct file_header want;
    fill_header(&want, s, owner, h->positions);
    if (h->kda_layers != want.kda_layers || h->mla_layers != want.mla_layers ||
        h->kda_bytes != want.kda_bytes || h->conv_bytes != want.conv_bytes ||
        h->latent_bytes != want.latent_bytes || h->blocks != want.blocks ||
        h->payload_bytes != want.payload_bytes ||
        h->block_bytes != want.block_bytes)
        return bad(error, path, "its sizes are not those of the model");
    uint64_t bytes = PAGE + table_bytes(h->blocks) + h->payload_bytes;
    if (file_bytes < bytes)
        return error_set(error, -EBADMSG, "%s: truncated: %" PRIu64 " of "
                         "%" PRIu64 " bytes", path, file_bytes, bytes);
    return 0;
}

struct reading {
    int       fd;
    uint64_t  file_bytes;
    struct file_header h;
    uint32_t *crc; /* [h.blocks], checked against the header */
};

static void end_reading(struct reading *r)
{
    if (r->fd >= 0)
        close(r->fd);
    free(r->crc);
    *r = (struct reading){ .fd = -1 };
}

static int begin_reading(struct reading *r, const char *path,
                         const struct state_shape *s,
                         const struct state_owner *owner, struct error *error)
{
    struct stat st;
    *r = (struct reading){ .fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY |
                                                O_NONBLOCK) };
    if (r->fd < 0)
        return failed(error, path, -errno);
    int err = fstat(r->fd, &st) ? failed(error, path, -errno) : 0;
    if (!err && !S_ISREG(st.st_mode))
        err = bad(error, path, "not a saved sequence");
    if (!err) {
        r->file_bytes = (uint64_t)st.st_size;
        int read = file_read_all(r->fd, &r->h, sizeof r->h, 0);
        err = read ? failed(error, path, read)
                   : check_header(&r->h, r->file_bytes, s, owner, path, error);
    }
    if (!err) {
        r->crc = malloc(r->h.blocks * sizeof *r->crc + 1);
        int read = r->crc ? file_read_all(r->fd, r->crc,
                                     r->h.blocks * sizeof *r->crc, PAGE)
                          : -ENOMEM;
        if (read)
            err = failed(error, path, read);
        else if (crc32c(0, r->crc, r->h.blocks * sizeof *r->crc) !=
                 r->h.table_crc)
            err = bad(error, path, "its table of checksums is damaged");
    }
    if (err)
        end_reading(r);
    return err;
}

/* Read the spans and compare the checksums of the blocks they fill. */
static int read_checked(const struct reading *r, struct spans *spans,
                        const char *path, struct error *error)
{
    uint32_t *crc = calloc(r->h.blocks + 1, sizeof *crc);
    int err = crc ? move_spans(spans, r->fd, PAGE + table_bytes(r->h.blocks),
                               move_in, crc)
                  : -ENOMEM;
    if (err)
        err = failed(error, path, err);
    for (uint32_t b = 0; b < r->h.blocks && !err; b++)
        if (crc[b] != r->crc[b])
            err = error_set(error, -EBADMSG, "%s: block %" PRIu32 " of "
                            "%" PRIu32 " is damaged", path, b, r->h.blocks);
    free(crc);
    return err;
}

/* The blocks that hold the ids, checked, and the ids out of them. */
static int read_ids(uint32_t **out, const struct reading *r, const char *path,
                    struct error *error)
{
    uint64_t ids = (uint64_t)r->h.positions * sizeof **out;
    uint64_t blocks = blocks_of(ids);
    uint64_t bytes = blocks * BLOCK_BYTES;
    if (bytes > r->h.payload_bytes)
        bytes = r->h.payload_bytes;
    uint8_t *room = malloc(bytes + 1);
    int err = room ? file_read_all(r->fd, room, bytes,
                              PAGE + table_bytes(r->h.blocks))
                   : -ENOMEM;
    if (err)
        err = failed(error, path, err);
    for (uint64_t b = 0; b < blocks && !err; b++) {
        uint64_t left = bytes - b * BLOCK_BYTES;
        uint64_t n = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        if (crc32c(0, room + b * BLOCK_BYTES, n) != r->crc[b])
            err = error_set(error, -EBADMSG, "%s: block %" PRIu64 " of "
                            "%" PRIu32 " is damaged", path, b, r->h.blocks);
    }
    if (err) {
        free(room);
        return err;
    }
    *out = (uint32_t *)(void *)room;
    return 0;
}

int state_peek(struct state_info *out, const char *path,
               const struct state_shape *shape,
               const struct state_owner *owner, struct error *error)
{
    struct reading r;
    *out = (struct state_info){ 0 };
    int err = begin_reading(&r, path, shape, owner, error);
    if (!err)
        err = read_ids(&out->ids, &r, path, error);
    if (!err) {
        out->positions = r.h.positions;
        out->file_bytes = r.file_bytes;
        out->after = r.h.after;
        end_reading(&r);
    } else if (r.fd >= 0) {
        end_reading(&r);
    }
    return err;
}

/* The payload, checked, into `block`. */
static int load_payload(const struct reading *r, uint8_t *block,
                        const struct state_shape *shape, const char *path,
                        struct error *error)
{
    struct spans spans = { 0 };
    uint32_t positions = r->h.positions;
    uint32_t *ids = malloc((size_t)positions * sizeof *ids + 1);
    int err = ids ? list_spans(&spans, block, shape, ids, positions) : -ENOMEM;
    if (err) {
        free(ids);
        return failed(error, path, err);
    }
    err = begin_share(&spans, block, true, positions);
    err = err ? failed(error, path, err)
              : read_checked(r, &spans, path, error);
    int shared = end_share(&spans, err);
    free(spans.span);
    free(ids);
    return err || !shared ? err : failed(error, path, shared);
}

int state_load(uint8_t *block, const char *path,
               const struct state_shape *shape,
               const struct state_owner *owner, struct error *error)
{
    struct reading r;
    state_reset(block, shape);
    int err = begin_reading(&r, path, shape, owner, error);
    if (err)
        return err;
    if (r.h.positions > shape->context)
        err = error_set(error, -EFBIG, "%s: has %" PRIu32 " positions, the "
                        "context has %" PRIu32, path, r.h.positions,
                        shape->context);
    if (!err)
        err = load_payload(&r, block, shape, path, error);
    if (err)
        state_reset(block, shape);
    else
        state_header(block)->positions = r.h.positions;
    end_reading(&r);
    return err;
}
