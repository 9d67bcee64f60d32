/* chart.c - the charts of page.h, as inline SVG. Heights are pixels, widths
 * shares of what the page has, so that a narrow page has narrow plots and text
 * of the usual size. What cannot have a share for a place, a path, stands in a
 * view box that is stretched. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bin/html/page.h"

#include "model/ckpt/figure.h"

enum {
    BOX = 1000, /* units that a stretched view box is wide */
    LEFT = 52,
    RIGHT = 8,
    ENDS = 132, /* the same, with names at the ends of lines */
    NAME_HIGH = 13,
    TOP = 14,
    BOTTOM = 50,
    STRIP = 14, /* of a heat strip */
    SHADES = 12,
    TICKS = 4,
    X_NAMES_MAX = 14,
    X_NAMES_HALF = 6, /* the same, where two charts share the width */
    EDGE = 94 /* percent; behind it, a tick's text ends at the edge */
};

struct plot {
    FILE   *f;
    const struct chart *c;
    double  bottom; /* pixels; the top is TOP */
    double  y_max;
};

/* The step of an axis: 1, 2 or 5 times a power of ten. */
static double nice_step(double span, int ticks)
{
    double raw = span / ticks, power = pow(10, floor(log10(raw)));
    double m = raw / power;
    return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * power;
}

static double y_at(const struct plot *p, double value)
{
    return p->bottom - value / p->y_max * (p->bottom - TOP);
}

static void say_number(FILE *f, double v)
{
    fputs(figure_chosen(fabs(v) < 1e-12 ? 0 : v).text, f);
}

static double tallest(const struct chart *c, const struct chart_series *s,
                      uint32_t n, bool stacked)
{
    double max = c->line;
    for (uint32_t i = 0; i < c->points; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            double v = isfinite(s[j].value[i]) ? s[j].value[i] : 0;
            sum = stacked ? sum + v : v > sum ? v : sum;
        }
        max = sum > max ? sum : max;
    }
    return max > 0 ? max * 1.04 : 1;
}

static void y_axis(const struct plot *p)
{
    double step = nice_step(p->y_max, TICKS);
    for (double v = 0; v <= p->y_max * 1.0001; v += step) {
        double y = y_at(p, v);
        fprintf(p->f, "<line class=\"%s\" x2=\"100%%\" y1=\"%.1f\" "
                "y2=\"%.1f\"/><text x=\"-6\" y=\"%.1f\" "
                "text-anchor=\"end\">", v > 0 ? "grid" : "axis", y, y, y + 4);
        say_number(p->f, v);
        fputs("</text>\n", p->f);
    }
}

/* Centred under x, a share of the plot, but not past the right edge. A narrow
 * page leaves out every second one, the number'th from 0. */
static void x_tick(const struct plot *p, double x, uint32_t number)
{
    static const char *const rank[] = { "", "t2", "t1", "t2" };
    bool edge = 100 * x > EDGE;
    fprintf(p->f, "<text class=\"%s\" x=\"%.2f%%\" y=\"%.1f\" "
            "text-anchor=\"%s\">", rank[number % 4], edge ? 100 : 100 * x,
            p->bottom + 20, edge ? "end" : "middle");
}

static void x_axis(const struct plot *p)
{
    const struct chart *c = p->c;
    uint32_t number = 0;
    if (c->x_names) {
        uint32_t max = c->half ? X_NAMES_HALF : X_NAMES_MAX;
        uint32_t every = (c->points + max - 1) / max;
        for (uint32_t i = 0; i < c->points; i += every ? every : 1) {
            x_tick(p, (i + .5) / c->points, number++);
            page_text(p->f, c->x_names[i]);
            fputs("</text>\n", p->f);
        }
    } else {
        double span = c->x_to - c->x_from;
        double step = nice_step(span > 0 ? span : 1, c->half ? 4 : 8);
        double v = ceil(c->x_from / step - 1e-9) * step;
        for (; v <= c->x_to + step * 1e-6; v += step) {
            x_tick(p, (v - c->x_from) / (span > 0 ? span : 1), number++);
            say_number(p->f, v);
            fputs("</text>\n", p->f);
        }
    }
    if (c->x_unit) {
        fprintf(p->f, "<text x=\"50%%\" y=\"%.1f\" text-anchor=\"middle\">",
                p->bottom + 43);
        page_text(p->f, c->x_unit);
        fputs("</text>\n", p->f);
    }
}

