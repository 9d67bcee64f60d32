#include "bin/report/plan_drafter.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/ckpt/figure.h"
#include "model/k3/shape.h"
#include "model/k3/threads.h"
#include "model/sim/token_cost.h"

const double plan_drafter_chances[PLAN_DRAFTER_CHANCES] = { 0.6, 0.78, 0.9 };

static const uint64_t budgets_gib[] = { 2, 32, 64, 128 };

/* What passes read under one budget. */
struct bytes {
    double trunk, draft; /* streamed; of a draft, head included */
    double walked;       /* of a draft, in memory or not */
    bool   resident;
};

static int bytes_at(struct bytes *b, const struct config *c,
                    const struct k3_options *o, const struct dspark *d,
                    struct error *error)
{
    struct k3_shape s;
    struct dspark_facts f;
    struct k3_options all = *o;
    k3_option_defaults(&all);
    int err = k3_shape_of(&s, NULL, c, &all,
                          k3_threads_or_default(o->threads), error);
    if (err)
        return err;
    dspark_facts(d, &f);
    *b = (struct bytes){ .trunk = (double)s.plan.streamed_payload_bytes,
                         .resident = s.guest_resident,
                         .walked = (double)f.sweep_bytes };
    b->draft = s.guest_resident ? 0 : b->walked;
    for (uint32_t t = 0; t < s.tiles->count; t++) {
        if (tiles_first_piece(s.tiles, t)->role != T_HEAD)
            continue;
        b->walked += (double)s.tiles->tile[t].payload_bytes;
        if (!s.resident[t])
            b->draft += (double)s.tiles->tile[t].payload_bytes;
    }
    k3_shape_free(&s);
    return 0;
}

/* Rows of one text, one after the other, share experts: on recorded traces of
 * Kimi K3, 2, 4 and 8 of them choose 1.66, 2.76 and 4.72 times as many as one
 * does. */
static const double shared_power = 0.746;

static double experts(const struct config *c, double expert_bytes, double rows)
{
    double n = c->top_k * pow(rows, shared_power);
    return config_moe_layers(c) * expert_bytes *
           (n < c->experts ? n : c->experts);
}

static double longer(double bytes, double rate, double compute_s)
{
    return bytes / rate > compute_s ? bytes / rate : compute_s;
}

static void fill_cell(struct plan_drafter_cell *cell, const struct config *c,
                      const struct bytes *b, double expert_bytes, double p,
                      double rate, double compute_s, double none_s)
{
    double ids = 1, chance = 1;
    *cell = (struct plan_drafter_cell){ .ids = 1, .seconds = none_s };
    for (uint32_t n = 1; n <= DSPARK_BLOCK; n++) {
        ids += chance *= p;
        double more = experts(c, expert_bytes, 1.0 + n);
        double bytes = b->trunk + b->draft + more;
        double walk = b->walked + more - experts(c, expert_bytes, 1);
        double s = longer(bytes, rate,
                          compute_s + walk / TOKEN_MEMORY_BYTES) / ids;
        if (s >= cell->seconds)
            continue;
        *cell = (struct plan_drafter_cell){ .drafts = n, .ids = ids,
                                            .bytes = bytes / ids,
                                            .seconds = s };
    }
    cell->gain = none_s / cell->seconds;
}

static int fill_line(struct plan_drafter *out, const struct config *c,
                     const struct k3_options *from, const struct dspark *d,
                     uint64_t bytes, double compute_s, struct error *error)
{
    struct plan_drafter_line *l = &out->line[out->lines];
    struct k3_options o = *from, plain = *from;
    struct token_cost none;
    struct bytes b;
    double expert = (double)expert_bytes(c);
    o.memory_bytes = plain.memory_bytes = bytes;
    o.drafts = DSPARK_BLOCK;
    plain.guest = NULL;
    plain.drafts = 0;
    int err = bytes_at(&b, c, &o, d, error);
    if (!err)
        err = token_cost(&none, c, &plain, error);
    if (err)
        return err;
    *l = (struct plan_drafter_line){ .budget_bytes = bytes,
                                     .resident = b.resident };
    l->none_bytes = (double)none.trunk_bytes + experts(c, expert, 1);
    for (uint32_t r = 0; r < out->rates; r++) {
        l->none_s[r] = longer(l->none_bytes, out->rate[r], compute_s);
        for (int p = 0; p < PLAN_DRAFTER_CHANCES; p++)
            fill_cell(&l->cell[p][r], c, &b, expert, plan_drafter_chances[p],
                      out->rate[r], compute_s, l->none_s[r]);
    }
    out->lines++;
    return 0;
}

