#include "model/ckpt/cuts.h"

#include <assert.h>

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint64_t weight_before(const struct cuts *cuts, uint32_t part)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < part; i++)
        sum += cuts->weight[i];
    return sum;
}

bool cuts_weigh(struct cuts *out, uint32_t parts, const double *rate)
{
    double largest = 0;
    assert(parts >= 1 && parts <= CUTS_PARTS_MAX);
    *out = (struct cuts){ .parts = parts };
    for (uint32_t i = 0; i < parts; i++)
        largest = rate[i] > largest ? rate[i] : largest;
    for (uint32_t i = 0; i < parts; i++) {
        double weight = rate[i] / largest * CUTS_WEIGHT_MAX + 0.5;
        if (!(weight >= 1))
            return false;
        out->weight[i] = (uint32_t)weight;
    }
    return true;
}

bool cuts_small(enum tensor_role role, const struct config *c, int64_t layer)
{
    struct tensor_dims dims;
    tensor_dims(role, c, layer, &dims);
    return dims.count != 2 || dims.size[0] <= 1 || role == T_FA ||
           role == T_FB || role == T_B;
}

/* The fewest heads of MLA whose rows are multiples of 16 in each of the
 * matrices that have a row for each value of a head. */
static uint32_t heads_of_unit(const struct config *c)
{
    uint32_t most = CUTS_ROWS;
    most = gcd(most, c->nope + c->rope);
    most = gcd(most, c->nope + c->v_dim);
    most = gcd(most, c->v_dim);
    return CUTS_ROWS / most;
}

uint32_t cuts_unit(enum tensor_role role, const struct config *c, int64_t layer)
{
    bool mla = layer >= 0 && config_is_mla(c, (uint32_t)layer);
    switch (role) {
    case T_QB:
        return heads_of_unit(c) * (c->nope + c->rope);
    case T_KVB:
        return heads_of_unit(c) * (c->nope + c->v_dim);
    case T_G:
        if (mla)
            return heads_of_unit(c) * c->v_dim;
        /* fall through */
    case T_Q:
    case T_K:
    case T_V:
        return CUTS_ROWS / gcd(CUTS_ROWS, c->kda_dim) * c->kda_dim;
    default:
        return CUTS_ROWS;
    }
}

struct row_range cuts_of(const struct cuts *cuts, uint32_t part, uint32_t rows,
                         uint32_t unit)
{
    uint64_t all = weight_before(cuts, cuts->parts);
    uint64_t units = rows / unit + (rows % unit != 0);
    struct row_range out;
    assert(part < cuts->parts);
    uint32_t *const bound[] = { &out.begin, &out.end };
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t before = weight_before(cuts, part + i);
        uint64_t row = (units * before + all / 2) / all * unit;
        *bound[i] = row < rows ? (uint32_t)row : rows;
    }
    return out;
}

struct row_range cuts_rows(const struct cuts *cuts, uint32_t part,
                           enum tensor_role role, const struct config *c,
                           int64_t layer)
{
    uint32_t rows, cols;
    tensor_shape(role, c, layer, &rows, &cols);
    if (cuts_small(role, c, layer))
        return (struct row_range){ 0, rows };
    return cuts_of(cuts, part, rows, cuts_unit(role, c, layer));
}

struct row_range cuts_expert_rows(const struct cuts *cuts, uint32_t part,
                                  uint32_t which, const struct config *c)
{
    uint32_t rows, cols;
    expert_shape(which, c, &rows, &cols);
    return cuts_of(cuts, part, rows, CUTS_ROWS);
}

/* Layer after layer goes to the part that is furthest behind its share. */
uint32_t cuts_small_from(const struct cuts *cuts, int64_t layer)
{
    uint64_t taken[CUTS_PARTS_MAX] = { 0 };
    uint32_t turn = 0;
    for (int64_t i = TENSOR_MODEL_LEVEL; i <= layer; i++) {
        turn = 0;
        for (uint32_t p = 1; p < cuts->parts; p++)
            if ((taken[p] + 1) * cuts->weight[turn] <
                (taken[turn] + 1) * cuts->weight[p])
                turn = p;
        taken[turn]++;
    }
    return turn;
}
