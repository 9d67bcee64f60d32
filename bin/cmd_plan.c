/* cmd_plan.c - sluice plan: what a budget makes of a model, from its config. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/cmd.h"
#include "bin/plan_batch.h"
#include "bin/report.h"
#include "bin/session.h"
#include "compute/team.h"
#include "model/token_clock.h"
#include "model/token_cost.h"

enum { DEFAULT_ROWS = 256, DEFAULT_COLUMNS = 4, MORE_GIB = 16, NOTES = 8 };

#define GIB 0x1p30
#define DEFAULT_GBPS 7.0     /* of one drive */
#define MEMORY_GBPS  100.0   /* what compute reads weights at */

static const double default_gbps[DEFAULT_COLUMNS] = { 3.5, 7, 14, 28 };
static const uint64_t rung_gib[] = { 2,  4,   8,   16,  32,  48,
                                     64, 96, 128, 160, 192, 224, 256, 384 };
enum { RUNGS = sizeof rung_gib / sizeof *rung_gib + 2 };

/* Drives that the forecast is made for. */
struct column {
    char     name[48];
    struct paced_drive drive[SESSION_DRIVES_MAX + 1];
    uint32_t drives;
    double   gbps; /* all together */
};

struct rung {
    struct token_cost cost; /* with the drives of the first column */
    double   seconds[DEFAULT_COLUMNS]; /* negative: below the floor */
};

struct plan_args {
    struct session_args s;
    double compute_s; /* a token; 0: from the weights */
    bool   batch, json;
};

struct outlook {
    struct config     c;
    struct k3_options o;
    double            compute_s;
    struct token_clock *clock;
    struct column     column[DEFAULT_COLUMNS];
    uint32_t          columns;
    struct token_cost now; /* with the drives of `here` */
    struct column     here;
    double            now_s;
    struct rung       rung[RUNGS];
    uint32_t          rungs;
    /* Seconds a token that more memory, or another drive, would save. */
    uint64_t          more_bytes;
    double            more_s, drive_s;
    struct plan_batch *batch; /* NULL: not asked for */
    char              note[NOTES][160];
    uint32_t          notes;
};

static void name_column(struct column *k)
{
    k->gbps = 0;
    for (uint32_t d = 0; d < k->drives; d++)
        k->gbps += (double)k->drive[d].bytes_per_s / 1e9;
    if (k->drives > 1)
        snprintf(k->name, sizeof k->name, "%u drives, %.3g GB/s", k->drives,
                 k->gbps);
    else
        snprintf(k->name, sizeof k->name, "%.3g GB/s", k->gbps);
}

static struct column one_drive(double gbps)
{
    struct column k = { .drives = 1 };
    k.drive[0].bytes_per_s = (uint64_t)(gbps * 1e9);
    name_column(&k);
    return k;
}

static struct column one_more(const struct column *k)
{
    struct column more = *k;
    more.drive[more.drives] = more.drive[more.drives - 1];
    more.drives++;
    name_column(&more);
    return more;
}

/* Without --device: one drive, of several speeds. With it: those, and one more
 * like the last. */
static void set_columns(struct outlook *l, const struct session_args *a)
{
    if (!a->drives) {
        l->here = one_drive(DEFAULT_GBPS);
        for (; l->columns < DEFAULT_COLUMNS; l->columns++)
            l->column[l->columns] = one_drive(default_gbps[l->columns]);
        return;
    }
    l->here.drives = a->drives;
    memcpy(l->here.drive, a->drive, a->drives * sizeof *a->drive);
    name_column(&l->here);
    l->column[l->columns++] = l->here;
    if (a->drives < SESSION_DRIVES_MAX)
        l->column[l->columns++] = one_more(&l->here);
}

static struct k3_options options_at(const struct outlook *l, uint64_t bytes,
                                    const struct column *k)
{
    struct k3_options o = l->o;
    o.memory_bytes = bytes;
    o.paced = k->drive;
    o.paced_count = k->drives;
    return o;
}