static void rules(const struct plot *p)
{
    const struct chart *c = p->c;
    double span = c->x_to - c->x_from;
    if (c->line > 0)
        fprintf(p->f, "<line class=\"rule\" x2=\"100%%\" y1=\"%.1f\" "
                "y2=\"%.1f\"/>\n", y_at(p, c->line), y_at(p, c->line));
    if (c->mark_name && span > 0) {
        double x = 100 * (c->mark_x - c->x_from) / span;
        fprintf(p->f, "<line class=\"point\" x1=\"%.2f%%\" x2=\"%.2f%%\" "
                "y1=\"%d\" y2=\"%.1f\"/>\n", x, x, TOP - 8, p->bottom);
    }
}

/* A mark of a line, around x, y. */
static void mark(FILE *f, const struct chart_series *s, double x, double y)
{
    fprintf(f, "<path class=\"mark\" fill=\"var(--c%d)\" d=\"", s->color);
    if (s->mark == 1)
        fprintf(f, "M%.1f %.1fh8v8h-8Z\"", x - 4, y - 4);
    else if (s->mark == 2)
        fprintf(f, "M%.1f %.1fl5.5 5.5l-5.5 5.5l-5.5-5.5Z\"", x, y - 5.5);
    else
        fprintf(f, "M%.1f %.1fa5 5 0 1 0 10 0a5 5 0 1 0-10 0Z\"", x - 5, y);
}

/* None is solid. */
static const char *const dashes[CHART_DASHES] = {
    "", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 2", "9 2 4 2",
};

static void stroke(FILE *f, const struct chart_series *s)
{
    fprintf(f, "<path fill=\"none\" stroke-width=\"2\" "
            "stroke=\"var(--c%d)\" stroke-dasharray=\"%s\" d=\"", s->color,
            dashes[s->dash % CHART_DASHES]);
}

/* The rule is named here, too: above the chart its name would lie on what
 * goes above the rule. */
static void legend(FILE *f, const struct chart *c,
                   const struct chart_series *s, uint32_t n, bool lines)
{
    bool ruled = c->line > 0 && c->line_name;
    if (n < 2 && !ruled && !c->mark_name)
        return;
    fputs("<ul class=\"legend\">", f);
    for (uint32_t j = 0; j < n && n > 1; j++) {
        fputs("<li>", f);
        if (lines) {
            fputs("<svg class=\"key\" viewBox=\"0 0 26 12\">", f);
            stroke(f, &s[j]);
            fputs("M0 6H26\"/>", f);
            mark(f, &s[j], 13, 6);
            fputs("/></svg>", f);
        } else {
            fprintf(f, "<i style=\"background:var(--c%d)\"></i>", s[j].color);
        }
        page_text(f, s[j].name);
        fputs("</li>", f);
    }
    if (ruled) {
        fputs("<li><svg class=\"key\" viewBox=\"0 0 26 12\"><line "
              "class=\"rule\" x2=\"26\" y1=\"6\" y2=\"6\"/></svg>", f);
        page_text(f, c->line_name);
        fputs("</li>", f);
    }
    if (c->mark_name) {
        fputs("<li><svg class=\"key\" viewBox=\"0 0 26 12\"><line "
              "class=\"point\" x1=\"13\" x2=\"13\" y2=\"12\"/></svg>", f);
        page_text(f, c->mark_name);
        fputs("</li>", f);
    }
    fputs("</ul>", f);
}

static void open_figure(FILE *f, const struct chart *c)
{
    fputs("<figure><figcaption>", f);
    page_text(f, c->title);
    fputs(" <span class=\"unit\">", f);
    page_text(f, c->y_unit);
    fputs("</span></figcaption>\n", f);
}

static void open_plot(const struct plot *p)
{
    fprintf(p->f, "<div class=\"plot\" style=\"margin:0 %dpx 0 %dpx\">"
            "<svg class=\"chart\" style=\"height:%.0fpx\" role=\"img\" "
            "aria-label=\"", p->c->ends ? ENDS : RIGHT, LEFT,
            p->bottom + BOTTOM);
    page_text(p->f, p->c->title);
    fputs("\">\n", p->f);
}

static struct plot begin(FILE *f, const struct chart *c,
                         const struct chart_series *s, uint32_t n,
                         bool stacked)
{
    struct plot p = { .f = f, .c = c, .bottom = TOP + c->height };
    p.y_max = c->y_max > 0 ? c->y_max : tallest(c, s, n, stacked);
    open_figure(f, c);
    legend(f, c, s, n, !stacked);
    open_plot(&p);
    y_axis(&p);
    x_axis(&p);
    return p;
}

