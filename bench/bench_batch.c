/* bench_batch.c - what more rows a pass are worth, on a simulated drive.
 *
 *   sequences  1 to 64 of them at budgets from the floor to all of the trunk:
 *              ids and bytes, against one at a time under the same budget
 *   drafts     text that repeats and text that does not, --draft auto against
 *              off, with the trunk streamed and resident
 *   prefill    a prompt of 256 ids: bytes against one trunk pass a chunk and
 *              the union of experts, time against the larger of I/O and compute
 *
 * `of ideal` is the larger of I/O time and compute time, over the time it took.
 * The drive stays below 60 % of what the real one gives, unless told. Drafts
 * use the `small` checkpoint, prefill that and `bench`.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "model/decode/batch.h"
#include "model/decode/generate.h"
#include "model/sim/machine.h"

enum { LIST_MAX = 16, ROUNDS_MAX = 32, PROMPT_MAX = 256 };
static const double raw_share = 0.55;

struct bench {
    const char *model, *small, *part;
    uint64_t rounds, ids, threads;
    double   gbps; /* 0: by the real drive */
    double   budgets[LIST_MAX], sequences[LIST_MAX];
    uint32_t budget_count, sequence_count;
};

/* One measurement: decode passes, or with `prefill` the others. */
struct sample {
    double ids_per_s, bytes_per_id, pass_s, io_s, compute_s, bytes;
    double drafted, accepted, passes, idle;
};

static const char *take_list(double *list, uint32_t *count, const char *text)
{
    char word[64];
    *count = 0;
    while (*text) {
        size_t n = strcspn(text, ",");
        uint64_t size;
        if (n >= sizeof word || *count == LIST_MAX)
            return "is not a list";
        memcpy(word, text, n);
        word[n] = 0;
        if (opt_size(&size, word) || !size)
            return "is not a list of sizes or numbers";
        list[(*count)++] = (double)size;
        text += n + (text[n] == ',');
    }
    return NULL;
}

static const char *take_budgets(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->budgets, &b->budget_count, value);
}

static const char *take_sequences(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->sequences, &b->sequence_count, value);
}

static struct k3_options options(const struct bench *b, double budget,
                                 const struct paced_drive *drive)
{
    return (struct k3_options){
        .memory_bytes = (uint64_t)budget, .threads = (uint32_t)b->threads,
        .context = 512, .paced = drive, .paced_count = 1, .prefetch = "none",
        .realtime = true };
}

static struct paced_drive drive_of(double gbps)
{
    return (struct paced_drive){ .bytes_per_s = (uint64_t)(gbps * 1e9),
                                 .latency_ns = 100000 };
}

static void fill(struct sample *s, const struct k3_totals *t, double ids,
                 double gbps)
{
    double waited = (double)(t->wait_trunk_ns + t->wait_expert_ns) / 1e9;
    double seconds = (double)t->ns / 1e9, n = (double)t->passes;
    s->bytes = (double)(t->trunk_bytes + t->embed_bytes + t->demand_bytes +
                        t->prefetch_bytes + t->wasted_bytes) /
               n;
    s->passes = n;
    s->pass_s = seconds / n;
    s->io_s = s->bytes / (gbps * 1e9);
    s->compute_s = (seconds - waited) / n;
    s->ids_per_s = ids / seconds;
    s->idle = (double)t->idle_ns / (double)t->ns;
    s->bytes_per_id = s->bytes * n / ids;
}

static double ideal(const struct sample *s)
{
    return (s->io_s > s->compute_s ? s->io_s : s->compute_s) / s->pass_s;
}

static int failed(const struct error *error)
{
    fprintf(stderr, "bench: %s\n", error->text);
    return 1;
}

static void min(double *budget, const char *model, struct k3_options *o)
{
    struct plan plan;
    struct error error = { 0 };
    o->memory_bytes = 1;
    k3_plan(&plan, model, o, &error);
    *budget = (double)plan.floor_bytes + (4 << 20);
}

/* ---- sequences ---- */

