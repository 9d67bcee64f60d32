#include "bin/report/plan_nodes.h"

#include <errno.h>
#include <stdio.h>

#include "bin/report/plan_batch.h"
#include "model/ckpt/figure.h"
#include "model/ckpt/owned.h"
#include "model/k3/shape.h"

static const uint32_t rows_of[PLAN_NODES_LINES] = { 1, 16, 64 };

/* Does the budget have room for so many rows in a pass? */
static bool rows_fit(const struct config *c, const struct k3_options *o,
                     uint32_t rows, struct error *error)
{
    struct k3_options all = *o;
    struct k3_shape shape;
    all.rows = rows;
    all.policy = "none";
    all.prefetch = "none";
    k3_option_defaults(&all);
    if (k3_shape_of(&shape, NULL, c, &all, all.threads ? all.threads : 1,
                    error))
        return false;
    bool fit = shape.plan.rows >= rows;
    k3_shape_free(&shape);
    return fit;
}

int plan_nodes_fill(struct plan_nodes *n, const struct config *c,
                    const struct k3_options *o, double compute_s,
                    struct error *error)
{
    struct owned owned = { .cuts.parts = n->nodes };
    struct k3_options shared = *o;
    for (uint32_t i = 0; i < n->nodes; i++)
        owned.cuts.weight[i] = 1;
    if (!owned_by_all(&owned.cuts, c))
        return error_set(error, -ENOTSUP, "the experts of this model have too "
                         "few rows for %u machines", n->nodes);
    shared.owned = &owned;
    shared.network = &n->network;
    for (uint32_t i = 0; i < PLAN_NODES_LINES; i++) {
        struct plan_nodes_line *l = &n->line[i];
        struct error why = { 0 };
        uint32_t each = (rows_of[i] + n->nodes - 1) / n->nodes;
        l->rows = rows_of[i];
        if (!rows_fit(c, &shared, l->rows, &why) ||
            !rows_fit(c, o, each, &why)) {
            if (why.code && why.code != -ENOBUFS)
                return error_set(error, why.code, "%s", why.text);
            continue;
        }
        struct k3_options all = shared, copy = *o;
        if (o->rows && o->rows < l->rows) /* --rows is of other passes */
            all.rows = l->rows;
        if (o->rows && o->rows < each)
            copy.rows = each;
        int err = plan_batch_pass(&l->shared, c, &all, compute_s, l->rows,
                                  &why);
        if (!err)
            err = plan_batch_pass(&l->copy, c, &copy, compute_s, each, &why);
        l->fits = !err;
        if (err && err != -ENOBUFS)
            return error_set(error, err, "%s", why.text);
    }
    return 0;
}

/* One row is read by one copy; the others have nothing to do. */
static double ids_per_s(const struct plan_nodes_line *l, bool shared)
{
    return l->rows / (shared ? l->shared.seconds : l->copy.seconds);
}

void plan_nodes_print(const struct plan_nodes *n)
{
    printf("\n%u machines like this one, %s GB/s and %s us between "
           "them:\n", n->nodes,
           figure_chosen(n->network.bytes_per_s / 1e9).text,
           figure_chosen((double)n->network.latency_ns / 1e3).text);
    puts("        one model, shared                              as many "
         "copies\n"
         "  rows  s a pass  tokens/s  GB a machine  network      s a pass  "
         "tokens/s");
    for (uint32_t i = 0; i < PLAN_NODES_LINES; i++) {
        const struct plan_nodes_line *l = &n->line[i];
        if (!l->fits) {
            printf("  %4u  does not fit\n", l->rows);
            continue;
        }
        printf("  %4u  %8s  %8s  %12s  %5s %%  %12s  %8s\n",
               l->rows, figure(l->shared.seconds).text,
               figure(ids_per_s(l, true)).text,
               figure(l->shared.read_bytes / 1e9).text,
               figure_points(l->shared.network_s / l->shared.seconds).text,
               figure(l->copy.seconds).text, figure(ids_per_s(l, false)).text);
    }
}

json_t *plan_nodes_json(const struct plan_nodes *n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < PLAN_NODES_LINES; i++) {
        const struct plan_nodes_line *l = &n->line[i];
        if (l->fits)
            json_array_append_new(
                list,
                json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "rows",
                          (int)l->rows, "pass_s", l->shared.seconds,
                          "tokens_per_s", ids_per_s(l, true),
                          "machine_read_bytes", l->shared.read_bytes,
                          "network_s", l->shared.network_s, "copies_pass_s",
                          l->copy.seconds, "copies_tokens_per_s",
                          ids_per_s(l, false)));
    }
    return json_pack("{s:i, s:f, s:f, s:o}", "machines", (int)n->nodes,
                     "network_bytes_per_s", n->network.bytes_per_s,
                     "network_latency_s",
                     (double)n->network.latency_ns / 1e9, "lines", list);
}
