/* Goal    a model in parts gives every logit bit by bit as its shards do, reads
 *         every byte of a pass once, and is right, mended or refused in one
 *         sentence when a part is damaged.
 * Method  a small checkpoint in 2, 3, 4 and 5 parts with unequal weights, and
 *         the checkpoints with independent logits. The logits of a text from
 *         the shards are the truth; from parts they must be the same bytes for
 *         instruction sets, budgets, threads, rows a pass and checks. Bytes are
 *         counted against the tables of the parts. Then a byte of a part is
 *         changed while it is closed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/kern.h"
#include "model/k3/k3.h"
#include "model/k3/tiles.h"
#include "model/k3/weights.h"
#include "model/parts/spread.h"
#include "model/tools/synth.h"
#include "tests/property/small_model.h"

enum { LENGTH = 9, VOCAB = 512, BUDGET = 1 << 30, NAME = 100 };

static struct small_model small;
static char dir[64];
static char place[CUTS_PARTS_MAX][NAME];
static const char *part_dir[CUTS_PARTS_MAX];
static uint32_t text[LENGTH];
static float truth[LENGTH][VOCAB], got[LENGTH][VOCAB];
static uint64_t floor_bytes;

static void demand(int err, const struct error *error)
{
    if (err)
        fail_msg("%s", error->text);
}

/* Spread `model` over n folders below `dir`. */
static void make_parts(const char *model, uint32_t n, const double *weight)
{
    struct error error = { 0 };
    struct spread_facts facts;
    struct config c;
    struct kern kern;
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s/part*", dir);
    assert_int_equal(system(command), 0);
    kern_init(&kern, ISA_COUNT - 1);
    demand(config_load(&c, model, &error), &error);
    struct spread_options o = { .model = model, .jobs = 2, .kern = &kern };
    assert_true(cuts_weigh(&o.cuts, n, weight));
    for (uint32_t r = 0; r < n; r++) {
        snprintf(place[r], NAME, "%s/part%u", dir, r);
        o.dir[r] = part_dir[r] = place[r];
    }
    demand(spread_run(&facts, &o, &c, &error), &error);
    assert_int_equal(facts.made, facts.shards * n);
    config_free(&c);
}

static struct k3_options options(uint64_t memory, uint32_t parts)
{
    return (struct k3_options){ .memory_bytes = memory, .threads = 2,
                                .context = 64, .rows = 16, .sequences = 1,
                                .io = "pread", .part_dir = part_dir,
                                .part_dirs = parts,
                                .in_flight_bytes = 1 << 20 };
}

/* All logits of the text into `got`, `rows` at a time; what k3_facts says. */
static int run(const char *model, const struct k3_options *o, uint32_t rows,
               struct k3_facts *facts, struct error *error)
{
    struct k3 *k;
    int err = k3_open(&k, model, o, error);
    if (err)
        return err;
    err = small_model_logits(*got, VOCAB, k, text, LENGTH, rows, error);
    if (!err)
        k3_quiesce(k);
    if (facts)
        k3_facts(k, facts);
    k3_close(k);
    return err;
}

static void same(const char *model, const struct k3_options *o, uint32_t rows,
                 struct k3_facts *facts)
{
    struct error error = { 0 };
    memset(got, 0, sizeof got);
    demand(run(model, o, rows, facts, &error), &error);
    assert_memory_equal(got, truth, sizeof truth);
}

static void find_truth(const char *model, uint64_t memory)
{
    struct error error = { 0 };
    struct k3_options o = options(memory, 0);
    memset(got, 0, sizeof got);
    demand(run(model, &o, LENGTH, NULL, &error), &error);
    memcpy(truth, got, sizeof truth);
}

