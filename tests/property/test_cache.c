/* Goal    every policy decides as its definition says, for any calls: no fast
 *         path, list, heap or cached minimum changes an answer.
 * Method  random groups of random shapes against models too simple to be wrong
 *         (one array of blocks, every decision a scan over all of them), with
 *         an audit after every call. The seed is printed, and given back as
 *         argv[1] it replays the run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/cache/cache.h"

#define LAYERS_MAX 5u
#define EXPERTS_MAX 24u
#define BLOCKS_MAX (LAYERS_MAX * EXPERTS_MAX)
#define STEPS        400u
#define USES_MAX (STEPS * BLOCKS_MAX)

static unsigned long long seed = 20260101;

static uint32_t rnd(uint32_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (uint32_t)((seed * 2685821657736338717ull >> 33) % below);
}

/* All that a definition may look at. */
struct block {
    bool here;
    uint64_t count, last, before_last, entered; /* last: 0 never */
    float s1, s32, score;
    uint32_t tick; /* of its layer at the last use */
    uint32_t next; /* min: number of the use that comes next */
};

struct model {
    const char *policy;
    uint32_t layers, experts, top_k, frames, taken;
    uint32_t layer; /* at hand */
    uint64_t clock, entries;
    uint32_t tick[LAYERS_MAX], count[LAYERS_MAX];
    bool member[BLOCKS_MAX];
    struct block b[BLOCKS_MAX];
};

static uint32_t share(const struct model *m, uint32_t layer)
{
    return m->frames / m->layers + (layer < m->frames % m->layers);
}

static bool by_layer(const struct model *m)
{
    return !strcmp(m->policy, "lru-layer") || !strcmp(m->policy, "ema");
}

static float decay(double rate, uint32_t ticks)
{
    double d = 1;
    for (uint32_t i = 0; i < ticks; i++)
        d *= rate;
    return (float)d;
}

#define SLOW   0.97857206208770013
#define SIXTEEN 0.95760328069857365

static float chance(const struct model *m, uint32_t block)
{
    const struct block *b = &m->b[block];
    uint32_t ticks = m->tick[block / m->experts] - b->tick;
    return b->s1 * decay(0.5, ticks) * (float)(0.5 * (1 - 0.5)) +
           b->s32 * decay(SLOW, ticks) * (float)(0.5 * (1 - SLOW));
}

static float rent(const struct model *m, uint32_t layer)
{
    uint32_t d = layer > m->layer ? layer - m->layer
                                  : layer + m->layers - m->layer;
    return 1.0f / sqrtf(sqrtf((float)d));
}

/* Is x to be evicted rather than y? */
static bool worse(const struct model *m, uint32_t x, uint32_t y)
{
    const struct block *a = &m->b[x], *b = &m->b[y];
    if (!strcmp(m->policy, "lru") || !strcmp(m->policy, "lru-layer"))
        return a->last < b->last;
    if (!strcmp(m->policy, "fifo"))
        return a->entered < b->entered;
    if (!strcmp(m->policy, "lfu"))
        return a->count != b->count ? a->count < b->count : a->last < b->last;
    if (!strcmp(m->policy, "lru2"))
        return a->before_last != b->before_last
                   ? a->before_last < b->before_last
                   : a->last < b->last;
    if (!strcmp(m->policy, "ema")) {
        float p = a->score * decay(SIXTEEN, m->tick[m->layer] - a->tick);
        float q = b->score * decay(SIXTEEN, m->tick[m->layer] - b->tick);
        return p != q ? p < q : x < y;
    }
    if (!strcmp(m->policy, "min"))
        return a->next != b->next ? a->next > b->next : x < y;
    float p = chance(m, x) * rent(m, x / m->experts);
    float q = chance(m, y) * rent(m, y / m->experts);
    if (p == q && x / m->experts == y / m->experts) {
        p = chance(m, x);
        q = chance(m, y);
    }
    return p != q ? p < q : x < y;
}