static void end(const struct plot *p)
{
    rules(p);
    fputs("</svg></div></figure>\n", p->f);
}

/* Paths between these have x from 0 to BOX. */
static void open_box(const struct plot *p)
{
    fprintf(p->f, "<svg viewBox=\"0 0 %d %.0f\" height=\"%.0f\" "
            "preserveAspectRatio=\"none\">\n", BOX, p->bottom, p->bottom);
}

static void close_box(const struct plot *p)
{
    fputs("</svg>\n", p->f);
}

static void say_x(const struct plot *p, uint32_t i)
{
    const struct chart *c = p->c;
    if (c->x_names)
        page_text(p->f, c->x_names[i]);
    else if (c->x)
        say_number(p->f, c->x[i]);
    else
        say_number(p->f, c->x_from + (c->x_to - c->x_from) * i / c->points);
    fputc(' ', p->f);
    page_text(p->f, c->x_unit ? c->x_unit : "");
}

/* An invisible column over the i'th point that says its numbers. */
static void tip(const struct plot *p, uint32_t i, const struct chart_series *s,
                uint32_t n)
{
    double wide = 100.0 / p->c->points;
    fprintf(p->f, "<rect class=\"hit\" x=\"%.3f%%\" y=\"%d\" "
            "width=\"%.3f%%\" height=\"%.1f\"><title>", i * wide, TOP, wide,
            p->bottom - TOP);
    say_x(p, i);
    for (uint32_t j = 0; j < n; j++) {
        fputs("&#10;", p->f);
        page_text(p->f, s[j].name);
        fputs(": ", p->f);
        say_number(p->f, s[j].value[i]);
    }
    fputs("</title></rect>\n", p->f);
}

void chart_columns(FILE *f, const struct chart *c,
                   const struct chart_series *s, uint32_t n)
{
    struct plot p = begin(f, c, s, n, true);
    double width = 100.0 / (c->points ? c->points : 1);
    for (uint32_t i = 0; i < c->points; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            double v = s[j].value[i];
            if (!(v > 0))
                continue;
            double high = y_at(&p, sum + v), low = y_at(&p, sum);
            sum += v;
            fprintf(f, "<rect class=\"col\" x=\"%.3f%%\" y=\"%.2f\" "
                    "width=\"%.3f%%\" height=\"%.2f\" "
                    "fill=\"var(--c%d)\"/>", width * (i + .06), high,
                    width * .88, low - high, s[j].color);
        }
        tip(&p, i, s, n);
    }
    end(&p);
}

void chart_areas(FILE *f, const struct chart *c,
                 const struct chart_series *s, uint32_t n)
{
    struct plot p = begin(f, c, s, n, true);
    double step = (double)BOX / (c->points ? c->points : 1);
    open_box(&p);
    for (uint32_t j = n; j-- > 0;) { /* the lowest is drawn last, over all */
        fprintf(f, "<path fill=\"var(--c%d)\" d=\"M0 %.1f", s[j].color,
                p.bottom);
        for (uint32_t i = 0; i < c->points; i++) {
            double sum = 0;
            for (uint32_t k = 0; k <= j; k++)
                sum += s[k].value[i];
            sum = sum < p.y_max ? sum : p.y_max;
            fprintf(f, "V%.1fh%.3f", y_at(&p, sum), step);
        }
        fprintf(f, "V%.1fZ\"/>\n", p.bottom);
    }
    close_box(&p);
    for (uint32_t i = 0; i < c->points; i++)
        tip(&p, i, s, n);
    end(&p);
}

/* ---- lines ---- */

static double share_of(const struct chart *c, uint32_t i)
{
    double span = c->x_to > c->x_from ? c->x_to - c->x_from : 1;
    return (c->x[i] - c->x_from) / span;
}

static void one_line(const struct plot *p, const struct chart_series *s)
{
    bool down = false;
    stroke(p->f, s);
    for (uint32_t i = 0; i < p->c->points; i++) {
        if (!isfinite(s->value[i])) {
            down = false;
            continue;
        }
        fprintf(p->f, "%c%.1f %.1f", down ? 'L' : 'M',
                BOX * share_of(p->c, i), y_at(p, s->value[i]));
        down = true;
    }
    fputs("\"/>\n", p->f);
}

