/* verified.h - the list of files that verify has read from end to end and found
 * sound: NAME/.sluice-verified, a line a file, in the order of reading.
 *
 * A file is unchanged if its size and its time of change are those of the list
 * and 64 pieces of 64 KiB spread over it have the digest that they had. So a
 * second verify takes seconds, and one that was stopped goes on where it was.
 *
 *     verified_open -> { verified_unchanged, verified_add } -> verified_close
 *
 * Bytes    the list only grows; the last line of a file counts. One that does
 *          not begin as ours is not touched.
 * Threads  any number after open.
 * Errors   a list that cannot be read is empty; one that cannot be written is
 *          told by verified_close and does no other harm. open: -ENOMEM.
 */
#ifndef MODEL_TOOLS_VERIFIED_H
#define MODEL_TOOLS_VERIFIED_H

#include <stdbool.h>
#include <sys/stat.h>

#include "model/ckpt/error.h"
#include "model/tools/digest.h"

#define VERIFIED_NAME ".sluice-verified"

struct verified;

int verified_open(struct verified **out, const char *dir);
/* The digest that the list has for an unchanged file goes into `sha256`. */
bool verified_unchanged(const struct verified *l, const char *path,
                        char sha256[DIGEST_HEX]);
/* `st` is from before the reading. */
void verified_add(struct verified *l, const char *path, const struct stat *st,
                  const char *sha256);
/* 0, or the errno that stopped the writing. */
int verified_close(struct verified *l);

#endif