static int begin(void **state)
{
    struct error error = { 0 };
    struct plan plan;
    (void)state;
    small_model_make_wide(&small);
    strcpy(dir, small.dir);
    for (uint32_t i = 0; i < LENGTH; i++)
        text[i] = (i * 97 + 31) % VOCAB;
    find_truth(dir, BUDGET);
    struct k3_options least = options(1, 0);
    assert_int_equal(k3_plan(&plan, dir, &least, &error), -ENOBUFS);
    floor_bytes = plan.floor_bytes + (2 << 20); /* what tables take */
    return 0;
}

static int end(void **state)
{
    (void)state;
    small_model_remove(&small);
    return 0;
}

static const double weight[5] = { 3, 1, 2, 1, 5 };

static void any_number_of_parts(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 5; n += n == 2 ? 2 : 1) { /* 3: below */
        struct k3_facts facts;
        make_parts(dir, n, weight);
        struct k3_options o = options(floor_bytes, n);
        same(dir, &o, 3, &facts);
        assert_int_equal(facts.parts, n);
        o.memory_bytes = BUDGET;
        o.threads = n % 3 + 1;
        o.isa = (uint8_t)(n % ISA_COUNT + 1);
        same(dir, &o, LENGTH, NULL);
    }
}

/* With experts of 16 and 32 rows and matrices of few, some parts have none. */
static void parts_without_rows(void **state)
{
    static const struct synth_setting setting[] = {
        { "num_hidden_layers", "4" },
        { "full_attn_layers", "4" },
        { "moe_intermediate_size", "32" },
        { "routed_expert_hidden_size", "64" },
    };
    static const double far[4] = { 1, 40, 1, 3 };
    struct error error = { 0 };
    struct synth_facts facts;
    char model[80];
    float kept[LENGTH][VOCAB];
    (void)state;
    snprintf(model, sizeof model, "%s/narrow", dir);
    struct synth_options o = { .dir = model, .preset = "tiny",
                               .setting = setting,
                               .settings = sizeof setting / sizeof *setting };
    demand(synth_write(&o, &facts, &error), &error);
    memcpy(kept, truth, sizeof kept);
    find_truth(model, BUDGET);
    make_parts(model, 4, far);
    struct k3_options k = options(BUDGET, 4);
    same(model, &k, 1, NULL);
    k.check_reads = K3_CHECK_ALWAYS;
    same(model, &k, LENGTH, NULL);
    memcpy(truth, kept, sizeof kept);
}

static void oracles(void **state)
{
    static const char *const model[] = { "tests/oracle/fixtures/c",
                                         "../shared/data/oracle/a",
                                         "../shared/data/oracle/b" };
    float kept[LENGTH][VOCAB];
    uint32_t found = 0;
    (void)state;
    memcpy(kept, truth, sizeof kept);
    for (uint32_t i = 0; i < 3; i++) {
        if (access(model[i], R_OK))
            continue;
        found++;
        find_truth(model[i], 400 << 20);
        make_parts(model[i], 2 + i, weight);
        struct k3_options o = options(400 << 20, 2 + i);
        same(model[i], &o, 2, NULL);
        o.memory_bytes = 32 << 20;
        same(model[i], &o, LENGTH, NULL);
    }
    assert_true(found > 0);
    memcpy(truth, kept, sizeof kept);
}

static void every_budget(void **state)
{
    (void)state;
    make_parts(dir, 3, weight);
    for (uint64_t m = floor_bytes; m < floor_bytes + (40 << 20); m += 8 << 20) {
        struct k3_options o = options(m, 3);
        o.check_reads = m / (8 << 20) % 3 == 0   ? K3_CHECK_ALWAYS
                        : m / (8 << 20) % 3 == 1 ? K3_CHECK_OFF
                                                 : K3_CHECK_FIRST;
        same(dir, &o, 4, NULL);
    }
}

/* What is stored of the trunk, as a pass reads it: the rows of every part, and
 * each small tensor once. */
