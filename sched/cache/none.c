/* none: every expert is read into staging and dropped. The baseline. */
#include "sched/cache/policy.h"

static uint32_t place(void *state, const struct policy_group *g, uint32_t i)
{
    (void)state;
    (void)g;
    (void)i;
    return POLICY_BYPASS;
}

const struct policy policy_none = {
    .name = "none",
    .about = "keep nothing: read every expert for every use",
    .place = place,
};