struct crowd {
    uint32_t *ids; /* [sequences][most + 1] */
    uint32_t handed, sequences, max;
};

static bool crowd_next(void *arg, struct batch_request *out)
{
    struct crowd *c = arg;
    if (c->handed == c->sequences)
        return false;
    uint32_t *ids = c->ids + (size_t)c->handed * (c->max + 1);
    ids[0] = c->handed * 37 + 5;
    *out = (struct batch_request){ .tag = c->handed++,
                                   .ids = ids,
                                   .prompt_count = 1,
                                   .max = c->max,
                                   .ignore_end = true };
    return true;
}

static void crowd_finished(void *arg, uint64_t tag, uint32_t count,
                           enum batch_reason reason)
{
    (void)arg, (void)tag, (void)count, (void)reason;
}

static int measure_batch(const struct bench *b, double budget, uint32_t n,
                         struct sample *s)
{
    struct paced_drive drive = drive_of(b->gbps);
    struct k3_options o = options(b, budget, &drive);
    struct crowd c = { .sequences = n, .max = (uint32_t)b->ids + 1 };
    struct batch *batch = NULL;
    struct k3_facts facts;
    struct error error = { 0 };
    struct k3 *k;
    o.sequences = o.rows = o.logits = n;
    c.ids = calloc(n, (c.max + 1) * sizeof *c.ids);
    struct batch_options bo = { .sequences = n, .next = crowd_next,
                                .finished = crowd_finished, .arg = &c };
    int err = c.ids ? k3_open(&k, b->model, &o, &error) : -1;
    if (!err)
        err = batch_open(&batch, k, &bo, &error);
    for (int step = !err; step > 0;) {
        step = batch_step(batch, &error);
        err = step < 0 ? step : 0;
    }
    if (!err) {
        k3_facts(k, &facts);
        fill(s, &facts.totals[K3_DECODE],
             (double)batch_counts(batch)->decode_ids, b->gbps);
    }
    batch_close(batch);
    if (c.ids)
        k3_close(k);
    free(c.ids);
    return err ? failed(&error) : 0;
}

static double median(const struct sample *s, uint64_t n, size_t offset)
{
    double v[ROUNDS_MAX];
    for (uint64_t i = 0; i < n; i++)
        memcpy(&v[i], (const char *)&s[i] + offset, sizeof v[i]);
    return bench_spread(v, n).median;
}
#define MEDIAN(s, n, field) median(s, n, offsetof(struct sample, field))

static int bench_sequences(struct bench *b)
{
    static struct sample s[LIST_MAX][LIST_MAX][ROUNDS_MAX];
    json_t *array = json_array();
    FILE *tsv = bench_results("batch", "stamp\tsequences\tbudget\tgbps\t"
                              "tokens_per_s\tbytes_per_token\tspeedup\tideal");
    for (uint64_t r = 0; r < b->rounds; r++)
        for (uint32_t i = 0; i < b->budget_count; i++)
            for (uint32_t j = 0; j < b->sequence_count; j++) {
                fprintf(stderr, "\rround %" PRIu64 " budget %u sequences "
                        "%.0f   ", r + 1, i + 1, b->sequences[j]);
                if (measure_batch(b, b->budgets[i],
                                  (uint32_t)b->sequences[j], &s[i][j][r]))
                    return 1;
            }
    fputc('\n', stderr);
    puts("  budget sequences  ids/s   GB/id  GB/pass  s/pass     io compute "
         "of ideal  speedup");
    for (uint32_t i = 0; i < b->budget_count; i++)
        for (uint32_t j = 0; j < b->sequence_count; j++) {
            const struct sample *p = s[i][j];
            uint64_t n = b->rounds;
            double rate = MEDIAN(p, n, ids_per_s), share[ROUNDS_MAX];
            double times = rate / MEDIAN(s[i][0], n, ids_per_s);
            for (uint64_t r = 0; r < n; r++)
                share[r] = ideal(&p[r]);
            struct bench_spread of = bench_spread(share, n);
            printf("%8.3f %9.0f %6.3f %7.3f %8.3f %7.3f %6.2f %7.2f "
                   "%8.3f %7.2fx\n", b->budgets[i] / 1e9, b->sequences[j],
                   rate, MEDIAN(p, n, bytes_per_id) / 1e9,
                   MEDIAN(p, n, bytes) / 1e9, MEDIAN(p, n, pass_s),
                   MEDIAN(p, n, io_s), MEDIAN(p, n, compute_s), of.median,
                   times);
            if (tsv)
                fprintf(tsv, "%s\t%.0f\t%.0f\t%.3f\t%.4f\t%.0f\t%.3f\t%.4f\n",
                        bench_stamp(), b->sequences[j], b->budgets[i],
                        b->gbps, rate, MEDIAN(p, n, bytes_per_id), times,
                        of.median);
            json_array_append_new(
                array, json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f}",
                                 "sequences", (int)b->sequences[j],
                                 "budget_bytes", (json_int_t)b->budgets[i],
                                 "device_gbps", b->gbps, "tokens_per_s", rate,
                                 "bytes_per_token",
                                 MEDIAN(p, n, bytes_per_id), "speedup", times,
                                 "of_ideal", of.median));
        }
    if (tsv)
        fclose(tsv);
    return bench_json("batch", array);
}

