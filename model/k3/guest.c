#include "model/k3/guest.h"

#include <string.h>

#include "model/k3/k3_internal.h"

uint64_t k3_tap_floats(const struct k3_options *o, uint32_t hidden)
{
    return o->guest ? (uint64_t)o->guest->taps * hidden : 0;
}

void k3_lend(struct k3 *k, struct k3_lent *out)
{
    *out = (struct k3_lent){
        .kern = &k->kern, .team = k->team, .stream = k->flow.stream,
        .memory = k->guest, .resident = k->guest_resident,
        .file = weights_files(&k->weights), .flow = &k->flow,
        .cancel = &k->flow.cancel,
    };
}

const float *k3_taps(const struct k3 *k, uint32_t row)
{
    return k->s.taps + row * k3_tap_floats(&k->o, k->c.hidden);
}

int k3_tap_of(const struct k3 *k, int32_t layer, bool mixed)
{
    const struct k3_guest *g = k->o.guest;
    if (!g || g->mixed != mixed)
        return -1;
    for (uint32_t i = 0; i < g->taps; i++)
        if ((int32_t)g->tap[i] == layer)
            return (int)i;
    return -1;
}

float *k3_tap_row(struct k3 *k, uint32_t row, int tap)
{
    size_t width = k->c.hidden;
    return k->s.taps + row * k3_tap_floats(&k->o, k->c.hidden) + tap * width;
}

void k3_tap_sum(struct k3 *k, int32_t layer)
{
    int tap = k3_tap_of(k, layer, false);
    size_t width = k->c.hidden;
    for (uint32_t r = 0; r < k->flow.rows && tap >= 0; r++)
        memcpy(k3_tap_row(k, r, tap), k->s.sum + r * width,
               width * sizeof(float));
}

int k3_head(struct k3 *k, uint32_t tile, const uint8_t *frame, float *y,
            const float *xp, uint32_t rows, struct error *error)
{
    const struct tiles *t = k->flow.tiles;
    int err = 0;
    k->error = error;
    for (uint32_t p = t->first_piece[tile];
         p < t->first_piece[tile + 1] && !err; p++)
        err = k3_product_of(k, &t->piece[p], frame, y, k->c.vocab, xp, rows);
    return err;
}
