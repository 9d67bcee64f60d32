/* packed.h - the coded weights of a model, for commands that plan and do not
 * run: what a session would find.
 *
 *     packed_find -> { k3_options.sidecars } -> sidecars_close
 */
#ifndef BIN_CLI_PACKED_H
#define BIN_CLI_PACKED_H

#include "model/k3/k3.h"
#include "model/pack/sidecars.h"

/* packed: as --packed has it. Shards that are not there have no coded weights;
 * with "require" or a folder that is an error. On failure *out is empty. */
int packed_find(struct sidecars *out, const char *packed, const char *model,
                const struct config *c, struct error *error);

#endif
