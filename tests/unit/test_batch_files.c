/* Goal    lines in, answers out: none lost, none twice, none in the wrong
 *         place, whatever is in the files and wherever a crash cut them.
 * Method  small files in a temporary folder. What a crash leaves is made by
 *         cutting the output at every byte.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "bin/batch/feed.h"
#include "bin/cli/samplers.h"

static char folder[48];
static char in_path[64], out_path[64], held_path[80];

static int set_up(void **state)
{
    (void)state;
    /* in memory, where there is such a place: it is flushed very often */
    snprintf(folder, sizeof folder, "%s/sluice-batch-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
        return -1;
    snprintf(in_path, sizeof in_path, "%s/in", folder);
    snprintf(out_path, sizeof out_path, "%s/out", folder);
    snprintf(held_path, sizeof held_path, "%s.held", out_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove(in_path);
    remove(out_path);
    remove(held_path);
    return rmdir(folder);
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static size_t read_file(const char *path, char *text, size_t room)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    size_t bytes = fread(text, 1, room - 1, f);
    text[bytes] = 0;
    fclose(f);
    return bytes;
}

/* ---- keys ---- */

static void test_keys(void **state)
{
    (void)state;
    struct batch_keys keys = { 0 };
    char id[32];
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 20000; i++) {
            int n = snprintf(id, sizeof id, "request-%llu",
                             (unsigned long long)i);
            struct batch_key *key = batch_keys_at(&keys, id, (size_t)n);
            assert_int_equal(key->value, round ? i + 1 : 0);
            key->value = i + 1;
        }
    assert_int_equal(keys.count, 20000);
    assert_int_equal(batch_keys_at(&keys, "", 0)->value, 0);
    batch_keys_at(&keys, "", 0)->value = 5;
    assert_int_equal(batch_keys_at(&keys, "\0", 1)->value, 0);
    assert_int_equal(batch_keys_at(&keys, "", 0)->value, 5);
    batch_keys_free(&keys);
}

/* ---- lines ---- */

static void next_is(struct batch_in *in, const char *want)
{
    const char *text;
    size_t bytes;
    assert_int_equal(batch_in_next(in, true, &text, &bytes), 1);
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(text, want, bytes);
}

static void test_lines(void **state)
{
    (void)state;
    static const char text[] = "one\n\nthree\r\nlast";
    struct batch_in in;
    struct error error = { 0 };
    const char *at;
    size_t bytes;
    write_file(in_path, text, sizeof text - 1);
    assert_int_equal(batch_in_open(&in, in_path, &error), 0);
    assert_int_equal(in.lines, 4);
    assert_int_equal(in.longest_bytes, 7);
    next_is(&in, "one");
    next_is(&in, "");
    next_is(&in, "three\r");
    next_is(&in, "last");
    assert_int_equal(in.line, 4);
    assert_int_equal(batch_in_next(&in, true, &at, &bytes), -ENODATA);
    batch_in_close(&in);
}

/* What is no UTF-8 is named before there is an output. */
static void test_marks(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t      bytes;
        const char *said;
    } bad[] = {
        { "\xff\xfe{\0}\0", 6, "UTF-16" }, { "\xfe\xff\0{", 4, "UTF-16" },
        { "{\0\"\0", 4, "UTF-16" },
        { "\xff\xfe\0\0{\0\0\0", 8, "UTF-32" },
        { "\xfd\x37zXZ", 5, "xz" },
        { "PK\3\4", 4, "zip" },
    };
    struct batch_in in;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error = { 0 };
        struct batch_feed feed;
        write_file(in_path, bad[i].text, bad[i].bytes);
        assert_int_equal(batch_feed_open(&feed, in_path, out_path, false,
                                         &error),
                         -EILSEQ);
        assert_non_null(strstr(error.text, bad[i].said));
        assert_int_not_equal(access(out_path, F_OK), 0);
        batch_feed_close(&feed, false);
    }
    struct error error = { 0 };
    write_file(in_path, "\xef\xbb\xbfone\ntwo", 10);
    assert_int_equal(batch_in_open(&in, in_path, &error), 0);
    next_is(&in, "one");
    next_is(&in, "two");
    batch_in_close(&in);
}

/* From a pipe, however its bytes come. */
static void pipe_gives(const char *bytes, size_t count, const char *want,
                       int last)
{
    struct batch_in in;
    struct error error = { 0 };
    const char *at;
    char path[32], got[64] = "";
    size_t n;
    int fd[2], said = 0;
    assert_int_equal(pipe(fd), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
    assert_int_equal(batch_in_open(&in, path, &error), 0);
    for (size_t i = 0; i <= count && said >= 0; i++) {
        if (i < count)
            assert_int_equal(write(fd[1], bytes + i, 1), 1);
        else
            close(fd[1]);
        while ((said = batch_in_next(&in, i == count, &at, &n)) == 1)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s|",
                     (int)n, at);
    }
    assert_int_equal(said, last);
    assert_string_equal(got, want);
    batch_in_close(&in);
    close(fd[0]);
}