/* The block that goes, or CACHE_NONE when all are members or none is here. */
static uint32_t victim(const struct model *m)
{
    uint32_t found = CACHE_NONE;
    for (uint32_t b = 0; b < m->layers * m->experts; b++)
        if (m->b[b].here && !m->member[b] &&
            (!by_layer(m) || b / m->experts == m->layer) &&
            (found == CACHE_NONE || worse(m, b, found)))
            found = b;
    return found;
}

static void remember(struct model *m, uint32_t block,
                     const struct cache_use *u, uint32_t next)
{
    struct block *b = &m->b[block];
    uint32_t ticks = m->tick[m->layer] - b->tick;
    float w = u->rank && m->top_k > 1
                  ? 1.5f - (float)(u->rank - 1) / (float)(m->top_k - 1)
                  : 1;
    w *= sqrtf((float)u->uses);
    b->s1 = b->s1 * decay(0.5, ticks) + w * decay(0.5, u->age);
    b->s32 = b->s32 * decay(SLOW, ticks) + w;
    b->score = b->score * decay(SIXTEEN, ticks) + 1;
    b->tick = m->tick[m->layer];
    b->count += u->uses;
    b->before_last = b->last;
    b->last = ++m->clock;
    b->next = next;
}

/* What the definition does with a miss: CACHE_ADMIT or CACHE_BYPASS. */
static uint8_t model_miss(struct model *m, uint32_t block, uint32_t rank,
                          uint32_t *evicted)
{
    uint32_t layer = m->layer, room = m->frames - m->taken;
    *evicted = CACHE_NONE;
    if (by_layer(m)) {
        room = share(m, layer) - m->count[layer];
        if (share(m, layer) < m->top_k && rank > share(m, layer))
            return CACHE_BYPASS;
    }
    if (room == 0) {
        uint32_t v = victim(m);
        if (v == CACHE_NONE || !strcmp(m->policy, "none"))
            return CACHE_BYPASS;
        if (!strcmp(m->policy, "min") && !worse(m, v, block))
            return CACHE_BYPASS;
        if (!strcmp(m->policy, "dhd") &&
            !(chance(m, block) * rent(m, layer) >
              chance(m, v) * rent(m, v / m->experts)))
            return CACHE_BYPASS;
        m->b[v].here = false;
        m->taken--;
        m->count[v / m->experts]--;
        *evicted = v;
    } else if (!strcmp(m->policy, "none")) {
        return CACHE_BYPASS;
    }
    m->b[block].here = true;
    m->b[block].entered = ++m->entries;
    m->taken++;
    m->count[layer]++;
    return CACHE_ADMIT;
}

/* May i be placed before k? Where the policy says so, in its order. */
static bool earlier(const struct model *m, const struct cache_use *u,
                    uint32_t i, uint32_t k, uint32_t n)
{
    if (!strcmp(m->policy, "dhd")) {
        float p = chance(m, m->layer * m->experts + u[i].expert);
        float q = chance(m, m->layer * m->experts + u[k].expert);
        return p != q ? p > q : u[i].expert < u[k].expert;
    }
    if (!by_layer(m) || u[i].rank == u[k].rank)
        return i < k;
    bool best = !strcmp(m->policy, "ema") || n > share(m, m->layer);
    return best ? u[i].rank < u[k].rank : u[i].rank > u[k].rank;
}

