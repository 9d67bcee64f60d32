/* chart.c - the charts of page.h, as inline SVG. */
#include <math.h>
#include <string.h>

#include "bin/page.h"

/* A view box of fixed size; the page scales it. */
enum { WIDE = 1000, HALF = 488, LEFT = 52, RIGHT = 8, TOP = 14, BOTTOM = 50,
       TICKS = 4, X_NAMES_MOST = 16, TICK_HALF = 26 };

struct plot {
    FILE   *f;
    const struct chart *c;
    double  left, right, top, bottom; /* of the plot in the view box */
    double  y_most;
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
    return p->bottom - value / p->y_most * (p->bottom - p->top);
}

static double x_of(const struct plot *p, double share)
{
    return p->left + share * (p->right - p->left);
}

static void say_number(FILE *f, double v)
{
    fprintf(f, "%.*g", v >= 1000 ? 4 : 3, fabs(v) < 1e-12 ? 0 : v);
}

static double tallest(const struct chart *c, const struct chart_series *s,
                      uint32_t n, bool stacked)
{
    double most = c->line;
    for (uint32_t i = 0; i < c->points; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            double v = isfinite(s[j].value[i]) ? s[j].value[i] : 0;
            sum = stacked ? sum + v : v > sum ? v : sum;
        }
        most = sum > most ? sum : most;
    }
    return most > 0 ? most * 1.04 : 1;
}

static void y_axis(const struct plot *p)
{
    double step = nice_step(p->y_most, TICKS);
    for (double v = 0; v <= p->y_most * 1.0001; v += step) {
        double y = y_at(p, v);
        fprintf(p->f, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
                "y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                v > 0 ? "grid" : "axis", p->left, p->right, y, y, p->left - 6,
                y + 4);
        say_number(p->f, v);
        fputs("</text>\n", p->f);
    }
}

/* Centred under x, but not past the right edge. */
static void x_tick(const struct plot *p, double x)
{
    bool edge = x + TICK_HALF > p->right + RIGHT;
    fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
            edge ? p->right + RIGHT : x, p->bottom + 20,
            edge ? "end" : "middle");
}

static void x_axis(const struct plot *p)
{
    const struct chart *c = p->c;
    if (c->x_names) {
        uint32_t every = (c->points + X_NAMES_MOST - 1) / X_NAMES_MOST;
        if (c->half)
            every *= 2;
        for (uint32_t i = 0; i < c->points; i += every ? every : 1) {
            x_tick(p, x_of(p, (i + .5) / c->points));
            page_text(p->f, c->x_names[i]);
            fputs("</text>\n", p->f);
        }
    } else {
        double span = c->x_to - c->x_from;
        double step = nice_step(span > 0 ? span : 1, c->half ? 4 : 8);
        double v = ceil(c->x_from / step - 1e-9) * step;
        for (; v <= c->x_to + step * 1e-6; v += step) {
            x_tick(p, x_of(p, (v - c->x_from) / (span > 0 ? span : 1)));
            say_number(p->f, v);
            fputs("</text>\n", p->f);
        }
    }
    if (c->x_unit) {
        fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                (p->left + p->right) / 2, p->bottom + 43);
        page_text(p->f, c->x_unit);
        fputs("</text>\n", p->f);
    }
}

