#include "bin/html/time_charts.h"

#include <errno.h>
#include <stdlib.h>

#include "bin/html/page.h"
#include "model/ckpt/figure.h"

enum {
    NAME_BYTES = 24,
    HEAT_DRIVES = 4 /* from so many on, a heat strip for each */
};

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* Where decode begins, if that is inside the window. */
static void mark_decode(struct chart *c, const struct times *t,
                        const struct times_window *w)
{
    for (uint32_t i = 0; i < t->passes; i++) {
        double us = t->pass[i].from_us;
        if (!t->pass[i].decode)
            continue;
        if (us > w->from_us && us < w->to_us) {
            c->mark_x = c->x_from + (us - w->from_us) *
                                        (c->x_to - c->x_from) /
                                        (w->to_us - w->from_us);
            c->mark_name = "decode begins";
        }
        return;
    }
}

/* A strip for each drive: the share of its rate that it moved. */
static void heat(FILE *f, const struct times *t, const struct times_window *w,
                 const double *rate, const struct chart *like)
{
    struct chart_series s[DRIVES_MAX];
    char name[DRIVES_MAX][NAME_BYTES];
    double *share = calloc((size_t)t->drives * TIMES_BINS, sizeof *share);
    struct chart c = *like;
    c.title = "Drives";
    c.y_unit = "how much of its rate each moved: the darker, the more";
    c.line = 0;
    for (uint32_t d = 0; share && d < t->drives; d++) {
        double *row = share + (size_t)d * TIMES_BINS;
        for (int i = 0; i < TIMES_BINS; i++)
            for (int k = 0; k < READ_CLASSES; k++)
                row[i] += rate[d] > 0 ? w->read[d][k][i] / rate[d] : 0;
        snprintf(name[d], NAME_BYTES, "drive %u", d);
        s[d] = chart_part(name[d], PAGE_BLUE, row);
    }
    if (share)
        chart_heat(f, &c, s, t->drives);
    free(share);
}

static void drive_chart(FILE *f, const struct times *t,
                        const struct times_window *w, uint32_t drive,
                        double rate, const struct chart *like)
{
    double value[READ_CLASSES][TIMES_BINS];
    char title[64], rule[64];
    for (int c = 0; c < READ_CLASSES; c++)
        for (int i = 0; i < TIMES_BINS; i++)
            value[c][i] = w->read[drive][c][i] / 1e9;
    struct chart_series s[] = {
        chart_part("trunk", PAGE_AMBER, value[READ_TRUNK]),
        chart_part("experts, demanded", PAGE_RED, value[READ_DEMAND]),
        chart_part("experts, prefetched", PAGE_VIOLET, value[READ_PREFETCH]),
    };
    snprintf(title, sizeof title, "Drive %u", drive);
    snprintf(rule, sizeof rule, "its rate, %s GB/s",
             figure(rate / 1e9).text);
    struct chart c = *like;
    c.title = title;
    c.y_unit = "GB/s";
    c.height = 120;
    c.line = rate / 1e9;
    c.line_name = rule;
    mark_decode(&c, t, w);
    chart_areas(f, &c, s, READ_CLASSES);
}

static void window(FILE *f, const struct times *t,
                   const struct times_window *w, const json_t *report)
{
    double value[4][TIMES_BINS], ring[TIMES_BINS], rate[DRIVES_MAX];
    bool ms = w->to_us - w->from_us < 5e6;
    double scale = ms ? 1e-3 : 1e-6;
    struct chart c = { .x_unit = ms ? "milliseconds from the start"
                                    : "seconds from the start",
                       .points = TIMES_BINS, .x_from = w->from_us * scale,
                       .x_to = w->to_us * scale };
    json_t *drives = json_object_get(report, "drives");
    for (uint32_t d = 0; d < t->drives; d++) {
        const json_t *o = json_array_get(drives, d);
        rate[d] = number(o, "paced_bytes_per_s");
        rate[d] = rate[d] > 0 ? rate[d] : number(o, "raw_bytes_per_s");
    }
    mark_decode(&c, t, w);
    if (t->drives >= HEAT_DRIVES)
        heat(f, t, w, rate, &c);
    for (uint32_t d = 0; d < t->drives && t->drives < HEAT_DRIVES; d++)
        drive_chart(f, t, w, d, rate[d], &c);
    for (int i = 0; i < TIMES_BINS; i++) {
        value[0][i] = 100 * w->work[i];
        value[1][i] = 100 * w->wait_trunk[i];
        value[2][i] = 100 * w->wait_expert[i];
        value[3][i] = 100 * w->wait_embed[i];
        ring[i] = 100 * w->ring[i];
    }
    struct chart_series s[] = {
        chart_part("computing", PAGE_BLUE, value[0]),
        chart_part("waiting for the trunk", PAGE_AMBER, value[1]),
        chart_part("waiting for experts", PAGE_RED, value[2]),
        chart_part("waiting for the embedding", PAGE_VIOLET, value[3]),
    };
    c.title = "Compute";
    c.y_unit = "% of the time";
    c.height = 90;
    c.y_max = 100;
    chart_areas(f, &c, s, 4);
    struct chart_series fill = chart_part("filled", PAGE_AMBER, ring);
    c.title = "Ring";
    c.y_unit = "% filled with trunk read ahead";
    if (t->ring_bytes > 0)
        chart_areas(f, &c, &fill, 1);
}

/* The pass whose length is the median of its kind. */
static const struct times_pass *typical(const struct times *t, bool decode)
{
    const struct times_pass *best = NULL;
    uint32_t min = UINT32_MAX;
    for (uint32_t i = 0; i < t->passes; i++) {
        const struct times_pass *p = &t->pass[i];
        uint32_t shorter = 0, longer = 0;
        if (p->decode != decode)
            continue;
        for (uint32_t j = 0; j < t->passes; j++) {
            double d = t->pass[j].to_us - t->pass[j].from_us -
                       (p->to_us - p->from_us);
            if (t->pass[j].decode == decode) {
                shorter += d < 0;
                longer += d > 0;
            }
        }
        uint32_t off = shorter > longer ? shorter - longer : longer - shorter;
        if (off < min) {
            min = off;
            best = p;
        }
    }
    return best;
}

int time_charts(FILE *f, bool decode, const json_t *report, struct times *t,
                struct error *error)
{
    struct times_window *w = malloc(sizeof *w);
    if (!w)
        return error_set(error, -ENOMEM, "no memory for the charts");
    page_section(f, "Over time", "What each drive read, and what compute did. "
                 "A gap below the dashed line is time in which the drive "
                 "could have read more. Opening is at the left.");
    double from_us = t->opened_us > 0 ? 0 : t->pass[0].from_us;
    int err = times_fill(t, w, from_us, t->pass[t->passes - 1].to_us,
                         error);
    if (!err)
        window(f, t, w, report);
    const struct times_pass *one = typical(t, decode);
    if (!err && one) {
        page_section(f, "One pass, close up", decode
                     ? "The decode pass of median length."
                     : "The prompt's pass of median length.");
        err = times_fill(t, w, one->from_us, one->to_us, error);
    }
    if (!err && one)
        window(f, t, w, report);
    free(w);
    return err;
}
