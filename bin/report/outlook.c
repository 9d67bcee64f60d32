/* outlook.c - the forecasts of sluice plan. */
#include "bin/report/outlook.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cli/packed.h"
#include "model/ckpt/figure.h"
#include "model/k3/threads.h"

enum { MORE_GIB = 16 };

#define DEFAULT_GBPS 7.0     /* of one drive */
/* Of a token: where it reads more, its parts are long and few of them meet, and
 * simulating sixty cells takes seconds. K3 has 163 GB. */
#define SIMULATED_GB 400.0

static const double default_gbps[OUTLOOK_COLUMNS] = { 3.5, 7, 14, 28 };
static const uint64_t rung_gib[] = { 2,  4,   8,   16,  32,  48,
                                     64, 96, 128, 160, 192, 224, 256, 384 };
_Static_assert(sizeof rung_gib / sizeof *rung_gib + 2 <= OUTLOOK_RUNGS,
               "the floor and the budget are rungs too");

const char *outlook_layout(enum k3_layout layout)
{
    static const char *const names[OUTLOOK_LAYOUTS] = {
        [K3_SHARDS] = "shards", [K3_PARTS] = "parts",
        [K3_MIRRORS] = "mirrors" };
    return names[layout];
}

static void name_column(struct outlook_drives *k)
{
    bool equal = true;
    double gbps = (double)k->drive[0].bytes_per_s / 1e9;
    bool shards = k->layout == K3_SHARDS;
    const char *comma = shards ? "" : ", ";
    const char *layout = shards ? "" : outlook_layout(k->layout);
    for (uint32_t d = 1; d < k->drives; d++)
        equal &= k->drive[d].bytes_per_s == k->drive[0].bytes_per_s;
    if (k->drives == 1)
        snprintf(k->name, sizeof k->name, "%s GB/s",
                 figure_chosen(gbps).text);
    else if (equal)
        snprintf(k->name, sizeof k->name, "%u x %s GB/s%s%s", k->drives,
                 figure_chosen(gbps).text, comma, layout);
    else
        snprintf(k->name, sizeof k->name, "%u drives%s%s", k->drives, comma,
                 layout);
}

static struct outlook_drives one_drive(double gbps)
{
    struct outlook_drives k = { .drives = 1 };
    k.drive[0].bytes_per_s = (uint64_t)(gbps * 1e9);
    name_column(&k);
    return k;
}

static struct outlook_drives one_more(const struct outlook_drives *k)
{
    struct outlook_drives more = *k;
    more.drive[more.drives] = more.drive[more.drives - 1];
    more.drives++;
    name_column(&more);
    return more;
}

/* Without --simulate-drive: one drive, of several speeds. With it: those
 * drives, and one more like the last. */
static void set_columns(struct outlook *l, const struct session_args *a,
                        enum k3_layout layout)
{
    if (!a->drives) {
        l->here = one_drive(DEFAULT_GBPS);
        for (; l->columns < OUTLOOK_COLUMNS; l->columns++)
            l->column[l->columns] = one_drive(default_gbps[l->columns]);
        return;
    }
    l->here.drives = a->drives;
    l->here.layout = layout;
    memcpy(l->here.drive, a->drive, a->drives * sizeof *a->drive);
    name_column(&l->here);
    l->column[l->columns++] = l->here;
    if (a->drives < SESSION_DRIVES_MAX)
        l->column[l->columns++] = one_more(&l->here);
}

static struct k3_options options_at(const struct outlook *l, uint64_t bytes,
                                    const struct outlook_drives *k)
{
    struct k3_options o = l->o;
    o.memory_bytes = bytes;
    o.paced = k->drive;
    o.paced_count = k->drives;
    o.layout = k->layout;
    return o;
}

/* A token as plan has it: no experts are kept or prefetched. */
static int times_at(const struct outlook *l, uint64_t bytes,
                    const struct outlook_drives *k, struct pass_times *out)
{
    struct k3_options o = options_at(l, bytes, k);
    o.policy = "none";
    o.prefetch = "none";
    return pass_clock_run(out, l->clock, &o, l->cost, NULL);
}