static uint64_t stored_trunk(void)
{
    struct error error = { 0 };
    struct config c;
    struct parts *p;
    uint64_t sum = 0;
    demand(config_load(&c, dir, &error), &error);
    demand(parts_open(&p, part_dir, 3, NULL, &c, &error), &error);
    for (uint32_t f = 0; f < p->files; f++) {
        const struct part *x = p->file[f].part;
        for (uint32_t i = 0; i < x->head->matrices; i++)
            if (x->matrix[i].role != T_EMBED)
                sum += x->matrix[i].bytes;
        for (uint32_t i = 0; i < x->head->smalls; i++)
            if (parts_part_of(p, f) ==
                cuts_small_from(&p->cuts, x->small[i].layer))
                sum += x->small[i].ref.bytes;
    }
    parts_close(p);
    config_free(&c);
    return sum;
}

static void every_byte_once(void **state)
{
    struct k3_facts f;
    struct k3_options o = options(floor_bytes, 3);
    (void)state;
    o.policy = "none";
    o.prefetch = "none";
    same(dir, &o, 1, &f);
    const struct k3_totals *t = &f.totals[K3_DECODE];
    uint64_t stored = stored_trunk();
    assert_int_equal(f.trunk_bytes, stored);
    assert_int_equal(t->passes, LENGTH);
    assert_int_equal(t->trunk_bytes,
                     LENGTH * (stored - f.resident_read_bytes));
    assert_int_equal(t->wasted_bytes, 0);
    assert_int_equal(t->embed_bytes, LENGTH * 320 * 2);
    /* 3 experts of 4 layers; .2 to .5 of the scales. */
    double expert = (double)t->demand_bytes / (LENGTH * 4 * 3);
    double weights = 3 * 512 * 512 / 2;
    assert_true(expert > weights && expert < weights * 33 / 32);
}

static void change(const char *file, uint64_t at)
{
    uint8_t byte;
    int fd = open(file, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 0x55;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* A block of the trunk, and the scales of an expert that the text chooses. */
static void damage_is_refused(void **state)
{
    struct error error = { 0 };
    struct config c;
    struct parts *p;
    struct k3_options o = options(BUDGET, 3);
    char path[200];
    uint64_t at[2];
    (void)state;
    demand(config_load(&c, dir, &error), &error);
    demand(parts_open(&p, part_dir, 3, NULL, &c, &error), &error);
    const struct part *x = p->file[2 * 3 + 1].part; /* layer 2, part 1 */
    snprintf(path, sizeof path, "%s", x->path);
    at[0] = x->block[0].at + x->block[0].bytes / 2;
    at[1] = x->expert[0].scales.ref.at;
    uint32_t experts = x->head->experts;
    uint64_t each = experts > 1 ? x->expert[1].scales.ref.at - at[1] : 0;
    parts_close(p);
    config_free(&c);
    change(path, at[0]);
    assert_int_equal(run(dir, &o, LENGTH, NULL, &error), -EBADMSG);
    assert_non_null(strstr(error.text, path));
    assert_non_null(strstr(error.text, "is damaged"));
    change(path, at[0]);
    same(dir, &o, LENGTH, NULL);
    for (uint32_t i = 0; i < experts; i++)
        change(path, at[1] + i * each);
    memset(&error, 0, sizeof error);
    assert_int_equal(run(dir, &o, LENGTH, NULL, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "expert"));
    for (uint32_t i = 0; i < experts; i++)
        change(path, at[1] + i * each);
    same(dir, &o, LENGTH, NULL);
}

/* Nothing else is there: neither shards nor an index. */
static void only_a_config(void **state)
{
    char bare[80], command[300];
    struct k3_options o = options(BUDGET, 3);
    (void)state;
    snprintf(bare, sizeof bare, "%s/bare", dir);
    snprintf(command, sizeof command, "mkdir %s && cp %s/config.json %s", bare,
             dir, bare);
    assert_int_equal(system(command), 0);
    same(bare, &o, LENGTH, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_parts),
        cmocka_unit_test(parts_without_rows),
        cmocka_unit_test(oracles),
        cmocka_unit_test(every_budget),
        cmocka_unit_test(every_byte_once),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(only_a_config),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
