/* page.h - one self-contained HTML page: text, tiles, bars, and charts as
 * inline SVG. No scripts, no fonts, no network. It follows the reader's light
 * or dark scheme, and can be printed.
 *
 *     page_begin -> { page_section, page_..., chart_... } -> page_end
 *
 * Colours differ in hue and lightness, for colour-blind readers too, in both
 * schemes. Everything has a legend or label, and a tooltip.
 *
 * Threads  one caller.
 * Errors   none: the caller checks ferror(f) at the end.
 */
#ifndef BIN_HTML_PAGE_H
#define BIN_HTML_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum page_color { PAGE_BLUE, PAGE_RED, PAGE_GREEN, PAGE_AMBER, PAGE_VIOLET,
                  PAGE_GREY, PAGE_COLORS };

void page_begin(FILE *f, const char *title, const char *subtitle);
void page_end(FILE *f, const char *footer);
/* Write any text, escaped for HTML. */
void page_text(FILE *f, const char *text);
void page_section(FILE *f, const char *title, const char *about);
/* A highlighted paragraph: bold words, then the lines of `text`. */
void page_answer(FILE *f, const char *bold, const char *text);

struct page_tile {
    char value[40], label[80];
};
void page_tiles(FILE *f, const struct page_tile *tiles, uint32_t n);

struct page_part {
    const char *name;
    enum page_color color;
    double value;    /* in any unit, the same for all parts */
    char   text[48]; /* the value with its unit */
};
/* One bar of several parts, with a legend, below the text `about`. */
void page_stack(FILE *f, const char *about, const struct page_part *parts,
                uint32_t n);
/* A bar for each part. */
void page_bars(FILE *f, const struct page_part *parts, uint32_t n);

struct page_row {
    const char *name;
    char value[64];
};
/* A table of two columns, folded. */
void page_table(FILE *f, const char *title, const struct page_row *rows,
                uint32_t n);

/* ---- charts: each a figure with a caption, axes and a legend ---- */

struct chart_series {
    const char     *name;
    enum page_color color;
    const double   *value; /* [points] */
    uint8_t         mark;   /* chart_lines: 0 round, 1 square, 2 diamond */
    uint8_t         dash;   /* chart_lines: below CHART_DASHES; 0 solid */
};

enum { CHART_DASHES = 8, CHART_LINES_MAX = 64 };

/* A series of columns or areas. */
static inline struct chart_series chart_part(const char *name,
                                             enum page_color color,
                                             const double *value)
{
    return (struct chart_series){ .name = name, .color = color,
                                  .value = value };
}

struct chart {
    const char *title, *y_unit, *x_unit;
    uint32_t    height;    /* of the plot, pixels */
    uint32_t    points;
    double      x_from, x_to; /* x of the first point, and past the last */
    double      y_max;     /* of the axis; 0: from the values */
    double      line;      /* y of a horizontal rule; 0: none */
    const char *line_name;
    const char *const *x_names; /* [points]; NULL: numbers */
    const double *x;       /* chart_lines: [points], ascending */
    double      mark_x;    /* of a vertical rule, if it has a name */
    const char *mark_name;
    bool        half;      /* half the width of the page */
    bool        ends;      /* chart_lines: names at the ends of the lines */
};

/* Stacked columns, one a point. */
void chart_columns(FILE *f, const struct chart *c,
                   const struct chart_series *series, uint32_t n);
/* Stacked areas; points are at equal distances. */
void chart_areas(FILE *f, const struct chart *c,
                 const struct chart_series *series, uint32_t n);
/* Lines with marks over c->x. A value that is not finite leaves a gap. */
void chart_lines(FILE *f, const struct chart *c,
                 const struct chart_series *series, uint32_t n);
/* A strip for each series, of one color; values are shares, 0 to 1. c->height
 * follows. */
void chart_heat(FILE *f, const struct chart *c,
                const struct chart_series *series, uint32_t n);

#endif
