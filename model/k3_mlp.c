/* k3_mlp.c - the gated MLP of the dense layers, and SiTU for all of them. */
#include "compute/glu.h"
#include "compute/pack.h"
#include "model/k3_guess.h"
#include "model/k3_internal.h"

enum { SITU_BLOCK = 1024 }; /* columns; a multiple of PACK_BLOCK */

struct situ_job {
    struct k3 *k;
    float *packed, *g;
    const float *u;
    size_t n, blocks;
};

static void situ_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct situ_job *j = arg;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / j->blocks, at = i % j->blocks * SITU_BLOCK;
        size_t n = j->n - at < SITU_BLOCK ? j->n - at : SITU_BLOCK;
        float *g = j->g + row * j->n + at;
        situ(g, g, j->u + row * j->n + at, n, j->k->c.situ_b1,
             j->k->c.situ_b2);
        pack_rows(j->packed + row * pack_cols(j->n) + at, g, 1, n, n);
    }
}

void k3_situ(struct k3 *k, float *packed, float *g, const float *u,
             uint32_t rows, size_t n)
{
    struct situ_job j = { k, packed, g, u, n,
                          (n + SITU_BLOCK - 1) / SITU_BLOCK };
    team_for(k->team, rows * j.blocks, 1, situ_some, &j);
}

int k3_dense(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    size_t inter = k->c.dense_inter;
    k3_guess_ahead(p, layer);
    int err = k3_product(p, (int)layer, T_GATE_PROJ, s->xp, p->rows, s->g,
                         inter);
    if (!err)
        err = k3_product(p, (int)layer, T_UP_PROJ, s->xp, p->rows, s->u,
                         inter);
    if (err)
        return err;
    k3_situ(k, s->up, s->g, s->u, p->rows, inter);
    return k3_product(p, (int)layer, T_DOWN_PROJ, s->up, p->rows, s->out,
                      k->c.hidden);
}
