/* none: every expert passes through staging. The baseline. */
#include "sched/policy.h"

static uint32_t place(void *state, const struct policy_group *g, uint32_t i)
{
    (void)state;
    (void)g;
    (void)i;
    return POLICY_BYPASS;
}

const struct policy policy_none = {
    .name = "none",
    .about = "keep nothing: every expert is read for every use",
    .place = place,
};
