#include "model/sim/simulate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/sim/forecast.h"
#include "model/sim/simulate_internal.h"
#include "model/state/state.h"

static int start(struct simulate_cost **out, const struct config *c,
                 struct error *error)
{
    struct simulate_cost *cost = calloc(1, sizeof *cost);
    *out = cost;
    if (!cost)
        return error_set(error, -ENOMEM, "no memory for the cost of compute");
    struct steps steps;
    int err = steps_build(&steps, c, NULL);
    for (uint32_t i = 0; !err && i < steps.count; i++) {
        const struct step *step = &steps.step[i];
        uint32_t rows, cols;
        if (step->kernel == K3_NO_KERNEL)
            continue;
        if (!step_has_pieces(step)) {
            cost->kernel_steps[step->kernel]++;
            continue;
        }
        enum tensor_role role = (enum tensor_role)step->role;
        tensor_shape(role, c, step->layer, &rows, &cols);
        cost->kernel_bytes[step->kernel] +=
            (uint64_t)rows * cols * tensor_dtype_bytes(tensor_dtype(role));
    }
    steps_free(&steps);
    if (!err)
        return 0;
    simulate_cost_free(cost);
    *out = NULL;
    return error_set(error, err, "no memory for the cost of compute");
}

/* No kernel takes longer in a pass, and nothing has more items. */
#define SECONDS_MAX 1e4
#define COUNT_MAX   1e15

static double number(const json_t *o, const char *name)
{
    double value = json_number_value(json_object_get(o, name));
    return value > 0 ? value < COUNT_MAX ? value : COUNT_MAX : 0;
}

static bool possible(const struct phase_cost *p)
{
    bool fine = p->item_s <= SECONDS_MAX && p->other_s <= SECONDS_MAX;
    for (uint32_t i = 0; i < K3_KERNELS; i++)
        fine &= p->kernel_s[i] <= SECONDS_MAX;
    return fine;
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
        if (i == K3_PREFETCH && !json_object_get(kernels, each))
            s = number(kernels, "guess"); /* its name in older reports */
        s = s > 0 ? s : 0;
        all += s;
        p->kernel_s[i] = s / passes;
        if (i == K3_EXPERTS && items > 0)
            p->item_s = s / items;
    }
    double other = number(o, "seconds") - number(o, "wait_trunk_s") -
                   number(o, "wait_expert_s") - number(o, "wait_embed_s") -
                   all;
    p->other_s = other > 0 ? other / passes : 0;
    p->rows = rows / passes;
    if (json_object_get(o, "rows")) /* decode: tokens are not rows */
        p->rows = number(o, "rows") / passes;
    p->known = true;
}

/* What the report says about coded weights. */
static void take_decoding(struct simulate_cost *cost, const json_t *report)
{
    const json_t *coded = json_object_get(report, "coded");
    const json_t *times = json_object_get(coded, "decode_time");
    const json_t *plan = json_object_get(report, "plan");
    cost->coded = number(coded, "files") > 0 &&
                  !(number(plan, "decoded_tiles") > 0);
    struct decode_time t = { .product = number(times, "product"),
                             .many = number(times, "many"),
                             .rows = number(times, "rows") };
    if (t.product > 0 && t.many > 0 && t.rows > 0)
        cost->decode = t;
}

const struct decode_time *simulate_cost_decode(
    const struct simulate_cost *cost)
{
    return cost->decode.product > 0 ? &cost->decode : NULL;
}

int simulate_cost_report(struct simulate_cost **out, const struct config *c,
                         const json_t *report, const char *name,
                         struct error *error)
{
    int err = start(out, c, error);
    if (err)
        return err;
    take_phase(&(*out)->phase[K3_PREFILL], report, "prefill");
    take_phase(&(*out)->phase[K3_DECODE], report, "decode");
    take_decoding(*out, report);
    bool fine = possible(&(*out)->phase[K3_PREFILL]) &&
                possible(&(*out)->phase[K3_DECODE]);
    if (fine &&
        ((*out)->phase[K3_PREFILL].known || (*out)->phase[K3_DECODE].known))
        return 0;
    simulate_cost_free(*out);
    *out = NULL;
    return error_set(error, -EBADMSG,
                     "%s: not the report of a run (%s)", name,
                     fine ? "no passes, or no kernels"
                          : "a kernel takes more than 10,000 s in a pass");
}

int simulate_cost_seconds(struct simulate_cost **out, const struct config *c,
                          double seconds, struct error *error)
{
    int err = start(out, c, error);
    if (err)
        return err;
    struct simulate_cost *cost = *out;
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        simulate_cost_free(cost);
        *out = NULL;
        return error_set(error, -EINVAL, "a pass of %g s of compute: 0 to "
                         "10,000 are possible", seconds);
    }
    double items = (double)config_moe_layers(c) * c->top_k;
    double all = items * (double)expert_bytes(c);
    for (int i = 0; i < K3_KERNELS; i++)
        all += (double)cost->kernel_bytes[i];
    for (int i = 0; i < K3_PHASES; i++) {
        struct phase_cost *p = &cost->phase[i];
        p->known = true;
        p->rows = 1;
        p->item_s = seconds * (double)expert_bytes(c) / all;
        for (int k = 0; k < K3_KERNELS; k++)
            p->kernel_s[k] = seconds * (double)cost->kernel_bytes[k] / all;
    }
    return 0;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

int simulate_cost_machine(struct simulate_cost **out, const struct config *c,
                          const struct forecast_machine *m, uint32_t rows,
                          double items, struct error *error)
{
    int err = start(out, c, error);
    if (err)
        return err;
    struct phase_cost *p = &(*out)->phase[K3_DECODE];
    double each = (double)expert_bytes(c), n = rows;
    double chosen = items > 0 ? n * c->top_k / items : 0; /* rows of an item */
    struct state_shape state;
    state_shape(&state, c, 1);
    p->known = true;
    p->rows = n;
    for (int k = 0; k < K3_KERNELS; k++) {
        double bytes = (double)(*out)->kernel_bytes[k];
        p->kernel_s[k] = longer(bytes / m->trunk_bytes,
                                bytes * n / m->trunk_ops);
    }
    /* 4.25 bits a weight of an expert, 16 of the trunk; two operations. */
    p->item_s = longer(each / m->expert_bytes,
                       2 * chosen * each * 8 / 4.25 / m->expert_ops);
    p->other_s = n * 2 * (double)state.kda_bytes * state.kda_layers /
                 m->trunk_bytes;
    (*out)->phase[K3_PREFILL] = *p;
    return 0;
}

void simulate_cost_scale(struct simulate_cost *cost, double factor)
{
    for (int i = 0; i < K3_PHASES; i++) {
        struct phase_cost *p = &cost->phase[i];
        for (int k = 0; k < K3_KERNELS; k++)
            p->kernel_s[k] *= factor;
        p->item_s *= factor;
        p->other_s *= factor;
    }
}

double simulate_cost_total(const struct simulate_cost *cost)
{
    const struct phase_cost *p = &cost->phase[K3_DECODE];
    double s = p->other_s;
    for (int k = 0; k < K3_KERNELS; k++)
        s += p->kernel_s[k];
    return s;
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
