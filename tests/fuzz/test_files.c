/* Goal    no file that the program reads, however damaged, does more than end
 *         in a sentence: reports, timelines, traces, configs, shards' headers,
 *         a batch's OUT and OUT.partial.
 * Method  files of a run and a batch on a small random checkpoint; bytes,
 *         numbers and words changed, cut and joined at random; read by the
 *         functions that the commands call. Twice MUTATIONS a kind (20,000 in
 *         `make check-long`). Sanitizers see the rest; casts of doubles too
 *         with -fsanitize=address,undefined,float-cast-overflow in CFLAGS.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bin/batch/feed.h"
#include "bin/batch/partial.h"
#include "bin/html/profile_page.h"
#include "bin/report/compare.h"
#include "model/ckpt/ckpt.h"
#include "model/sim/replay.h"

enum { BYTES_MAX = 4 << 20, HEAD_BYTES = 20000 };

static char folder[64], path[320], good_path[320], model[128];
static uint32_t mutations = 150;
static uint64_t seed = 0x9e3779b97f4a7c15ull;
static char *good, *bad;
static size_t good_bytes;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % n;
}

static void shell(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (system(text)) {
        print_error("%s\n", text);
        fail();
    }
}

static void load(const char *name)
{
    snprintf(good_path, sizeof good_path, "%s/%s", folder, name);
    FILE *f = fopen(good_path, "rb");
    assert_non_null(f);
    good_bytes = fread(good, 1, BYTES_MAX, f);
    assert_true(good_bytes > 0);
    fclose(f);
}

static const char *const words[] = {
    "9e18", "-1", "1e400", "18446744073709551615", "9223372036854775808",
    "null", "{}", "[]", "\"\"", "-0", "4294967295", "0", "1e300", "\\u0000",
    "\xff", "true", "[[[[", "1e-320", ".", ",", "\n", "2147483648",
};

/* A number's place, if there is one behind `at`. */
static size_t number_at(const char *text, size_t bytes, size_t at, size_t *n)
{
    while (at < bytes && !(text[at] >= '0' && text[at] <= '9'))
        at++;
    *n = at < bytes ? strspn(text + at, "0123456789.e+-") : 0;
    return at;
}

/* One to four changes of the good file, to `path`; of a large one in the first
 * HEAD_BYTES more often. */
