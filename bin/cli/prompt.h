/* prompt.h - token ids from the command line or a file, appended to a list.
 *
 * Threads  one caller.
 * Errors   a negative errno and a sentence.
 */
#ifndef BIN_CLI_PROMPT_H
#define BIN_CLI_PROMPT_H

#include "model/ckpt/error.h"
#include "model/sluice.h"

/* "1,2,3". -EINVAL: it is no such list; -ERANGE: an id above 32 bits. */
int prompt_ids(struct sluice_ids *out, const char *list, struct error *error);
/* 0 or -ENOMEM. */
int prompt_append(struct sluice_ids *out, const uint32_t *ids, size_t count);
/* The bytes of a file, or of stdin for "-", for free(). Errors as below. */
int prompt_text(char **out, size_t *length, const char *path,
                uint64_t max_bytes, struct error *error);
/* The text of a file, or of stdin for "-", as plain text. -EFBIG when it has
 * more than max_bytes: no more is kept in memory. */
int prompt_file(struct sluice_ids *out, const struct sluice_text *text,
                const char *path, uint64_t max_bytes, struct error *error);

#endif