static int seconds_at(const struct outlook *l, uint64_t bytes,
                      const struct column *k, double *out)
{
    struct k3_options o = options_at(l, bytes, k);
    return token_clock_seconds(out, l->clock, &o, NULL);
}

static int add_rung(struct outlook *l, uint64_t bytes, struct why *why)
{
    struct k3_options o = options_at(l, bytes, &l->column[0]);
    return token_cost(&l->rung[l->rungs++].cost, &l->c, &o, why);
}

/* The floor, the sizes of machines above it, and the budget in its place; up
 * to the first size that holds everything the plan can keep. */
static int fill_ladder(struct outlook *l, uint64_t budget, struct why *why)
{
    int err = add_rung(l, 0, why);
    uint64_t floor_bytes = l->rung[0].cost.plan.floor_bytes;
    bool placed = !budget || budget == floor_bytes;
    for (size_t i = 0; i < sizeof rung_gib / sizeof *rung_gib && !err; i++) {
        uint64_t bytes = rung_gib[i] << 30;
        if (bytes <= floor_bytes)
            continue;
        if (!placed && budget <= bytes) {
            placed = true;
            err = budget < bytes ? add_rung(l, budget, why) : 0;
        }
        const struct plan *p = &l->rung[l->rungs - 1].cost.plan;
        uint64_t blocks = config_moe_layers(&l->c) * l->c.experts;
        if (!err && (p->streamed_tiles || p->expert_frames < blocks))
            err = add_rung(l, bytes, why);
    }
    if (!err && !placed)
        err = add_rung(l, budget, why);
    return err;
}

/* Cells of the ladder, on as many threads as there are. With the trunk
 * resident and no hits, more memory changes nothing. */
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
            const struct rung *r = &l->rung[i];
            int err = seconds_at(l, r->cost.plan.budget_bytes, &l->column[k],
                                 &l->rung[i].seconds[k]);
            if (err)
#pragma omp atomic write
                failed = err;
        }
    for (uint32_t i = rungs; i < l->rungs; i++)
        memcpy(l->rung[i].seconds, l->rung[rungs - 1].seconds,
               sizeof l->rung[i].seconds);
    return failed;
}

