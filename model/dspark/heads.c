/* heads.c - from logits to ids: a chain in which each id changes the next.
 *
 *     u = W1[id before];  logits of row k += W2 u;  the largest is the id
 *     confidence of row k = sigmoid(w . [h_k, u] + b)
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "compute/bf16.h"
#include "compute/pack.h"
#include "compute/team.h"
#include "model/dspark/dspark_internal.h"

struct choosing {
    struct dspark *d;
    const uint8_t *w2;
    uint32_t step;
    _Atomic bool bad;
};

static float *logits_of(const struct dspark *d, uint32_t ask, uint32_t row)
{
    return d->b.logits + ((size_t)ask * d->rows + row) * d->c.vocab;
}

/* Ids [begin, end): add the Markov head's part, and find the largest. */
static void choose_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct choosing *j = arg;
    struct dspark *d = j->d;
    struct best *best = d->b.best + (size_t)worker * d->batch;
    size_t vocab = d->c.vocab;
    if (!bf16_gemm(d->lent.kern, d->b.markov, vocab,
                   j->w2 + begin * d->c.rank * 2, d->c.rank, d->b.u_packed,
                   d->asks, begin, end))
        atomic_store_explicit(&j->bad, true, memory_order_relaxed);
    for (uint32_t a = 0; a < d->asks; a++) {
        float *l = logits_of(d, a, j->step);
        const float *m = d->b.markov + a * vocab;
        for (size_t id = begin; id < end; id++) {
            l[id] += m[id];
            if (l[id] > best[a].value ||
                (l[id] == best[a].value && id < best[a].id))
                best[a] = (struct best){ l[id], (uint32_t)id };
        }
    }
}

static uint32_t best_of(const struct dspark *d, uint32_t ask)
{
    struct best best = { -INFINITY, UINT32_MAX };
    for (uint32_t w = 0; w < team_threads(d->lent.team); w++) {
        const struct best *b = &d->b.best[(size_t)w * d->batch + ask];
        if (b->value > best.value ||
            (b->value == best.value && b->id < best.id))
            best = *b;
    }
    return best.id;
}

static float confidence(const struct dspark *d, uint32_t ask, uint32_t row)
{
    const uint8_t *w = dspark_vector(d, D_CONFIDENCE, 0);
    const float *h = dspark_hidden(d, ask) + (size_t)row * d->c.hidden;
    const float *u = d->b.u + (size_t)ask * d->c.rank;
    float one;
    double sum;
    bf16_widen(d->lent.kern, &one, dspark_vector(d, D_CONFIDENCE_BIAS, 0), 1);
    sum = (double)one;
    for (uint32_t i = 0; i < d->c.hidden + d->c.rank; i++) {
        bf16_widen(d->lent.kern, &one, w + 2 * (size_t)i, 1);
        sum += (double)one *
               (double)(i < d->c.hidden ? h[i] : u[i - d->c.hidden]);
    }
    return (float)(1 / (1 + exp(-sum)));
}

static int choose_step(struct dspark *d, uint32_t step)
{
    struct choosing j = { .d = d, .w2 = dspark_vector(d, D_W2, 0),
                          .step = step };
    const uint8_t *w1 = dspark_vector(d, D_W1, 0);
    size_t rank = d->c.rank;
    for (uint32_t a = 0; a < d->asks; a++) {
        const struct dspark_ask *ask = &d->ask[a];
        uint32_t before = step ? ask->ids[step - 1] : ask->id;
        bf16_widen(d->lent.kern, d->b.u + a * rank, w1 + before * rank * 2,
                   rank);
    }
    pack_rows(d->b.u_packed, d->b.u, d->asks, rank, rank);
    for (uint32_t i = 0; i < team_threads(d->lent.team) * d->batch; i++)
        d->b.best[i] = (struct best){ -INFINITY, UINT32_MAX };
    team_for(d->lent.team, d->c.vocab, bf16_grain(rank, d->asks), choose_some,
             &j);
    if (j.bad)
        return dspark_fail(d, -EBADMSG, D_W2, 0,
                           "values or products are not finite");
    for (uint32_t a = 0; a < d->asks; a++) {
        struct dspark_ask *ask = &d->ask[a];
        ask->ids[step] = best_of(d, a);
        ask->confidence[step] = confidence(d, a, step);
        if (ask->ids[step] >= d->c.vocab || !isfinite(ask->confidence[step]))
            return dspark_fail(d, -EBADMSG, D_CONFIDENCE, 0,
                               "values are not finite");
    }
    return 0;
}

int dspark_choose(struct dspark *d)
{
    int err = 0;
    for (uint32_t step = 0; step < d->rows && !err; step++)
        err = choose_step(d, step);
    return err;
}
