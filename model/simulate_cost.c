#include "model/simulate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/simulate_internal.h"

static int start(struct simulate_cost **out, const struct config *c,
                 struct why *why)
{
    struct simulate_cost *cost = calloc(1, sizeof *cost);
    *out = cost;
    if (!cost)
        return why_set(why, -ENOMEM, "no memory for the cost of compute");
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++)
        for (int r = 0; r < T_COUNT; r++) {
            enum tensor_role role = (enum tensor_role)r;
            uint32_t rows, cols;
            if (!tensor_in_layer(role, c, layer))
                continue;
            tensor_shape(role, c, layer, &rows, &cols);
            cost->role_bytes[r] += (uint64_t)rows * cols *
                                   tensor_dtype_bytes(tensor_dtype(role));
        }
    for (uint32_t l = 0; l < c->layers; l++)
        cost->kda_layers += !config_is_mla(c, l);
    return 0;
}

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* One phase of a report: its kernels, and what is in none of them. */
static void take_phase(struct phase_cost *p, const json_t *report,
                       const char *name)
{
    const json_t *o = json_object_get(report, name);
    const json_t *kernels =
        json_object_get(json_object_get(report, "kernels"), name);
    double passes = number(o, "passes"), all = 0, rows = number(o, "tokens");
    double items = number(o, "expert_items");
    if (!(passes > 0) || !json_is_object(kernels))
        return;
    for (uint32_t i = 0; i < K3_KERNELS; i++) {
        char each[K3_NAME_BYTES];
        k3_kernel_name(each, i);
        double s = number(kernels, each);
        s = s > 0 ? s : 0;
        all += s;
        p->kernel_s[i] = s / passes;
        if (i == K3_EXPERTS && items > 0)
            p->item_s = s / items;
    }
    double other = number(o, "seconds") - number(o, "wait_trunk_s") -
                   number(o, "wait_expert_s") - all;
    p->other_s = other > 0 ? other / passes : 0;
    p->rows = rows / passes;
    if (json_object_get(o, "rows")) /* decode: tokens are not rows */
        p->rows = number(o, "rows") / passes;
    p->known = true;
}

int simulate_cost_report(struct simulate_cost **out, const struct config *c,
                         const json_t *report, const char *name,
                         struct why *why)
{
    int err = start(out, c, why);
    if (err)
        return err;
    take_phase(&(*out)->phase[K3_PREFILL], report, "prefill");
    take_phase(&(*out)->phase[K3_DECODE], report, "decode");
    if ((*out)->phase[K3_PREFILL].known || (*out)->phase[K3_DECODE].known)
        return 0;
    simulate_cost_free(*out);
    *out = NULL;
    return why_set(why, -EBADMSG, "%s: not the report of a run (no passes, or "
                   "no kernels)", name);
}

int simulate_cost_seconds(struct simulate_cost **out, const struct config *c,
                          double seconds, struct why *why)
{
    int err = start(out, c, why);
    if (err)
        return err;
    struct simulate_cost *cost = *out;
    double items = (double)config_moe_layers(c) * c->top_k;
    double all = items * (double)expert_bytes(c);
    for (int r = 0; r < T_COUNT; r++)
        if (r != T_EMBED && !tiles_small((enum tensor_role)r))
            all += (double)cost->role_bytes[r];
    for (int i = 0; i < K3_PHASES; i++) {
        struct phase_cost *p = &cost->phase[i];
        p->known = true;
        p->rows = 1;
        p->item_s = seconds * (double)expert_bytes(c) / all;
        for (int r = 0; r < T_COUNT; r++)
            if (r != T_EMBED && !tiles_small((enum tensor_role)r))
                p->kernel_s[r] = seconds * (double)cost->role_bytes[r] / all;
        p->kernel_s[K3_ROUTE] = p->kernel_s[T_ROUTER];
        p->kernel_s[K3_ATTEND] = p->kernel_s[T_KVB];
    }
    return 0;
}

void simulate_cost_free(struct simulate_cost *cost)
{
    free(cost);
}

static double seconds_of(const struct phase_cost *p, enum cost_part part,
                         uint32_t kernel)
{
    return part == COST_KERNEL ? p->kernel_s[kernel]
           : part == COST_ITEM ? p->item_s
                               : p->other_s;
}

double simulate_ns(const struct simulate_cost *cost, enum cost_part part,
                   uint32_t kernel, uint32_t rows)
{
    const struct phase_cost *few = &cost->phase[K3_DECODE];
    const struct phase_cost *many = &cost->phase[K3_PREFILL];
    if (!few->known || !many->known)
        return 1e9 * seconds_of(few->known ? few : many, part, kernel);
    double a = seconds_of(few, part, kernel);
    double b = seconds_of(many, part, kernel);
    double span = many->rows - few->rows;
    if (span > -0.5 && span < 0.5) /* no line through one point */
        return 1e9 * (rows == 1 ? a : b);
    double s = a + (b - a) * ((double)rows - few->rows) / span;
    return s > 0 ? 1e9 * s : 0;
}
