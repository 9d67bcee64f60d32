/* line.h - lines that a person types: with editing and history on a terminal,
 * where the build has libedit, and as they come elsewhere.
 *
 *     line_open -> { line_read ... } -> line_close
 *
 * Threads  one.
 */
#ifndef BIN_CLI_LINE_H
#define BIN_CLI_LINE_H

#include <stdbool.h>
#include <stddef.h>

struct line_reader;

/* `prompt` is a constant; only a terminal shows it. NULL: no memory. */
struct line_reader *line_open(const char *prompt);
/* The next line without its end, good until the next call. 1; 0 at the end of
 * the input, -EINTR when a signal came while it was typed. */
int  line_read(struct line_reader *l, const char **text, size_t *bytes);
void line_close(struct line_reader *l);

#endif