static int seconds_at(const struct outlook *l, uint64_t bytes,
                      const struct outlook_drives *k, double *out)
{
    struct pass_times t;
    int err = times_at(l, bytes, k, &t);
    *out = err ? -1 : t.seconds;
    return err;
}

static int add_rung(struct outlook *l, uint64_t bytes, struct error *error)
{
    struct k3_options o = options_at(l, bytes, &l->column[0]);
    return token_cost(&l->rung[l->rungs++].cost, &l->c, &o, error);
}

/* The floor, the usual sizes of memory above it, and the budget among them, up
 * to the first size that holds everything the plan can keep. */
static int fill_ladder(struct outlook *l, uint64_t budget, struct error *error)
{
    int err = add_rung(l, 0, error);
    uint64_t floor_bytes = l->rung[0].cost.plan.floor_bytes;
    bool placed = !budget || budget == floor_bytes;
    for (size_t i = 0; i < sizeof rung_gib / sizeof *rung_gib && !err; i++) {
        uint64_t bytes = rung_gib[i] << 30;
        if (bytes <= floor_bytes)
            continue;
        if (!placed && budget <= bytes) {
            placed = true;
            err = budget < bytes ? add_rung(l, budget, error) : 0;
        }
        const struct plan *p = &l->rung[l->rungs - 1].cost.plan;
        uint64_t blocks = config_moe_layers(&l->c) * l->c.experts;
        if (!err && (p->streamed_tiles || p->expert_frames < blocks))
            err = add_rung(l, bytes, error);
    }
    if (!err && !placed)
        err = add_rung(l, budget, error);
    return err;
}

static bool is_large(const struct outlook *l)
{
    return (double)token_weight_bytes(&l->c) > SIMULATED_GB * 1e9;
}

static int fill_cell(const struct outlook *l, struct outlook_rung *r,
                     uint32_t column)
{
    const struct outlook_drives *k = &l->column[column];
    double *out = &r->seconds[column];
    if (!is_large(l) || k->drives != r->cost.drives)
        return seconds_at(l, r->cost.plan.budget_bytes, k, out);
    double io_s = token_io_s(&r->cost, k->drive);
    *out = io_s > l->compute_s ? io_s : l->compute_s;
    return 0;
}

/* Fill the cells of the ladder in parallel. Once the trunk is resident, more
 * memory changes nothing, since no hits are assumed. */
static int time_ladder(struct outlook *l)
{
    int failed = 0;
    uint32_t rungs = 0;
    while (rungs < l->rungs &&
           (!rungs || l->rung[rungs - 1].cost.plan.streamed_tiles))
        rungs++;
#pragma omp parallel for schedule(dynamic, 1) collapse(2)
    for (uint32_t i = 0; i < rungs; i++)
        for (uint32_t k = 0; k < l->columns; k++) {
            int err = fill_cell(l, &l->rung[i], k);
            if (err)
#pragma omp atomic write
                failed = err;
        }
    for (uint32_t i = rungs; i < l->rungs; i++)
        memcpy(l->rung[i].seconds, l->rung[rungs - 1].seconds,
               sizeof l->rung[i].seconds);
    return failed;
}

/* What other drives, or parts, would save. */
static int find_saved(const struct outlook *l, const struct outlook_drives *k,
                      double *saved_s)
{
    double s;
    int err = seconds_at(l, l->now.plan.budget_bytes, k, &s);
    *saved_s = l->now_is.seconds - s;
    return err;
}

static int find_best_buy(struct outlook *l)
{
    double s;
    l->more_bytes = (uint64_t)MORE_GIB << 30;
    int err = seconds_at(l, l->now.plan.budget_bytes + l->more_bytes, &l->here,
                         &s);
    l->more_s = l->now_is.seconds - s;
    struct outlook_drives parts = l->here;
    parts.layout = K3_MIRRORS;
    if (!err)
        err = find_saved(l, &parts, &l->mirrors_s);
    parts.layout = K3_PARTS;
    if (!err)
        err = find_saved(l, &parts, &l->parts_s);
    if (err || l->here.drives == SESSION_DRIVES_MAX)
        return err;
    struct outlook_drives more = one_more(&l->here);
    parts = one_more(&parts);
    err = find_saved(l, &more, &l->drive_s);
    return err ? err : find_saved(l, &parts, &l->drive_parts_s);
}

