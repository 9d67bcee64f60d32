/* rates.h - how much of a model each drive should have.
 *
 * Threads  one caller. Errors: errnos of files and reader, with a sentence.
 */
#ifndef BIN_SPREAD_RATES_H
#define BIN_SPREAD_RATES_H

#include "model/ckpt/cuts.h"
#include "model/ckpt/error.h"

/* The cuts of an earlier spread into these folders, of `parts` parts. False:
 * there are none. Folders may be NULL. */
bool rates_of_parts(struct cuts *out, const char *const *dir, uint32_t parts,
                    const struct config *c);
/* Read a temporary file in each folder, which is made if it is not there. Rates
 * are rounded to a twentieth of the largest: what they vary by themselves.
 * Cost: 128 MiB written a drive, and a second. */
int  rates_measure(double *rate, const char *const *dir, uint32_t parts,
                   struct error *error);

#endif
