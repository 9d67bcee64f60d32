/* bench_overlap.c - does time a token reach the larger of I/O and compute?
 *
 * Three arms of one program on the same ids and the same simulated drive:
 *   sync    read a tile, then compute it; read the experts, then compute them
 *   ahead1  parallel pread, one whole layer ahead, a layer's experts joined
 *   full    the engine
 *   unprefetched  the engine without prefetches, at budgets where it would
 *           make some: those with the whole trunk resident
 * The ratio compute / I/O is set by repeating each kernel and, for what that
 * leaves, by the rate of the drive, which stays at or below 60 % of what the
 * real one gives in the same run; above it a point says so. Points are measured
 * in interleaved rounds; the table shows the median and the range.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "model/k3/flow.h"

enum { POINTS_MAX = 256, ROUNDS_MAX = 32, LIST_MAX = 16, CALIBRATION = 4 };
static const double raw_share_max = 0.6, warm_bytes = 6e9;

enum arm { ARM_SYNC, ARM_AHEAD1, ARM_NOT_PREFETCHED, ARM_FULL, ARMS };
static const char *const arm_name[ARMS] = { "sync", "ahead1", "unprefetched",
                                            "full" };

struct sample {
    double per_pass, io, compute, idle, wait_trunk, wait_expert;
    double in_flight_mean, in_flight_peak, raw;
    double trunk, demand, prefetched, wasted, latency;
};

struct point {
    enum arm arm;
    uint64_t budget;
    double   ratio, rate;
    uint32_t repeat, warm; /* passes before those that count */
    struct sample s[ROUNDS_MAX];
    uint32_t rounds;
};

struct bench {
    const char *model;
    uint64_t rounds, passes, threads;
    double   budgets[LIST_MAX], ratios[LIST_MAX];
    uint32_t budget_count, ratio_count;
    bool     all_arms;
    const char *prefetch, *packed;
    double   raw; /* bytes a second of the real drive */
    struct point point[POINTS_MAX];
    uint32_t points;
};

static const char *take_list(double *list, uint32_t *count, const char *text,
                             bool sizes)
{
    char word[64];
    *count = 0;
    while (*text) {
        size_t n = strcspn(text, ",");
        uint64_t bytes;
        if (n >= sizeof word || *count == LIST_MAX)
            return "is not a list";
        memcpy(word, text, n);
        word[n] = 0;
        if (sizes && opt_size(&bytes, word))
            return "is not a list of sizes";
        list[(*count)++] = sizes ? (double)bytes : strtod(word, NULL);
        text += n + (text[n] == ',');
    }
    return NULL;
}

static const char *take_budgets(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->budgets, &b->budget_count, value, true);
}

static const char *take_ratios(void *arg, const char *value)
{
    struct bench *b = arg;
    return take_list(b->ratios, &b->ratio_count, value, false);
}

/* ---- other schedules: ops in front of the engine's ---- */

struct schedule {
    struct flow *flow;
    const struct flow_ops *inner; /* the engine's, with `arg` */
    void    *arg;
    enum arm arm;
    uint32_t repeat; /* every product is done so often */
    uint32_t layer;  /* whose experts were asked for */
    uint64_t end;    /* tiles that all passes need, unrolled */
};

static int repeat_piece(void *arg, const struct step *s,
                        const struct tile_piece *piece, const uint8_t *frame)
{
    struct schedule *b = arg;
    uint32_t times = s->op == STEP_PRODUCT ? b->repeat : 1;
    int err = 0;
    for (uint32_t i = 0; i < times && !err; i++)
        err = b->inner->piece(b->arg, s, piece, frame);
    return err;
}

static int repeat_experts(void *arg, const struct step *s,
                          const struct expert_batch *batch)
{
    struct schedule *b = arg;
    int err = 0;
    for (uint32_t i = 0; i < b->repeat && !err; i++)
        err = b->inner->experts(b->arg, s, batch);
    return err;
}

static int same_step(void *arg, const struct step *s)
{
    struct schedule *b = arg;
    return b->inner->step(b->arg, s);
}

static int same_embedded(void *arg, uint32_t row, const uint8_t *bytes)
{
    struct schedule *b = arg;
    return b->inner->embedded(b->arg, row, bytes);
}

static void note_requested(void *arg, const struct step *s)
{
    struct schedule *b = arg;
    b->layer = (uint32_t)s->layer;
    b->inner->requested(b->arg, s);
}

