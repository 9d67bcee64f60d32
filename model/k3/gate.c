/* gate.c - the prefetcher `gate`: the router of the next MoE layer, computed
 * early, on the residual as it is now.
 *
 * Only resident routers are used; a plan for `gate` makes them resident. The
 * vectors of a layer that the router needs are copied in its first pass and
 * kept until the session is closed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/norm.h"
#include "compute/router.h"
#include "model/k3/k3_internal.h"
#include "model/k3/prefetch.h"

struct gate {
    uint8_t *vector; /* [moe layers][vector_bytes] */
    uint64_t vector_bytes;
    bool *known; /* [moe layers]: its vectors have been kept */
    uint32_t *step; /* [moe layers]: that of the router */
    float *mixed, *normed, *scores; /* one row */
};

enum { VECTORS = 4 };
static const enum tensor_role vector_role[VECTORS] = {
    T_MLP_RES_NORM, T_MLP_RES_PROJ, T_POST_NORM, T_ROUTER_BIAS
};

static uint8_t *vector_at(const struct gate *g, const struct config *c,
                          uint32_t moe, int which)
{
    return g->vector + moe * g->vector_bytes + (uint64_t)which * 2 * c->hidden;
}

static prefetch_gate_fn ask_gate;

int k3_gate_open(struct gate **out, struct k3 *k, struct error *error)
{
    uint32_t layers = config_moe_layers(&k->c);
    *out = NULL;
    if (!k->flow.prefetching || strcmp(k->o.prefetch, "gate"))
        return 0;
    struct gate *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(error, -ENOMEM, "no memory for prefetches");
    g->vector_bytes = 6ull * k->c.hidden + 4ull * k->c.experts;
    g->known = calloc(layers, sizeof *g->known);
    g->step = calloc(layers, sizeof *g->step);
    g->vector = calloc(layers, g->vector_bytes);
    g->mixed = calloc(k->c.hidden, sizeof *g->mixed);
    g->normed = calloc(k->c.hidden, sizeof *g->normed);
    g->scores = calloc(k->c.experts, sizeof *g->scores);
    if (!g->known || !g->step || !g->vector || !g->mixed || !g->normed ||
        !g->scores) {
        k3_gate_close(g);
        return error_set(error, -ENOMEM, "no memory for prefetches");
    }
    const struct steps *steps = &k->flow.tiles->steps;
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->step[i].op == STEP_ROUTE)
            g->step[(uint32_t)steps->step[i].layer - k->c.first_dense] = i;
    k3_prefetch_set_gate(k->flow.prefetching, ask_gate, k);
    *out = g;
    return 0;
}

void k3_gate_close(struct gate *g)
{
    if (!g)
        return;
    free(g->vector);
    free(g->known);
    free(g->step);
    free(g->mixed);
    free(g->normed);
    free(g->scores);
    free(g);
}

void k3_gate_keep(struct k3 *k, uint32_t layer)
{
    struct gate *g = k->gate;
    uint32_t moe = layer - k->c.first_dense;
    if (!g || g->known[moe])
        return;
    for (int i = 0; i < VECTORS; i++)
        memcpy(vector_at(g, &k->c, moe, i), k->vectors.at[vector_role[i]],
               k->vectors.bytes[vector_role[i]]);
    g->known[moe] = true;
}

struct gate_job {
    struct k3 *k;
    const uint8_t *frame;
    const struct tile_piece *piece;
};

static void gate_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct gate_job *j = arg;
    struct gate *g = j->k->gate;
    const uint8_t *w = coded_rows(j->k, j->piece, j->frame, (uint32_t)begin,
                                  (uint32_t)end, k3_decoded(j->k, worker));
    router_scores(&j->k->kern, g->scores, w,
                  g->normed, j->k->c.hidden, j->piece->row + begin,
                  j->piece->row + end);
}

static bool score_ahead(struct k3 *k, uint32_t row, uint32_t moe)
{
    struct gate *g = k->gate;
    const struct scratch *s = &k->s;
    const struct tiles *t = k->flow.tiles;
    size_t width = k->c.hidden;
    const float *source[ATTN_SOURCES_MAX];
    unsigned n = 0;
    for (uint32_t d = 0; d < k->depth; d++)
        source[n++] = s->snapshots + ((size_t)d * k->flow.rows + row) * width;
    source[n++] = s->sum + row * width;
    attn_mix(&k->kern, g->mixed, source, n, vector_at(g, &k->c, moe, 0),
             vector_at(g, &k->c, moe, 1), width, k->c.rms_eps);
    rms_norm(&k->kern, g->normed, g->mixed, vector_at(g, &k->c, moe, 2), width,
             k->c.rms_eps);
    uint32_t end = t->first_use[g->step[moe] + 1];
    for (uint32_t u = t->first_use[g->step[moe]]; u < end; u++) {
        const struct tile_piece *piece = tiles_use(t, u);
        if (!k->flow.resident[piece->tile])
            return false;
        struct gate_job j = { k, t->tile[piece->tile].home, piece };
        team_for(k->team, piece->rows, K3_ROUTER_GRAIN, gate_some, &j);
    }
    return true;
}

static uint32_t ask_gate(void *arg, uint32_t sequence, uint32_t moe,
                         uint32_t *ids, float *confidence, uint32_t max)
{
    struct k3 *k = arg;
    struct gate *g = k->gate;
    uint32_t row = UINT32_MAX;
    for (uint32_t i = 0; i < k->flow.runs; i++)
        if (k->flow.run[i].sequence == sequence)
            row = k->flow.run[i].first + k->flow.run[i].count - 1;
    if (row == UINT32_MAX || !g->known[moe] || !score_ahead(k, row, moe))
        return 0;
    uint32_t n = max < k->c.top_k ? max : k->c.top_k;
    router_select(ids, confidence, g->scores, vector_at(g, &k->c, moe, 3),
                  k->c.experts, n, false, 1.0f);
    for (uint32_t i = 0; i < n; i++) /* by rank, whatever the score */
        confidence[i] = 1.0f - (float)i / (float)k->c.top_k;
    return n;
}
