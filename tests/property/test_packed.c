/* Goal    coded weights change no bit of a logit, are read in fewer bytes, and
 *         are right, mended or refused in one sentence when they are damaged.
 * Method  a small checkpoint whose trunk and expert scales are coded. The
 *         logits of a text without them are the truth. With them they must be
 *         the same bytes for every instruction set, budget, number of threads,
 *         rows a pass and kind of checks, with draft rows, with resident tiles
 *         kept coded or decoded, with some sidecars missing, and while reads
 *         fail and are repeated; with "all" as argument in every combination.
 *         Then bytes of a sidecar are changed while it is closed, and once only
 *         between two reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/kern.h"
#include "io/fault.h"
#include "model/ckpt/ckpt.h"
#include "model/k3/k3.h"
#include "model/k3/rates.h"
#include "model/k3/tiles.h"
#include "model/pack/pack.h"
#include "model/pack/sidecars.h"
#include "tests/property/small_model.h"

enum { LENGTH = 9, VOCAB = 512, BUDGET = 1 << 30 };

static char dir[64], packed[80]; /* the model at work */
static struct small_model small; /* ours; with .packed behind it too */
static uint32_t text[LENGTH];
static float truth[LENGTH][VOCAB], got[LENGTH][VOCAB];
static uint64_t floor_bytes;
static struct plan last_plan;
static struct decode_time last_decode;
static bool all; /* every combination, not some */

static void demand(int err, const struct error *error)
{
    if (err)
        fail_msg("%s", error->text);
}

static void make_packs(void)
{
    struct error error = { 0 };
    struct pack_facts facts;
    struct config c;
    struct ckpt *k;
    struct kern kern;
    kern_init(&kern, ISA_COUNT - 1);
    demand(config_load(&c, dir, &error), &error);
    demand(ckpt_open(&k, dir, &c, &error), &error);
    struct pack_options o = { .model = dir, .to = packed, .jobs = 2,
                              .what = SIDECAR_TRUNK | SIDECAR_SCALES,
                              .kern = &kern };
    demand(pack_run(&facts, &o, &c, k, &error), &error);
    ckpt_close(k);
    config_free(&c);
}

static struct k3_options options(uint64_t memory)
{
    return (struct k3_options){ .memory_bytes = memory, .threads = 2,
                                .context = 64, .rows = 16, .sequences = 1,
                                .io = "pread", .packed = "require",
                                .resident = K3_RESIDENT_CODED,
                                .in_flight_bytes = 1 << 20 };
}

/* All logits of the text into `got`, `rows` at a time; what k3_facts says. */
static int run(const struct k3_options *o, uint32_t rows,
               struct k3_facts *facts, struct error *error)
{
    struct k3 *k;
    int err = k3_open(&k, dir, o, error);
    if (err)
        return err;
    err = small_model_logits(*got, VOCAB, k, text, LENGTH, rows, error);
    if (!err)
        k3_quiesce(k);
    last_plan = *k3_plan_of(k);
    if (facts) {
        k3_facts(k, facts);
        if (facts->decode)
            last_decode = *facts->decode;
    }
    k3_close(k);
    return err;
}

static void same(const struct k3_options *o, uint32_t rows,
                 struct k3_facts *facts)
{
    struct error error = { 0 };
    memset(got, 0, sizeof got);
    demand(run(o, rows, facts, &error), &error);
    assert_memory_equal(got, truth, sizeof truth);
}

static int begin(void **state)
{
    struct error error = { 0 };
    struct plan plan;
    (void)state;
    small_model_make_wide(&small);
    strcpy(dir, small.dir);
    snprintf(packed, sizeof packed, "%s.packed", dir);
    make_packs();
    for (uint32_t i = 0; i < LENGTH; i++)
        text[i] = (i * 97 + 31) % VOCAB;
    struct k3_options raw = options(BUDGET);
    raw.packed = "off";
    demand(run(&raw, LENGTH, NULL, &error), &error);
    memcpy(truth, got, sizeof truth);
    raw.memory_bytes = 1;
    assert_int_equal(k3_plan(&plan, dir, &raw, &error), -ENOBUFS);
    floor_bytes = plan.floor_bytes + (1 << 20); /* what coded tables take */
    return 0;
}

