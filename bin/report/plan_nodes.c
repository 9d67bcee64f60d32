#include "bin/report/plan_nodes.h"

#include <errno.h>
#include <stdio.h>

#include "bin/report/plan_batch.h"
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
        int err = plan_batch_pass(&l->shared, c, &shared, compute_s, l->rows,
                                  &why);
        if (!err)
            err = plan_batch_pass(&l->copy, c, o, compute_s, each, &why);
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
    printf("\n%u machines like this one, %.3g GB/s and %.3g us between "
           "them:\n", n->nodes, n->network.bytes_per_s / 1e9,
           (double)n->network.latency_ns / 1e3);
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
        printf("  %4u  %8.3g  %8.3g  %12.2f  %5.1f %%  %12.3g  %8.3g\n",
               l->rows, l->shared.seconds, ids_per_s(l, true),
               l->shared.read_bytes / 1e9,
               100 * l->shared.network_s / l->shared.seconds, l->copy.seconds,
               ids_per_s(l, false));
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
