/* Goal    `sluice replay`: a bad trace is one sentence and exit 1, a wrong
 *         option a usage error and exit 2; a tail that can be repaired is
 *         reported and used.
 * Method  runs the program on traces written here. What it counts is checked by
 *         test_replay_counts.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sched/trace/trace.h"
#include "sched/trace/trace_internal.h"

static char folder[] = "/tmp/sluice-replay-XXXXXX";
static char good[64]; /* 6 records of 8 + 24 + 2 * 2 * 2 + 4 bytes each */

/* Run `sluice replay ARGS`. Returns the exit status; both outputs in text. */
static int run(const char *args, char **out, char **err)
{
    static char text[2][1 << 20];
    char command[1024], file[80];
    const char *build = getenv("BUILD");
    snprintf(file, sizeof file, "%s/err", folder);
    snprintf(command, sizeof command, "%s/sluice replay %s 2>%s",
             build ? build : "build", args, file);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(text[0], 1, sizeof text[0] - 1, p);
    text[0][n] = 0;
    int status = pclose(p);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    n = fread(text[1], 1, sizeof text[1] - 1, f);
    text[1][n] = 0;
    fclose(f);
    *out = text[0];
    *err = text[1];
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void write_good(void)
{
    static const uint32_t ids[] = { 3, 1 };
    struct trace_info info = { .flags = TRACE_RANKED | TRACE_CRC,
                               .layers = 2,
                               .experts = 4,
                               .top_k = 2,
                               .expert_bytes = 1000 };
    struct trace_writer *w;
    assert_int_equal(trace_create(&w, good, &info, NULL, 1), 0);
    for (uint32_t t = 0; t < 6; t++) {
        trace_begin(w, t, 1);
        trace_row(w, 0, 0, t, 0, TRACE_DECODE, 0);
        trace_choice(w, 0, 0, ids, NULL);
        trace_choice(w, 0, 1, ids, NULL);
        assert_int_equal(trace_commit(w), 0);
    }
    assert_int_equal(trace_finish(w), 0);
}

/* One sentence that names the file and says `what`, and nothing else. */
static void refused(const char *args, const char *what)
{
    char *out, *err;
    assert_int_equal(run(args, &out, &err), 1);
    assert_string_equal(out, "");
    assert_int_equal(strncmp(err, "sluice: ", 8), 0);
    assert_non_null(strstr(err, folder));
    if (!strstr(err, what))
        fail_msg("\"%s\" does not say \"%s\"", err, what);
    assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
}

static void put(off_t at, uint32_t value, size_t bytes)
{
    int fd = open(good, O_WRONLY);
    assert_int_equal(pwrite(fd, &value, bytes, at), (ssize_t)bytes);
    close(fd);
}

static void forget_counts(void)
{
    uint8_t header[TRACE_HEADER_BYTES];
    struct trace_crc crc;
    int fd = open(good, O_RDWR);
    assert_int_equal(read(fd, header, sizeof header), sizeof header);
    put64(header + AT_RECORDS, 0);
    put32(header + AT_SEQUENCES, 0);
    put32(header + AT_STEPS, 0);
    trace_crc_init(&crc);
    put32(header + AT_HEADER_CRC, trace_crc_of(&crc, header, AT_HEADER_CRC));
    assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
    close(fd);
}

static void bad_traces(void **state)
{
    (void)state;
    char args[96], none[96];
    snprintf(args, sizeof args, "%s --frames 2", good);
    snprintf(none, sizeof none, "%s/none --json", folder);
    refused(none, "No such file");
    refused(folder, "Is a directory");

    write_good();
    assert_int_equal(truncate(good, 128 + 4 * 36 + 7), 0);
    refused(args, "shorter than its header says (4 of 6 records)");
    assert_int_equal(truncate(good, 60), 0);
    refused(args, "ends inside its header");
    assert_int_equal(truncate(good, 0), 0);
    refused(args, "does not begin with MOETRACE");

    write_good();
    put(128 + 2 * 36 + 8, 77, 4); /* the position in record 2 */
    refused(args, "record 2 (byte 200): a record's checksum is wrong");
    write_good();
    put(8, 2, 2);
    refused(args, "version is not supported (2, this program reads 1)");
    write_good();
    put(20, 3, 2);
    refused(args, "the header's checksum is wrong");
    refused(none, "No such file");
}

/* 4 of 4 experts, one too many: no checksums, so that it gets that far. */
static void ids_out_of_range(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 3, 1 };
    char args[96];
    snprintf(args, sizeof args, "%s --frames 2", good);
    struct trace_info info = { .layers = 1, .experts = 4, .top_k = 2 };
    struct trace_writer *w;
    assert_int_equal(trace_create(&w, good, &info, NULL, 1), 0);
    trace_begin(w, 0, 1);
    trace_row(w, 0, 0, 0, 0, TRACE_DECODE, 0);
    trace_choice(w, 0, 0, ids, NULL);
    assert_int_equal(trace_commit(w), 0);
    assert_int_equal(trace_finish(w), 0);
    put(128 + 24, 4, 2);
    refused(args, "record 0 (byte 128): an expert id is out of range (4 of 4)");
    put(128 + 24, 1, 2);
    refused(args, "a row names an expert twice (1)");
}