static void test_marks_of_pipes(void **state)
{
    (void)state;
    pipe_gives("\xef\xbb\xbfone\ntwo\n", 11, "one|two|", -ENODATA);
    pipe_gives("\xef\xbb\xbf" "a\n\xef\xbb\xbf" "b", 9,
               "a|\xef\xbb\xbf" "b|", -ENODATA);
    pipe_gives("a\nb\n", 4, "a|b|", -ENODATA);
    pipe_gives("\n\n1", 3, "||1|", -ENODATA);
    pipe_gives("\xef\xbb\xbf", 3, "", -ENODATA);
    pipe_gives("", 0, "", -ENODATA);
}

static void test_long_lines(void **state)
{
    (void)state;
    struct batch_in in;
    struct error error = { 0 };
    const char *at;
    size_t bytes;
    FILE *f = fopen(in_path, "w");
    for (int i = 0; i < 300000; i++)
        fputc('a', f);
    fputs("\nb\n", f);
    fseek(f, BATCH_LINE_MAX + 100000l, SEEK_CUR); /* a hole of NULs */
    fputs("\nc\n", f);
    fclose(f);
    assert_int_equal(batch_in_open(&in, in_path, &error), 0);
    assert_int_equal(batch_in_next(&in, true, &at, &bytes), 1);
    assert_int_equal(bytes, 300000);
    next_is(&in, "b");
    assert_int_equal(batch_in_next(&in, true, &at, &bytes), -EMSGSIZE);
    next_is(&in, "c");
    assert_int_equal(in.line, 4);
    batch_in_close(&in);
}

static void test_pipe(void **state)
{
    (void)state;
    int end[2];
    const char *at;
    size_t bytes;
    assert_int_equal(pipe(end), 0);
    struct batch_in in = { .fd = end[0], .path = "-", .capacity = 1 << 16 };
    in.buffer = malloc(in.capacity);
    assert_int_equal(batch_in_next(&in, false, &at, &bytes), 0);
    assert_int_equal(write(end[1], "hal", 3), 3);
    assert_int_equal(batch_in_next(&in, false, &at, &bytes), 0);
    assert_int_equal(write(end[1], "f\nrest", 6), 6);
    next_is(&in, "half");
    close(end[1]);
    next_is(&in, "rest");
    assert_int_equal(batch_in_next(&in, false, &at, &bytes), -ENODATA);
    batch_in_close(&in);
}

/* ---- the whole, without a model ---- */

enum { LINES = 9 };
static const char input[] =
    "{\"id\":\"a\",\"prompt\":[1]}\n"
    "{\"id\":\"b\",\"prompt\":[2],\"max_tokens\":2}\n"
    "nonsense\n"
    "\n"
    "{\"id\":5,\"prompt\":[3]}\n"
    "{\"id\":\"b\",\"prompt\":[4]}\n"
    "{\"id\":\"5\",\"prompt\":[5]}\n"
    "{\"prompt\":[5]}\n"
    "{\"id\":\"z\",\"prompt\":[6]}";

static void open_feed(struct batch_feed *f, bool in_order)
{
    struct error error = { 0 };
    assert_int_equal(batch_feed_open(f, in_path, out_path, in_order, &error),
                     0);
    static struct samplers_args samplers;
    samplers_defaults(&samplers);
    assert_int_equal(samplers_load(&samplers, ".", &error), 0);
    f->rules = (struct batch_rules){
        .model = "m", .name = "m", .vocab = 10, .context = 8, .max = 3,
        .samplers = &samplers
    };
}

/* Answer the requests that come, in the given order of their arrival, two at a
 * time; stop after `most` of them. */
static uint32_t answer(bool in_order, bool backwards, uint32_t max)
{
    struct batch_feed f;
    struct error error = { 0 };
    struct batch_job *job[LINES];
    uint32_t n = 0, done = 0;
    int got;
    open_feed(&f, in_order);
    while ((got = batch_feed_next(&f, true, &job[n], &error)) == 1)
        n++;
    assert_int_equal(got, -ENODATA);
    for (uint32_t i = 0; i < n; i++) {
        struct batch_job *j = job[backwards ? n - 1 - i : i];
        j->ids[1] = 7;
        if (done < max) {
            assert_int_equal(batch_feed_answer(&f, j, 1, SLUICE_LENGTH, &error),
                             0);
            done++;
            if (done % 2)
                assert_int_equal(batch_feed_flush(&f, &error), 0);
        }
        batch_job_free(j);
        free(j);
    }
    assert_int_equal(batch_feed_flush(&f, &error), 0);
    batch_feed_close(&f, done == n);
    return n;
}

