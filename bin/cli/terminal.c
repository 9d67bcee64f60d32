#include "bin/cli/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 512 };

bool terminal_has_line(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && !(kind && !strcmp(kind, "dumb"));
}

/* Columns; asked for every line, so a changed size needs no signal. */
static size_t width(void)
{
    struct winsize size;
    bool known = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 1;
    return known ? size.ws_col : 80;
}

void terminal_line(const char *format, ...)
{
    char text[LINE_BYTES];
    size_t room = width(); /* and the end, where the cursor stands */
    va_list args;
    va_start(args, format);
    vsnprintf(text, room < sizeof text ? room : sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void terminal_clear(void)
{
    fputs("\r\033[K", stderr);
}
