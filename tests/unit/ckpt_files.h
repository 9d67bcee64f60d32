/* ckpt_files.h - small synthetic checkpoints in a folder of their own, and what
 * it takes to break them. */
#ifndef TESTS_UNIT_CKPT_FILES_H
#define TESTS_UNIT_CKPT_FILES_H

#include <stddef.h>

/* A name for a folder that does not exist yet, in one that does; free() it. */
char *ckpt_files_place(void);
/* The tiny preset with 3 layers (KDA, KDA, MLA) and 11 experts, written to a
 * new folder; free() the path. Fails the test when it cannot. */
char *ckpt_files_make(void);
/* Remove what ckpt_files_place or _make gave, with the folder around it, and
 * free the path. */
void ckpt_files_remove(char *dir);

/* A whole file, malloc'ed, with a NUL behind; and back. */
char *ckpt_files_read(const char *dir, const char *name, size_t *length);
void ckpt_files_write(const char *dir, const char *name, const void *bytes,
                      size_t length);

#endif
