#include "model/decode/proposal.h"

#include <math.h>
#include <string.h>

static const double own_decay = 0.93; /* of a sequence's counts, a try */
static const double all_decay = 0.98;
static const double bin_decay = 0.99;
static const double first_chance = 0.7, last_chance = 0.4; /* by position */
static const double prior_tries = 1, own_tries = 2; /* weights of the prior */
static const double bin_tries = 16;
static const double trust = 0.7; /* in the confidence */

void proposal_record_init(struct proposal_record *r)
{
    memset(r, 0, sizeof *r);
}

void proposal_init(struct proposal *p)
{
    memset(p, 0, sizeof *p);
}

void proposal_set(struct proposal *p, const struct dspark_ask *ask,
                  uint32_t count, uint32_t at)
{
    memcpy(p->ids, ask->ids, sizeof p->ids);
    memcpy(p->confidence, ask->confidence, sizeof p->confidence);
    p->count = count;
    p->at = at;
    p->checked = 0;
}

static uint32_t bin_of(float confidence)
{
    uint32_t bin = (uint32_t)(confidence * PROPOSAL_BINS);
    return bin < PROPOSAL_BINS ? bin : PROPOSAL_BINS - 1;
}

static double odds(double chance)
{
    chance = chance < 0.01 ? 0.01 : chance > 0.99 ? 0.99 : chance;
    return log(chance / (1 - chance));
}

/* How much likelier ids with this confidence were right than all ids. */
static double shift(const struct proposal_record *r, float confidence)
{
    uint32_t bin = bin_of(confidence);
    double tried = 0, right = 0;
    for (uint32_t i = 0; i < PROPOSAL_BINS; i++) {
        tried += (double)r->bin_tried[i];
        right += (double)r->bin_right[i];
    }
    if (tried < bin_tries)
        return 0;
    double all = right / tried;
    double here = ((double)r->bin_right[bin] + bin_tries / 2 * all) /
                  ((double)r->bin_tried[bin] + bin_tries / 2);
    return trust * (odds(here) - odds(all));
}

void proposal_chances(struct proposal *p, const struct proposal_record *r,
                      bool made)
{
    for (uint32_t i = 0; i < DSPARK_BLOCK; i++) {
        double prior = first_chance +
                       (last_chance - first_chance) * i / (DSPARK_BLOCK - 1);
        double all = ((double)r->right[i] + prior_tries * prior) /
                     ((double)r->tried[i] + prior_tries);
        double own = ((double)p->right[i] + own_tries * all) /
                     ((double)p->tried[i] + own_tries);
        p->each[i] = own;
        if (made && i < p->count) {
            double z = odds(own) + shift(r, p->confidence[i]);
            p->each[i] = 1 / (1 + exp(-z));
        }
    }
}

static void count(float *tried, float *right, bool was_right, double decay)
{
    *tried = (float)((double)*tried * decay + 1);
    *right = (float)((double)*right * decay + was_right);
}

void proposal_learn(struct proposal *p, struct proposal_record *r,
                    const uint32_t *ids, uint32_t n)
{
    while (p->checked < p->count && p->at + p->checked < n) {
        uint32_t i = p->checked++, bin = bin_of(p->confidence[i]);
        bool right = ids[p->at + i] == p->ids[i];
        count(&p->tried[i], &p->right[i], right, own_decay);
        count(&r->tried[i], &r->right[i], right, all_decay);
        count(&r->bin_tried[bin], &r->bin_right[bin], right, bin_decay);
        if (!right) /* the rest follows an id that did not come */
            p->checked = p->count;
    }
}
