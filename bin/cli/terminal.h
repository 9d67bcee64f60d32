/* terminal.h - a line on stderr that is written over and over, where stderr is
 * a terminal that can do so, not a dumb one. It is cut to the width that the
 * terminal has now: a longer line would leave its beginning behind.
 *
 * Threads  one. Errors: none.
 */
#ifndef BIN_CLI_TERMINAL_H
#define BIN_CLI_TERMINAL_H

#include <stdbool.h>

bool terminal_has_line(void);
/* Put this line in the place of the last. ASCII. */
void terminal_line(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* Put nothing in its place. */
void terminal_clear(void);

#endif
