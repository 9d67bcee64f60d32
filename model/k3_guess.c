#include "model/k3_guess.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/norm.h"
#include "compute/router.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"
#include "sched/governor.h"
#include "sched/predict.h"

/* What was named for a layer, those not resident, best first. */
struct named {
    uint32_t expert[GOVERNOR_WIDTH_MOST];
    uint32_t count;
};

struct guesser {
    struct predict  *predict;
    struct governor *governor;
    struct named    *named;  /* [moe layers] */
    uint8_t         *vector; /* [moe layers][vector_bytes], for gate */
    uint64_t         vector_bytes;
    bool            *known;  /* [moe layers]: its vectors have been kept */
    float           *mixed, *normed, *scores;
    int64_t          asked_ns;  /* when guesses were last made */
    uint64_t         asked;     /* demand bytes the drive then had to read */
    uint64_t         demanded;  /* demand bytes before the layer at hand */
    double          *spare_s;   /* [moe layers]: drive time before its router,
                                   negative: not known */
    double           rate;      /* bytes a second of all drives */
    bool             disk_bound;
    const struct pass *pass;    /* while the gate is asked */
};

enum { VECTORS = 4 };
static const double spare_weight = 0.3; /* of a new measurement */
static const enum tensor_role vector_role[VECTORS] = {
    T_MLP_RES_NORM, T_MLP_RES_PROJ, T_POST_NORM, T_ROUTER_BIAS };

static bool is_gate(const struct k3 *k)
{
    return !strcmp(k->o.prefetch, "gate");
}

uint64_t k3_guess_bytes(const char *name, uint32_t layers, uint32_t experts,
                        uint32_t hidden)
{
    uint64_t table = (uint64_t)layers * experts * experts;
    if (!strcmp(name, "none"))
        return 0;
    return 2ull * layers * (6ull * hidden + 4ull * experts) +
           (!strcmp(name, "table") ? table : 0) +
           (!strcmp(name, "path") ? PREDICT_PATH_BYTES : 0) + (1 << 20);
}

static uint8_t *vector_at(const struct guesser *g, const struct config *c,
                          uint32_t moe, int which)
{
    return g->vector + moe * g->vector_bytes + (uint64_t)which * 2 * c->hidden;
}

static float *one_row(uint64_t n)
{
    return malloc(n * sizeof(float));
}

static uint32_t ask_gate(void *arg, uint32_t sequence, uint32_t layer,
                         uint32_t *ids, float *confidence, uint32_t most);

int k3_guess_open(struct guesser **out, struct k3 *k, struct why *why)
{
    uint32_t layers = config_moe_layers(&k->c);
    *out = NULL;
    if (!layers || !strcmp(k->o.prefetch, "none"))
        return 0;
    struct guesser *g = calloc(1, sizeof *g);
    if (!g)
        return why_set(why, -ENOMEM, "no memory for guesses");
    g->vector_bytes = 6ull * k->c.hidden + 4ull * k->c.experts;
    g->named = calloc(layers, sizeof *g->named);
    g->known = calloc(layers, sizeof *g->known);
    g->spare_s = calloc(layers, sizeof *g->spare_s);
    g->vector = malloc(layers * g->vector_bytes);
    g->mixed = one_row(k->c.hidden);
    g->normed = one_row(k->c.hidden);
    g->scores = one_row(k->c.experts);
    int err = g->named && g->known && g->spare_s && g->vector && g->mixed &&
                      g->normed && g->scores
                  ? 0
                  : -ENOMEM;
    if (!err)
        err = governor_open(&g->governor, layers);
    if (!err)
        err = predict_open(&g->predict, k->o.prefetch, layers, k->c.experts,
                           k->c.top_k, k->o.sequences);
    if (err) {
        k3_guess_close(g);
        return why_set(why, err, "prefetch %s: %s", k->o.prefetch,
                       err == -EINVAL ? "unknown" : strerror(-err));
    }
    for (uint32_t m = 0; m < layers; m++)
        g->spare_s[m] = -1;
    g->rate = k->rate;
    predict_supply(g->predict, ask_gate, k);
    *out = g;
    return 0;
}

