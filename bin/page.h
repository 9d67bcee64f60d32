/* page.h - one self-contained HTML page: text, tiles, bars, and charts as
 * inline SVG. No scripts, no fonts, no network; light and dark as the reader's
 * system says; prints.
 *
 *     page_begin -> { page_section, page_..., chart_... } -> page_end
 *
 * Colours are told apart by hue and lightness, also by colour-blind readers and
 * in both schemes; every use has a legend or a label, and a tooltip where the
 * pointer rests.
 *
 * Errors  none here: the caller looks at ferror(f) once at the end.
 */
#ifndef BIN_PAGE_H
#define BIN_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum page_color { PAGE_BLUE, PAGE_RED, PAGE_GREEN, PAGE_AMBER, PAGE_VIOLET,
                  PAGE_GREY, PAGE_COLORS };

void page_begin(FILE *f, const char *title, const char *subtitle);
void page_end(FILE *f, const char *footer);
/* Text that may hold anything. */
void page_text(FILE *f, const char *text);
void page_section(FILE *f, const char *title, const char *about);
/* A paragraph that stands out: bold words, then the lines of `text`. */
void page_answer(FILE *f, const char *bold, const char *text);

struct page_tile {
    char value[32], label[64];
};
void page_tiles(FILE *f, const struct page_tile *tiles, uint32_t n);

struct page_part {
    const char *name;
    enum page_color color;
    double value;
    char   text[48]; /* the value as words */
};
/* One bar cut into parts, with a legend. `about` stands before it. */
void page_stack(FILE *f, const char *about, const struct page_part *parts,
                uint32_t n);
/* A bar for each part, as long as its value. */
void page_bars(FILE *f, const struct page_part *parts, uint32_t n);

struct page_row {
    const char *name;
    char value[64];
};
/* Two columns, folded away until asked for. */
void page_table(FILE *f, const char *title, const struct page_row *rows,
                uint32_t n);

/* ---- charts: each a figure with a caption, axes and a legend ---- */

struct chart_series {
    const char     *name;
    enum page_color color;
    const double   *value; /* [points] */
    uint8_t         mark;   /* chart_lines: 0 round, 1 square, 2 diamond */
    bool            dashed; /* the same */
};

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
    uint32_t    height;    /* of the plot; the width is the page's */
    uint32_t    points;
    double      x_from, x_to; /* of the first and past the last point */
    double      y_most;    /* 0: as the values want */
    double      line;      /* a horizontal rule there; 0: none */
    const char *line_name;
    const char *const *x_names; /* [points] or NULL: numbers */
    const double *x;       /* chart_lines: [points], rising */
    bool        half;      /* two side by side */
};

/* Stacked columns, one a point. */
void chart_columns(FILE *f, const struct chart *c,
                   const struct chart_series *series, uint32_t n);
/* Stacked areas over an even axis. */
void chart_areas(FILE *f, const struct chart *c,
                 const struct chart_series *series, uint32_t n);
/* Lines with marks over c->x. A value that is not finite leaves a gap. */
void chart_lines(FILE *f, const struct chart *c,
                 const struct chart_series *series, uint32_t n);

#endif
