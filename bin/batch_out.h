/* batch_out.h - answers, one line each, that survive whatever happens.
 *
 * Lines that were put are written together and are on the drive when
 * batch_out_flush returns. A file that is there already is gone on with: the
 * caller is told of every whole line in it, and what a crash left of a last one
 * is cut off. Only one process at a time can have the file.
 *
 * In order, an answer that comes before its turn goes to a second file,
 * PATH.held, and from there to the first. It is as durable there, and is told
 * of in the same way.
 *
 *     batch_out_open { each } -> { batch_out_put | batch_out_take,
 *     batch_out_flush } -> batch_out_close
 *
 * Bytes    lines since the last flush, and in order 16 bytes for each line
 *          between the first without an answer and the last with one.
 * Errors   a sentence that names the file; -EWOULDBLOCK: another process has
 *          it.
 */
#ifndef BIN_BATCH_OUT_H
#define BIN_BATCH_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/why.h"

struct batch_out;

/* A line that is there. `place` is 0, or where it is held. Returns 0, 1 for a
 * held line that need not be kept, or -EBADMSG for a line that no batch wrote.
 */
typedef int batch_out_line(void *arg, const char *text, size_t bytes,
                           uint64_t place);

/* "-" is stdout: nothing to go on with. */
int batch_out_open(struct batch_out **out, const char *path, bool in_order,
                   batch_out_line *each, void *arg, struct why *why);
/* The answer to an input line, without its end. In order, every line of the
 * input is put once, by number from 1; without text when it has no answer, or
 * has it in the file already. */
int batch_out_put(struct batch_out *o, uint64_t line, const char *text,
                  size_t bytes, struct why *why);
/* In order: the answer to this line is the one held at `place`. */
int batch_out_take(struct batch_out *o, uint64_t line, uint64_t place,
                   struct why *why);
int batch_out_flush(struct batch_out *o, struct why *why);
/* `complete`: everything was put, nothing is held any more. NULL is fine. */
void batch_out_close(struct batch_out *o, bool complete);

#endif
