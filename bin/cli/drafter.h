/* drafter.h - doctor and verify of a folder that holds a drafter, and the
 * memory that it takes.
 */
#ifndef BIN_CLI_DRAFTER_H
#define BIN_CLI_DRAFTER_H

#include <stdint.h>

#include "model/ckpt/config.h"

/* Print, and return the exit status. */
int drafter_doctor(const char *dir);
int drafter_verify(const char *dir);
/* Bytes with one sequence of `context` positions, and for each one more. */
int drafter_memory(uint64_t *one, uint64_t *more, const char *dir,
                   const struct config *model, uint32_t context,
                   uint32_t threads, struct error *error);

#endif
