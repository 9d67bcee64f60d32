/* bench_drafter.c - what a drafter is worth that is right with chance p.
 *
 * The drafter is real: its weights are read and computed. But of its ids, each
 * is replaced by the one that will come with chance p, and by another one
 * otherwise; a run without a drafter has found them before. So acceptance is
 * what it is said to be, and everything else is as it will be.
 *
 * `bytes allow` is the gain that the bytes of both runs allow: GB an id
 * without, over GB an id with the drafter. `of it` is the gain in ids a second,
 * over that.
 * `trunk GB` and `frames` are what the plan streams and caches: a drafter takes
 * memory from weights, so that even one that never drafts costs bytes.
 * The drive is simulated; below the drive's rate compute must not bind.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "io/clock.h"
#include "model/decode/batch.h"
#include "model/tools/synth_drafter.h"

enum { PROMPT = 12, CHANCES = 4, ROUNDS_MAX = 16, SEQUENCES_MAX = 64 };

static const double chances[CHANCES] = { 0.5, 0.78, 0.95, 0.1 };

struct bench {
    const char *model, *drafter;
    uint64_t memory, threads, rounds, ids, sequences;
    double   gbps;
    uint32_t *answer; /* [sequences][ids] */
};

struct run {
    struct bench *b;
    double   p; /* below 0: no drafter */
    uint32_t vocab;
    uint32_t *ids;     /* [sequences][PROMPT + ids] */
    uint32_t handed, ended;
    int64_t  first_ns; /* when the last sequence had its first id */
    uint32_t begun;
    uint64_t said;     /* ids after that */
    uint64_t bytes_before;
    struct k3 *k;
    struct dspark *d;
};

struct sample {
    double ids_per_s, bytes_per_id, drafted, accepted, drafts;
    double streamed; /* bytes of the trunk in a pass, as planned */
    uint32_t frames; /* of experts */
};

static uint64_t read_so_far(const struct run *r)
{
    struct k3_facts f;
    struct dspark_facts d = { 0 };
    k3_facts(r->k, &f);
    if (r->d)
        dspark_facts(r->d, &d);
    return k3_read_bytes(&f.totals[K3_PREFILL]) +
           k3_read_bytes(&f.totals[K3_DECODE]) + d.read_bytes;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool next(void *arg, struct batch_request *out)
{
    struct run *r = arg;
    if (r->handed == r->b->sequences)
        return false;
    uint32_t *ids = r->ids + r->handed * (PROMPT + r->b->ids);
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (uint32_t)mix(1 + i + 977 * r->handed) % r->vocab;
    *out = (struct batch_request){ .tag = r->handed, .ids = ids,
                                   .prompt_count = PROMPT,
                                   .max = (uint32_t)r->b->ids,
                                   .sample = { .top_p = 1 },
                                   .ignore_end = true };
    r->handed++;
    return true;
}

static bool token(void *arg, uint64_t tag, uint32_t id)
{
    struct run *r = arg;
    (void)tag;
    (void)id;
    r->said += r->first_ns != 0;
    return false;
}

/* Time runs from when every sequence has an id to when the first one ends. */
static void passed(void *arg, uint64_t tag, uint32_t sequence, uint32_t count,
                   bool over)
{
    struct run *r = arg;
    (void)tag;
    (void)sequence;
    (void)over;
    r->begun += count == 1;
}

static void finished(void *arg, uint64_t tag, uint32_t count,
                     enum batch_reason reason)
{
    struct run *r = arg;
    (void)reason;
    if (r->p < 0)
        memcpy(r->b->answer + tag * r->b->ids,
               r->ids + tag * (PROMPT + r->b->ids) + PROMPT,
               count * sizeof *r->ids);
    else if (memcmp(r->b->answer + tag * r->b->ids,
                    r->ids + tag * (PROMPT + r->b->ids) + PROMPT,
                    count * sizeof *r->ids)) {
        fprintf(stderr, "bench: other ids with a drafter than without\n");
        exit(1);
    }
    r->ended++;
}

static void instead(void *arg, uint64_t tag, uint32_t count, uint32_t *ids,
                    uint32_t n)
{
    struct run *r = arg;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = count - PROMPT + i;
        uint32_t right = at < r->b->ids ? r->b->answer[tag * r->b->ids + at]
                                        : 0;
        double u = (double)(mix(count * 131 + i + tag * 7919 + 3) >> 11) *
                   0x1p-53;
        ids[i] = u < r->p ? right : (right + 1) % r->vocab;
    }
}

