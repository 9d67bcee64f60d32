/* block.h - what is read as one thing: a tile of the trunk or an expert.
 *
 * A block lives in one or more extents, a tile's all in one file. In memory it
 * has one frame; each segment says where in the frame its first byte lands. The
 * reader takes whole pages, so `at` keeps the residue of the file offset and
 * the pages around a segment belong to it alone.
 */
#ifndef SCHED_BLOCK_H
#define SCHED_BLOCK_H

#include <stdint.h>

enum { BLOCK_PAGE = 4096, BLOCK_SEGMENTS_MAX = 6 };

struct segment {
    uint32_t file;
    uint32_t at; /* place in the frame; at % 4096 == offset_bytes % 4096 */
    uint64_t offset_bytes;
    uint64_t length_bytes;
};

/* The class of a read: who waits for it. Smaller is more urgent. */
enum read_class { READ_DEMAND, READ_TRUNK, READ_GUESS, READ_CLASSES };

/* Place a segment at or after byte `used` of a frame (whole pages); returns the
 * bytes used with it, whole pages. Sets segment->at from its file offset. */
static inline uint64_t block_place(struct segment *s, uint64_t used)
{
    uint64_t residue = s->offset_bytes % BLOCK_PAGE;
    s->at = (uint32_t)(used + residue);
    uint64_t end = used + residue + s->length_bytes;
    return (end + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
}

#endif
