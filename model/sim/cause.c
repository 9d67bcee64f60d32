#include "model/sim/cause.h"

/* Shares of the time: more than `waits_much` of waiting is a cause, less than
 * `waits_little` is none; a drive that works for `full` has no time to spare.
 * And ratios: one drive is `busier` than the others; fewer than `together`
 * drives work at a time. */
static const double waits_much = .3, waits_little = .15, full = .7;
static const double busier = 1.5, together = 1.3;

enum cause cause_of(const struct cause_input *in)
{
    double waits = in->wait_trunk_s + in->wait_expert_s + in->wait_embed_s;
    if (!(waits > waits_much * in->seconds))
        return waits < waits_little * in->seconds ? CAUSE_COMPUTE
                                                  : CAUSE_NONE;
    if (in->drives > 1 && in->busiest_share > busier * in->others_share)
        return CAUSE_ONE_DRIVE;
    if (in->wait_embed_s > waits_much * in->seconds &&
        in->wait_embed_s > waits / 2)
        return CAUSE_EMBEDDING;
    if (in->wait_expert_s > waits / 2 && in->cold)
        return CAUSE_COLD;
    if (in->drives > 1 && in->any_share > full &&
        in->at_once < together * in->any_share)
        return CAUSE_TURNS;
    if (in->wait_expert_s > waits / 2 && in->used_share < full)
        return CAUSE_ROUTER;
    return in->used_share > full ? CAUSE_BYTES : CAUSE_NONE;
}

const char *cause_name(enum cause cause)
{
    static const char *const names[] = {
        [CAUSE_NONE] = "balanced", [CAUSE_COMPUTE] = "compute",
        [CAUSE_BYTES] = "bytes", [CAUSE_ROUTER] = "router",
        [CAUSE_TURNS] = "one drive at a time",
        [CAUSE_ONE_DRIVE] = "one drive", [CAUSE_EMBEDDING] = "embedding",
        [CAUSE_COLD] = "cold cache" };
    return names[cause];
}