static int find_best_buy(struct outlook *l)
{
    double s;
    uint64_t budget = l->now.plan.budget_bytes;
    l->more_bytes = (uint64_t)MORE_GIB << 30;
    int err = seconds_at(l, budget + l->more_bytes, &l->here, &s);
    l->more_s = l->now_s - s;
    if (err || l->here.drives == SESSION_DRIVES_MAX)
        return err;
    struct column more = one_more(&l->here);
    err = seconds_at(l, budget, &more, &s);
    l->drive_s = l->now_s - s;
    return err;
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

static void note_all(struct outlook *l, const struct plan_args *a)
{
    note(l, "one token after the other, on a simulated clock; experts chosen "
            "at random");
    note(l, "no expert hits and no guesses: sluice replay tells what frames "
            "save");
    if (a->compute_s > 0)
        note(l, "compute takes %.3g s a token, as --compute says",
             a->compute_s);
    else
        note(l, "compute takes %.3g s a token: %.1f GB of weights at %.0f "
                "GB/s (--compute)", l->compute_s,
             (double)token_weight_bytes(&l->c) / 1e9, MEMORY_GBPS);
    if (a->batch)
        note(l, "a batch computes 20 operations in the time that memory moves "
                "a byte");
    if (!a->s.drives)
        note(l, "drives as in the table (--device); one drive means one of "
                "%.3g GB/s", DEFAULT_GBPS);
    note(l, "%u threads, a context of %u, up to %u rows a pass; the floor: "
            "one row", l->o.threads, l->o.context, l->o.rows);
}

static int look_at_batch(struct outlook *l, struct why *why)
{
    l->batch = calloc(1, sizeof *l->batch);
    if (!l->batch)
        return -ENOMEM;
    struct k3_options o = options_at(l, l->now.plan.budget_bytes, &l->here);
    return plan_batch_fill(l->batch, &l->c, &o, l->compute_s,
                           l->here.gbps * 1e9, why);
}

static int look(struct outlook *l, const char *model,
                const struct plan_args *a, struct why *why)
{
    struct team *team;
    int err = config_load(&l->c, model, why);
    if (err)
        return err;
    if (!l->o.threads) { /* as many as a run here would have */
        if (team_open(&team, 0))
            return why_set(why, -EAGAIN, "the threads could not be started");
        l->o.threads = team_threads(team);
        team_close(team);
    }
    l->compute_s = a->compute_s;
    if (!(l->compute_s > 0))
        l->compute_s =
            (double)token_weight_bytes(&l->c) / (MEMORY_GBPS * 1e9);
    set_columns(l, &a->s);
    struct k3_options o = options_at(l, a->s.memory, &l->here);
    err = token_cost(&l->now, &l->c, &o, why);
    if (!err)
        err = token_clock_open(&l->clock, &l->c, l->compute_s, why);
    if (!err)
        err = fill_ladder(l, a->s.memory, why);
    if (err)
        return err;
    err = seconds_at(l, l->now.plan.budget_bytes, &l->here, &l->now_s);
    if (!err)
        err = time_ladder(l);
    if (!err)
        err = find_best_buy(l);
    if (!err && a->batch)
        err = look_at_batch(l, why);
    note_all(l, a);
    return err ? why_set(why, err, "no memory for a forecast") : 0;
}

/* ---- for people ---- */

static void print_part(const char *name, uint64_t bytes, const char *about)
{
    printf("  %-16s %9.3f GiB%s%s\n", name, (double)bytes / GIB,
           about[0] ? "  " : "", about);
}

static void print_plan(const struct outlook *l)
{
    const struct plan *p = &l->now.plan;
    char text[128];
    printf("%u layers, %u experts a layer, %u of them a token\n\n",
           l->c.layers, l->c.experts, l->c.top_k);
    printf("memory: %.3f GiB; the floor is %.3f GiB (%" PRIu64 " bytes)\n",
           (double)p->budget_bytes / GIB, (double)p->floor_bytes / GIB,
           p->floor_bytes);
    print_part("program", p->program_bytes, "");
    snprintf(text, sizeof text, "one sequence, %u positions", l->o.context);
    print_part("state", p->state_bytes, text);
    snprintf(text, sizeof text, "%u row%s a pass", p->rows,
             p->rows == 1 ? "" : "s");
    print_part("scratch", p->scratch_bytes, text);
    print_part("ring", p->ring_bytes, p->ring_bytes ? "" : "nothing streams");
    snprintf(text, sizeof text, "%u frames", p->staging_frames);
    print_part("staging", p->staging_bytes, text);
    double trunk = (double)(p->resident_payload_bytes +
                            p->streamed_payload_bytes);
    snprintf(text, sizeof text, "%.1f %% of trunk and lm_head",
             100 * (double)p->resident_payload_bytes / trunk);
    print_part("resident", p->resident_bytes, text);
    snprintf(text, sizeof text, "%u frames of %u experts", p->expert_frames,
             config_moe_layers(&l->c) * l->c.experts);
    print_part("experts", p->cache_bytes, text);
    printf("\na token reads %.3f GB: trunk %.3f, experts %.3f, an embedding "
           "row;\nit takes %.3g s at %s\n\n",
           (double)l->now.read_bytes / 1e9,
           (double)l->now.trunk_bytes / 1e9,
           (double)l->now.expert_bytes / 1e9, l->now_s, l->here.name);
}

static void print_ladder(const struct outlook *l, bool given)
{
    printf("  memory    resident    expert  GB read    s a token at\n"
           "  GiB       %% of trunk  frames  a token ");
    for (uint32_t k = 0; k < l->columns; k++)
        printf("%*s", l->column[k].drives > 1 ? 20 : 9, l->column[k].name);
    putchar('\n');
    for (uint32_t i = 0; i < l->rungs; i++) {
        const struct rung *r = &l->rung[i];
        const struct plan *p = &r->cost.plan;
        double trunk = (double)(p->resident_payload_bytes +
                                p->streamed_payload_bytes);
        bool here = given && p->budget_bytes == l->now.plan.budget_bytes;
        printf("%c %-9.4g %10.1f %7u %8.1f ", here ? '>' : ' ',
               (double)p->budget_bytes / GIB,
               100 * (double)p->resident_payload_bytes / trunk,
               p->expert_frames, (double)r->cost.read_bytes / 1e9);
        for (uint32_t k = 0; k < l->columns; k++) {
            int width = l->column[k].drives > 1 ? 20 : 9;
            printf("%*.3g", width, r->seconds[k]);
        }
        putchar('\n');
    }
}

static void print_advice(const struct outlook *l)
{
    const struct plan *p = &l->now.plan;
    double gib = (double)l->more_bytes / GIB;
    printf("\nbest buy next, from %.4g GiB and %s (%.3g s a token):\n",
           (double)p->budget_bytes / GIB, l->here.name, l->now_s);
    if (!p->streamed_tiles)
        puts("  more memory holds more experts; the trunk is resident, no "
             "hits are assumed");
    else
        printf("  %.0f GiB more memory saves %.3g s a token, %.3g s a GiB\n",
               gib, l->more_s, l->more_s / gib);
    double gbps = (double)l->here.drive[l->here.drives - 1].bytes_per_s / 1e9;
    if (l->drive_s < 0)
        printf("  another drive of %.3g GB/s would cost %.3g s a token: the "
               "ring takes what\n  was resident\n", gbps, -l->drive_s);
    else
        printf("  another drive of %.3g GB/s saves %.3g s a token\n", gbps,
               l->drive_s);
    if (l->now.io_s < l->compute_s)
        puts("  compute is the longer side: faster memory and more cores "
             "help");
    if (l->batch)
        plan_batch_print(l->batch);
    puts("\nassumes:");
    for (uint32_t i = 0; i < l->notes; i++)
        printf("  %s\n", l->note[i]);
}

/* ---- for programs ---- */

static json_t *cost_object(const struct token_cost *t)
{
    json_t *o = json_object();
    json_object_set_new(o, "read_bytes_per_token",
                        json_integer((json_int_t)t->read_bytes));
    json_object_set_new(o, "trunk_bytes_per_token",
                        json_integer((json_int_t)t->trunk_bytes));
    json_object_set_new(o, "expert_bytes_per_token",
                        json_integer((json_int_t)t->expert_bytes));
    json_object_set_new(o, "embed_bytes_per_token",
                        json_integer((json_int_t)t->embed_bytes));
    return o;
}

static json_t *ladder_array(const struct outlook *l)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < l->rungs; i++) {
        const struct rung *r = &l->rung[i];
        json_t *o = report_plan(&r->cost.plan);
        json_t *cost = cost_object(&r->cost), *forecast = json_array();
        json_object_update(o, cost);
        json_decref(cost);
        for (uint32_t k = 0; k < l->columns; k++)
            json_array_append_new(
                forecast, json_pack("{s:i, s:f, s:f}", "drives",
                                    (int)l->column[k].drives, "gbps",
                                    l->column[k].gbps, "seconds_per_token",
                                    r->seconds[k]));
        json_object_set_new(o, "forecast", forecast);
        json_array_append_new(array, o);
    }
    return array;
}

