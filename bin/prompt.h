/* prompt.h - token ids from what a person gave. Lists grow by appending. */
#ifndef BIN_PROMPT_H
#define BIN_PROMPT_H

#include "model/tok.h"
#include "model/why.h"

/* "1,2,3". -EINVAL: it is no such list; -ERANGE: an id above 32 bits. */
int prompt_ids(struct id_list *out, const char *list, struct why *why);
/* The text of a file, or of stdin for "-", as plain text. -EFBIG when it has
 * more than most_bytes: no more is kept in memory. */
int prompt_file(struct id_list *out, const struct tok *tok, const char *path,
                uint64_t most_bytes, struct why *why);

#endif
