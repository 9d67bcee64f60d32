#include "model/pack/box.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "model/ckpt/slurp.h"

_Static_assert(sizeof(struct box_head) == BOX_OWN, "as on the drive");
_Static_assert(sizeof(struct box_ref) == 16, "as on the drive");

enum { CRC_AT = BOX_PAGE - 4 };

static uint32_t page_crc(const uint8_t *page)
{
    uint32_t stored;
    memcpy(&stored, page + CRC_AT, sizeof stored);
    return stored;
}

static int check_head(const struct box *b, const char *path, const char *magic,
                      uint32_t version, uint64_t size, uint64_t tables_max,
                      struct error *error)
{
    const struct box_head *h = &b->head;
    if (memcmp(h->magic, magic, sizeof h->magic))
        return error_set(error, -EBADMSG, "%s: is not a file of this kind",
                         path);
    if (crc32c(0, b->page, CRC_AT) != page_crc(b->page))
        return error_set(error, -EBADMSG,
                         "%s: the checksum of its head does not match", path);
    if (h->version != version || h->order != BOX_ORDER)
        return error_set(error, -EBADMSG,
                         "%s: is of version %" PRIu32 ", this program reads "
                         "%" PRIu32, path, h->version, version);
    if (size < h->file_bytes)
        return error_set(error, -ENODATA,
                         "%s: has %" PRIu64 " bytes, its head says %" PRIu64,
                         path, size, h->file_bytes);
    if (size != h->file_bytes || h->tables_at % BOX_PAGE ||
        h->tables_at < BOX_PAGE || h->tables_at > size ||
        h->tables_bytes != size - h->tables_at)
        return error_set(error, -EBADMSG,
                         "%s: its head does not fit its %" PRIu64 " bytes",
                         path, size);
    if (h->tables_bytes > tables_max)
        return error_set(error, -EBADMSG,
                         "%s: %" PRIu64 " bytes of tables are too many", path,
                         h->tables_bytes);
    return 0;
}

int box_open(struct box *out, const char *path, const char *magic,
             uint32_t version, uint64_t tables_max_bytes, struct error *error)
{
    uint64_t size;
    memset(out, 0, sizeof *out);
    int fd = slurp_open(path, &size, error);
    if (fd < 0)
        return fd;
    int code = 0;
    if (size < BOX_PAGE)
        code = error_set(error, -ENODATA, "%s: has only %" PRIu64 " bytes",
                         path, size);
    if (!code)
        code = slurp_at(fd, out->page, BOX_PAGE, 0, path, error);
    if (!code)
        code = check_head(out, path, magic, version, size, tables_max_bytes,
                          error);
    if (!code) {
        out->tables = malloc(out->head.tables_bytes + 1);
        code = out->tables
                   ? slurp_at(fd, out->tables, out->head.tables_bytes,
                                out->head.tables_at, path, error)
                   : error_set(error, -ENOMEM, "%s: no memory", path);
    }
    close(fd);
    if (!code && crc32c(0, out->tables, out->head.tables_bytes) !=
                     out->head.tables_crc)
        code = error_set(error, -EBADMSG,
                         "%s: the checksum of its tables does not match", path);
    if (code)
        box_close(out);
    return code;
}

void box_close(struct box *b)
{
    free(b->tables);
    memset(b, 0, sizeof *b);
}

bool box_ref_inside(const struct box *b, const struct box_ref *ref,
                    uint32_t align)
{
    return ref->at >= BOX_PAGE && ref->at % align == 0 &&
           ref->at <= b->head.tables_at &&
           ref->bytes <= b->head.tables_at - ref->at;
}

void box_seal(uint8_t page[BOX_PAGE], const char *magic, uint32_t version,
              uint64_t tables_at, const void *tables, uint64_t tables_bytes)
{
    struct box_head head = {
        .version = version, .order = BOX_ORDER,
        .file_bytes = tables_at + tables_bytes, .tables_at = tables_at,
        .tables_bytes = tables_bytes,
        .tables_crc = crc32c(0, tables, tables_bytes),
    };
    memcpy(head.magic, magic, sizeof head.magic);
    memcpy(page, &head, sizeof head);
    uint32_t crc = crc32c(0, page, CRC_AT);
    memcpy(page + CRC_AT, &crc, sizeof crc);
}
