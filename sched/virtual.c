#include "sched/virtual.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "io/reader.h"

enum { DEPTH = 4096 };

struct drive {
    struct virtual_drive is;
    double   share;   /* of a read that is divided over all drives */
    int64_t  free_ns; /* when it has served all that was queued */
    uint64_t bytes;   /* asked of it so far */
};

/* Reads that end in order, so that only the oldest can be the next to end:
 * those of one drive, or of all, if each read is on all. */
struct queue {
    struct read_done *read; /* [DEPTH] */
    uint32_t head, count;
};

struct virtual_drives {
    int64_t  now_ns;
    uint32_t drives, queues; /* queues: 1 for parts, else as many */
    bool     copies;
    struct queue queue[DRIVES_MAX];
    struct drive drive[DRIVES_MAX];
};

int virtual_open(struct virtual_drives **out,
                 const struct virtual_drive *drives, uint32_t count,
                 enum virtual_layout layout)
{
    double all = 0;
    assert(count >= 1 && count <= DRIVES_MAX);
    *out = NULL;
    struct virtual_drives *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    v->now_ns = 1; /* 0 says "never" to some who remember a time */
    v->drives = count;
    v->queues = layout == VIRTUAL_PARTS ? 1 : count;
    v->copies = layout == VIRTUAL_COPIES;
    for (uint32_t d = 0; d < count; d++) {
        assert(drives[d].bytes_per_s > 0);
        v->drive[d].is = drives[d];
        all += (double)drives[d].bytes_per_s;
    }
    for (uint32_t d = 0; d < count; d++)
        v->drive[d].share = (double)drives[d].bytes_per_s / all;
    for (uint32_t q = 0; q < v->queues; q++) {
        v->queue[q].read = calloc(DEPTH, sizeof *v->queue[q].read);
        if (!v->queue[q].read) {
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
    for (uint32_t q = 0; q < v->queues; q++)
        free(v->queue[q].read);
    free(v);
}

int64_t virtual_now_ns(const struct virtual_drives *v)
{
    return v->now_ns;
}

uint32_t virtual_count(const struct virtual_drives *v)
{
    return v->queues;
}

uint64_t virtual_bytes(const struct virtual_drives *v, uint32_t drive)
{
    return v->drive[drive].bytes;
}

bool virtual_copies(const struct virtual_drives *v)
{
    return v->copies;
}

uint64_t virtual_rate(const struct virtual_drives *v, uint32_t drive)
{
    return v->drive[drive].is.bytes_per_s;
}

uint64_t virtual_budget(const struct virtual_drives *v, uint32_t drive)
{
    uint64_t bytes = v->drive[drive].is.budget_bytes;
    for (uint32_t d = 1; v->queues == 1 && d < v->drives; d++)
        bytes += v->drive[d].is.budget_bytes;
    return bytes;
}

/* Occupy a drive for some bytes; returns when they are there. */
static int64_t serve(const struct virtual_drives *v, struct drive *d,
                     double bytes)
{
    int64_t start = v->now_ns > d->free_ns ? v->now_ns : d->free_ns;
    d->free_ns = start + (int64_t)(bytes * 1e9 / (double)d->is.bytes_per_s);
    d->bytes += (uint64_t)bytes;
    return d->free_ns + d->is.latency_ns;
}

int virtual_start(struct virtual_drives *v, uint32_t number,
                  const struct read_req *req)
{
    struct queue *q = &v->queue[number];
    int64_t done_ns = 0;
    assert(number < v->queues);
    if (q->count == DEPTH)
        return -EAGAIN;
    uint64_t first = req->offset_bytes / READER_PAGE * READER_PAGE;
    uint64_t end = (req->offset_bytes + req->length_bytes + READER_PAGE - 1) /
                   READER_PAGE * READER_PAGE;
    if (v->queues == v->drives) {
        done_ns = serve(v, &v->drive[number], (double)(end - first));
    } else {
        for (uint32_t i = 0; i < v->drives; i++) {
            struct drive *d = &v->drive[i];
            int64_t ns = serve(v, d, d->share * (double)(end - first));
            done_ns = ns > done_ns ? ns : done_ns;
        }
    }
    q->read[(q->head + q->count++) % DEPTH] = (struct read_done){
        .tag = req->tag, .bytes = req->length_bytes,
        .device_bytes = (uint32_t)(end - first), .drive = number,
        .class = req->class, .queued_ns = v->now_ns, .issued_ns = v->now_ns,
        .done_ns = done_ns,
    };
    return 0;
}

int virtual_next(struct virtual_drives *v, int64_t until_ns,
                 struct read_done *done)
{
    struct queue *first = NULL;
    for (uint32_t i = 0; i < v->queues; i++) {
        struct queue *q = &v->queue[i];
        if (q->count && (!first || q->read[q->head].done_ns <
                                       first->read[first->head].done_ns))
            first = q;
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