static void model_group(struct model *m, const struct cache_use *u, uint32_t n,
                        const uint32_t *next, struct cache_verdict *out)
{
    uint32_t first = m->layer * m->experts, order[EXPERTS_MAX];
    memset(m->member, 0, sizeof m->member);
    for (uint32_t i = 0; i < n; i++)
        m->member[first + u[i].expert] = true;
    m->tick[m->layer]++;
    for (uint32_t i = 0; i < n; i++) {
        remember(m, first + u[i].expert, &u[i], next[i]);
        out[i] = (struct cache_verdict){ 0, m->b[first + u[i].expert].here
                                                ? CACHE_HIT
                                                : CACHE_BYPASS,
                                         CACHE_NONE };
        order[i] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++)
            if (earlier(m, u, order[k], order[i], n)) {
                uint32_t x = order[i];
                order[i] = order[k];
                order[k] = x;
            }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = order[k];
        /* lru touches members in the order in which it meets them */
        m->b[first + u[i].expert].last = ++m->clock;
        if (out[i].answer == CACHE_BYPASS)
            out[i].answer = model_miss(m, first + u[i].expert, u[i].rank,
                                     &out[i].evicted_block);
    }
}

/* -- random calls -------------------------------------------------------- */

static uint32_t next_use[USES_MAX];

struct script {
    uint32_t layers, experts, top_k, groups;
    uint32_t n[STEPS]; /* of group i, in layer i % layers */
    struct cache_use use[STEPS][EXPERTS_MAX];
};

static struct script script;

/* Popular experts are the low ones; now and then a group repeats the last of
 * its layer, so that there is something to hit. */
static void write_script(void)
{
    struct script *s = &script;
    s->layers = 1 + rnd(LAYERS_MAX);
    s->experts = 2 + rnd(EXPERTS_MAX - 1);
    s->top_k = 1 + rnd(s->experts < 8 ? s->experts : 8);
    s->groups = STEPS - STEPS % s->layers;
    bool ranked = rnd(4) > 0;
    for (uint32_t i = 0; i < s->groups; i++) {
        uint32_t max = rnd(6) ? s->top_k : s->experts, n = 0;
        uint32_t size = 1 + rnd(max);
        bool taken[EXPERTS_MAX] = { false };
        while (n < size) {
            uint32_t e = rnd(1 + rnd(s->experts));
            if (i >= s->layers && n < s->n[i - s->layers] && rnd(3) == 0)
                e = s->use[i - s->layers][n].expert;
            if (taken[e])
                continue;
            taken[e] = true;
            uint32_t uses = 1 + rnd(3);
            s->use[i][n++] = (struct cache_use){
                e, ranked ? 1 + rnd(s->top_k) : 0, uses, rnd(4) ? 0 : rnd(9)
            };
        }
        s->n[i] = n;
    }
}

static void foresee(void)
{
    static uint32_t last[BLOCKS_MAX];
    uint32_t at = 0;
    memset(last, 0xff, sizeof last);
    for (uint32_t i = 0; i < script.groups; i++)
        for (uint32_t k = 0; k < script.n[i]; k++, at++) {
            uint32_t b = i % script.layers * script.experts +
                         script.use[i][k].expert;
            if (last[b] != UINT32_MAX)
                next_use[last[b]] = at;
            last[b] = at;
            next_use[at] = UINT32_MAX;
        }
}

/* The frames are bookkeeping: what is in one is what was put there. */
static void check_frames(const struct cache *c, const struct model *m,
                         const struct cache_verdict *v, const uint32_t *blocks,
                         uint32_t n, uint32_t *in_frame)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t layer = blocks[i] / m->experts, e = blocks[i] % m->experts;
        if (v[i].answer == CACHE_BYPASS) {
            assert_int_equal(v[i].frame, CACHE_NONE);
            continue;
        }
        assert_true(v[i].frame < m->frames);
        if (v[i].answer == CACHE_HIT)
            assert_int_equal(in_frame[v[i].frame], blocks[i]);
        else
            assert_int_equal(in_frame[v[i].frame], v[i].evicted_block);
        in_frame[v[i].frame] = blocks[i];
        assert_int_equal(cache_frame(c, layer, e), v[i].frame);
    }
    for (uint32_t b = 0; b < m->layers * m->experts; b++)
        assert_int_equal(cache_resident(c, b / m->experts, b % m->experts),
                         m->b[b].here);
}