static void tails_are_repaired(void **state)
{
    (void)state;
    char args[96], *out, *err;
    snprintf(args, sizeof args, "%s --frames 2 --repair --csv", good);
    write_good();
    assert_int_equal(truncate(good, 128 + 4 * 36 + 7), 0);
    assert_int_equal(run(args, &out, &err), 0);
    assert_non_null(strstr(err, "repaired: 7 bytes left out, 2 records "
                                "missing, 4 used"));
    assert_non_null(strstr(out, ",dhd,none,2,16,"));

    write_good(); /* as a crash leaves it: no counts in the header */
    forget_counts();
    assert_int_equal(truncate(good, 128 + 5 * 36 + 35), 0);
    snprintf(args, sizeof args, "%s --frames 2 --csv", good);
    assert_int_equal(run(args, &out, &err), 0);
    assert_non_null(strstr(err, "repaired: 35 bytes left out, 0 records "
                                "missing, 5 used"));
    assert_non_null(strstr(out, ",dhd,none,2,20,"));
}

static void usage_errors(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", "x --policy mru", "x --policy lru,", "x --prefetch gate",
        "x --frames 1,x", "x --frames ''", "x --frames 1,-2", "x --width 17",
        "x --policy static-pin", "x --json --csv", "x --fast",
    };
    char *out, *err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(run(wrong[i], &out, &err), 2);
        assert_string_equal(out, "");
        assert_string_not_equal(err, "");
    }
    assert_int_equal(run("--help", &out, &err), 0);
    assert_non_null(strstr(out, "--policy"));
}

/* By hand: two layers, the same two experts for six tokens. */
static void a_table_by_hand(void **state)
{
    (void)state;
    char args[256], *out, *err;
    write_good();
    snprintf(args, sizeof args,
             "%s --policy lru,lru-layer,static-pin,min --pin %s --frames 2,4",
             good, good);
    assert_int_equal(run(args, &out, &err), 0);
    assert_string_equal(err, "");
    static const char *const rows[] = {
        "lru        none          2   25.0      0      4.00 4.00e-06   41.7",
        "lru        none          4   50.0   83.3     0.667 6.67e-07      0",
        "lru-layer  none          2   25.0   41.7      2.33 2.33e-06      0",
        "lru-layer  none          4   50.0   83.3     0.667 6.67e-07      0",
        "static-pin none          2   25.0   41.7      2.33 2.33e-06      0",
        "min        none          2   25.0   41.7      2.33 2.33e-06      0",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(out, rows[i]))
            fail_msg("no line \"%s\" in\n%s", rows[i], out);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(good, sizeof good, "%s/trace", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char err[80];
    snprintf(err, sizeof err, "%s/err", folder);
    unlink(good);
    unlink(err);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_traces),
        cmocka_unit_test(ids_out_of_range),
        cmocka_unit_test(tails_are_repaired),
        cmocka_unit_test(usage_errors),
        cmocka_unit_test(a_table_by_hand),
    };
    return cmocka_run_group_tests_name("sluice replay", tests, make_folder,
                                       remove_folder);
}