/* Every line of the input has its answer, once: by the number in its id. */
static void check_output(bool in_order)
{
    char text[8192];
    uint32_t seen[LINES + 1] = { 0 }, last = 0, lines = 0;
    read_file(out_path, text, sizeof text);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        uint32_t line;
        json_t *root = json_loadb(at, (size_t)(end - at), 0, NULL);
        assert_non_null(root);
        json_decref(root);
        assert_int_equal(sscanf(at, "{\"id\":\"batch_req_%u\"", &line), 1);
        assert_in_range(line, 1, LINES);
        assert_int_equal(seen[line]++, 0);
        assert_true(!in_order || line > last);
        last = line;
        lines++;
    }
    assert_int_equal(lines, LINES - 1); /* one is blank */
    assert_int_not_equal(access(held_path, F_OK), 0);
}

static void clean(void)
{
    remove(out_path);
    remove(held_path);
    write_file(in_path, input, sizeof input - 1);
}

static void test_all(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        clean();
        assert_int_equal(answer(way & 1, way & 2, LINES), 5);
        check_output(way & 1);
        assert_int_equal(answer(way & 1, way & 2, LINES), 0);
        check_output(way & 1);
    }
}

/* Stop after some answers, cut the file that was written last, go on: in the
 * same way or the other. */
static void test_cut(void **state)
{
    (void)state;
    char text[8192];
    for (int way = 0; way < 8; way++)
        for (uint32_t max = 1; max < 5; max++)
            for (size_t cut = 0; cut < 400; cut += 37) {
                clean();
                answer(way & 1, way & 2, max);
                const char *path = access(held_path, F_OK) ? out_path
                                                           : held_path;
                size_t bytes = read_file(path, text, sizeof text);
                assert_int_equal(
                    truncate(path, (off_t)(bytes > cut ? bytes - cut : 0)),
                    0);
                bool in_order = (way & 1) != (way >> 2 & 1);
                answer(in_order, way & 2, LINES);
                check_output(in_order && (way & 1));
            }
}

/* What an editor leaves in the answers: a mark, blank lines, other ends. */
static void test_edited(void **state)
{
    (void)state;
    char text[8192], edited[8300] = "\xef\xbb\xbf\n \t\n";
    size_t n = strlen(edited);
    clean();
    answer(false, false, LINES);
    size_t bytes = read_file(out_path, text, sizeof text);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n')
            edited[n++] = '\r';
        edited[n++] = text[i];
    }
    edited[n++] = '\n';
    write_file(out_path, edited, n);
    answer(false, false, LINES);
    assert_int_equal(read_file(out_path, text, sizeof text), n);
    assert_memory_equal(text, edited, n); /* all are answered */
}

static void test_foreign(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "{\"id\":\"a\",\"prompt\":[1]}\n", /* the input itself */
        "a diary\n", "a diary", "{\"id\":\"batch_req_1\"}\n",
        "{\"id\":\"batch_req_1\",\"custom_id\":\"a\"}\n{}\n" };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct batch_feed f;
        struct error error = { 0 };
        char text[256];
        clean();
        write_file(out_path, foreign[i], strlen(foreign[i]));
        assert_int_equal(batch_feed_open(&f, in_path, out_path, false, &error),
                         -EBADMSG);
        batch_feed_close(&f, false);
        read_file(out_path, text, sizeof text);
        assert_string_equal(text, foreign[i]); /* and nothing is lost */
    }
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    struct batch_feed first, second;
    struct error error = { 0 };
    clean();
    open_feed(&first, false);
    assert_int_equal(batch_feed_open(&second, in_path, out_path, false, &error),
                     -EWOULDBLOCK);
    batch_feed_close(&second, false);
    batch_feed_close(&first, false);
}

static int any_line(void *arg, const char *text, size_t bytes, uint64_t place)
{
    (void)arg, (void)text, (void)bytes, (void)place;
    return 0;
}

/* A drive that is full in the middle of a line, and then has room again. */
static void test_full(void **state)
{
    (void)state;
    static const char line[] = "{\"id\":\"batch_req_1\",\"text\":\"abcdef\"}";
    const size_t length = sizeof line - 1;
    struct rlimit before, small;
    struct batch_out *o;
    struct error error = { 0 };
    char text[4096];
    clean();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = length + 1 + 10;
    assert_int_equal(
        batch_out_open(&o, out_path, false, any_line, NULL, &error), 0);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(batch_out_put(o, i, line, length, &error), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(batch_out_flush(o, &error), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(batch_out_flush(o, &error), 0);
    batch_out_close(o, true);
    assert_int_equal(read_file(out_path, text, sizeof text), 3 * (length + 1));
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(text + i * (length + 1), line, length);
        assert_int_equal(text[i * (length + 1) + length], '\n');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_marks_of_pipes),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_edited),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests_name("batch files", tests, set_up,
                                       tear_down);
}