/* ---- drafts and prefill ---- */

static int measure_run(const struct bench *b, const char *model, double budget,
                       uint32_t prompt, uint32_t max, bool drafts, double gbps,
                       enum k3_phase phase, struct sample *s)
{
    struct paced_drive drive = drive_of(gbps);
    struct k3_options o = options(b, budget, &drive);
    uint32_t ids[PROMPT_MAX], out[512];
    struct generate_result result = { .ids = out };
    struct k3_facts facts;
    struct error error = { 0 };
    struct k3 *k;
    for (uint32_t i = 0; i < prompt; i++)
        ids[i] = (i * 7919 + 11) % 1000;
    o.rows = prompt < 16 ? 16 : prompt;
    o.logits = 1;
    o.drafts = DRAFT_AUTO_MAX;
    o.policy = "none";
    struct generate_options g = {
        .prompt = ids, .prompt_count = prompt, .max = max, .ignore_end = true
    };
    if (drafts)
        g.draft = (struct draft_options){ DRAFT_AUTO_MAX, true };
    int err = k3_open(&k, model, &o, &error);
    if (!err)
        err = generate(k, &g, &result, &error);
    if (!err) {
        k3_facts(k, &facts);
        fill(s, &facts.totals[phase], phase == K3_DECODE ? max - 1 : prompt,
             gbps);
        s->drafted = (double)result.drafted;
        s->accepted = (double)result.accepted;
    }
    k3_close(k);
    return err ? failed(&error) : 0;
}

static int small_model(const struct bench *b, const char *kind, uint32_t echo,
                       char path[4096])
{
    snprintf(path, 4096, "%s-%s", b->small, kind);
    return bench_model(&(struct synth_options){
        .dir = path, .preset = "small", .echo = echo });
}

