/* accepted.h - sluice replay --acceptance: traces as they would have been with
 * drafts (model/sim/drafted.h). Prints; returns the exit status.
 */
#ifndef BIN_REPLAY_ACCEPTED_H
#define BIN_REPLAY_ACCEPTED_H

#include <stdbool.h>

int replay_accepted(double chance, const char *const *paths, int count,
                    bool repair, bool json);

#endif