static int same_failed(void *arg, int err, const struct step *s,
                       const struct tile_piece *piece)
{
    struct schedule *b = arg;
    return b->inner->failed(b->arg, err, s, piece);
}

/* One past the last tile of the layer that `tile` is of. */
static uint32_t layer_end(const struct tiles *t, uint32_t tile)
{
    int32_t layer = tiles_first_piece(t, tile)->layer;
    while (tile < t->count && tiles_first_piece(t, tile)->layer == layer)
        tile++;
    return tile;
}

/* What an engine does that reads whole layers, one ahead: a layer must be there
 * entirely, and only then may the next be read. */
static int wait_layer(struct schedule *b, uint32_t tile)
{
    struct flow *f = b->flow;
    const struct tiles *t = f->tiles;
    uint64_t base = f->passes * t->count;
    uint32_t end = layer_end(t, tile);
    for (uint32_t i = tile; i < end; i++) {
        stream_set_readahead(f->stream, base + end);
        int err = stream_wait(f->stream, i);
        if (err)
            return err;
    }
    uint64_t next = base + (end < t->count ? layer_end(t, end)
                                           : t->count + layer_end(t, 0));
    stream_set_readahead(f->stream, next < b->end ? next : b->end);
    return 0;
}

static int hold(void *arg, struct flow *f, uint32_t tile,
                const uint8_t **frame)
{
    struct schedule *b = arg;
    int err = 0;
    if (b->arm == ARM_SYNC) /* read, then compute */
        stream_set_readahead(f->stream, f->passes * f->tiles->count + tile + 1);
    if (b->arm == ARM_AHEAD1 &&
        (!tile || layer_end(f->tiles, tile - 1) == tile))
        err = wait_layer(b, tile);
    return err ? err : b->inner->hold(b->arg, f, tile, frame);
}

/* The experts of a layer are joined: none before all are there. */
static int next(void *arg, struct flow *f, uint32_t *item,
                const struct load **load)
{
    struct schedule *b = arg;
    while (b->arm == ARM_SYNC || b->arm == ARM_AHEAD1) {
        uint32_t seen = stream_events(f->stream);
        if (!fetch_waiting(f->fetch) || stream_failure(f->stream).error)
            break;
        int err = flow_wait(f, seen, b->layer);
        if (err)
            return err;
    }
    return b->inner->next(b->arg, f, item, load);
}

static const struct flow_ops schedule_ops = {
    .piece = repeat_piece, .step = same_step, .embedded = same_embedded,
    .requested = note_requested, .experts = repeat_experts,
    .failed = same_failed, .hold = hold, .next = next,
};

static void install(struct schedule *b, struct k3 *k, const struct point *p,
                    uint64_t passes)
{
    struct flow *f = k3_flow(k);
    *b = (struct schedule){ .flow = f, .inner = f->ops, .arg = f->arg,
                            .arm = p->arm, .repeat = p->repeat,
                            .end = passes * f->tiles->count };
    f->ops = &schedule_ops;
    f->arg = b;
    if (p->arm == ARM_SYNC || p->arm == ARM_AHEAD1)
        f->readahead_end = b->end; /* announced; `hold` lets the reads go */
    else
        k3_set_readahead(k, passes);
}

/* ---- measuring ---- */

static void options_of(const struct bench *b, const struct point *p,
                       struct paced_drive *drive, struct k3_options *o)
{
    memset(o, 0, sizeof *o);
    *drive = (struct paced_drive){ .bytes_per_s = (uint64_t)p->rate,
                                   .latency_ns = 100000 };
    o->memory_bytes = p->budget;
    o->threads = (uint32_t)b->threads;
    o->rows = 1;
    o->logits = 1;
    o->policy = "none";
    o->packed = b->packed;
    o->prefetch = p->arm == ARM_FULL ? b->prefetch : "none";
    o->paced = p->rate > 0 ? drive : NULL;
    o->paced_count = p->rate > 0;
    if (p->arm == ARM_AHEAD1) {
        o->io = "pread";
        o->ring_bytes = 3ull << 30; /* two layers, beside the budget */
        o->memory_bytes += o->ring_bytes;
    }
}

/* One session: passes that warm up, then those that count. The governor of
 * prefetches lets through what a share of the bytes read so far allows, so
 * warming up takes a few GB. */