static int run_batch(struct run *r, struct sample *out, struct error *error)
{
    struct bench *b = r->b;
    struct batch_options o = {
        .sequences = (uint32_t)b->sequences, .next = next, .token = token,
        .finished = finished, .passed = passed, .arg = r, .drafter = r->d,
        .instead = r->d ? instead : NULL,
        .draft = { r->d ? DRAFT_AUTO_MAX : 0, true } };
    struct batch *batch;
    int err = batch_open(&batch, r->k, &o, error);
    int step = err ? err : 1;
    int64_t end = 0;
    uint64_t bytes = 0, said = 0;
    while (step > 0) {
        step = batch_step(batch, error);
        if (!r->first_ns && r->begun >= b->sequences) {
            r->first_ns = clock_ns();
            r->bytes_before = read_so_far(r);
        }
        if (!r->ended) {
            end = clock_ns();
            bytes = read_so_far(r);
            said = r->said;
        }
    }
    if (step == 0) {
        const struct batch_counts *c = batch_counts(batch);
        struct dspark_facts d = { 0 };
        if (r->d)
            dspark_facts(r->d, &d);
        out->ids_per_s = (double)said / ((double)(end - r->first_ns) / 1e9);
        out->bytes_per_id = (double)(bytes - r->bytes_before) / (double)said;
        out->drafted = (double)c->drafted;
        out->accepted = (double)c->accepted;
        out->drafts = (double)d.drafts;
        if (r->d && dspark_failure(r->d))
            step = error_set(error, -EIO, "%s", dspark_failure(r->d));
    }
    batch_close(batch);
    return step;
}

static int measure(struct bench *b, double p, struct sample *out)
{
    struct error error = { 0 };
    struct run r = { .b = b, .p = p };
    struct config c = { 0 };
    struct paced_drive drive = { .bytes_per_s = (uint64_t)(b->gbps * 1e9),
                                 .latency_ns = 100000 };
    uint32_t n = (uint32_t)b->sequences, context = PROMPT + (uint32_t)b->ids;
    struct k3_options o = {
        .memory_bytes = b->memory, .threads = (uint32_t)b->threads,
        .context = context, .sequences = n, .rows = 64, .logits = n,
        .drafts = p < 0 ? 0 : 8 * n, .paced = &drive, .paced_count = 1,
        .realtime = true };
    int err = config_load(&c, b->model, &error);
    struct dspark_options d = { .context = context, .sequences = n,
                                .threads = o.threads };
    if (!err && p >= 0)
        err = dspark_open(&r.d, b->drafter, &c, &d, &error);
    o.guest = r.d ? dspark_guest(r.d) : NULL;
    if (!err)
        err = k3_open(&r.k, b->model, &o, &error);
    if (!err && r.d)
        err = dspark_start(r.d, r.k, &error);
    if (!err) {
        out->streamed = (double)k3_plan_of(r.k)->streamed_payload_bytes;
        out->frames = k3_plan_of(r.k)->expert_frames;
    }
    r.vocab = c.vocab;
    r.ids = calloc(n * (size_t)context, sizeof *r.ids);
    if (!err)
        err = run_batch(&r, out, &error);
    free(r.ids);
    k3_close(r.k);
    dspark_close(r.d);
    config_free(&c);
    if (err)
        fprintf(stderr, "bench: %s\n", error.text);
    return err;
}