static void note(struct outlook *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct outlook *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->note[l->notes++], sizeof *l->note, format, args);
    va_end(args);
}

static void note_all(struct outlook *l, const struct outlook_args *a)
{
    note(l, "one token at a time, simulated; experts chosen at random");
    if (is_large(l))
        note(l, "the table is not simulated: the longer of reading and "
                "compute");
    note(l, "no expert hits, no prefetches; sluice replay measures both");
    if (a->compute_s > 0)
        note(l, "compute takes %s s a token, as --compute says",
             figure(a->compute_s).text);
    else
        note(l, "compute takes %s s a token (--compute): %s GB at %s GB/s",
             figure(l->compute_s).text,
             figure((double)token_weight_bytes(&l->c) / 1e9).text,
             figure_chosen(TOKEN_MEMORY_BYTES / 1e9).text);
    if (l->o.decode)
        note(l, "coded, products of one row take %s of their time, of many %s, "
                "as measured here", figure(l->decode.product).text,
             figure(l->decode.many).text);
    if (a->batch)
        note(l, "a batch computes 20 operations in the time of a byte from "
                "memory");
    if (l->here.drives > 1)
        note(l, "md RAID 0 of equal drives, chunk 512K, is as --layout parts; "
                "see the README");
    if (!a->s.memory)
        note(l, l->small ? "the floor: a run without -m has %s GiB here, which "
                           "is too little"
                         : "a run without -m: %s GiB, what it would take here",
             figure((double)l->o.memory_bytes / 0x1p30).text);
    if (!a->s.drives)
        note(l, "the drives of the table, --simulate-drive sets others; one "
                "drive: %s GB/s",
             figure_chosen(DEFAULT_GBPS).text);
    note(l, "%s, a context of %u, up to %s a pass; at the floor one row",
         figure_count(l->o.threads, "thread").text, l->o.context,
         figure_count(l->o.rows, "row").text);
}

static int look_at_batch(struct outlook *l, struct error *error)
{
    l->batch = calloc(1, sizeof *l->batch);
    if (!l->batch)
        return -ENOMEM;
    struct k3_options o = options_at(l, l->now.plan.budget_bytes, &l->here);
    return plan_batch_fill(l->batch, &l->c, &o, l->compute_s, error);
}

static int look_at_nodes(struct outlook *l, const struct outlook_args *a,
                         struct error *error)
{
    struct k3_options o = options_at(l, l->now.plan.budget_bytes, &l->here);
    l->nodes.nodes = (uint32_t)a->nodes;
    l->nodes.network = a->network;
    return plan_nodes_fill(&l->nodes, &l->c, &o, l->compute_s, error);
}

/* A pass over as many rows of a prompt as the plan has. */
static int look_at_state(struct outlook *l, struct error *error)
{
    struct pass_times t;
    struct k3_options o = options_at(l, l->now.plan.budget_bytes, &l->here);
    int err = plan_batch_pass(&t, &l->c, &o, l->compute_s, l->now.plan.rows,
                              error);
    if (!err)
        plan_state_fill(&l->state, &l->c, &t, l->o.context,
                        (double)l->here.drive[0].bytes_per_s);
    return err;
}

/* Coded weights compute slower or faster than raw ones. */
static int time_decoding(struct outlook *l, struct error *error)
{
    if (!l->sidecars.used)
        return 0;
    l->o.decode = &l->decode;
    int err = decode_time_here(&l->decode, l->o.threads);
    return err ? error_set(error, err, "no memory to time the kernels") : 0;
}