static int end(void **state)
{
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s %s.packed*", small.dir,
             small.dir);
    return system(command);
}

/* The checkpoints with independent logits; elsewhere two of the three. */
static void oracles(void **state)
{
    static const char *const place[] = { "tests/oracle/fixtures/c",
                                         "../shared/data/oracle/a",
                                         "../shared/data/oracle/b" };
    char own_dir[64], own_packed[80], command[200];
    float own_truth[LENGTH][VOCAB];
    uint32_t found = 0;
    (void)state;
    memcpy(own_dir, dir, sizeof dir);
    memcpy(own_packed, packed, sizeof packed);
    memcpy(own_truth, truth, sizeof truth);
    for (int i = 0; i < 3; i++) {
        struct error error = { 0 };
        if (access(place[i], R_OK))
            continue;
        found++;
        snprintf(dir, sizeof dir, "%s", place[i]);
        snprintf(packed, sizeof packed, "%.60s.%d", own_packed, i);
        make_packs();
        struct k3_options o = options(400 << 20);
        o.packed = "off";
        memset(got, 0, sizeof got);
        demand(run(&o, LENGTH, NULL, &error), &error);
        memcpy(truth, got, sizeof truth);
        o.packed = packed;
        struct k3_facts facts;
        same(&o, 2, &facts);
        assert_true(facts.coded_files > 2);
        o.memory_bytes = 36 << 20;
        same(&o, LENGTH, NULL);
        snprintf(command, sizeof command, "rm -rf '%s'", packed);
        assert_int_equal(system(command), 0);
    }
    assert_true(found > 0);
    memcpy(dir, own_dir, sizeof dir);
    memcpy(packed, own_packed, sizeof packed);
    memcpy(truth, own_truth, sizeof truth);
}

static void every_way(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            if (!all && threads != 1 + 2u * (isa / 2 % 2))
                continue;
            struct k3_options o = options(isa % 2 ? BUDGET : floor_bytes);
            o.isa = (uint8_t)(isa + 1);
            o.threads = threads;
            same(&o, threads == 1 ? 1 : LENGTH, NULL);
            same(&o, 4, NULL);
        }
}

/* The text again, each pass with draft rows of which some are wrong. Logits of
 * the others are those of the text. */
static int run_drafts(const struct k3_options *o, struct error *error)
{
    enum { DRAFTS = 3 };
    struct k3 *k;
    int err = k3_open(&k, dir, o, error);
    if (err)
        return err;
    assert_int_equal(k3_drafts(k), DRAFTS);
    for (uint32_t at = 0, turn = 0; at < LENGTH && !err; turn++) {
        struct k3_row row[1 + DRAFTS];
        uint32_t right = turn % (DRAFTS + 1), left = LENGTH - 1 - at;
        right = right < left ? right : left;
        for (uint32_t i = 0; i <= DRAFTS; i++)
            row[i] = (struct k3_row){
                .position = at + i, .logits = true, .draft = i > 0,
                .id = i <= right ? text[at + i] : (turn * 31 + i) % VOCAB,
                .phase = K3_DECODE };
        err = k3_pass(k, row, 1 + DRAFTS, error);
        if (err)
            break;
        for (uint32_t i = 0; i <= right; i++)
            memcpy(got[at + i], k3_logits(k, i), sizeof got[0]);
        k3_accept(k, 0, right);
        at += 1 + right;
    }
    k3_close(k);
    return err;
}

