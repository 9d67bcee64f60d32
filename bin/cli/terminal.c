#include "bin/cli/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "io/clock.h"
#include "model/ckpt/figure.h"

enum { LINE_BYTES = 512, METER_NS = 200 * 1000 * 1000 };

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

void terminal_meter_begin(struct terminal_meter *m, const char *verb)
{
    *m = (struct terminal_meter){ .on = terminal_has_line(), .verb = verb };
}

void terminal_meter_show(void *meter, uint64_t done, uint64_t all)
{
    struct terminal_meter *m = meter;
    int64_t now = clock_ns();
    if (!m->begin_ns)
        m->begin_ns = now;
    if (!m->on || now - m->shown_ns < METER_NS)
        return;
    m->shown_ns = now;
    double s = (double)(now - m->begin_ns) / 1e9;
    double rate = s > 0 ? (double)done / s : 0;
    terminal_line("%s%s%s of %s GB, %s GB/s, %s to go",
                  m->verb ? m->verb : "", m->verb ? ": " : "",
                  figure((double)done / 1e9).text,
                  figure((double)all / 1e9).text, figure(rate / 1e9).text,
                  figure_span(rate > 0 ? (double)(all - done) / rate
                                       : 0.0).text);
}

void terminal_meter_clear(const struct terminal_meter *m)
{
    if (m->on)
        terminal_clear();
}