static size_t mutate(void)
{
    size_t bytes = good_bytes;
    memcpy(bad, good, bytes);
    bad[bytes] = 0;
    for (uint32_t times = 1 + rnd(4); times && bytes; times--) {
        size_t reach = rnd(2) && bytes > HEAD_BYTES ? HEAD_BYTES : bytes;
        size_t at = rnd((uint32_t)reach), n = 0;
        const char *word = words[rnd(sizeof words / sizeof *words)];
        size_t length = strlen(word);
        switch (rnd(7)) {
        case 0:
            bad[at] = (char)rnd(256);
            break;
        case 1:
            bad[at] ^= (char)(1 << rnd(8));
            break;
        case 2:
            if (!rnd(4))
                bytes = at;
            break;
        case 3: /* leave something out */
            n = rnd(64);
            n = n > bytes - at ? bytes - at : n;
            memmove(bad + at, bad + at + n, bytes - at - n);
            bytes -= n;
            break;
        default: /* another number, or a word anywhere */
            if (rnd(4))
                at = number_at(bad, bytes, at, &n);
            if (bytes - n + length >= BYTES_MAX + 200)
                break;
            memmove(bad + at + length, bad + at + n, bytes - at - n);
            memcpy(bad + at, word, length);
            bytes += length - n;
        }
        bad[bytes] = 0;
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bad, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return bytes;
}

/* What failed has said so. */
static void said(int err, const struct error *error)
{
    assert_int_equal(err != 0, error->text[0] != 0);
}

static int set_up(void **state)
{
    (void)state;
    const char *build = getenv("BUILD"), *text = getenv("MUTATIONS");
    if (text)
        mutations = (uint32_t)strtoul(text, NULL, 10) * 2;
    good = malloc(BYTES_MAX + 400);
    bad = malloc(BYTES_MAX + 400);
    snprintf(folder, sizeof folder, "%s/sluice-files-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!good || !bad || !mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/bad", folder);
    snprintf(model, sizeof model, "%s/m", folder);
    build = build ? build : "build";
    shell("exec > %s/log 2>&1; cd %s && S=$OLDPWD/%s/sluice; case %s in /*) "
          "S=%s/sluice;; esac; $S synth m --preset tiny --num-hidden-layers 3 "
          "--num-experts 8 --hidden-size 64 && "
          "$S run m --ids 3,4,5 -n 3 -c 64 --report report --timeline timeline "
          "--trace trace && for i in 1 2 3 4; do echo '{\"custom_id\":' $i "
          "',\"prompt\":[3],\"max_tokens\":2}'; done > in && "
          "$S batch m -i in -o out -c 64 && rm -f m/*.part",
          folder, folder, build, build, build);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    shell("rm -rf '%s'", folder);
    free(good);
    free(bad);
    return 0;
}

static void draw(const char *report, const char *timeline, const char *trace)
{
    struct error error = { 0 };
    struct times *t = NULL;
    json_t *r = json_load_file(report, 0, NULL);
    FILE *f = fopen("/dev/null", "w");
    assert_non_null(f);
    if (timeline)
        said(times_open(&t, timeline, &error), &error);
    if (r && !error.text[0])
        said(profile_page(f, "fuzz", r, t, trace, &error), &error);
    times_close(t);
    json_decref(r);
    fclose(f);
}

static void test_reports(void **state)
{
    (void)state;
    load("report");
    FILE *null = fopen("/dev/null", "w");
    for (uint32_t i = 0; i < mutations; i++) {
        struct compare c = { 0 };
        struct error error = { 0 };
        mutate();
        draw(path, NULL, NULL);
        int err = compare_add(&c, 0, good_path, &error);
        assert_int_equal(err, 0);
        err = compare_add(&c, 1, path, &error);
        said(err, &error);
        if (!err) {
            json_decref(compare_json(&c));
            compare_print(null, &c);
        }
        compare_free(&c);
    }
    fclose(null);
}

static void test_timelines(void **state)
{
    char report[160];
    (void)state;
    load("timeline");
    snprintf(report, sizeof report, "%s/report", folder);
    for (uint32_t i = 0; i < mutations; i++) {
        mutate();
        draw(report, path, NULL);
    }
}

static void test_traces(void **state)
{
    static const char *const policy[] = { "dhd", "min" };
    static const char *const prefetch[] = { "none" };
    static const uint32_t frames[] = { 4 };
    (void)state;
    load("trace");
    for (uint32_t i = 0; i < mutations; i++) {
        struct error error = { 0 };
        struct replay *r = NULL;
        struct replay_options o = { .policy = policy, .policies = 2,
                                    .prefetch = prefetch, .prefetches = 1,
                                    .frames = frames, .frame_counts = 1,
                                    .width = 4, .repair = rnd(2) };
        mutate();
        said(replay_run(&r, path, &o, &error), &error);
        replay_free(r);
    }
}

static void test_configs(void **state)
{
    char name[320];
    (void)state;
    load("m/config.json");
    shell("mkdir -p %s/c", folder);
    snprintf(name, sizeof name, "%s/c/config.json", folder);
    char keep[320];
    memcpy(keep, path, sizeof keep);
    memcpy(path, name, sizeof path);
    snprintf(name, sizeof name, "%s/c", folder);
    for (uint32_t i = 0; i < mutations; i++) {
        struct config c = { 0 };
        struct error error = { 0 };
        mutate();
        int err = config_load(&c, name, &error);
        said(err, &error);
        if (!err)
            config_free(&c);
    }
    memcpy(path, keep, sizeof path);
}

static void test_headers(void **state)
{
    struct error error = { 0 };
    struct config c;
    char keep[320], shard[160];
    (void)state;
    assert_int_equal(config_load(&c, model, &error), 0);
    shell("cd %s/m && ls *.safetensors | head -n 1 > ../shard", folder);
    load("shard");
    snprintf(shard, sizeof shard, "m/%.*s", (int)good_bytes - 1, good);
    load(shard);
    memcpy(keep, path, sizeof keep);
    memcpy(path, good_path, sizeof path);
    /* The header alone; the data are a hole behind it. */
    size_t all = good_bytes;
    uint64_t header;
    memcpy(&header, good, sizeof header);
    char *data = malloc(all);
    assert_non_null(data);
    memcpy(data, good, all);
    for (uint32_t i = 0; i < mutations; i++) {
        struct ckpt *k = NULL;
        struct error why = { 0 };
        good_bytes = (size_t)header + 8;
        size_t bytes = mutate();
        if (rnd(2) && bytes == good_bytes)
            assert_int_equal(truncate(path, (off_t)all), 0);
        said(ckpt_open(&k, model, &c, &why), &why);
        ckpt_close(k);
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, all, f), all);
    fclose(f);
    free(data);
    memcpy(path, keep, sizeof path);
    config_free(&c);
}

static void test_out(void **state)
{
    char in[160];
    (void)state;
    load("out");
    snprintf(in, sizeof in, "%s/in", folder);
    for (uint32_t i = 0; i < mutations; i++) {
        struct batch_feed f;
        struct error error = { 0 };
        struct batch_job *j;
        mutate();
        static const struct samplers_args samplers;
        int err = batch_feed_open(&f, in, path, rnd(2), &error);
        said(err, &error);
        f.rules = (struct batch_rules){ .model = "m", .name = "m", .vocab = 100,
                                        .context = 64, .max = 2,
                                        .samplers = &samplers };
        while (!err && batch_feed_next(&f, true, &j, &error) == 1) {
            batch_job_free(j);
            free(j);
        }
        batch_feed_close(&f, false);
        char held[336];
        snprintf(held, sizeof held, "%s.held", path);
        remove(held);
    }
}

static void test_partial(void **state)
{
    char out[160];
    (void)state;
    snprintf(out, sizeof out, "%s/out", folder);
    FILE *f = fopen(path, "w");
    fputs("sluice batch: unfinished answers, version 1\n"
          "0123456789abcdef0123456789abcdef 3 1 2 3\n"
          "00000000000000010000000000000002 1 4\n.\n", f);
    fclose(f);
    load("bad");
    char keep[320];
    memcpy(keep, path, sizeof keep);
    snprintf(path, sizeof path, "%s.partial", out);
    int kept = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO); /* a foreign file is told of */
    for (uint32_t i = 0; i < mutations; i++) {
        struct batch_partial p;
        mutate();
        batch_partial_open(&p, out);
        batch_partial_close(&p, false);
    }
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(null);
    memcpy(path, keep, sizeof path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports), cmocka_unit_test(test_timelines),
        cmocka_unit_test(test_traces),  cmocka_unit_test(test_configs),
        cmocka_unit_test(test_headers), cmocka_unit_test(test_out),
        cmocka_unit_test(test_partial),
    };
    return cmocka_run_group_tests_name("files", tests, set_up, tear_down);
}
