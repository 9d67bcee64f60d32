/* box.h - a file of coded objects: a head page, objects, tables.
 *
 *     0     magic[8]   u32 version   u32 0x01020304   u64 file_bytes
 *     24    u64 tables_at   u64 tables_bytes   u32 tables_crc   zeros to 64
 *     64    what the kind of file keeps in its head
 *     4092  u32 crc of bytes 0..4091
 *     4096  objects
 *     tables_at   tables; a multiple of 4096, up to the end of the file
 *
 * Everything is little endian; checksums are CRC-32C. What the tables hold is
 * the business of the kind of file; every reference to a coded thing is a
 * struct box_ref or begins like one, and box_ref_inside is its check.
 *
 *     box_open -> { head, tables } -> box_close
 *
 * Errors   -ENODATA: shorter than it says; -EBADMSG: no such file, or damaged;
 *          errnos of the file; -ENOMEM. The sentence names the path.
 * Cost     a read of the head and the tables (6 MB for K3's 96 files).
 */
#ifndef MODEL_PACK_BOX_H
#define MODEL_PACK_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/error.h"

enum {
    BOX_PAGE = 4096,
    BOX_OWN = 64,      /* where the kind's own part of the head begins */
    BOX_ORDER = 0x01020304,
};

struct box_head {
    char     magic[8];
    uint32_t version, order;
    uint64_t file_bytes;
    uint64_t tables_at, tables_bytes;
    uint32_t tables_crc;
    uint32_t zero[5];
};

/* A coded thing in the file. */
struct box_ref {
    uint64_t at;
    uint32_t bytes;
    uint32_t crc;
};

struct box {
    union {
        struct box_head head;
        uint8_t         page[BOX_PAGE];
    };
    uint8_t *tables; /* [head.tables_bytes], ours */
};

/* magic: 8 bytes. On failure *out is empty. tables_max_bytes refuses what the
 * caller could have no use for. */
int  box_open(struct box *out, const char *path, const char *magic,
              uint32_t version, uint64_t tables_max_bytes,
              struct error *error);
void box_close(struct box *b);

/* Lies the thing between the head and the tables, at a multiple of `align`? */
bool box_ref_inside(const struct box *b, const struct box_ref *ref,
                    uint32_t align);

/* Fill what box_head has, and the checksum of the page; the rest of the page is
 * the caller's. file_bytes = tables_at + tables_bytes. */
void box_seal(uint8_t page[BOX_PAGE], const char *magic, uint32_t version,
              uint64_t tables_at, const void *tables, uint64_t tables_bytes);

#endif
