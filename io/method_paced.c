#include "io/clock.h"
#include "io/method.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "io/paced.h"

#define BATCH_MAX 64u

/* The simulated drive serves in order: its reads are in a queue, and only the
 * head may leave, when it has really landed and its time has come. */
struct paced_read {
    uint32_t id;
    uint32_t next; /* slot behind this one, or depth */
    int32_t  res;
    bool     landed;
    int64_t  done_ns; /* simulated; raised to the real one when that is later */
};

struct paced_queue {
    uint32_t head, tail; /* slots; depth: empty */
    int64_t  free_ns;    /* when the drive has served all that was pushed */
    int64_t  done_ns;    /* of the last that left */
    struct paced_drive drive;
};

struct paced {
    const struct io_method *below;
    void    *ctx;
    uint32_t depth, drives;
    uint32_t turn; /* drive that is looked at first, so that none starves */
    uint32_t *drive_of;      /* [depth] */
    struct paced_read *read; /* [depth] */
    struct paced_queue queue[];
};

static void paced_close(void *ctx)
{
    struct paced *p = ctx;
    if (p->ctx)
        p->below->close(p->ctx);
    free(p->drive_of);
    free(p->read);
    free(p);
}

static int paced_open(void **ctx, const struct io_setup *s)
{
    struct paced *p = calloc(1, sizeof *p + s->drives * sizeof p->queue[0]);
    if (!p)
        return -ENOMEM;
    p->below = s->layers[1];
    p->depth = s->depth;
    p->drives = s->drives;
    for (uint32_t i = 0; i < s->drives; i++)
        p->queue[i] = (struct paced_queue){ .head = s->depth,
                                            .tail = s->depth,
                                            .drive = s->paced[i] };
    p->read = calloc(s->depth, sizeof *p->read);
    p->drive_of = calloc(s->depth, sizeof *p->drive_of);
    int err = -ENOMEM;
    if (p->read && p->drive_of) {
        struct io_setup below = *s;
        below.layers++;
        err = p->below->open(&p->ctx, &below);
    }
    if (err < 0) {
        p->ctx = NULL;
        paced_close(p);
        return err;
    }
    *ctx = p;
    return 0;
}

static void paced_push(void *ctx, const struct io_op *op)
{
    struct paced *p = ctx;
    uint32_t slot = IO_SLOT(op->id);
    struct paced_queue *q = &p->queue[op->drive];
    assert(slot < p->depth && op->drive < p->drives);
    int64_t start = op->issued_ns > q->free_ns ? op->issued_ns : q->free_ns;
    q->free_ns = start + (int64_t)((double)op->length_bytes * 1e9 /
                                   (double)q->drive.bytes_per_s);
    p->drive_of[slot] = op->drive;
    p->read[slot] = (struct paced_read){
        .id = op->id,
        .next = p->depth,
        .done_ns = q->free_ns + q->drive.latency_ns,
    };
    if (q->head == p->depth)
        q->head = slot;
    else
        p->read[q->tail].next = slot;
    q->tail = slot;
    p->below->push(p->ctx, op);
}

static void take_in(struct paced *p, const struct io_result *res)
{
    struct paced_read *r = &p->read[IO_SLOT(res->id)];
    assert(r->id == res->id && !r->landed);
    r->landed = true;
    r->res = res->res;
    if (res->done_ns > r->done_ns)
        r->done_ns = res->done_ns;
}

/* Hand up every head whose time has come; *next_ns is when the next one's
 * will, if that is known. */
static uint32_t hand_up(struct paced *p, struct io_result *out, uint32_t max,
                        int64_t *next_ns)
{
    uint32_t n = 0;
    int64_t now = clock_ns();
    *next_ns = IO_NO_DEADLINE;
    for (uint32_t i = 0; i < p->drives; i++) {
        struct paced_queue *q = &p->queue[(p->turn + i) % p->drives];
        while (q->head != p->depth && p->read[q->head].landed) {
            struct paced_read *r = &p->read[q->head];
            if (r->done_ns < q->done_ns)
                r->done_ns = q->done_ns;
            if (r->done_ns > now || n == max) {
                if (r->done_ns < *next_ns)
                    *next_ns = r->done_ns;
                break;
            }
            out[n++] = (struct io_result){ r->id, r->res, r->done_ns };
            q->done_ns = r->done_ns;
            q->head = r->next;
        }
    }
    p->turn = (p->turn + 1) % p->drives;
    return n;
}

static int paced_reap(void *ctx, struct io_result *out, uint32_t max,
                      int64_t deadline_ns)
{
    struct paced *p = ctx;
    struct io_result landed[BATCH_MAX];
    int64_t next_ns;
    if (max == 0)
        return p->below->reap(p->ctx, NULL, 0, 0);
    uint32_t n = hand_up(p, out, max, &next_ns);
    if (n > 0 && deadline_ns != 0)
        deadline_ns = 0;
    /* The timer is the deadline of the wait below: absolute, and it wakes the
     * owner at the very time at which the simulated drive would. */
    int got = p->below->reap(p->ctx, landed, BATCH_MAX,
                             next_ns < deadline_ns ? next_ns : deadline_ns);
    if (got < 0)
        return got;
    for (int i = 0; i < got; i++)
        take_in(p, &landed[i]);
    if (n < max)
        n += hand_up(p, out + n, max - n, &next_ns);
    return (int)n;
}

static void paced_wake(void *ctx)
{
    struct paced *p = ctx;
    p->below->wake(p->ctx);
}

const struct io_method method_paced = {
    .name = "paced",
    .open = paced_open,
    .close = paced_close,
    .push = paced_push,
    .reap = paced_reap,
    .wake = paced_wake,
};