static void drafts(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (int roomy = 0; roomy < 2; roomy++) {
            struct error error = { 0 };
            if (!all && roomy != isa / 2 % 2)
                continue;
            struct k3_options o = options(roomy ? BUDGET : 64 << 20);
            o.isa = (uint8_t)(isa + 1);
            o.drafts = 3;
            o.resident = isa % 2 ? K3_RESIDENT_CODED : K3_RESIDENT_DECODED;
            memset(got, 0, sizeof got);
            demand(run_drafts(&o, &error), &error);
            assert_memory_equal(got, truth, sizeof truth);
        }
}

/* Resident tiles that are kept decoded: all, and as many as there is memory
 * for; checked before, and decoded by every instruction set. */
static void kept_decoded(void **state)
{
    struct k3_facts f;
    uint32_t tiles = 0, some = 0;
    (void)state;
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            if (!all && threads != 1 + 2u * (isa % 2))
                continue;
            struct k3_options o = options(BUDGET);
            o.isa = (uint8_t)(isa + 1);
            o.threads = threads;
            o.resident = K3_RESIDENT_DECODED;
            same(&o, 4, &f);
            assert_int_equal(f.kept_products.coded + f.kept_rows.coded, 0);
            assert_true(f.kept_products.decoded > 20);
            assert_true(f.kept_rows.decoded > 2);
            tiles = f.kept_products.decoded + f.kept_rows.decoded;
            o.resident = K3_RESIDENT_CODED;
            same(&o, 4, &f);
            assert_int_equal(f.kept_products.coded + f.kept_rows.coded, tiles);
        }
    uint64_t step = all ? 7 << 19 : 13 << 19;
    for (uint64_t m = floor_bytes; m < floor_bytes + (64 << 20); m += step) {
        struct k3_options o = options(m);
        struct plan p;
        o.resident = K3_RESIDENT_DECODED;
        o.packed = "auto";
        same(&o, LENGTH, &f);
        p = last_plan;
        assert_int_equal(f.kept_products.decoded + f.kept_rows.decoded,
                         p.decoded_tiles);
        assert_true(!p.decoded_tiles || !p.streamed_tiles);
        some += p.decoded_tiles && p.decoded_tiles < tiles;
    }
    assert_true(some > 0);
}

/* Sidecars on slow drives are left alone where the shards are read faster: the
 * shards are on drives 0 to 5, their sidecars on 6 to 11. */
static void slow_drives(void **state)
{
    enum { FILES = 6 };
    struct paced_drive drive[2 * FILES];
    struct k3_facts f;
    (void)state;
    for (int slow = 0; slow < 2; slow++)
        for (int roomy = 0; roomy < 2; roomy++) {
            struct k3_options o = options(roomy ? BUDGET : floor_bytes);
            for (int d = 0; d < 2 * FILES; d++)
                drive[d] = (struct paced_drive){
                    .bytes_per_s = d >= FILES && slow ? 1000000
                                                      : 2000000000 };
            o.paced = drive;
            o.paced_count = 2 * FILES;
            o.packed = "auto";
            same(&o, 4, &f);
            assert_int_equal(f.packed_skip,
                             !slow   ? 0
                             : roomy ? SIDECAR_SCALES
                                     : SIDECAR_TRUNK | SIDECAR_SCALES);
            assert_int_equal(f.coded_notes, slow);
            assert_int_equal(f.expert_bytes == f.expert_decoded_bytes, slow);
            assert_int_equal(f.trunk_bytes == f.trunk_decoded_bytes,
                             slow && !roomy);
            o.packed = "require";
            o.paced_count = slow ? 0 : o.paced_count; /* too slow to wait */
            same(&o, 4, &f);
            assert_int_equal(f.packed_skip, 0);
        }
}

/* By a timing, whatever it says. */
static void kept_as_timed(void **state)
{
    struct k3_facts f;
    (void)state;
    for (int isa = 0; isa < ISA_COUNT; isa += all ? 1 : ISA_COUNT - 1) {
        struct k3_options o = options(BUDGET);
        o.isa = (uint8_t)(isa + 1);
        o.resident = K3_RESIDENT_AUTO;
        same(&o, 4, &f);
        const struct decode_time *t = &last_decode;
        assert_true(t->product > 0 && t->many > 0 && t->rows > 0);
        assert_int_equal(f.kept_products.decoded > 0, t->product > 1.2);
        assert_int_equal(f.kept_products.coded > 0, t->product <= 1.2);
        assert_int_equal(f.kept_rows.decoded > 0, t->rows > 1.2);
        assert_int_equal(f.kept_rows.coded > 0, t->rows <= 1.2);
    }
}