static int measure(const struct bench *b, struct point *p, struct sample *s)
{
    struct paced_drive drive;
    struct k3_options o;
    struct error error = { 0 };
    struct k3 *k;
    struct k3_facts after;
    options_of(b, p, &drive, &o);
    o.realtime = true;
    struct schedule schedule;
    int err = k3_open(&k, b->model, &o, &error);
    if (!err)
        install(&schedule, k, p, p->warm + b->passes + 1);
    for (uint32_t i = 0; i < p->warm + b->passes && !err; i++) {
        struct k3_row row = { .position = i, .id = (i * 977 + 3) % 1000,
                              .logits = true,
                              .phase = i < p->warm ? K3_PREFILL : K3_DECODE };
        err = k3_pass(k, &row, 1, &error);
    }
    if (err) {
        fprintf(stderr, "bench: %s\n", error.text);
        k3_close(k);
        return err;
    }
    k3_facts(k, &after);
    const struct k3_totals *t = &after.totals[K3_DECODE];
    double n = (double)t->passes, rate = p->rate > 0 ? p->rate : b->raw;
    uint64_t bytes = t->trunk_bytes + t->demand_bytes + t->prefetch_bytes +
                     t->embed_bytes + t->wasted_bytes;
    s->per_pass = (double)t->ns / 1e9 / n;
    s->wait_trunk = (double)t->wait_trunk_ns / 1e9 / n;
    s->wait_expert = (double)t->wait_expert_ns / 1e9 / n;
    s->compute = s->per_pass - s->wait_trunk - s->wait_expert;
    s->io = (double)bytes / rate / n;
    s->idle = (double)t->idle_ns / (double)t->ns / after.drives;
    s->in_flight_mean = after.reader.in_flight_mean_bytes;
    s->in_flight_peak = (double)after.reader.in_flight_peak_bytes;
    s->raw = (double)after.reader.raw_bytes_per_s;
    s->trunk = (double)t->trunk_bytes / n;
    s->demand = (double)t->demand_bytes / n;
    s->prefetched = (double)t->prefetch_bytes / n;
    s->wasted = (double)t->wasted_bytes / n;
    s->latency = after.experts.timed ? (double)after.experts.latency_ns / 1e9 /
                                           (double)after.experts.timed
                                     : 0;
    k3_close(k);
    return 0;
}

/* Seconds a pass computes at one budget with every product done so often. The
 * first time over a tile is dearer than those that follow from the cache. */
struct calibration {
    double once, again, bytes, trunk, raw;
};

static int calibrate(const struct bench *b, double budget,
                     struct calibration *c)
{
    struct point probe = { .arm = ARM_SYNC, .repeat = 1, .warm = 1,
                           .budget = (uint64_t)budget };
    struct sample one = { 0 }, many = { 0 };
    int err = measure(b, &probe, &one);
    probe.repeat = 1 + CALIBRATION;
    if (!err)
        err = measure(b, &probe, &many);
    *c = (struct calibration){
        .once = one.compute, .trunk = one.trunk, .raw = one.raw,
        .bytes = one.trunk + one.demand,
        .again = (many.compute - one.compute) / CALIBRATION };
    return err;
}

/* Lay out the points: the kernels' repeats so that the drive may stay below its
 * share of the real one, then its rate so that the ratio comes out. */
static int lay_out(struct bench *b)
{
    struct calibration cal[LIST_MAX];
    for (uint32_t i = 0; i < b->budget_count; i++) {
        int err = calibrate(b, b->budgets[i], &cal[i]);
        if (err)
            return err;
        if (b->raw == 0 || cal[i].raw < b->raw)
            b->raw = cal[i].raw;
        printf("budget %.2f GB: %.3f GB a pass, compute %.3f s a pass, %.3f s "
               "each further time, the drive %.2f GB/s\n", b->budgets[i] / 1e9,
               cal[i].bytes / 1e9, cal[i].once, cal[i].again,
               cal[i].raw / 1e9);
    }
    for (uint32_t i = 0; i < b->budget_count; i++)
        for (uint32_t r = 0; r < b->ratio_count; r++)
            for (int arm = 0; arm < ARMS; arm++) {
                const struct calibration *c = &cal[i];
                double rate = b->raw * raw_share_max * 0.9;
                double min = b->ratios[r] * c->bytes / rate;
                double more = ceil((min - c->once) / c->again);
                bool other = arm == ARM_SYNC || arm == ARM_AHEAD1;
                if ((other && !b->all_arms && b->ratios[r] != 1) ||
                    (arm == ARM_NOT_PREFETCHED && c->trunk > 0))
                    continue;
                if (b->points == POINTS_MAX)
                    return -E2BIG;
                more = more < 0 ? 0 : more;
                b->point[b->points++] = (struct point){
                    .arm = (enum arm)arm, .budget = (uint64_t)b->budgets[i],
                    .ratio = b->ratios[r], .repeat = 1 + (uint32_t)more,
                    .warm = other ? 1 : (uint32_t)(warm_bytes / c->bytes) + 1,
                    .rate = b->ratios[r] * c->bytes /
                            (c->once + more * c->again) };
            }
    return 0;
}