static int bench_drafts(struct bench *b)
{
    static struct sample s[2][2][2][ROUNDS_MAX]; /* [kind][memory][auto] */
    static const char *const kinds[] = { "random", "echo" };
    static const char *const memory[] = { "streamed", "resident" };
    char path[2][4096];
    double gbps = 0.25; /* a second a pass */
    uint32_t max = 48;
    json_t *array = json_array();
    if (small_model(b, "random", 0, path[0]) ||
        small_model(b, "echo", 8, path[1]))
        return 1;
    for (uint64_t r = 0; r < b->rounds; r++)
        for (int i = 0; i < 8; i++) {
            struct k3_options o = options(b, 1, NULL);
            double budget = 4e9;
            int kind = i / 4, resident = i / 2 % 2, on = i % 2;
            o.paced_count = 0;
            o.rows = 1;
            if (!resident) {
                min(&budget, path[kind], &o);
                budget += 48 << 20; /* room for drafts, not for the trunk */
            }
            fprintf(stderr, "\rround %" PRIu64 " drafts %d ", r + 1, i + 1);
            if (measure_run(b, path[kind], budget, 3, max, on, gbps, K3_DECODE,
                            &s[kind][resident][on][r]))
                return 1;
        }
    fputc('\n', stderr);
    puts("text    trunk     off ids/s  auto ids/s  GB/pass  drafted accepted "
         "passes  times [min max]");
    for (int kind = 0; kind < 2; kind++)
        for (int m = 0; m < 2; m++) {
            const struct sample *off = s[kind][m][0], *on = s[kind][m][1];
            double times[ROUNDS_MAX];
            for (uint64_t r = 0; r < b->rounds; r++)
                times[r] = on[r].ids_per_s / off[r].ids_per_s;
            struct bench_spread t = bench_spread(times, b->rounds);
            printf("%-7s %-9s %9.3f %11.3f %8.3f %8.0f %8.0f %6.0f  %5.3f "
                   "[%.3f %.3f]\n",
                   kinds[kind], memory[m], MEDIAN(off, b->rounds, ids_per_s),
                   MEDIAN(on, b->rounds, ids_per_s),
                   MEDIAN(on, b->rounds, bytes) / 1e9,
                   MEDIAN(on, b->rounds, drafted),
                   MEDIAN(on, b->rounds, accepted),
                   MEDIAN(on, b->rounds, passes), t.median, t.min, t.max);
            json_array_append_new(array,
                                  json_pack("{s:s, s:s, s:f, s:f, s:f}", "text",
                                            kinds[kind], "trunk", memory[m],
                                            "speedup", t.median, "speedup_min",
                                            t.min, "speedup_max", t.max));
        }
    return bench_json("batch_drafts", array);
}

struct prefill {
    const char *model;
    double budget, gbps;
    struct sample s[ROUNDS_MAX];
};

/* The small model with memory for few rows a pass, for more, for more; the
 * large one with all rows in one pass and the trunk streamed, half of it
 * resident, all of it. */
static int bench_prefill(struct bench *b)
{
    enum { POINTS = 6 };
    static struct prefill p[POINTS];
    struct k3_options o = options(b, 1, NULL);
    char small[4096];
    json_t *array = json_array();
    o.paced_count = 0;
    o.rows = 1;
    if (small_model(b, "random", 0, small) ||
        bench_model(&(struct synth_options){ .dir = b->model,
                                             .preset = "bench" }))
        return 1;
    for (int i = 0; i < POINTS; i++) {
        bool large = i >= POINTS / 2;
        p[i].model = large ? b->model : small;
        p[i].gbps = large ? 0.5 : 0.25;
        min(&p[i].budget, p[i].model, &o);
        p[i].budget += large ? 2e9 + (i - 3) * 3.2e9 : i * (double)(24 << 20);
    }
    for (uint64_t r = 0; r < b->rounds; r++)
        for (int i = 0; i < POINTS; i++) {
            fprintf(stderr, "\rround %" PRIu64 " prefill %d ", r + 1, i + 1);
            if (measure_run(b, p[i].model, p[i].budget, 256, 1, false,
                            p[i].gbps, K3_PREFILL, &p[i].s[r]))
                return 1;
        }
    fputc('\n', stderr);
    puts("256 ids: budget  passes  GB/pass  s/pass     io compute idle %  "
         "time/ideal [min max]");
    for (int i = 0; i < POINTS; i++) {
        const struct sample *s = p[i].s;
        double times[ROUNDS_MAX];
        for (uint64_t r = 0; r < b->rounds; r++)
            times[r] = 1 / ideal(&s[r]);
        struct bench_spread t = bench_spread(times, b->rounds);
        printf("%15.3f %7.0f %8.3f %7.2f %6.2f %7.2f %6.1f %11.3f "
               "[%.3f %.3f]\n",
               p[i].budget / 1e9, MEDIAN(s, b->rounds, passes),
               MEDIAN(s, b->rounds, bytes) / 1e9, MEDIAN(s, b->rounds, pass_s),
               MEDIAN(s, b->rounds, io_s), MEDIAN(s, b->rounds, compute_s),
               100 * MEDIAN(s, b->rounds, idle), t.median, t.min, t.max);
        json_array_append_new(
            array, json_pack("{s:f, s:f, s:f, s:f, s:f}", "budget_bytes",
                             p[i].budget, "device_gbps", p[i].gbps,
                             "passes", MEDIAN(s, b->rounds, passes),
                             "bytes_per_pass", MEDIAN(s, b->rounds, bytes),
                             "time_to_longer", t.median));
    }
    return bench_json("batch_prefill", array);
}

