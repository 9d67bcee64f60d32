/* sums.h - what a file's digest should be, as the download left it.
 *
 * In this order: the metadata that the hub's client keeps beside a folder
 * (.cache/huggingface/download/NAME.metadata, whose second line is the etag),
 * the name of the blob that a hub cache's link leads to, and a list like
 * SHA256SUMS. An etag of 64 digits is the SHA-256 of a large file, one of 40
 * the git name of a small one.
 *
 *     sums_open -> { sums_find } -> sums_close
 *
 * Threads  read-only after open.
 * Errors   -ENOMEM. What cannot be read or is no sum is not there.
 */
#ifndef MODEL_TOOLS_SUMS_H
#define MODEL_TOOLS_SUMS_H

#include <stdbool.h>

#include "model/tools/digest.h"

enum { SUMS_SOURCE_BYTES = 96 };

struct sums;

struct sum {
    enum digest_kind kind;
    char hex[DIGEST_HEX];
    char source[SUMS_SOURCE_BYTES]; /* who says so, for people */
};

int sums_open(struct sums **out, const char *dir);
void sums_close(struct sums *s);
/* Of the file `name` in the folder. */
bool sums_find(const struct sums *s, const char *name, struct sum *out);

#endif