static double value(const struct sample *s, int which)
{
    double longer = s->io > s->compute ? s->io : s->compute;
    switch (which) {
    case 0: return s->per_pass;
    case 1: return longer / s->per_pass;
    case 2: return s->idle;
    case 3: return s->compute;
    case 4: return s->io;
    case 5: return s->wait_trunk;
    case 6: return s->wait_expert;
    case 7: return s->in_flight_mean;
    case 8: return s->in_flight_peak;
    case 9: return s->raw;
    case 10:
        return s->prefetched / (s->prefetched + s->demand);
    case 11: return s->latency;
    default:
        return s->wasted / (s->trunk + s->demand + s->prefetched + s->wasted);
    }
}

static struct bench_spread spread(const struct point *p, int which)
{
    double v[ROUNDS_MAX];
    for (uint32_t i = 0; i < p->rounds; i++)
        v[i] = value(&p->s[i], which);
    return bench_spread(v, p->rounds);
}

/* Median over rounds of how much longer `other` took than `p`. */
static double times(const struct point *other, const struct point *p)
{
    double v[ROUNDS_MAX];
    for (uint32_t i = 0; i < p->rounds; i++)
        v[i] = other->s[i].per_pass / p->s[i].per_pass;
    return bench_spread(v, p->rounds).median;
}

static const struct point *partner(const struct bench *b,
                                   const struct point *p, enum arm arm)
{
    for (uint32_t i = 0; i < b->points; i++)
        if (b->point[i].arm == arm && b->point[i].budget == p->budget &&
            b->point[i].ratio == p->ratio)
            return &b->point[i];
    return NULL;
}

static void print_point(const struct bench *b, const struct point *p,
                        FILE *tsv)
{
    struct bench_spread t = spread(p, 0), o = spread(p, 1), idle = spread(p, 2);
    const struct point *sync = partner(b, p, ARM_SYNC);
    const struct point *ahead = partner(b, p, ARM_AHEAD1);
    const struct point *none = partner(b, p, ARM_NOT_PREFETCHED);
    bool valid = p->rate <= raw_share_max * b->raw;
    printf("%-9s %6.2f %6.2f %5.2f %4u %8.3f %5.3f [%.3f %.3f] %5.1f %7.3f "
           "%7.3f %7.3f %7.3f %6.1f %5.1f %5.1f %5.1f %6.1f",
           arm_name[p->arm], (double)p->budget / 1e9, p->rate / 1e9, p->ratio,
           p->repeat, t.median, o.median, o.min, o.max, 100 * idle.median,
           spread(p, 3).median, spread(p, 4).median, spread(p, 5).median,
           spread(p, 6).median, spread(p, 7).median / 1e6,
           spread(p, 8).median / 1e6, 100 * spread(p, 10).median,
           100 * spread(p, 12).median, 1e3 * spread(p, 11).median);
    if (p->arm == ARM_FULL && sync && ahead)
        printf("  sync %.2fx ahead1 %.2fx", times(sync, p), times(ahead, p));
    if (p->arm == ARM_FULL && none)
        printf("  unprefetched %.3fx", times(none, p));
    printf("%s\n", valid ? "" : "  INVALID: above 60 % of the real drive");
    fprintf(tsv,
            "%s\t%s\t%.0f\t%.0f\t%.2f\t%u\t%u\t%.4f\t%.4f\t%.4f\t%.4f\t"
            "%.4f\t%s\n",
            bench_stamp(), arm_name[p->arm], (double)p->budget, p->rate,
            p->ratio, p->repeat, p->rounds, t.median, o.median, o.min, o.max,
            idle.median, valid ? "valid" : "invalid");
}

