/* simulate_gate.c - a router asked a layer early, as far as a trace can tell.
 *
 * What it would say is not in a trace, but how often it is right has been
 * measured: on K3, of the names in place 1 to 16, these shares were among the
 * 16 that were chosen. So each place is right that often, by
 * lot, and then has the next of the experts that were chosen, best first; else
 * one that was not. The lot is a hash of pass, layer and place: runs repeat.
 */
#include "model/sim/simulate_internal.h"

enum { PLACES = 6, TRIES = 8 };
static const double place[PLACES] = { 0, 3. / 15, 6. / 15, 9. / 15, 12. / 15,
                                      1 };
static const double right[PLACES] = { .922, .802, .643, .533, .394, .279 };

/* Of the name in place i of k. */
static double chance(uint32_t i, uint32_t k)
{
    double at = k > 1 ? (double)i / (k - 1) : 0;
    for (int j = 1; j < PLACES; j++)
        if (at <= place[j])
            return right[j - 1] + (right[j] - right[j - 1]) *
                                      (at - place[j - 1]) /
                                      (place[j] - place[j - 1]);
    return right[PLACES - 1];
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static bool among(const uint16_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

uint32_t simulate_gate(void *arg, uint32_t sequence, uint32_t moe,
                       uint32_t *ids, float *confidence, uint32_t max)
{
    const struct sim *s = arg;
    uint32_t k = s->c.top_k, row = UINT32_MAX, next = 0, n = 0;
    for (uint32_t r = 0; r < s->pass->rows; r++)
        if (s->pass->row[r].slot == sequence)
            row = r; /* the last of the sequence */
    if (row == UINT32_MAX)
        return 0;
    const uint16_t *chosen = passes_ids(s->passes, row, moe);
    for (uint32_t i = 0; i < k && n < max; i++) {
        uint64_t lot = mixed((uint64_t)s->pass->number << 32 | moe << 12 | i);
        if (s->perfect || (double)(lot >> 11) * 0x1p-53 < chance(i, k)) {
            ids[n++] = chosen[next++];
        } else {
            uint32_t id = 0;
            int tries = 0;
            do
                id = (uint32_t)((lot = mixed(lot + 1)) % s->c.experts);
            while (among(chosen, k, id) && ++tries < TRIES);
            ids[n++] = id;
        }
        confidence[n - 1] = 1.0f - (float)i / (float)k;
    }
    return n;
}
