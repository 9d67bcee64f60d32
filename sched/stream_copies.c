/* stream_copies.c - which drive reads what, where files are on several. */
#include <errno.h>
#include <stdlib.h>

#include "sched/stream_internal.h"

enum { KINDS_MAX = 256 }; /* of sets of drives that have a file */

static uint64_t drives_with(const struct stream *s, uint32_t file)
{
    uint64_t drives = 0;
    for (uint32_t d = 0; d < s->drives; d++)
        if (stream_copy_on(s, file, d) != READER_NO_FILE)
            drives |= 1ull << d;
    return drives;
}

static int find_queue(struct stream *s, uint64_t drives, uint32_t *out)
{
    uint32_t i = 0;
    while (i < s->tile_queues && s->tile_queue[i].drives != drives)
        i++;
    if (i == KINDS_MAX)
        return -ENOTSUP;
    *out = i;
    if (i < s->tile_queues)
        return 0;
    struct tile_queue *q = &s->tile_queue[s->tile_queues++];
    q->drives = drives;
    q->home = calloc(s->o.tile_count + 1, sizeof *q->home);
    q->given = calloc(s->o.tile_count + 1, sizeof *q->given);
    return q->home && q->given ? 0 : -ENOMEM;
}

int stream_sort_tiles(struct stream *s)
{
    s->tile_queue = calloc(KINDS_MAX, sizeof *s->tile_queue);
    s->queue_of = calloc(s->o.tile_count + 1, sizeof *s->queue_of);
    s->number = calloc(s->o.tile_count + 1, sizeof *s->number);
    s->copies = s->o.simulated ? virtual_copies(s->o.simulated)
                               : reader_has_copies(s->o.reader);
    if (!s->tile_queue || !s->queue_of || !s->number)
        return -ENOMEM;
    for (uint32_t t = 0; t < s->o.tile_count; t++) {
        uint32_t first = s->o.tiles[t].first_segment;
        uint64_t drives = drives_with(s, s->o.segments[first].file);
        int err = find_queue(s, drives, &s->queue_of[t]);
        if (err)
            return err;
    }
    return 0;
}

uint32_t stream_chunk(const struct stream *s, const struct segment *seg,
                      uint64_t next)
{
    uint32_t max = s->o.chunk_bytes;
    uint64_t chunks = (seg->length_bytes + max - 1) / max;
    uint64_t size = (seg->length_bytes + chunks - 1) / chunks;
    size = (size + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
    uint64_t begin = seg->offset_bytes + next;
    uint64_t end = (begin + size) / BLOCK_PAGE * BLOCK_PAGE;
    uint64_t last = seg->offset_bytes + seg->length_bytes;
    if (end <= begin || end > last)
        end = last;
    return (uint32_t)(end - begin);
}

/* Seconds until a drive would have some bytes more. */
static double done_in(const struct stream *s, uint32_t drive, uint32_t bytes)
{
    const struct drive_queue *q = &s->queue[drive];
    return (double)(q->in_flight_bytes + bytes) / q->rate;
}

bool stream_takes(const struct stream *s, uint32_t drive,
                  const struct segment *seg, uint64_t next)
{
    if (stream_copy_on(s, seg->file, drive) == READER_NO_FILE)
        return false;
    if (!s->copies)
        return true;
    uint32_t bytes = stream_chunk(s, seg, next);
    double mine = done_in(s, drive, bytes);
    for (uint32_t d = 0; d < s->drives; d++)
        if (d != drive && done_in(s, d, bytes) < mine &&
            stream_copy_on(s, seg->file, d) != READER_NO_FILE)
            return false;
    return true;
}

/* The segment that has a byte of a file, which is there. */
static const struct segment *find_segment(const struct segment *s,
                                          uint32_t file, uint64_t offset)
{
    while (s->file != file || offset < s->offset_bytes ||
           offset - s->offset_bytes >= s->length_bytes)
        s++;
    return s;
}

bool stream_read_elsewhere(struct stream *s, const struct read_done *d)
{
    uint32_t index = (uint32_t)(d->tag >> 32) & 0x7fffffff;
    uint32_t best = s->drives, bytes = (uint32_t)d->tag, file;
    const struct segment *seg;
    uint8_t *frame;
    if (s->o.simulated || !reader_lose(s->o.reader, d->file, d->error))
        return false;
    file = reader_original(s->o.reader, d->file);
    for (uint32_t i = 0; i < s->drives; i++)
        if (stream_copy_on(s, file, i) != READER_NO_FILE &&
            (best == s->drives ||
             done_in(s, i, bytes) < done_in(s, best, bytes)))
            best = i;
    if (d->tag & TAG_LOAD) {
        seg = s->pending[index]->segment;
        frame = s->pending[index]->frame;
    } else {
        seg = &s->o.segments[s->o.tiles[index].first_segment];
        frame = s->state[index].frame;
    }
    seg = find_segment(seg, file, d->offset_bytes);
    struct read_req req = {
        .file = stream_copy_on(s, file, best),
        .offset_bytes = d->offset_bytes, .length_bytes = bytes,
        .target = frame + seg->at + (d->offset_bytes - seg->offset_bytes),
        .tag = d->tag, .class = d->class };
    if (reader_start(s->o.reader, &req)) /* the slot of *d is free */
        return false;
    stream_flies(s, best, (enum read_class)d->class, bytes);
    return true;
}