void k3_guess_supply(struct guesser *g, predict_gate_fn *gate, void *arg)
{
    predict_supply(g->predict, gate, arg);
}

void k3_guess_close(struct guesser *g)
{
    if (!g)
        return;
    predict_close(g->predict);
    governor_close(g->governor);
    free(g->named);
    free(g->known);
    free(g->spare_s);
    free(g->vector);
    free(g->mixed);
    free(g->normed);
    free(g->scores);
    free(g);
}

void k3_guess_forget(struct k3 *k, uint32_t sequence)
{
    if (k->guesser)
        predict_forget(k->guesser->predict, sequence);
}

void k3_guess_layer(struct k3 *k, uint32_t layer)
{
    struct guesser *g = k->guesser;
    if (!g || !is_gate(k) || config_is_dense(&k->c, layer))
        return;
    uint32_t moe = layer - k->c.first_dense;
    if (g->known[moe])
        return;
    for (int i = 0; i < VECTORS; i++)
        memcpy(vector_at(g, &k->c, moe, i), k->small.at[vector_role[i]],
               k->small.bytes[vector_role[i]]);
    g->known[moe] = true;
}

/* ---- gate ---- */

struct gate_job {
    struct k3 *k;
    const uint8_t *w;
    const struct tile_piece *piece;
};

static void gate_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct gate_job *j = arg;
    struct guesser *g = j->k->guesser;
    router_scores(g->scores, j->w + begin * j->piece->row_bytes, g->normed,
                  j->k->c.hidden, j->piece->row + begin, j->piece->row + end);
}

/* The router of layer m on what its input would be if nothing were added to the
 * residual any more. */
static bool score_ahead(struct k3 *k, uint32_t row, uint32_t moe)
{
    struct guesser *g = k->guesser;
    const struct scratch *s = &k->s;
    const struct pass *p = g->pass;
    int layer = (int)(moe + k->c.first_dense);
    size_t width = k->c.hidden;
    const float *source[ATTN_SOURCES_MAX];
    unsigned n = 0;
    for (uint32_t d = 0; d < p->depth; d++)
        source[n++] = s->snapshots + ((size_t)d * p->rows + row) * width;
    source[n++] = s->sum + row * width;
    attn_mix(g->mixed, source, n, vector_at(g, &k->c, moe, 0),
             vector_at(g, &k->c, moe, 1), width, k->c.rms_eps);
    rms_norm(g->normed, g->mixed, vector_at(g, &k->c, moe, 2), width,
             k->c.rms_eps);
    uint32_t count, first = tiles_of(k->tiles, layer, T_ROUTER, &count);
    for (uint32_t t = first; t < first + count; t++) {
        const struct tile_piece *piece =
            tiles_piece(k->tiles, t, layer, T_ROUTER);
        if (!k->resident[t])
            return false;
        struct gate_job j = { k, k->tiles->tile[t].home + piece->at, piece };
        team_for(k->team, piece->rows, 8, gate_some, &j);
    }
    return true;
}

static uint32_t ask_gate(void *arg, uint32_t sequence, uint32_t moe,
                         uint32_t *ids, float *confidence, uint32_t most)
{
    struct k3 *k = arg;
    struct guesser *g = k->guesser;
    uint32_t row = UINT32_MAX;
    for (uint32_t i = 0; i < k->runs; i++)
        if (k->run[i].sequence == sequence)
            row = k->run[i].first + k->run[i].count - 1;
    if (!g->pass || row == UINT32_MAX || !g->known[moe] ||
        !score_ahead(k, row, moe))
        return 0;
    uint32_t n = most < k->c.top_k ? most : k->c.top_k;
    router_select(ids, confidence, g->scores, vector_at(g, &k->c, moe, 3),
                  k->c.experts, n, false, 1.0f);
    for (uint32_t i = 0; i < n; i++) /* by rank, whatever the score */
        confidence[i] = 1.0f - (float)i / (float)k->c.top_k;
    return n;
}

/* ---- the life of a guess ---- */

static bool chosen(const struct k3 *k, const struct pass *p, uint32_t expert)
{
    size_t n = (size_t)p->rows * k->c.top_k;
    for (size_t i = 0; i < n; i++)
        if (k->s.ids[i] == expert)
            return true;
    return false;
}

