/* out.h - answers, one line each, that survive a crash.
 *
 * Lines that were put are written together and are on the drive when
 * batch_out_flush returns. A file that exists is continued: the caller is told
 * of every whole line in it, and the rest of a line that a crash cut off is
 * removed. One process at a time can have the file.
 *
 * In order, an answer that comes before its turn goes to a second file,
 * PATH.held, and is copied to the first when its turn comes. It is as durable
 * there, and the caller is told of it in the same way.
 *
 *     batch_out_open { each } -> { batch_out_put | batch_out_take,
 *     batch_out_flush } -> batch_out_close
 *
 * Bytes    the lines since the last flush; in order also 16 bytes for each line
 *          between the first without an answer and the last with one.
 * Threads  one.
 * Errors   a sentence that names the file; -EWOULDBLOCK: another process has
 *          it.
 */
#ifndef BIN_BATCH_OUT_H
#define BIN_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

struct batch_out;

/* Called for each line that the file has. `place` is 0, or where it is held.
 * Returns 0; 1 for a held line that is not needed; -EBADMSG for a line that no
 * batch wrote. */
typedef int batch_out_line(void *arg, const char *text, size_t bytes,
                           uint64_t place);

/* "-" is stdout, which is not continued. */
int batch_out_open(struct batch_out **out, const char *path, bool in_order,
                   batch_out_line *each, void *arg, struct error *error);
/* Add the answer to an input line, without a line end. In order, every line of
 * the input is put once, by its number from 1; text is NULL when it has no
 * answer, or has it in the file. */
int batch_out_put(struct batch_out *o, uint64_t line, const char *text,
                  size_t bytes, struct error *error);
/* In order: this line is answered by what is held at `place`. */
int batch_out_take(struct batch_out *o, uint64_t line, uint64_t place,
                   struct error *error);
/* Write all that was put, and wait until it is on the drive. */
int batch_out_flush(struct batch_out *o, struct error *error);
/* `complete`: everything was put, so PATH.held is not needed any more. NULL is
 * fine. */
void batch_out_close(struct batch_out *o, bool complete);

#endif