static json_t *as_json(const struct point *p)
{
    return json_pack(
        "{s:s,s:f,s:I,s:f,s:f,s:f,s:f,s:f,s:i,s:f,s:f,s:f}", "arm",
        arm_name[p->arm], "ratio", p->ratio, "budget_bytes",
        (json_int_t)p->budget, "seconds_per_token", spread(p, 0).median, "io_s",
        spread(p, 4).median, "compute_s", spread(p, 3).median, "overlap",
        spread(p, 1).median, "disk_idle_share", spread(p, 2).median, "rounds",
        (int)p->rounds, "device_bytes_per_s", p->rate, "overlap_min",
        spread(p, 1).min, "overlap_max", spread(p, 1).max);
}

static int run_all(struct bench *b)
{
    int err = lay_out(b);
    for (uint64_t r = 0; r < b->rounds && !err; r++)
        for (uint32_t i = 0; i < b->points && !err; i++) {
            uint32_t at = r % 2 ? b->points - 1 - i : i;
            struct point *p = &b->point[at];
            fprintf(stderr, "\rround %" PRIu64 "/%" PRIu64 " point %u/%u ",
                    r + 1, b->rounds, i + 1, b->points);
            err = measure(b, p, &p->s[p->rounds]);
            p->rounds += !err;
        }
    fputc('\n', stderr);
    if (err)
        return 1;
    json_t *array = json_array();
    FILE *tsv = bench_results("overlap", "stamp\tarm\tbudget\trate\tratio\t"
                              "repeat\trounds\ts_per_pass\toverlap\tmin\tmax\t"
                              "idle\tvalid");
    if (!tsv)
        return 1;
    puts("arm       budget  drive ratio  rep   s/pass overlap [min max]  idle% "
         "compute      io w.trunk w.exprt fly MB  peak pref. waste% lat ms");
    for (uint32_t i = 0; i < b->points; i++) {
        print_point(b, &b->point[i], tsv);
        json_array_append_new(array, as_json(&b->point[i]));
    }
    fclose(tsv);
    return bench_json("overlap", array);
}

int main(int argc, char **argv)
{
    static struct bench b = { .model = "build/bench-model", .rounds = 5,
                              .passes = 2, .prefetch = "auto",
                              .packed = "off" };
    const struct opt table[] = {
        { "model", 0, OPT_TEXT, &b.model, "DIR",
          "a `synth --preset bench` checkpoint; made if missing", NULL },
        { "rounds", 0, OPT_UINT, &b.rounds, "N", "default 5", NULL },
        { "passes", 0, OPT_UINT, &b.passes, "N",
          "decode passes a measurement; default 2", NULL },
        { "threads", 't', OPT_UINT, &b.threads, "N", "default: cores", NULL },
        { "budgets", 0, OPT_CALL, &b, "LIST", "sizes, default floor to all",
          take_budgets },
        { "ratios", 0, OPT_CALL, &b, "LIST",
          "compute / I/O, default 0.25,0.5,1,2,4", take_ratios },
        { "all-arms", 0, OPT_FLAG, &b.all_arms, NULL,
          "sync and ahead1 at every ratio, not only at 1", NULL },
        { "prefetch", 0, OPT_TEXT, &b.prefetch, "NAME", "of full", NULL },
        { "packed", 0, OPT_TEXT, &b.packed, "auto|off|require|DIR",
          "coded weights, as in sluice run; default off", NULL },
    };
    const struct opt_command cmd = { "bench_overlap [options]", NULL, table,
                                     sizeof table / sizeof *table };
    int words = opt_parse(&cmd, argc, argv, NULL, 0);
    if (words < 0)
        return opt_status(words);
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX || b.passes < 1)
        return opt_usage_error(&cmd, "--rounds is 1 to %d", ROUNDS_MAX);
    if (bench_model(&(struct synth_options){ .dir = b.model,
                                             .preset = "bench" }))
        return 1;
    if (!b.ratio_count)
        take_ratios(&b, "0.25,0.5,1,2,4");
    if (!b.budget_count) {
        struct plan plan;
        struct k3_options o = { .memory_bytes = 1, .rows = 1, .logits = 1,
                                .policy = "none", .prefetch = "gate" };
        struct error error = { 0 };
        k3_plan(&plan, b.model, &o, &error);
        double floor_bytes = (double)plan.floor_bytes + (16 << 20);
        b.budgets[b.budget_count++] = floor_bytes;
        b.budgets[b.budget_count++] = floor_bytes + 2.5e9;
        b.budgets[b.budget_count++] = floor_bytes + 8e9;
    }
    return run_all(&b);
}