int plan_drafter_fill(struct plan_drafter *out, const struct config *c,
                      const struct k3_options *o, const struct dspark *d,
                      const double *rate, uint32_t rates, double compute_s,
                      struct error *error)
{
    struct dspark_facts f;
    bool given = o->memory_bytes != 0;
    memset(out, 0, sizeof *out);
    dspark_facts(d, &f);
    out->kind = dspark_kind_name(dspark_config(d)->kind);
    out->draft_bytes = (double)f.sweep_bytes;
    out->memory_bytes = dspark_guest(d)->bytes;
    out->resident_bytes = out->memory_bytes + dspark_guest(d)->resident_bytes;
    out->rates = rates < PLAN_DRAFTER_RATES ? rates : PLAN_DRAFTER_RATES;
    memcpy(out->rate, rate, out->rates * sizeof *rate);
    int err = 0;
    for (size_t i = 0; i < sizeof budgets_gib / sizeof *budgets_gib && !err;
         i++) {
        uint64_t bytes = budgets_gib[i] << 30;
        struct error below = { 0 };
        if (given && o->memory_bytes <= bytes) {
            given = false;
            if (o->memory_bytes < bytes)
                err = fill_line(out, c, o, d, o->memory_bytes, compute_s,
                                error);
        }
        if (!err && fill_line(out, c, o, d, bytes, compute_s, &below))
            err = below.code == -ENOBUFS
                      ? 0
                      : error_set(error, below.code, "%s", below.text);
    }
    if (!err && given)
        err = fill_line(out, c, o, d, o->memory_bytes, compute_s, error);
    return err;
}

void plan_drafter_print(const struct plan_drafter *d)
{
    printf("drafter: %s; a draft needs %s GB of weights, and lm_head "
           "again;\nit takes %s GiB of memory, %s with all its weights\n\n"
           "  memory  drafter   right", d->kind,
           figure(d->draft_bytes / 1e9).text,
           figure((double)d->memory_bytes / 0x1p30).text,
           figure((double)d->resident_bytes / 0x1p30).text);
    for (uint32_t r = 0; r < d->rates; r++)
        printf("%12s GB/s", figure_chosen(d->rate[r] / 1e9).text);
    printf("\n  GiB                    ");
    for (uint32_t r = 0; r < d->rates; r++)
        printf("  rows  s  gain  ");
    putchar('\n');
    for (uint32_t i = 0; i < d->lines; i++) {
        const struct plan_drafter_line *l = &d->line[i];
        printf("  %-7s %-9s none ",
               figure_chosen((double)l->budget_bytes / 0x1p30).text,
               l->resident ? "resident" : "streamed");
        for (uint32_t r = 0; r < d->rates; r++)
            printf("%11s      ", figure(l->none_s[r]).text);
        putchar('\n');
        for (int p = 0; p < PLAN_DRAFTER_CHANCES; p++) {
            printf("%24s ", figure_chosen(plan_drafter_chances[p]).text);
            for (uint32_t r = 0; r < d->rates; r++) {
                const struct plan_drafter_cell *c = &l->cell[p][r];
                printf("%4u %6s %4s ", c->drafts, figure(c->seconds).text,
                       figure(c->gain).text);
            }
            putchar('\n');
        }
    }
    puts("\n  seconds an id, no expert hits; 2, 4 and 8 rows of a text choose "
         "1.7, 2.8 and\n  4.7 times as many experts as one; compute walks "
         "through all weights of a\n  pass at 100 GB/s\n");
}

static json_t *cell_json(const struct plan_drafter_cell *c, double chance,
                         double rate)
{
    return json_pack("{s:f, s:f, s:i, s:f, s:f, s:f, s:f}", "chance", chance,
                     "bytes_per_s", rate, "drafts", c->drafts, "ids_per_pass",
                     c->ids, "bytes_per_id", c->bytes, "seconds_per_id",
                     c->seconds, "gain", c->gain);
}

json_t *plan_drafter_json(const struct plan_drafter *d)
{
    json_t *lines = json_array();
    for (uint32_t i = 0; i < d->lines; i++) {
        const struct plan_drafter_line *l = &d->line[i];
        json_t *cells = json_array();
        for (int p = 0; p < PLAN_DRAFTER_CHANCES; p++)
            for (uint32_t r = 0; r < d->rates; r++)
                json_array_append_new(cells,
                                      cell_json(&l->cell[p][r],
                                                plan_drafter_chances[p],
                                                d->rate[r]));
        json_array_append_new(
            lines, json_pack("{s:I, s:b, s:f, s:o}", "memory_bytes",
                             (json_int_t)l->budget_bytes, "resident",
                             l->resident, "bytes_per_id_without",
                             l->none_bytes, "forecast", cells));
    }
    return json_pack("{s:s, s:f, s:I, s:I, s:o}", "kind", d->kind,
                     "draft_bytes", d->draft_bytes, "memory_bytes",
                     (json_int_t)d->memory_bytes, "resident_memory_bytes",
                     (json_int_t)d->resident_bytes, "budgets", lines);
}
