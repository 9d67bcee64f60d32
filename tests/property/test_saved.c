/* Goal    a request that begins at a saved state, of its own file or of the
 *         cache, has the ids and text that it has in one go, whatever session
 *         saved it; options that are wrong are refused.
 * Method  every subject in two halves: the first saved by a session with the
 *         reference kernels, one thread and no drafts, the second by one with
 *         the best kernels, two threads and drafts. All subjects at once,
 *         twice, with a cache that they share, in two sessions that are open
 *         together. What each gives alone is the truth; rows are counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/kern.h"
#include "model/knobs.h"
#include "tests/property/subject.h"

static char dir[64], path[80];

static int set_up(void **state)
{
    strcpy(dir, "/tmp/sluice-saved-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/state", dir);
    return subjects_make(state);
}

static int tear_down(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) | subjects_remove(state);
}

static void on_note(void *arg, const char *sentence, bool lost)
{
    (void)arg;
    fail_msg("%s%s", lost ? "lost: " : "", sentence);
}

static struct sluice *open_with(uint8_t isa, uint32_t threads, uint32_t drafts,
                                uint32_t rows)
{
    struct sluice_options o = subject_options(1);
    struct k3_options engine = { .isa = isa, .drafts = drafts, .context = 64 };
    struct sluice_error e = { 0 };
    struct sluice *s;
    o.threads = threads;
    o.drafts = drafts;
    o.rows = rows;
    if (knobs_open(&s, subject_model.dir, &o, &engine, &e))
        fail_msg("%s", e.text);
    return s;
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct subject half = subject_fresh(i), x = subject_fresh(i);
        struct sluice_counters c;
        struct sluice_ids all = { 0 };
        remove(path);
        struct sluice *s = open_with(ISA_REF + 1, 1, 0, 5);
        struct sluice_request r = subject_request(&half);
        r.max_ids = half.max / 2;
        r.state = path;
        r.note = on_note;
        assert_int_equal(sluice_generate(s, &r, NULL), 0);
        sluice_close(s);
        s = open_with(0, 2, 2, 24);
        r = subject_request(&x);
        r.state = path;
        r.note = on_note;
        r.say_given = true;
        assert_int_equal(sluice_state_ids(s, path, &all, NULL), 0);
        assert_int_equal(all.count, x.count + half.max / 2);
        assert_memory_equal(all.ids, x.prompt, x.count * sizeof *all.ids);
        all.count = x.count;
        assert_int_equal(sluice_state_given(s, &r, &all, NULL), 0);
        r.ids = all.ids;
        r.count = (uint32_t)all.count;
        r.given = r.count - x.count;
        assert_int_equal(r.given, half.max / 2);
        assert_int_equal(sluice_generate(s, &r, NULL), 0);
        subject_check(&x, i);
        sluice_counters(s, &c, sizeof c);
        assert_int_equal(c.prompt_ids, 1);
        assert_int_equal(c.loaded_ids, r.count - 1);
        /* It is whole now: said again without a pass. */
        uint64_t passes = c.passes;
        struct subject again = subject_fresh(i);
        r = subject_request(&again);
        r.state = path;
        r.say_given = true;
        all.count = again.count;
        assert_int_equal(sluice_state_given(s, &r, &all, NULL), 0);
        r.ids = all.ids;
        r.count = (uint32_t)all.count;
        r.given = r.count - again.count;
        assert_int_equal(sluice_generate(s, &r, NULL), 0);
        subject_check(&again, i);
        sluice_counters(s, &c, sizeof c);
        assert_int_equal(c.passes, passes);
        sluice_ids_free(&all);
        sluice_close(s);
    }
}

static uint64_t ask_all(struct sluice *s)
{
    static struct subject x[REQUESTS];
    struct sluice_counters before, after;
    sluice_counters(s, &before, sizeof before);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        x[i] = subject_fresh(i);
        struct sluice_request r = subject_request(&x[i]);
        r.note = on_note;
        assert_int_equal(sluice_submit(s, &r, NULL, NULL), 0);
    }
    assert_int_equal(sluice_run(s, NULL), 0);
    for (uint32_t i = 0; i < REQUESTS; i++)
        subject_check(&x[i], i);
    sluice_counters(s, &after, sizeof after);
    return after.prompt_ids - before.prompt_ids;
}

static void test_cache(void **state)
{
    (void)state;
    struct sluice_options o = subject_options(3);
    struct sluice *s[2];
    uint64_t all = 0, rest = 0;
    char folder[80];
    snprintf(folder, sizeof folder, "%s/cache", dir);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        all += truth[i].count;
        rest += truth[i].count > 16 ? 1 : truth[i].count; /* is kept from 16 */
    }
    o.prefix_cache = folder;
    o.share = true;
    o.held = 1;
    s[0] = subject_open_with(&o);
    o.drafts = 2;
    s[1] = subject_open_with(&o);
    assert_int_equal(ask_all(s[0]), all);
    assert_int_equal(ask_all(s[1]), rest);
    assert_int_equal(ask_all(s[0]), rest);
    sluice_close(s[0]);
    sluice_close(s[1]);
}

static void test_refused(void **state)
{
    (void)state;
    struct sluice_options o = subject_options(1);
    struct sluice_error e = { 0 };
    struct sluice *s;
    struct sluice_ids all = { 0 };
    o.held = 1; /* without share */
    assert_int_equal(sluice_open(&s, subject_model.dir, &o, &e), -EINVAL);
    assert_null(s);
    o.held = 0;
    o.prefix_cache = "/proc/none/such";
    assert_true(sluice_open(&s, subject_model.dir, &o, &e) < 0);
    assert_non_null(strstr(e.text, o.prefix_cache));
    o.prefix_cache = NULL;
    s = subject_open_with(&o);
    snprintf(path, sizeof path, "%s/missing", dir);
    assert_int_equal(sluice_state_ids(s, path, &all, &e), -ENOENT);
    assert_int_equal(all.count, 0);
    sluice_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("saved", tests, set_up, tear_down);
}