static int table(struct bench *b)
{
    static double rate[CHANCES + 1][ROUNDS_MAX], gain[CHANCES][ROUNDS_MAX],
        of[CHANCES][ROUNDS_MAX];
    struct sample s[CHANCES + 1];
    json_t *rows = json_array();
    for (uint64_t round = 0; round < b->rounds; round++) {
        struct sample first;
        if (measure(b, -1, &first))
            return 1;
        s[CHANCES] = first;
        rate[CHANCES][round] = first.ids_per_s;
        for (int i = 0; i < CHANCES; i++) {
            if (measure(b, chances[i], &s[i]))
                return 1;
            rate[i][round] = s[i].ids_per_s;
            gain[i][round] = s[i].ids_per_s / first.ids_per_s;
            of[i][round] = gain[i][round] /
                           (first.bytes_per_id / s[i].bytes_per_id);
        }
    }
    printf("%s\n%" PRIu64 " sequences, %.2f GB/s, %" PRIu64 " MiB; medians of "
           "%" PRIu64 " rounds\n\n", bench_stamp(), b->sequences, b->gbps,
           b->memory >> 20, b->rounds);
    printf("   p    ids/s  GB an id   gain  bytes allow   of it  "
           "drafts  rows  accepted  trunk GB  frames\n");
    for (int j = 0; j <= CHANCES; j++) {
        int i = (j + CHANCES) % (CHANCES + 1); /* without first */
        struct bench_spread r = bench_spread(rate[i], b->rounds);
        if (i == CHANCES) {
            printf("none %8.3f %9.4f %59.3f %7" PRIu32 "\n", r.median,
                   s[i].bytes_per_id / 1e9, s[i].streamed / 1e9, s[i].frames);
            continue;
        }
        struct bench_spread g = bench_spread(gain[i], b->rounds);
        struct bench_spread w = bench_spread(of[i], b->rounds);
        double allow = s[CHANCES].bytes_per_id / s[i].bytes_per_id;
        printf("%.2f %8.3f %9.4f %6.2f %12.2f %7.2f %7.0f %5.0f %9.0f %9.3f "
               "%7" PRIu32 "\n",
               chances[i], r.median, s[i].bytes_per_id / 1e9, g.median, allow,
               w.median, s[i].drafts, s[i].drafted, s[i].accepted,
               s[i].streamed / 1e9, s[i].frames);
        json_array_append_new(
            rows, json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:i}", "p", chances[i],
                            "ids_per_s", r.median, "gain", g.median,
                            "gain_min", g.min, "gain_max", g.max,
                            "of_what_bytes_allow", w.median, "sequences",
                            (int)b->sequences));
    }
    return bench_json("drafter", rows);
}

/* A `small` model and a drafter of a size that is to its trunk, about, as the
 * published one is to K3's; folders that are there stay as they are. */
static int make_models(const struct bench *b)
{
    struct error error = { 0 };
    uint64_t bytes;
    struct stat st;
    struct synth_options o = { .dir = b->model, .preset = "small",
                               .llm = true };
    struct synth_drafter_options d = { .dir = b->drafter, .like = b->model,
                                       .kind = DSPARK_GQA,
                                       .size_bytes = 12 << 20 };
    if (stat(b->model, &st) && bench_model(&o))
        return 1;
    if (!stat(b->drafter, &st) || !synth_drafter(&d, &bytes, &error))
        return 0;
    fprintf(stderr, "bench: %s\n", error.text);
    return 1;
}

static const char *take_gbps(void *arg, const char *value)
{
    char *end;
    *(double *)arg = strtod(value, &end);
    return *end || !(*(double *)arg > 0) ? "is not a rate" : NULL;
}

int main(int argc, char **argv)
{
    struct bench b = { .model = "build/bench/small",
                       .drafter = "build/bench/small-drafter",
                       .memory = 96 << 20, .threads = 2, .rounds = 3,
                       .ids = 96, .sequences = 1, .gbps = 0.5 };
    const struct opt options[] = {
        { "model", 0, OPT_TEXT, &b.model, "DIR", "model", NULL },
        { "drafter", 0, OPT_TEXT, &b.drafter, "DIR", "its drafter", NULL },
        { "memory", 'm', OPT_SIZE, &b.memory, "SIZE", "budget", NULL },
        { "threads", 't', OPT_UINT, &b.threads, "N", "threads", NULL },
        { "rounds", 0, OPT_UINT, &b.rounds, "N", "rounds", NULL },
        { "ids", 'n', OPT_UINT, &b.ids, "N", "ids of a sequence", NULL },
        { "sequences", 0, OPT_UINT, &b.sequences, "N", "at one time", NULL },
        { "gbps", 0, OPT_CALL, &b.gbps, "GBPS", "of the drive", take_gbps },
    };
    const struct opt_command cmd = { "bench-drafter [options]",
                                     "What a drafter is worth.", options,
                                     sizeof options / sizeof *options };
    const char *word[1];
    int words = opt_parse(&cmd, argc, argv, word, 1);
    if (words < 0)
        return opt_status(words);
    if (!b.rounds || b.rounds > ROUNDS_MAX || !b.sequences || b.ids < 2 ||
        b.sequences > SEQUENCES_MAX)
        return opt_usage_error(&cmd, "1 to %d rounds and %d sequences",
                               ROUNDS_MAX, SEQUENCES_MAX);
    if (make_models(&b))
        return 1;
    b.answer = calloc(b.sequences * b.ids, sizeof *b.answer);
    int status = b.answer ? table(&b) : 1;
    free(b.answer);
    return status;
}