static void every_budget(void **state)
{
    (void)state;
    for (uint64_t m = floor_bytes; m < floor_bytes + (40 << 20); m += 5 << 20) {
        struct k3_options o = options(m);
        o.check_reads = m / (5 << 20) % 3 == 0   ? K3_CHECK_ALWAYS
                        : m / (5 << 20) % 3 == 1 ? K3_CHECK_OFF
                                                 : K3_CHECK_FIRST;
        same(&o, 3, NULL);
    }
}

/* What a pass reads is what the plan says, and less than without. */
static void fewer_bytes(void **state)
{
    struct k3_facts raw, coded;
    struct k3_options o = options(floor_bytes);
    (void)state;
    o.policy = "none";
    o.prefetch = "none";
    same(&o, 1, &coded);
    o.packed = "off";
    same(&o, 1, &raw);
    const struct k3_totals *a = &raw.totals[K3_DECODE];
    const struct k3_totals *b = &coded.totals[K3_DECODE];
    assert_int_equal(coded.coded_files, 6);
    assert_int_equal(coded.trunk_decoded_bytes, raw.trunk_bytes);
    assert_true(coded.trunk_bytes * 10 < raw.trunk_bytes * 8);
    assert_int_equal(b->trunk_bytes % LENGTH, 0);
    assert_true(b->trunk_bytes < a->trunk_bytes);
    /* An expert without scales is 16/17 of it; coded they are .2 to .5. */
    assert_true(b->demand_bytes < a->demand_bytes);
    assert_true(b->demand_bytes > a->demand_bytes / 17 * 16);
    assert_int_equal(coded.mended, 0);
}

static void sidecar_of(char *out, size_t size, uint32_t file)
{
    snprintf(out, size, "%s/model-%05u-of-000006.pack", packed, file + 1);
}

static void partial(void **state)
{
    char path[128], aside[160];
    struct error error = { 0 };
    (void)state;
    for (uint32_t f = 0; f < 6; f += 2) {
        sidecar_of(path, sizeof path, f);
        snprintf(aside, sizeof aside, "%s.aside", path);
        assert_int_equal(rename(path, aside), 0);
        struct k3_options o = options(floor_bytes);
        assert_int_equal(run(&o, LENGTH, NULL, &error), -ENOENT);
        assert_non_null(strstr(error.text, path));
        error = (struct error){ 0 };
        o.packed = "auto";
        struct k3_facts facts;
        same(&o, LENGTH, &facts);
        assert_int_equal(facts.coded_files, 5);
        assert_int_equal(facts.coded_notes, 1);
        assert_int_equal(rename(aside, path), 0);
    }
}

/* Reads that fail and are repeated: everything is checked once more. */
static void repeated_reads(void **state)
{
    (void)state;
    struct fault_plan fault = { .seed = 3, .kinds = FAULT_EIO | FAULT_SHORT,
                                .first = FAULT_NEVER, .chance_permille = 40,
                                .short_bytes = 4096 };
    struct k3_options o = options(floor_bytes);
    struct k3_facts facts;
    o.fault = &fault;
    same(&o, 3, &facts);
    assert_true(facts.reader.retries > 0);
}

static void flip(const char *path, uint64_t at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    int byte = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(byte ^ 4, f);
    fclose(f);
}

/* A byte of every tensor and of some experts: used rightly never, so refused,
 * with the file and the tensor named; resident and streamed. */
