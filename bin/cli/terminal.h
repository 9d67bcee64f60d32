/* terminal.h - a line on stderr that is written over and over, where stderr is
 * a terminal that can do so, not a dumb one. It is cut to the width that the
 * terminal has now: a longer line would leave its beginning behind.
 *
 * Threads  one. Errors: none.
 */
#ifndef BIN_CLI_TERMINAL_H
#define BIN_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

bool terminal_has_line(void);
/* Put this line in the place of the last. ASCII. */
void terminal_line(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* Put nothing in its place. */
void terminal_clear(void);

/* How far reading has got and how fast, as such a line, at most five times a
 * second. `on` says whether there is one. */
struct terminal_meter {
    bool        on;
    const char *verb; /* the caller's; before the numbers, or NULL */
    int64_t     begin_ns, shown_ns;
};
void terminal_meter_begin(struct terminal_meter *m, const char *verb);
/* Bytes; the rate counts from the first call. `meter`: a terminal_meter. */
void terminal_meter_show(void *meter, uint64_t done, uint64_t all);
void terminal_meter_clear(const struct terminal_meter *m);

#endif
