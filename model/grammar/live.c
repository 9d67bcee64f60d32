/* live.c - what can be completed, and how: nothing that leads nowhere is left
 * in a grammar, so the matcher never has to take a step back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/grammar_internal.h"

/* ---- heights ---- */

static uint32_t height_of(const struct grammar *g, int32_t node)
{
    return node == NODE_NONE ? UINT32_MAX : g->node[node].height;
}

static uint32_t above(uint32_t height, uint32_t child)
{
    if (child == UINT32_MAX)
        return UINT32_MAX;
    return height > child + 1 ? height : child + 1;
}

static uint32_t array_height(const struct grammar *g, const struct shape *s)
{
    uint32_t height = 1;
    for (uint32_t i = 0; i < s->min && height != UINT32_MAX; i++) {
        if (i >= s->prefixes) /* all further ones are alike */
            return above(height, height_of(g, s->rest));
        height = above(height, height_of(g, s->prefix[i]));
    }
    return height;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The required properties, and the lowest others as far as more are needed. */
static uint32_t object_height(const struct grammar *g, const struct shape *s)
{
    uint32_t height = 1, count = 0, others = 0;
    uint32_t other[PROPERTIES_MAX];
    for (uint32_t i = 0; i < s->properties; i++) {
        uint32_t h = height_of(g, s->property[i].node);
        if (s->property[i].required) {
            height = height == UINT32_MAX ? height : above(height, h);
            count++;
        } else if (h != UINT32_MAX) {
            other[others++] = h;
        }
    }
    if (count > s->max)
        return UINT32_MAX;
    qsort(other, others, sizeof *other, by_size);
    uint32_t rest = height_of(g, s->rest);
    for (uint32_t i = 0; count < s->min && height != UINT32_MAX; i++, count++) {
        uint32_t h = i < others && other[i] <= rest ? other[i] : rest;
        height = above(height, h);
        if (i >= others || other[i] > rest)
            break; /* as many additional ones as are needed */
    }
    return height;
}

static uint32_t shape_height(const struct grammar *g, const struct shape *s)
{
    if (s->min > s->max)
        return UINT32_MAX;
    if (s->type == SHAPE_NUMBER)
        return number_range_empty(&s->range) ? UINT32_MAX : 1;
    if (s->type == SHAPE_STRING)
        return (s->dfa && !s->dfa->states) ||
                       (s->dfa && !shape_can_end(s, 0, 0))
                   ? UINT32_MAX
                   : 1;
    if (s->type == SHAPE_ARRAY)
        return array_height(g, s);
    return s->type == SHAPE_OBJECT ? object_height(g, s) : 1;
}

/* Heights fall from "allows nothing" until they stay. */
static void find_heights(struct grammar *g)
{
    bool changed = true;
    for (uint32_t n = 0; n < g->nodes; n++)
        g->node[n].height = UINT32_MAX;
    while (changed) {
        changed = false;
        for (uint32_t n = g->nodes; n-- > 0;) {
            struct node *node = &g->node[n];
            for (uint32_t i = 0; i < node->shapes; i++) {
                struct shape *s = &node->shape[i];
                s->height = shape_height(g, s);
                if (s->height < node->height) {
                    node->height = s->height;
                    changed = true;
                }
            }
        }
    }
}

static void prune_node(int32_t *node, const struct grammar *g)
{
    if (*node != NODE_NONE && g->node[*node].height == UINT32_MAX)
        *node = NODE_NONE;
}

static void prune_shape(struct shape *s, const struct grammar *g)
{
    prune_node(&s->rest, g);
    for (uint32_t i = 0; i < s->properties; i++)
        prune_node(&s->property[i].node, g);
    for (uint32_t i = 0; i < s->prefixes; i++) {
        prune_node(&s->prefix[i], g);
        if (s->prefix[i] == NODE_NONE && s->max > i)
            s->max = i;
    }
    if (s->type == SHAPE_ARRAY && s->rest == NODE_NONE && s->max > s->prefixes)
        s->max = s->prefixes;
}

int grammar_prune(struct grammar *g)
{
    find_heights(g);
    for (uint32_t n = 0; n < g->nodes; n++) {
        struct node *node = &g->node[n];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < node->shapes; i++) {
            if (node->shape[i].height == UINT32_MAX) {
                shape_free(&node->shape[i]);
                continue;
            }
            prune_shape(&node->shape[i], g);
            node->shape[kept++] = node->shape[i];
        }
        node->shapes = kept;
    }
    return g->node[g->root].height <= GRAMMAR_DEPTH ? 0 : -ENOENT;
}

/* ---- strings ---- */

/* Characters to the last end: a state that can come back to itself, or go on to
 * one that can, has none. */
static int measure_longest(struct shape *s)
{
    const struct dfa *d = s->dfa;
    s->longest = calloc(d->states + 1, sizeof *s->longest);
    if (!s->longest)
        return -ENOMEM;
    /* After `states` rounds a text that is still longer has a loop in it. */
    bool changed = true;
    for (uint32_t round = 0; changed && round <= d->states; round++) {
        changed = false;
        for (uint32_t i = d->states; i-- > 0;)
            for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++) {
                uint32_t far = s->longest[d->edge[e].to];
                uint32_t longer = far >= d->states ? UINT32_MAX : far + 1;
                if (longer > s->longest[i]) {
                    s->longest[i] = longer;
                    changed = true;
                }
            }
    }
    return 0;
}

static int measure_lengths(struct shape *s, struct error *error)
{
    const struct dfa *d = s->dfa;
    size_t words = s->max / 64 + 1;
    if (s->max > LENGTH_MAX || words * d->states > (1u << 22))
        return error_set(error, -E2BIG,
                         "a pattern together with minLength "
                         "and a maxLength of %u is too large",
                         s->max);
    s->lengths = calloc(words * d->states + 1, sizeof *s->lengths);
    if (!s->lengths)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->states; i++)
        s->lengths[i * words] = d->accept[i];
    for (uint32_t k = 1; k <= s->max; k++)
        for (uint32_t i = 0; i < d->states; i++)
            for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++) {
                const uint64_t *to = s->lengths + (size_t)d->edge[e].to * words;
                if (to[(k - 1) / 64] >> (k - 1) % 64 & 1)
                    s->lengths[i * words + k / 64] |= UINT64_C(1) << k % 64;
            }
    return 0;
}

int shape_measure(struct shape *s, struct error *error)
{
    if (s->type != SHAPE_STRING || !s->dfa || !s->dfa->states || !s->min)
        return 0;
    return s->max == UINT32_MAX ? measure_longest(s)
                                : measure_lengths(s, error);
}
