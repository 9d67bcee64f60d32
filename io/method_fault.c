#include "io/clock.h"
#include "io/method.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/fault.h"

#define BATCH_MAX    64u
#define POISON       0xa5 /* what a broken read leaves in its target */
#define OVERTAKE_MAX 8u   /* results held back for reordering, at most */
#define GHOSTS_MAX   8u   /* results that wait to be told again */

enum held_state { HELD_NO, HELD_FLYING, HELD_BACK };

struct held {
    enum held_state state;
    struct io_op  op;
    uint32_t      kind; /* one of enum fault_kind, 0: none */
    struct io_result result;
    int64_t       until_ns;
};

struct fault {
    const struct io_method *below;
    void    *ctx;
    struct fault_plan plan;
    struct io_granted *granted;
    uint64_t random;
    uint32_t ops; /* pushed so far: the number of the next read */
    uint32_t depth, flying, back, back_reorder;
    uint32_t ghosts;
    struct io_result ghost[GHOSTS_MAX];
    struct held held[];
};

static uint64_t draw(struct fault *f)
{
    /* splitmix64 */
    uint64_t z = f->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void fault_close(void *ctx)
{
    struct fault *f = ctx;
    if (f->ctx)
        f->below->close(f->ctx);
    free(f);
}

static int fault_open(void **ctx, const struct io_setup *s)
{
    const struct fault_plan *plan = s->fault;
    if (plan->refused_method &&
        !strcmp(plan->refused_method, s->layers[1]->name))
        return plan->refused_error;
    struct fault *f = calloc(1, sizeof *f + s->depth * sizeof f->held[0]);
    if (!f)
        return -ENOMEM;
    f->below = s->layers[1];
    f->plan = *plan;
    f->random = plan->seed;
    f->depth = s->depth;
    f->granted = s->granted;
    struct io_setup below = *s;
    below.layers++;
    int err = f->below->open(&f->ctx, &below);
    if (err < 0) {
        f->ctx = NULL;
        fault_close(f);
        return err;
    }
    *ctx = f;
    return 0;
}

/* The kind of fault for read number n, or 0. Draws the same number of random
 * numbers for every read. */
static uint32_t choose(struct fault *f, uint32_t n)
{
    const struct fault_plan *p = &f->plan;
    bool chance = draw(f) % 1000 < p->chance_permille;
    uint64_t pick = draw(f);
    bool planned = n == p->first ||
                   (n > p->first && p->every && (n - p->first) % p->every == 0);
    if (p->kinds == 0 || (!planned && !chance))
        return 0;
    uint32_t kinds = p->kinds;
    for (uint64_t i = pick % (uint64_t)__builtin_popcount(kinds); i > 0; i--)
        kinds &= kinds - 1;
    return kinds & -kinds;
}

static void fault_push(void *ctx, const struct io_op *op)
{
    struct fault *f = ctx;
    struct held *h = &f->held[IO_SLOT(op->id)];
    assert(IO_SLOT(op->id) < f->depth && h->state == HELD_NO);
    uint32_t kind = 0;
    if (!f->plan.only || f->plan.only == op->file + 1)
        kind = choose(f, f->ops++);
    if ((kind == FAULT_EINVAL && !op->direct) ||
        (kind == FAULT_NO_FIXED && op->plain))
        kind = 0;
    if (kind)
        atomic_fetch_add(&f->granted->faults, 1);
    *h = (struct held){ .state = HELD_FLYING, .op = *op, .kind = kind };
    f->flying++;
    f->below->push(f->ctx, op);
}

/* Change a result as the plan says, and with it the bytes: whoever trusts what
 * was not reported as read shall not find the right ones there. */
static void spoil(const struct fault *f, struct held *h)
{
    int32_t res = h->result.res;
    switch (h->kind) {
    case FAULT_SHORT:
        if (res > 1)
            res = (uint32_t)res > f->plan.short_bytes
                      ? res - (int32_t)f->plan.short_bytes
                      : 1;
        break;
    case FAULT_EIO:
        res = -EIO;
        break;
    case FAULT_EINTR:
        res = -EINTR;
        break;
    case FAULT_EAGAIN:
        res = -EAGAIN;
        break;
    case FAULT_EINVAL:
        res = -EINVAL;
        break;
    case FAULT_NO_FIXED:
        res = -EOPNOTSUPP;
        break;
    case FAULT_END:
        res = 0;
        break;
    default: /* late, reordered, twice: the bytes are good */
        return;
    }
    uint32_t good = res > 0 ? (uint32_t)res : 0;
    memset((char *)h->op.target + good, POISON, h->op.length_bytes - good);
    h->result.res = res;
}

static void take_in(struct fault *f, const struct io_result *res)
{
    struct held *h = &f->held[IO_SLOT(res->id)];
    assert(h->state == HELD_FLYING && h->op.id == res->id);
    h->result = *res;
    h->state = HELD_BACK;
    h->until_ns = 0;
    spoil(f, h);
    f->flying--;
    f->back++;
    if (h->kind == FAULT_LATE)
        h->until_ns = res->done_ns + f->plan.late_ns;
    if (h->kind == FAULT_REORDER)
        f->back_reorder++;
}

static void let_go(struct fault *f, struct held *h, struct io_result *out)
{
    *out = h->result;
    if (h->until_ns > out->done_ns)
        out->done_ns = h->until_ns;
    f->back_reorder -= h->kind == FAULT_REORDER;
    f->back--;
    h->state = HELD_NO;
    if (h->kind == FAULT_TWICE && f->ghosts < GHOSTS_MAX)
        f->ghost[f->ghosts++] = h->result;
}

/* Hand up what need not wait, then, when nothing else would come or enough is
 * held for reordering, those in random order. */
static uint32_t hand_up(struct fault *f, struct io_result *out, uint32_t max,
                        int64_t *next_ns)
{
    uint32_t n = 0;
    int64_t now = clock_ns();
    *next_ns = IO_NO_DEADLINE;
    while (n < max && f->ghosts > 0)
        out[n++] = f->ghost[--f->ghosts];
    for (uint32_t i = 0; i < f->depth && f->back > f->back_reorder; i++) {
        struct held *h = &f->held[i];
        if (h->state != HELD_BACK || h->kind == FAULT_REORDER)
            continue;
        if (h->until_ns > now || n == max) {
            int64_t then = h->until_ns > now ? h->until_ns : now;
            *next_ns = then < *next_ns ? then : *next_ns;
        } else {
            let_go(f, h, &out[n++]);
        }
    }
    while (n < max && f->back_reorder > 0 &&
           (f->back_reorder >= OVERTAKE_MAX ||
            (f->flying == 0 && f->back == f->back_reorder && n == 0))) {
        uint32_t at = (uint32_t)(draw(f) % f->depth);
        while (f->held[at].state != HELD_BACK ||
               f->held[at].kind != FAULT_REORDER)
            at = (at + 1) % f->depth;
        let_go(f, &f->held[at], &out[n++]);
    }
    return n;
}

static int fault_reap(void *ctx, struct io_result *out, uint32_t max,
                      int64_t deadline_ns)
{
    struct fault *f = ctx;
    struct io_result landed[BATCH_MAX];
    int64_t next_ns;
    if (max == 0)
        return f->below->reap(f->ctx, NULL, 0, 0);
    uint32_t n = hand_up(f, out, max, &next_ns);
    if (n > 0)
        deadline_ns = 0;
    int got = f->below->reap(f->ctx, landed, BATCH_MAX,
                             next_ns < deadline_ns ? next_ns : deadline_ns);
    if (got < 0)
        return got;
    for (int i = 0; i < got; i++)
        take_in(f, &landed[i]);
    if (n < max)
        n += hand_up(f, out + n, max - n, &next_ns);
    return (int)n;
}

static void fault_wake(void *ctx)
{
    struct fault *f = ctx;
    f->below->wake(f->ctx);
}

const struct io_method method_fault = {
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .push = fault_push,
    .reap = fault_reap,
    .wake = fault_wake,
};