static void print_json(const struct outlook *l)
{
    /* The plan's names in the root for those who ask for one of them, and as
     * an object that compares with that of a report. */
    json_t *root = report_plan(&l->now.plan), *cost = cost_object(&l->now);
    json_t *assumes = json_array();
    json_object_update(root, cost);
    json_decref(cost);
    json_object_set_new(root, "plan", report_plan(&l->now.plan));
    json_object_set_new(root, "threads", json_integer(l->o.threads));
    json_object_set_new(root, "context", json_integer(l->o.context));
    json_object_set_new(root, "gbps", json_real(l->here.gbps));
    json_object_set_new(root, "drives", json_integer(l->here.drives));
    json_object_set_new(root, "io_s", json_real(l->now.io_s));
    json_object_set_new(root, "compute_s", json_real(l->compute_s));
    json_object_set_new(root, "seconds_per_token", json_real(l->now_s));
    json_object_set_new(root, "ladder", ladder_array(l));
    json_object_set_new(
        root, "best_buy",
        json_pack("{s:I, s:f, s:f}", "more_memory_bytes",
                  (json_int_t)l->more_bytes, "more_memory_saves_s", l->more_s,
                  "another_drive_saves_s", l->drive_s));
    if (l->batch)
        json_object_set_new(root, "batch", plan_batch_json(l->batch));
    for (uint32_t i = 0; i < l->notes; i++)
        json_array_append_new(assumes, json_string(l->note[i]));
    json_object_set_new(root, "assumes", assumes);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

int cmd_plan(int argc, char **argv)
{
    struct plan_args a = { 0 };
    session_defaults(&a.s);
    a.s.rows = DEFAULT_ROWS;
    const struct opt table[] = {
        { "memory", 'm', OPT_SIZE, &a.s.memory, "SIZE",
          "the budget; default: the floor", NULL },
        { "context", 'c', OPT_UINT, &a.s.context, "N",
          "positions a sequence may have; default 4096", NULL },
        { "threads", 't', OPT_UINT, &a.s.threads, "N",
          "threads; default: the physical cores here", NULL },
        { "rows", 0, OPT_UINT, &a.s.rows, "N",
          "most rows in a pass; default 256, lowered where memory is short",
          NULL },
        { "device", 0, OPT_CALL, &a.s, "GBPS[,US]",
          "a drive of this rate and latency; repeat for more", session_device },
        { "compute", 0, OPT_REAL, &a.compute_s, "SECONDS",
          "a token computes; default: weights at 100 GB/s of memory", NULL },
        { "batch", 0, OPT_FLAG, &a.batch, NULL,
          "ids a second for 1 to 256 sequences", NULL },
        { "json", 0, OPT_FLAG, &a.json, NULL, "print JSON", NULL },
    };
    const struct opt_command cmd = {
        "sluice plan MODEL [-m SIZE] [-c N] [--device GBPS]... [--json]",
        "What would be resident, what streams, and how long a token takes, "
        "from config.json alone.", table, sizeof table / sizeof *table };
    const char *model = NULL;
    struct outlook *l = NULL;
    struct k3_options o;
    struct why why = { 0 };
    int words = opt_parse(&cmd, argc, argv, &model, 1);
    if (words < 0)
        return opt_status(words);
    if (words != 1)
        return opt_usage_error(&cmd, "plan needs the folder of a model");
    if (a.compute_s < 0)
        return opt_usage_error(&cmd, "--compute is not negative");
    const char *wrong = session_options(&a.s, &o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    l = calloc(1, sizeof *l);
    if (!l) {
        fputs("sluice: no memory for a plan\n", stderr);
        return 1;
    }
    l->o = o;
    l->o.logits = 1; /* as a run without --logits */
    int err = look(l, model, &a, &why);
    if (!err && a.json) {
        print_json(l);
    } else if (!err) {
        print_plan(l);
        print_ladder(l, a.s.memory != 0);
        print_advice(l);
    }
    token_clock_close(l->clock);
    free(l->batch);
    config_free(&l->c);
    free(l);
    return err ? session_failed(model, &why) : 0;
}
