/* routing.h - choices of experts for rows that do not exist yet.
 *
 * The popularity of an expert is a normal number that it has in every text, and
 * each row adds one of its own; a row chooses the top-k of a layer. The shares
 * are fitted to K3's traces (forecast_distinct has the same law). A checkpoint
 * of random weights has flatter choices.
 *
 *     routing_open -> { routing_choose ... } -> routing_close
 *
 * Threads  one caller. Errors: -ENOMEM. The same choices each time.
 * Cost     4 us a row and layer of 896 experts.
 */
#ifndef MODEL_SIM_ROUTING_H
#define MODEL_SIM_ROUTING_H

#include <stdint.h>

#include "model/ckpt/config.h"

struct routing;

/* Of the variance of an expert's score, the part that it has in every text. */
#define ROUTING_FIXED_SHARE 0.31

/* The config stays the caller's. */
int  routing_open(struct routing **out, const struct config *c);
void routing_close(struct routing *r);
/* Fill ids [top_k], best first, for the next row in MoE layer m. */
void routing_choose(struct routing *r, uint32_t m, uint32_t *ids);

#endif
