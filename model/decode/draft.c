#include "model/decode/draft.h"

#include <string.h>

#include "model/ckpt/tensors.h"
#include "model/k3/tiles.h"

static const double decay = 0.95;      /* of the counts, a draft */
static const double cost_decay = 0.9;  /* of the sums, a pass */
static const double first_chance = 0.1;
static const double prior_tries = 2;   /* weight of the class below */
static const double prior_rows = 1;    /* weight of the slope not measured */
static const double union_share = 0.85; /* experts of a row that are new */
static const double margin = 1.1;      /* by which a row must pay */
static const double waiting = 0.15;    /* share of a pass: it is I/O-bound */

void draft_init(struct draft *d)
{
    memset(d, 0, sizeof *d);
}

void draft_look(struct draft *d, const uint32_t *ids, uint32_t count)
{
    d->match = 0;
    d->count = count;
    for (uint32_t j = count > 1 ? count - 1 : 0; j-- > 0;) {
        uint32_t length = 0;
        while (length < DRAFT_MATCH_MAX && length <= j &&
               ids[j - length] == ids[count - 1 - length])
            length++;
        if (length <= d->match)
            continue;
        d->match = length;
        d->from = j + 1;
        if (length == DRAFT_MATCH_MAX)
            break;
    }
}

uint32_t draft_propose(const struct draft *d, const uint32_t *ids, uint32_t i)
{
    return ids[d->from + i % (d->count - d->from)];
}

static unsigned class_of(uint32_t length)
{
    return length <= 2 ? length - 1 : length <= 4 ? 2 : length <= 8 ? 3 : 4;
}

double draft_chance(const struct draft *d, uint32_t i)
{
    double chance = first_chance;
    unsigned last = class_of(d->match + i);
    for (unsigned c = 0; c <= last; c++)
        chance = (d->right[c] + prior_tries * chance) /
                 (d->tried[c] + prior_tries);
    return chance;
}

void draft_learn(struct draft *d, const uint32_t *ids, uint32_t count)
{
    bool right = d->match > 0;
    for (uint32_t i = 0; right && d->count + i < count; i++) {
        unsigned c = class_of(d->match + i);
        right = ids[d->count + i] == ids[d->from + i];
        d->tried[c] = (float)(d->tried[c] * decay + 1);
        d->right[c] = (float)(d->right[c] * decay + right);
    }
    d->match = 0;
}

/* ---- what a row costs ---- */

void draft_cost_init(struct draft_cost *c, double weights_share)
{
    memset(c, 0, sizeof *c);
    c->weights_share = weights_share;
}

double draft_weights_share(const struct k3 *k)
{
    const struct config *c = k3_config(k);
    double experts = (double)c->top_k * config_moe_layers(c) *
                     (double)expert_bytes(c);
    return experts / (experts + (double)k3_tiles(k)->payload_bytes);
}

void draft_cost_add(struct draft_cost *c, const struct k3_totals *last)
{
    double rows = (double)last->rows, y = (double)last->ns / 1e9;
    double waited = (double)(last->wait_trunk_ns + last->wait_expert_ns) / 1e9;
    double experts = (double)(last->demand_bytes + last->prefetch_bytes);
    double bytes = experts + (double)last->trunk_bytes;
    /* One pass that something else on the machine held up says little. */
    if (c->weight > 0 && y > 2 * draft_cost_pass(c, rows))
        y = 2 * draft_cost_pass(c, rows);
    c->row_share = c->weights_share;
    if (waited > waiting * y && bytes > 0)
        c->row_share = experts / rows / bytes;
    c->weight = c->weight * cost_decay + 1;
    c->x = c->x * cost_decay + rows;
    c->y = c->y * cost_decay + y;
    c->xx = c->xx * cost_decay + rows * rows;
    c->xy = c->xy * cost_decay + rows * y;
}

double draft_cost_row(const struct draft_cost *c)
{
    if (!(c->weight > 0))
        return 0;
    double expected = union_share * c->row_share * c->y / c->weight;
    double xx = c->xx - c->x * c->x / c->weight;
    double xy = c->xy - c->x * c->y / c->weight;
    double slope = (xy + prior_rows * expected) / (xx + prior_rows);
    return slope > expected / 4 ? slope : expected / 4;
}

double draft_cost_pass(const struct draft_cost *c, double rows)
{
    if (!(c->weight > 0))
        return 0;
    double mean = c->y / c->weight;
    double s = mean + draft_cost_row(c) * (rows - c->x / c->weight);
    return s > mean / 8 ? s : mean / 8;
}

/* ---- how many ---- */

double draft_ask_chance(const struct draft_ask *a, uint32_t i)
{
    if (a->each)
        return i < a->max ? a->each[i] : 0;
    return a->draft->match ? draft_chance(a->draft, i) : 0;
}

double draft_spread(const struct draft_cost *c, struct draft_ask *ask,
                    uint32_t n, uint32_t rows, uint32_t room, double beside_s)
{
    double row_s = draft_cost_row(c);
    double pass_s = draft_cost_pass(c, rows) + beside_s;
    double ids = n; /* that the pass is expected to give */
    for (uint32_t i = 0; i < n; i++) {
        struct draft_ask *a = &ask[i];
        a->width = 0;
        a->chance = draft_ask_chance(a, 0);
    }
    while (room-- > 0 && c->weight > 0) {
        struct draft_ask *best = NULL;
        for (uint32_t i = 0; i < n; i++)
            if (ask[i].chance > 0 && ask[i].width < ask[i].max &&
                (!best || ask[i].chance > best->chance))
                best = &ask[i];
        if (!best || best->chance * pass_s < margin * row_s * ids)
            break;
        ids += best->chance;
        pass_s += row_s;
        best->width++;
        best->chance *= draft_ask_chance(best, best->width);
    }
    return pass_s > 0 ? ids / pass_s : 0;
}
