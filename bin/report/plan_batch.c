#include "bin/report/plan_batch.h"

#include <stdio.h>
#include <string.h>

#include "model/ckpt/figure.h"
#include "model/sim/token_cost.h"

enum { OPS_A_BYTE = 20 }; /* operations in the time of a byte from memory */

#define GIB 0x1p30

/* Compute as --compute says: one row is bound by memory. */
static struct forecast_machine machine_of(const struct config *c,
                                          const struct k3_options *o,
                                          double compute_s)
{
    double rate = (double)token_weight_bytes(c) / compute_s;
    struct forecast_machine m = {
        .drives = o->paced_count, .trunk_bytes = rate,
        .trunk_ops = OPS_A_BYTE * rate, .expert_bytes = rate,
        .expert_ops = OPS_A_BYTE * rate, .threads = o->threads };
    memcpy(m.drive, o->paced, o->paced_count * sizeof *o->paced);
    return m;
}

int plan_batch_pass(struct pass_times *out, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    uint32_t rows, struct error *error)
{
    struct forecast_machine m = machine_of(c, o, compute_s);
    struct k3_options one = *o;
    struct pass_clock *clock = NULL;
    struct simulate_cost *cost = NULL;
    double items = forecast_distinct(c->experts, c->top_k, rows, 0);
    one.policy = "none";
    one.prefetch = "none";
    int err = pass_clock_open(&clock, c, 1, rows, 1, error);
    if (!err)
        err = simulate_cost_machine(&cost, c, &m, rows, items, error);
    if (!err)
        err = pass_clock_run(out, clock, &one, cost, error);
    simulate_cost_free(cost);
    pass_clock_close(clock);
    return err;
}

int plan_batch_fill(struct plan_batch *b, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    struct error *error)
{
    struct k3_shape shape;
    struct forecast_options f = {
        .o = *o, .prompt_rows = FORECAST_PROMPT_ROWS,
        .sequence_heap = (uint64_t)FORECAST_POSITION_HEAP * o->context,
        .machine = machine_of(c, o, compute_s),
    };
    struct k3_options one = *o;
    f.o.rows = 0;
    one.rows = 1;
    k3_option_defaults(&one);
    int err = k3_shape_of(&shape, NULL, c, &one, o->threads, error);
    if (err)
        return err;
    err = forecast_curve(b->curve, PLAN_BATCH_MAX, &shape, c, &f, error);
    k3_shape_free(&shape);
    b->best = forecast_best(b->curve, PLAN_BATCH_MAX);
    return err;
}

static bool is_power(uint32_t n)
{
    return !(n & (n - 1));
}

void plan_batch_print(const struct plan_batch *b)
{
    puts("\n"
         "sequences   rows    trunk      GB read     GB read   s a     ids a\n"
         "            a pass  resident   a pass      an id     pass    second");
    for (uint32_t i = 0; i < PLAN_BATCH_MAX; i++) {
        const struct forecast *f = &b->curve[i];
        const struct plan *p = &f->plan;
        if (!is_power(i + 1) && i != b->best)
            continue;
        if (!f->simulated) {
            printf("  %-9u needs %s GiB\n", i + 1,
                   figure((double)p->floor_bytes / GIB).text);
            continue;
        }
        double trunk = (double)(p->resident_payload_bytes +
                                p->streamed_payload_bytes);
        printf("%c %-9u %6u %8s %% %11s %11s %7s %9s\n",
               i == b->best ? '>' : ' ', i + 1, p->rows,
               figure_points((double)p->resident_payload_bytes / trunk).text,
               figure(f->pass.read_bytes / 1e9).text,
               figure(f->bytes_per_id / 1e9).text,
               figure(f->pass.seconds).text, figure(f->ids_per_s).text);
    }
}

json_t *plan_batch_json(const struct plan_batch *b)
{
    json_t *curve = json_array();
    for (uint32_t i = 0; i < PLAN_BATCH_MAX; i++) {
        const struct forecast *f = &b->curve[i];
        json_t *o = json_pack(
            "{s:i, s:b, s:I, s:I}", "sequences", (int)i + 1, "fits", f->fits,
            "floor_bytes", (json_int_t)f->plan.floor_bytes,
            "resident_bytes", (json_int_t)f->plan.resident_bytes);
        if (f->fits)
            json_object_set_new(o, "rows", json_integer(f->plan.rows));
        if (f->simulated)
            json_object_update_new(
                o, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                             "trunk_bytes", f->pass.trunk_bytes,
                             "expert_bytes", f->pass.expert_bytes,
                             "distinct_experts", f->pass.distinct,
                             "read_bytes_per_token", f->bytes_per_id,
                             "compute_s", f->pass.compute_s,
                             "seconds_per_pass", f->pass.seconds,
                             "tokens_per_s", f->ids_per_s));
        json_array_append_new(curve, o);
    }
    json_t *best = b->best < PLAN_BATCH_MAX
                       ? json_integer(b->curve[b->best].sequences)
                       : json_null();
    return json_pack("{s:o, s:o}", "best_sequences", best, "curve", curve);
}