/* From here on, all plans are made with it. */
static int open_drafter(struct outlook *l, const struct outlook_args *a,
                        struct error *error)
{
    struct dspark_options o = { .context = l->o.context, .sequences = 1,
                                .threads = l->o.threads };
    if (!a->s.drafter)
        return 0;
    int err = dspark_open(&l->drafter, a->s.drafter, &l->c, &o, error);
    if (!err)
        l->o.guest = dspark_guest(l->drafter);
    return err;
}

/* For the last columns of the ladder. */
static int look_at_drafter(struct outlook *l, struct error *error)
{
    double rate[PLAN_DRAFTER_RATES] = { 0 };
    struct k3_options o = options_at(l, l->budget_bytes, &l->column[0]);
    uint32_t n = l->columns < PLAN_DRAFTER_RATES ? l->columns
                                                 : PLAN_DRAFTER_RATES;
    for (uint32_t k = 0; k < n; k++) {
        const struct outlook_drives *c = &l->column[l->columns - n + k];
        for (uint32_t d = 0; d < c->drives; d++)
            rate[k] += (double)c->drive[d].bytes_per_s;
    }
    return plan_drafter_fill(&l->drafting, &l->c, &o, l->drafter, rate, n,
                             l->compute_s, error);
}

/* With what was given, else with what a run here would take, and if that is
 * too little with the floor. */
static int plan_now(struct outlook *l, uint64_t given, struct error *error)
{
    struct error why = { 0 };
    l->budget_bytes = given ? given : l->o.memory_bytes;
    struct k3_options o = options_at(l, l->budget_bytes, &l->here);
    int err = token_cost(&l->now, &l->c, &o, &why);
    if (err == -ENOBUFS && !given) {
        l->small = true;
        l->budget_bytes = 0;
        o = options_at(l, 0, &l->here);
        return token_cost(&l->now, &l->c, &o, error);
    }
    return err ? error_set(error, err, "%s", why.text) : 0;
}

int outlook_fill(struct outlook *l, const char *model,
                 const struct outlook_args *a, struct error *error)
{
    int err = config_load(&l->c, model, error);
    if (!err)
        err = parts_find(&l->parts, &a->s.parts, &l->c, error);
    if (!err && !l->parts)
        err = packed_find(&l->sidecars, a->s.packed, model, &l->c, error);
    if (err)
        return err;
    l->o.sidecars = &l->sidecars;
    l->o.parts = l->parts;
    /* as many as a run here would have */
    l->o.threads = k3_threads_or_default(l->o.threads);
    l->compute_s = a->compute_s;
    if (!(l->compute_s > 0)) {
        l->compute_s = token_compute_s(&l->c);
        err = time_decoding(l, error);
        if (err)
            return err;
    }
    set_columns(l, &a->s, l->parts ? K3_PARTS : a->layout);
    err = open_drafter(l, a, error);
    if (err)
        return err;
    err = plan_now(l, a->s.memory, error);
    if (!err)
        err = pass_clock_open(&l->clock, &l->c, 1, 1, 1, error);
    if (!err)
        err = simulate_cost_seconds(&l->cost, &l->c, l->compute_s, error);
    if (!err)
        err = fill_ladder(l, l->budget_bytes, error);
    if (err)
        return err;
    err = times_at(l, l->now.plan.budget_bytes, &l->here, &l->now_is);
    if (!err)
        err = time_ladder(l);
    if (!err)
        err = find_best_buy(l);
    if (!err && a->batch)
        err = look_at_batch(l, error);
    if (!err && a->nodes)
        err = look_at_nodes(l, a, error);
    if (!err)
        err = look_at_state(l, error);
    if (!err && l->drafter)
        err = look_at_drafter(l, error);
    note_all(l, a);
    return err ? error_set(error, err, "no memory for the forecast") : 0;
}
void outlook_free(struct outlook *l)
{
    pass_clock_close(l->clock);
    simulate_cost_free(l->cost);
    free(l->batch);
    dspark_close(l->drafter);
    sidecars_close(&l->sidecars);
    parts_close(l->parts);
    config_free(&l->c);
}
