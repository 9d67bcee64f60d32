/* tok_files.h - a tokenizer's folder, made for a test. */
#ifndef TESTS_UNIT_TOK_FILES_H
#define TESTS_UNIT_TOK_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "model/text/tok.h"

/* The texts of both files: the 256 single bytes in order, then `count` more
 * tokens (NUL-terminated), so that more[i] has id 256 + i; and the specials of
 * K3 by name at their places after that. For free(). */
char *tok_files_ranks(const char *const *more, size_t count);
char *tok_files_config(uint32_t first_special);

/* Make a folder below /tmp with both; returns its path, for free(). */
char *tok_files_make(const char *const *more, size_t count);
/* Replace one file of the folder. */
void tok_files_write(const char *dir, const char *name, const char *bytes,
                     size_t count);
/* Remove both files, the folder and the path. */
void tok_files_remove(char *dir);

/* A tokenizer from such a folder, which is gone already. */
struct tok *tok_files_open(const char *const *more, size_t count);

/* A random number below `below` from a state that is never 0. */
uint32_t tok_files_random(uint64_t *state, uint32_t below);

#endif