static int prepare(struct bench *b)
{
    struct forecast_machine m = { 0 };
    struct error error = { 0 };
    struct k3_options o = options(b, 1, NULL);
    if (bench_model(&(struct synth_options){ .dir = b->model,
                                             .preset = "bench" }))
        return 1;
    if (b->gbps <= 0) {
        if (machine_drives(&m, b->model, NULL, "auto", &error))
            return failed(&error);
        b->gbps = raw_share * machine_bytes_per_s(&m) / 1e9;
        printf("drive: %.2f GB/s, simulated %.2f GB/s\n",
               machine_bytes_per_s(&m) / 1e9, b->gbps);
    }
    if (!b->sequence_count)
        take_sequences(b, "1,2,4,8,16,32,64");
    if (!b->budget_count) { /* what the most sequences need; half; the trunk */
        double first;
        o.paced_count = 0;
        o.sequences = o.rows = o.logits =
            (uint32_t)b->sequences[b->sequence_count - 1];
        min(&first, b->model, &o);
        b->budgets[b->budget_count++] = first;
        b->budgets[b->budget_count++] = first + 3e9;
        b->budgets[b->budget_count++] = first + 6.5e9;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench b = { .model = "build/bench-model",
                              .small = "build/bench-small", .part = "all",
                              .rounds = 3, .ids = 2 };
    const struct opt table[] = {
        { "model", 0, OPT_TEXT, &b.model, "DIR",
          "a `synth --preset bench` checkpoint; made if missing", NULL },
        { "small", 0, OPT_TEXT, &b.small, "DIR", "of the small ones, less "
          "their kind", NULL },
        { "part", 0, OPT_TEXT, &b.part, "NAME",
          "sequences, drafts, prefill; default all", NULL },
        { "rounds", 0, OPT_UINT, &b.rounds, "N", "default 3", NULL },
        { "ids", 0, OPT_UINT, &b.ids, "N",
          "decode passes a measurement; default 2", NULL },
        { "threads", 't', OPT_UINT, &b.threads, "N", "default: cores", NULL },
        { "gbps", 0, OPT_REAL, &b.gbps, "GBPS",
          "of the simulated drive; default 55 % of the real one", NULL },
        { "budgets", 0, OPT_CALL, &b, "LIST", "sizes, default floor to all",
          take_budgets },
        { "sequences", 0, OPT_CALL, &b, "LIST", "default 1,2,4,8,16,32,64",
          take_sequences },
    };
    const struct opt_command cmd = { "bench_batch [options]", NULL, table,
                                     sizeof table / sizeof *table };
    int words = opt_parse(&cmd, argc, argv, NULL, 0);
    if (words < 0)
        return opt_status(words);
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX || b.ids < 1)
        return opt_usage_error(&cmd, "--rounds is 1 to %d", ROUNDS_MAX);
    bool all = !strcmp(b.part, "all");
    int err = 0;
    if (all || !strcmp(b.part, "sequences"))
        err = prepare(&b) || bench_sequences(&b);
    if (!err && (all || !strcmp(b.part, "drafts")))
        err = bench_drafts(&b);
    if (!err && (all || !strcmp(b.part, "prefill")))
        err = bench_prefill(&b);
    return err;
}