void k3_guess_judge(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct guesser *g = k->guesser;
    if (!g)
        return;
    uint32_t moe = layer - k->c.first_dense;
    struct named *named = &g->named[moe];
    for (uint32_t i = 0; i < named->count; i++)
        governor_saw(g->governor, moe, i + 1,
                     chosen(k, p, named->expert[i]));
    named->count = 0;
    for (uint32_t i = 0; i < k->runs; i++)
        for (uint32_t j = 0; j < k->run[i].count; j++)
            predict_saw(g->predict, k->run[i].sequence, (uint32_t)k->passes,
                        moe, k->s.ids + (size_t)(k->run[i].first + j) *
                                            k->c.top_k, k->c.top_k);
    /* For guesses the drive had the time since they were made, less what the
     * experts demanded by then took. */
    double spare = (double)(stream_now_ns(k->stream) - g->asked_ns) / 1e9 -
                   (double)g->asked / g->rate;
    double *known = &g->spare_s[moe];
    if (g->asked_ns)
        *known += (*known < 0 ? 1 : spare_weight) *
                  ((spare > 0 ? spare : 0) - *known);
    g->demanded = fetch_counts(k->fetch).demand_bytes;
}

static bool has_name(const struct named *named, uint32_t expert)
{
    for (uint32_t i = 0; i < named->count; i++)
        if (named->expert[i] == expert)
            return true;
    return false;
}

/* Names for the next layer, rank by rank over the sequences of the pass, those
 * that are not here. */
static void name(struct k3 *k, uint32_t moe, struct named *named)
{
    struct guesser *g = k->guesser;
    uint32_t ids[K3_TOP_K_MAX];
    float confidence[K3_TOP_K_MAX];
    uint32_t most = k->c.top_k < GOVERNOR_WIDTH_MOST ? k->c.top_k
                                                     : GOVERNOR_WIDTH_MOST;
    named->count = 0;
    for (uint32_t i = 0; i < k->runs; i++) {
        uint32_t n = predict_next(g->predict, k->run[i].sequence, moe, ids,
                                  confidence, most);
        for (uint32_t j = 0; j < n && named->count < GOVERNOR_WIDTH_MOST; j++)
            if (!fetch_has(k->fetch, moe, ids[j]) && !has_name(named, ids[j]))
                named->expert[named->count++] = ids[j];
    }
}

void k3_guess_ahead(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct guesser *g = k->guesser;
    uint32_t moe = layer + 1 - k->c.first_dense;
    if (!g || layer + 1 < k->c.first_dense ||
        moe >= config_moe_layers(&k->c))
        return;
    struct named *named = &g->named[moe];
    int64_t begin = stream_now_ns(k->stream);
    g->asked_ns = begin;
    g->asked = fetch_counts(k->fetch).demand_bytes - g->demanded;
    g->pass = p;
    name(k, moe, named);
    g->pass = NULL;
    struct governor_now now = {
        .disk_bound = g->disk_bound,
        .expert_bytes = expert_bytes(&k->c),
        .guess_bytes_most = k->plan.staging_frames / 2 * expert_bytes(&k->c),
        .read_s = (double)expert_bytes(&k->c) / g->rate,
    };
    /* One more than there is time for: one that is half read when its router
     * speaks has gained half of its time. */
    now.idle_s = g->spare_s[moe] < 0 ? 0 : g->spare_s[moe] + now.read_s;
    for (uint32_t i = 0; i < named->count; i++) {
        if (!governor_allows(g->governor, &now, moe, i + 1))
            continue;
        if (!fetch_guess(k->fetch, moe, &named->expert[i], 1))
            break;
        now.guess_bytes += now.expert_bytes;
        now.idle_s -= now.read_s;
    }
    k3_note(k, K3_GUESS, layer, begin);
}

void k3_guess_pass(struct k3 *k, double compute_s, uint64_t bytes,
                   uint64_t wasted)
{
    struct guesser *g = k->guesser;
    if (!g)
        return;
    g->disk_bound = (double)bytes / g->rate > compute_s;
    g->asked_ns = 0;
    g->demanded = fetch_counts(k->fetch).demand_bytes;
    governor_spent(g->governor, bytes, wasted);
}
