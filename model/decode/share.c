#include "model/decode/share.h"

#include <stdbool.h>
#include <string.h>

uint32_t share_common(const uint32_t *a, uint32_t a_count, const uint32_t *b,
                      uint32_t b_count)
{
    enum { STEP = 64 };
    uint32_t max = a_count < b_count ? a_count : b_count, i = 0;
    while (max - i >= STEP && !memcmp(a + i, b + i, STEP * sizeof *a))
        i += STEP;
    while (i < max && a[i] == b[i])
        i++;
    return i;
}

/* It reads its own ids so far, or nobody has asked. */
static bool is_free(const struct share_prompt *p, uint32_t i, uint32_t leader)
{
    return i != leader && p[i].ids && p[i].leader == SHARE_ALONE &&
           p[i].until == p[i].known;
}

/* Where each prompt that is free parts from the leader, in its `until` with
 * the leader as its own; those that gain nothing stay alone. */
static bool compare(struct share_prompt *p, uint32_t n, uint32_t leader)
{
    const struct share_prompt *l = &p[leader];
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_free(p, i, leader) || p[i].position > l->position)
            continue;
        /* The last id of a prompt is read by itself: it has the logits. */
        uint32_t common = share_common(l->ids, l->known - 1, p[i].ids,
                                       p[i].known - 1);
        if (common <= l->position)
            continue;
        p[i].leader = leader;
        p[i].until = common;
        any = true;
    }
    return any;
}

struct group {
    uint32_t until;
    uint64_t saved;      /* rows */
    uint64_t need, rest; /* rows of all without it; after the copy */
};

static struct group group_until(const struct share_prompt *p, uint32_t n,
                                uint32_t leader, uint32_t until)
{
    const struct share_prompt *l = &p[leader];
    struct group g = { .until = until, .need = l->known - l->position,
                       .rest = l->known - until };
    for (uint32_t i = 0; i < n; i++)
        if (p[i].leader == leader && p[i].until >= until) {
            g.saved += until - p[i].position;
            g.need += p[i].known - p[i].position;
            g.rest += p[i].known - until;
        }
    return g;
}

static uint64_t passes(uint64_t all, uint32_t rows)
{
    return (all + rows - 1) / rows;
}

/* Choose the copy that saves most, and let those go that cannot have it. */
static void choose(struct share_prompt *p, uint32_t n, uint32_t leader,
                   uint32_t rows)
{
    struct share_prompt *l = &p[leader];
    struct group best = { 0 };
    for (uint32_t i = 0; i < n; i++) {
        if (p[i].leader != leader)
            continue;
        struct group g = group_until(p, n, leader, p[i].until);
        if (g.saved > best.saved &&
            passes(g.until - l->position, rows) + passes(g.rest, rows) <=
                passes(g.need, rows))
            best = g;
    }
    if (best.saved)
        l->until = best.until;
    for (uint32_t i = 0; i < n; i++) {
        if (p[i].leader != leader)
            continue;
        bool stays = best.saved && p[i].until >= best.until;
        p[i].leader = stays ? leader : SHARE_ALONE;
        p[i].until = stays ? best.until : p[i].known;
    }
}

void share_decide(struct share_prompt *p, uint32_t n, uint32_t follows,
                  uint32_t rows)
{
    for (uint32_t i = 0; i < n; i++) {
        p[i].leader = SHARE_ALONE;
        p[i].until = p[i].known;
    }
    /* Who has read most leads; everybody is asked once. */
    for (uint32_t at = UINT32_MAX; at;) {
        uint32_t next = 0;
        for (uint32_t i = 0; i < follows; i++) {
            bool asked = p[i].position >= at;
            if (!p[i].ids)
                continue;
            if (!asked && p[i].position >= next)
                next = p[i].position + 1;
        }
        for (uint32_t i = 0; i < follows && next; i++)
            if (p[i].ids && p[i].position == next - 1 &&
                is_free(p, i, SHARE_ALONE) && compare(p, n, i))
                choose(p, n, i, rows);
        at = next ? next - 1 : 0;
    }
}