static void rule(const struct plot *p)
{
    double y = y_at(p, p->c->line);
    if (!(p->c->line > 0))
        return;
    fprintf(p->f, "<line class=\"rule\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
            "y2=\"%.1f\"/>\n", p->left, p->right, y, y);
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

static void stroke(FILE *f, const struct chart_series *s)
{
    fprintf(f, "<path fill=\"none\" stroke-width=\"2\" "
            "stroke=\"var(--c%d)\"%s d=\"", s->color,
            s->dashed ? " stroke-dasharray=\"5 3\"" : "");
}

/* The name of the rule stands here, too: over the chart it would lie on what
 * goes above the rule. */
static void legend(FILE *f, const struct chart *c,
                   const struct chart_series *s, uint32_t n, bool lines)
{
    bool ruled = c->line > 0 && c->line_name;
    if (n < 2 && !ruled)
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
    fputs("</ul>", f);
}

static struct plot begin(FILE *f, const struct chart *c,
                         const struct chart_series *s, uint32_t n,
                         bool stacked)
{
    struct plot p = { .f = f, .c = c, .left = LEFT,
                      .right = (c->half ? HALF : WIDE) - RIGHT, .top = TOP,
                      .bottom = TOP + c->height };
    p.y_most = c->y_most > 0 ? c->y_most : tallest(c, s, n, stacked);
    fputs("<figure><figcaption>", f);
    page_text(f, c->title);
    fputs(" <span class=\"unit\">", f);
    page_text(f, c->y_unit);
    fputs("</span></figcaption>\n", f);
    legend(f, c, s, n, !stacked);
    fprintf(f, "<svg%s viewBox=\"0 0 %d %u\" role=\"img\" aria-label=\"",
            c->half ? "" : " class=\"wide\"", c->half ? HALF : WIDE,
            TOP + c->height + BOTTOM);
    page_text(f, c->title);
    fputs("\">\n", f);
    y_axis(&p);
    x_axis(&p);
    return p;
}

static void end(const struct plot *p)
{
    rule(p);
    fputs("</svg></figure>\n", p->f);
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

/* An invisible column over the point that says its numbers. */
static void tip(const struct plot *p, uint32_t i, double from, double to,
                const struct chart_series *s, uint32_t n)
{
    fprintf(p->f, "<rect class=\"hit\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
            "height=\"%.1f\"><title>", from, p->top, to - from,
            p->bottom - p->top);
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
    double width = (p.right - p.left) / (c->points ? c->points : 1);
    double gap = width > 6 ? 1.5 : width > 3 ? .8 : 0;
    for (uint32_t i = 0; i < c->points; i++) {
        double x = x_of(&p, (double)i / c->points), sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            double v = s[j].value[i];
            if (!(v > 0))
                continue;
            double high = y_at(&p, sum + v), low = y_at(&p, sum);
            sum += v;
            fprintf(f, "<rect class=\"col\" x=\"%.2f\" y=\"%.2f\" "
                    "width=\"%.2f\" height=\"%.2f\" fill=\"var(--c%d)\"/>",
                    x + gap / 2, high, width - gap, low - high, s[j].color);
        }
        tip(&p, i, x, x + width, s, n);
    }
    end(&p);
}

void chart_areas(FILE *f, const struct chart *c,
                 const struct chart_series *s, uint32_t n)
{
    struct plot p = begin(f, c, s, n, true);
    double step = (p.right - p.left) / (c->points ? c->points : 1);
    for (uint32_t j = n; j-- > 0;) { /* the lowest is drawn last, over all */
        fprintf(f, "<path fill=\"var(--c%d)\" d=\"M%.1f %.1f", s[j].color,
                p.left, p.bottom);
        for (uint32_t i = 0; i < c->points; i++) {
            double sum = 0;
            for (uint32_t k = 0; k <= j; k++)
                sum += s[k].value[i];
            sum = sum < p.y_most ? sum : p.y_most;
            fprintf(f, "V%.1fh%.2f", y_at(&p, sum), step);
        }
        fprintf(f, "V%.1fZ\"/>\n", p.bottom);
    }
    for (uint32_t i = 0; i < c->points; i++)
        tip(&p, i, p.left + i * step, p.left + (i + 1) * step, s, n);
    end(&p);
}

void chart_lines(FILE *f, const struct chart *c,
                 const struct chart_series *s, uint32_t n)
{
    struct plot p = begin(f, c, s, n, false);
    double span = c->x_to > c->x_from ? c->x_to - c->x_from : 1;
    for (uint32_t j = 0; j < n; j++) {
        bool down = false;
        stroke(f, &s[j]);
        for (uint32_t i = 0; i < c->points; i++) {
            if (!isfinite(s[j].value[i])) {
                down = false;
                continue;
            }
            fprintf(f, "%c%.1f %.1f", down ? 'L' : 'M',
                    x_of(&p, (c->x[i] - c->x_from) / span),
                    y_at(&p, s[j].value[i]));
            down = true;
        }
        fputs("\"/>\n", f);
        for (uint32_t i = 0; i < c->points; i++) {
            if (!isfinite(s[j].value[i]))
                continue;
            mark(f, &s[j], x_of(&p, (c->x[i] - c->x_from) / span),
                 y_at(&p, s[j].value[i]));
            fputs("><title>", f);
            page_text(f, s[j].name);
            fputs(", ", f);
            say_x(&p, i);
            fputs(": ", f);
            say_number(f, s[j].value[i]);
            fputs("</title></path>\n", f);
        }
    }
    end(&p);
}
