/* mistaken.h - what a failed download left in the place of a file.
 *
 * Threads  any. Errors: none.
 */
#ifndef MODEL_CKPT_MISTAKEN_H
#define MODEL_CKPT_MISTAKEN_H

#include <stddef.h>

/* Look at the first bytes of a file that is not what it should be. Returns "a
 * Git LFS pointer, not the file: ..." and the like, or NULL. */
const char *mistaken_for(const void *bytes, size_t length);

#endif
