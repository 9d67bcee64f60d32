/* s3fifo: three queues (Yang et al., SOSP 2023). A block enters the small one,
 * a tenth of the frames. If it is hit twice there it moves to the main queue;
 * if not it is evicted and its number goes to the ghost queue. A miss that is
 * in the ghost queue enters the main queue at once. In the main queue a block
 * that was hit goes to the end again.
 */
#include <errno.h>

#include "sched/cache/list.h"
#include "sched/cache/policy.h"

enum { SMALL, MAIN, GHOST, QUEUES };

#define S3_USED_MAX 3

struct s3fifo {
    struct policy_list list; /* QUEUES queues, oldest first */
    uint32_t frames, small_max, ghost_max;
    uint32_t count[QUEUES];
    uint8_t *used;  /* [blocks] uses since it entered, at most S3_USED_MAX */
    uint8_t *where; /* [blocks] its queue, if it is in one */
};

static void s3_close(void *state)
{
    struct s3fifo *s = state;
    list_free(&s->list);
    free(s->used);
    free(s->where);
    free(s);
}

static int s3_open(void **state, const struct cache_options *o)
{
    size_t blocks = (size_t)o->layers * o->experts;
    struct s3fifo *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *state = s;
    s->frames = o->frames;
    s->small_max = o->frames < 10 ? 1 : o->frames / 10;
    s->ghost_max = o->frames - o->frames / 10;
    s->used = calloc(blocks, sizeof *s->used);
    s->where = calloc(blocks, sizeof *s->where);
    if (!s->used || !s->where ||
        !list_open(&s->list, o->layers * o->experts, QUEUES))
        return -ENOMEM;
    return 0;
}

static void take(struct s3fifo *s, uint32_t block)
{
    list_remove(&s->list, block);
    s->count[s->where[block]]--;
}

static void give(struct s3fifo *s, uint8_t queue, uint32_t block)
{
    list_push(&s->list, queue, block);
    s->where[block] = queue;
    s->count[queue]++;
}

static void s3_hit(void *state, const struct policy_group *g, uint32_t block)
{
    (void)g;
    struct s3fifo *s = state;
    if (s->used[block] < S3_USED_MAX)
        s->used[block]++;
}

/* The oldest block of the small queue with fewer than two hits. Those before it
 * move to the main queue. */
static uint32_t small_victim(struct s3fifo *s, const struct policy_group *g)
{
    uint32_t b = list_first(&s->list, SMALL), next;
    for (; b < s->list.blocks; b = next) {
        next = list_after(&s->list, b);
        if (policy_member(g, b))
            continue;
        if (s->used[b] < 2)
            return b;
        take(s, b);
        s->used[b] = 0;
        give(s, MAIN, b);
    }
    return POLICY_BYPASS;
}

/* The oldest block of the main queue without a hit. Those before it go to the
 * end with one hit less. */
static uint32_t main_victim(struct s3fifo *s, const struct policy_group *g)
{
    uint32_t rounds = s->count[MAIN] * (S3_USED_MAX + 1);
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t b = list_first(&s->list, MAIN);
        bool member = policy_member(g, b);
        if (!member && s->used[b] == 0)
            return b;
        if (!member)
            s->used[b]--;
        take(s, b);
        give(s, MAIN, b);
    }
    return POLICY_BYPASS;
}

static uint32_t s3_place(void *state, const struct policy_group *g, uint32_t i)
{
    (void)i;
    struct s3fifo *s = state;
    if (g->free)
        return POLICY_FREE;
    uint32_t victim = POLICY_BYPASS;
    if (s->count[SMALL] >= s->small_max)
        victim = small_victim(s, g);
    if (victim == POLICY_BYPASS)
        victim = main_victim(s, g);
    if (victim == POLICY_BYPASS) /* the main queue holds members only */
        victim = small_victim(s, g);
    return victim;
}

static void s3_entered(void *state, const struct policy_group *g,
                       uint32_t block)
{
    (void)g;
    struct s3fifo *s = state;
    bool ghost = list_has(&s->list, block);
    if (ghost)
        take(s, block);
    s->used[block] = 0;
    give(s, ghost ? MAIN : SMALL, block);
}

static void s3_left(void *state, const struct policy_group *g, uint32_t block)
{
    (void)g;
    struct s3fifo *s = state;
    bool was_small = s->where[block] == SMALL;
    take(s, block);
    if (!was_small)
        return;
    if (s->count[GHOST] >= s->ghost_max)
        take(s, list_first(&s->list, GHOST));
    give(s, GHOST, block);
}

static void s3_audit(const void *state, const uint32_t *frame_of)
{
    const struct s3fifo *s = state;
    for (uint32_t b = 0; b < s->list.blocks; b++) {
        bool here = list_has(&s->list, b) && s->where[b] != GHOST;
        assert(here == (frame_of[b] != CACHE_NONE));
    }
    assert(s->count[SMALL] + s->count[MAIN] <= s->frames);
    assert(s->count[GHOST] <= s->ghost_max);
}

const struct policy policy_s3fifo = {
    .name = "s3fifo",
    .about = "three queues: small, main and ghost (Yang et al. 2023)",
    .open = s3_open,
    .close = s3_close,
    .hit = s3_hit,
    .place = s3_place,
    .entered = s3_entered,
    .left = s3_left,
    .audit = s3_audit,
};