/* Returns the evictions. */
static uint64_t compare(const char *policy, uint32_t frames)
{
    static struct model m;
    uint32_t in_frame[2 * BLOCKS_MAX], at = 0;
    uint64_t loads = 0;
    struct cache *c;
    struct cache_options o = { policy,       script.layers, script.experts,
                               script.top_k, frames,        NULL,
                               next_use,     USES_MAX };
    m = (struct model){ .policy = policy,
                        .layers = script.layers,
                        .experts = script.experts,
                        .top_k = script.top_k,
                        .frames = frames };
    assert_int_equal(cache_open(&c, &o), 0);
    memset(in_frame, 0xff, sizeof in_frame);
    for (uint32_t i = 0; i < script.groups; i++) {
        struct cache_verdict got[EXPERTS_MAX], want[EXPERTS_MAX];
        uint32_t blocks[EXPERTS_MAX], n = script.n[i];
        m.layer = i % script.layers;
        for (uint32_t k = 0; k < n; k++)
            blocks[k] = m.layer * m.experts + script.use[i][k].expert;
        cache_group(c, i / script.layers, m.layer, script.use[i], n, got);
        cache_audit(c);
        model_group(&m, script.use[i], n, next_use + at, want);
        at += n;
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(got[k].answer, want[k].answer);
            assert_int_equal(got[k].evicted_block, want[k].evicted_block);
            loads += got[k].answer != CACHE_HIT;
        }
        check_frames(c, &m, got, blocks, n, in_frame);
    }
    struct cache_counters count;
    cache_counters(c, &count);
    assert_int_equal(count.loads, loads);
    cache_close(c);
    return count.evictions;
}

static void agree_with_definitions(void **state)
{
    (void)state;
    static const char *const names[] = { "none", "lru",  "fifo",
                                         "lfu",  "lru2", "lru-layer",
                                         "ema",  "dhd",  "min" };
    uint64_t evictions[sizeof names / sizeof *names] = { 0 };
    for (int round = 0; round < 40; round++) {
        write_script();
        foresee();
        uint32_t blocks = script.layers * script.experts;
        uint32_t frames = rnd(5) ? rnd(blocks) : 2 * rnd(blocks);
        for (size_t p = 0; p < sizeof names / sizeof *names; p++)
            evictions[p] += compare(names[p], frames);
    }
    assert_int_equal(evictions[0], 0);
    for (size_t p = 1; p < sizeof names / sizeof *names; p++)
        assert_true(evictions[p] > 1000);
}

static uint64_t loads_of(const char *policy, uint32_t frames)
{
    struct cache *c;
    struct cache_options o = { policy,       script.layers, script.experts,
                               script.top_k, frames,        NULL,
                               next_use,     USES_MAX };
    assert_int_equal(cache_open(&c, &o), 0);
    for (uint32_t i = 0; i < script.groups; i++) {
        struct cache_verdict v[EXPERTS_MAX];
        cache_group(c, i / script.layers, i % script.layers, script.use[i],
                    script.n[i], v);
        cache_audit(c);
    }
    struct cache_counters count;
    cache_counters(c, &count);
    cache_close(c);
    return count.loads;
}

/* Groups of one, where Belady's rule is optimal; s3fifo is here too. */
static void min_is_the_floor(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        write_script();
        for (uint32_t i = 0; i < script.groups; i++)
            script.n[i] = 1;
        foresee();
        uint32_t frames = 1 + rnd(script.layers * script.experts);
        uint64_t floor = loads_of("min", frames);
        const char *name;
        for (uint32_t k = 0; (name = cache_policy_name(k, NULL, NULL)); k++)
            if (strcmp(name, "static-pin"))
                assert_true(loads_of(name, frames) >= floor);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 0);
    printf("# seed %llu\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agree_with_definitions),
        cmocka_unit_test(min_is_the_floor),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