static void damaged(void **state)
{
    struct error error;
    (void)state;
    for (uint32_t f = 0; f < 6; f++) {
        char path[128];
        struct sidecar *s;
        sidecar_of(path, sizeof path, f);
        demand(sidecar_open(&s, path, &error), &error);
        for (uint32_t i = 0; i < s->head->tensors; i += 3) {
            const struct sidecar_tensor *t = &s->tensor[i];
            uint64_t at = t->at + (i * 977 + 64) % t->bytes;
            struct k3_options o = options(i % 2 ? floor_bytes : BUDGET);
            o.check_reads = i % 2 ? K3_CHECK_ALWAYS : K3_CHECK_FIRST;
            flip(path, at);
            error = (struct error){ 0 };
            assert_int_equal(run(&o, LENGTH, NULL, &error), -EBADMSG);
            if (!strstr(error.text, path) || !strstr(error.text, ".weight") ||
                !strstr(error.text, "checksum"))
                fail_msg("%s", error.text);
            flip(path, at);
        }
        if (s->head->experts) { /* all, since one may not be chosen */
            for (uint32_t e = 0; e < s->head->experts; e++)
                flip(path, s->expert[e].ref.at + 100);
            struct k3_options o = options(BUDGET);
            error = (struct error){ 0 };
            assert_int_equal(run(&o, LENGTH, NULL, &error), -EBADMSG);
            assert_non_null(strstr(error.text, "scales"));
            for (uint32_t e = 0; e < s->head->experts; e++)
                flip(path, s->expert[e].ref.at + 100);
        }
        sidecar_close(s);
    }
    struct k3_options o = options(BUDGET);
    same(&o, LENGTH, NULL);
}

/* Wrong between open and the first pass, right again when it is read once
 * more: what the first read brought is not used. */
struct meddler {
    const char *path;
    uint64_t at;
    uint32_t layers; /* told so far */
};

static void mend(void *arg, uint32_t layer, uint32_t layers)
{
    struct meddler *m = arg;
    (void)layers;
    if (!m->layers++ && !layer)
        flip(m->path, m->at);
}

static void mended(void **state)
{
    char path[128];
    struct sidecar *s;
    struct error error = { 0 };
    struct k3_facts facts;
    (void)state;
    sidecar_of(path, sizeof path, 4);
    demand(sidecar_open(&s, path, &error), &error);
    struct meddler m = { .path = path, .at = s->tensor[0].at + 700 };
    struct k3_options o = options(BUDGET); /* resident: read at open */
    o.progress = mend;
    o.progress_arg = &m;
    flip(path, m.at);
    same(&o, LENGTH, &facts);
    assert_int_equal(facts.mended, 1);
    sidecar_close(s);
}

/* It is cut off while the session runs. */
static void cut(void *arg, uint32_t layer, uint32_t layers)
{
    struct meddler *m = arg;
    (void)layers;
    if (!m->layers++ && !layer)
        assert_int_equal(truncate(m->path, 8192), 0);
}

static void vanished(void **state)
{
    char path[128];
    struct error error = { 0 };
    (void)state;
    sidecar_of(path, sizeof path, 4);
    struct meddler m = { .path = path };
    struct k3_options o = options(floor_bytes);
    o.progress = cut;
    o.progress_arg = &m;
    assert_int_equal(run(&o, 1, NULL, &error), -ENODATA);
    assert_non_null(strstr(error.text, path));
    make_packs();
    o = options(BUDGET);
    same(&o, LENGTH, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way),    cmocka_unit_test(every_budget),
        cmocka_unit_test(drafts),       cmocka_unit_test(kept_decoded),
        cmocka_unit_test(kept_as_timed),  cmocka_unit_test(slow_drives),
        cmocka_unit_test(fewer_bytes),  cmocka_unit_test(partial),
        cmocka_unit_test(repeated_reads), cmocka_unit_test(damaged),
        cmocka_unit_test(mended),       cmocka_unit_test(vanished),
        cmocka_unit_test(oracles), /* last: with other models */
    };
    all = argc > 1 && !strcmp(argv[1], "all");
    return cmocka_run_group_tests(tests, begin, end);
}
