#include "sched/virtual.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "io/reader.h"

enum { DEPTH = 4096 };

/* A drive serves in order, so its reads are a ring and only the oldest can be
 * the next to end. */
struct drive {
    struct virtual_drive is;
    struct read_done *read; /* [DEPTH] */
    uint32_t head, count;
    int64_t  free_ns; /* when it has served all that was queued */
};

struct virtual_drives {
    int64_t  now_ns;
    uint32_t count;
    struct drive drive[];
};

int virtual_open(struct virtual_drives **out,
                 const struct virtual_drive *drives, uint32_t count)
{
    *out = NULL;
    struct virtual_drives *v = calloc(1, sizeof *v + count * sizeof *v->drive);
    if (!v)
        return -ENOMEM;
    v->now_ns = 1; /* 0 says "never" to some who remember a time */
    for (uint32_t d = 0; d < count; d++) {
        assert(drives[d].bytes_per_s > 0);
        v->drive[d].is = drives[d];
        v->drive[d].read = calloc(DEPTH, sizeof *v->drive[d].read);
        v->count++;
        if (!v->drive[d].read) {
            virtual_close(v);
            return -ENOMEM;
        }
    }
    *out = v;
    return 0;
}

void virtual_close(struct virtual_drives *v)
{
    if (!v)
        return;
    for (uint32_t d = 0; d < v->count; d++)
        free(v->drive[d].read);
    free(v);
}

int64_t virtual_now_ns(const struct virtual_drives *v)
{
    return v->now_ns;
}

uint32_t virtual_count(const struct virtual_drives *v)
{
    return v->count;
}

uint64_t virtual_budget(const struct virtual_drives *v, uint32_t drive)
{
    return v->drive[drive].is.budget_bytes;
}

int virtual_start(struct virtual_drives *v, const struct read_req *req)
{
    uint32_t number = req->file % v->count;
    struct drive *d = &v->drive[number];
    if (d->count == DEPTH)
        return -EAGAIN;
    uint64_t first = req->offset_bytes / READER_PAGE * READER_PAGE;
    uint64_t end = (req->offset_bytes + req->length_bytes + READER_PAGE - 1) /
                   READER_PAGE * READER_PAGE;
    int64_t start = v->now_ns > d->free_ns ? v->now_ns : d->free_ns;
    d->free_ns = start + (int64_t)((double)(end - first) * 1e9 /
                                   (double)d->is.bytes_per_s);
    d->read[(d->head + d->count++) % DEPTH] = (struct read_done){
        .tag = req->tag, .bytes = req->length_bytes,
        .device_bytes = (uint32_t)(end - first), .drive = number,
        .class = req->class, .queued_ns = v->now_ns, .issued_ns = v->now_ns,
        .done_ns = d->free_ns + d->is.latency_ns,
    };
    return 0;
}

int virtual_next(struct virtual_drives *v, int64_t until_ns,
                 struct read_done *done)
{
    struct drive *first = NULL;
    for (uint32_t i = 0; i < v->count; i++) {
        struct drive *d = &v->drive[i];
        if (d->count && (!first || d->read[d->head].done_ns <
                                       first->read[first->head].done_ns))
            first = d;
    }
    if (!first || first->read[first->head].done_ns > until_ns) {
        if (until_ns != INT64_MAX && until_ns > v->now_ns)
            v->now_ns = until_ns;
        return 0;
    }
    *done = first->read[first->head];
    first->head = (first->head + 1) % DEPTH;
    first->count--;
    if (done->done_ns > v->now_ns)
        v->now_ns = done->done_ns;
    return 1;
}
