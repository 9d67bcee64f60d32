/* block.h - what is read as one thing: a tile of the trunk or an expert.
 *
 * A block lives in one or more extents: a tile's all in one file, a load's in
 * any. In memory it has one frame. A segment says where in the frame the first
 * byte of an extent lands. The reader takes whole pages, so this place keeps
 * the residue of the file offset, and the pages around a segment belong to it
 * alone.
 *
 *     block_add for each part, in order -> segments, and the bytes of the frame
 *
 * Bytes    offsets and lengths are bytes; frames are whole pages below 4 GiB.
 * Threads  any: nothing but the arguments.
 * Errors   -EOVERFLOW: the frame would reach 4 GiB.
 */
#ifndef SCHED_BLOCK_H
#define SCHED_BLOCK_H

#include <assert.h>
#include <errno.h>
#include <stdint.h>

enum {
    BLOCK_PAGE = 4096,
    BLOCK_SEGMENTS_MAX = 16, /* of a load: tensors of an expert, or its slices
                              * on several drives */
    BLOCK_PARTS_MAX = 7,    /* of a load: the tensors of an expert, and what
                             * some of them are made of */
};

struct segment {
    uint32_t file; /* its number in the reader */
    uint32_t at;   /* byte of the frame; at % 4096 == offset_bytes % 4096 */
    uint64_t offset_bytes;
    uint64_t length_bytes;
};

/* The class of a read: who waits for it. Smaller is more urgent. */
enum read_class { READ_DEMAND, READ_TRUNK, READ_PREFETCH, READ_CLASSES };

static inline uint64_t block_pages(uint64_t bytes)
{
    return (bytes + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
}

/* Place a segment at or after byte `used` of a frame (whole pages). Returns the
 * bytes used with it, whole pages. Sets segment->at from its file offset. */
static inline uint64_t block_place(struct segment *s, uint64_t used)
{
    uint64_t residue = s->offset_bytes % BLOCK_PAGE;
    assert(used % BLOCK_PAGE == 0 && used + residue <= UINT32_MAX);
    s->at = (uint32_t)(used + residue);
    return block_pages(used + residue + s->length_bytes);
}

/* Add `length` bytes of a file to the block in segment[0 .. *count). Bytes that
 * continue the last segment make it longer; others begin a new one, for which
 * there must be room. *frame_bytes grows with it, and *at is the byte of the
 * frame where the first one lands. 0 or -EOVERFLOW. */
static inline int block_add(struct segment *segment, uint32_t *count,
                            uint64_t *frame_bytes, uint32_t file,
                            uint64_t offset_bytes, uint64_t length_bytes,
                            uint32_t *at)
{
    struct segment *s = *count ? &segment[*count - 1] : segment;
    uint64_t base = *frame_bytes;
    if (base > UINT32_MAX - BLOCK_PAGE ||
        length_bytes > UINT32_MAX - BLOCK_PAGE - base)
        return -EOVERFLOW;
    if (*count && s->file == file &&
        s->offset_bytes + s->length_bytes == offset_bytes) {
        *at = s->at + (uint32_t)s->length_bytes;
        base = s->at - s->offset_bytes % BLOCK_PAGE;
        s->length_bytes += length_bytes;
    } else {
        s = &segment[(*count)++];
        *s = (struct segment){ .file = file, .offset_bytes = offset_bytes,
                               .length_bytes = length_bytes };
        *at = (uint32_t)(base + offset_bytes % BLOCK_PAGE);
    }
    *frame_bytes = block_place(s, base);
    return *frame_bytes <= UINT32_MAX ? 0 : -EOVERFLOW;
}

#endif