static void marks(const struct plot *p, const struct chart_series *s)
{
    for (uint32_t i = 0; i < p->c->points; i++) {
        if (!isfinite(s->value[i]))
            continue;
        fprintf(p->f, "<svg x=\"%.2f%%\" y=\"%.1f\">",
                100 * share_of(p->c, i), y_at(p, s->value[i]));
        mark(p->f, s, 0, 0);
        fputs("><title>", p->f);
        page_text(p->f, s->name);
        fputs(", ", p->f);
        say_x(p, i);
        fputs(": ", p->f);
        say_number(p->f, s->value[i]);
        fputs("</title></path></svg>\n", p->f);
    }
}

struct line_end {
    const struct chart_series *s;
    double x, y; /* share, pixels */
};

static int by_height(const void *a, const void *b)
{
    const struct line_end *x = a, *y = b;
    return (x->y > y->y) - (x->y < y->y);
}

/* The names of the lines right of the plot, at the heights where they end, or
 * as near as there is room; none if there are more than fit. */
static void end_names(const struct plot *p, const struct chart_series *s,
                      uint32_t n)
{
    struct line_end e[CHART_LINES_MAX];
    uint32_t count = 0, room = (uint32_t)(p->bottom - TOP) / NAME_HIGH;
    for (uint32_t j = 0; j < n && n <= room && n <= CHART_LINES_MAX; j++)
        for (uint32_t i = p->c->points; i-- > 0;)
            if (isfinite(s[j].value[i])) {
                e[count++] = (struct line_end){ &s[j], share_of(p->c, i),
                                                y_at(p, s[j].value[i]) };
                break;
            }
    qsort(e, count, sizeof *e, by_height);
    for (uint32_t i = 1; i < count; i++)
        if (e[i].y < e[i - 1].y + NAME_HIGH)
            e[i].y = e[i - 1].y + NAME_HIGH;
    double floor = p->bottom;
    for (uint32_t i = count; i-- > 0; floor = e[i].y - NAME_HIGH)
        e[i].y = e[i].y < floor ? e[i].y : floor;
    for (uint32_t i = 0; i < count; i++) {
        fprintf(p->f, "<text x=\"100%%\" dx=\"6\" y=\"%.1f\" "
                "style=\"fill:var(--c%d)\">", e[i].y + 4, e[i].s->color);
        page_text(p->f, e[i].s->name);
        fputs("</text>\n", p->f);
    }
}

void chart_lines(FILE *f, const struct chart *c,
                 const struct chart_series *s, uint32_t n)
{
    struct plot p = begin(f, c, s, n, false);
    open_box(&p);
    for (uint32_t j = 0; j < n; j++)
        one_line(&p, &s[j]);
    close_box(&p);
    for (uint32_t j = 0; j < n; j++)
        marks(&p, &s[j]);
    if (c->ends)
        end_names(&p, s, n);
    end(&p);
}

/* ---- heat ---- */

static uint32_t shade(double share)
{
    double v = isfinite(share) && share > 0 ? ceil(share * SHADES - 1e-9) : 0;
    return v < SHADES ? (uint32_t)v : SHADES;
}

void chart_heat(FILE *f, const struct chart *c, const struct chart_series *s,
                uint32_t n)
{
    struct chart strips = *c;
    strips.height = n * STRIP;
    struct plot p = { .f = f, .c = &strips, .bottom = TOP + strips.height };
    open_figure(f, &strips);
    legend(f, &strips, s, 0, false);
    open_plot(&p);
    for (uint32_t j = 0; j < n; j++) {
        double y = TOP + j * STRIP;
        fprintf(f, "<text x=\"-6\" y=\"%.1f\" text-anchor=\"end\">", y + 11);
        page_text(f, s[j].name);
        fputs("</text>", f);
        for (uint32_t i = 0, next; i < c->points; i = next) {
            uint32_t at = shade(s[j].value[i]);
            for (next = i + 1; next < c->points; next++)
                if (shade(s[j].value[next]) != at)
                    break;
            fprintf(f, "<rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"%.1f\" "
                    "height=\"%d\" fill=\"var(--c%d)\" "
                    "fill-opacity=\"%.2f\"><title>", 100.0 * i / c->points,
                    100.0 * (next - i) / c->points, y, STRIP - 2, s[j].color,
                    at ? .06 + .94 * at / SHADES : .04);
            page_text(f, s[j].name);
            fprintf(f, ": %s %.0f %%</title></rect>\n", at ? "up to" : "",
                    100.0 * at / SHADES);
        }
    }
    x_axis(&p);
    end(&p);
}
