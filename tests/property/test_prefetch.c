/* Goal    prefetches for a sequence follow from its own past: none are made in
 * the first pass of a new one, and bytes are told once, prefetched or not.
 * Method  two texts after one another in one place, on a simulated drive, with
 *         each prefetcher that remembers sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/paced.h"
#include "tests/property/small_model.h"

enum { PASSES = 24 };

static struct small_model model;

static uint64_t prefetched(struct k3 *k)
{
    struct k3_facts f;
    k3_facts(k, &f);
    return f.experts.prefetched;
}

static void row(struct k3 *k, uint32_t position, uint32_t id)
{
    struct k3_row r = {
        .position = position, .id = id, .logits = true, .phase = K3_DECODE
    };
    struct error error = { 0 };
    k3_set_readahead(k, 1);
    assert_int_equal(k3_pass(k, &r, 1, &error), 0);
}

static void test_another_sequence(void **state)
{
    (void)state;
    static const char *const names[] = { "ema", "prev", "path", "table" };
    struct paced_drive drive = { 20000000000, 100000 };
    for (int i = 0; i < 4; i++) {
        struct k3_options o = small_model_options(1u << 30);
        o.prefetch = names[i];
        o.policy = "none";
        o.paced = &drive;
        o.paced_count = 1;
        struct k3 *k = small_model_open(&model, &o);
        for (uint32_t p = 0; p < PASSES; p++)
            row(k, p, 5);
        uint64_t before = prefetched(k);
        assert_true(before > 0);
        k3_reset(k, 0);
        row(k, 0, 5);
        if (i < 3) /* table learns over all sequences */
            assert_int_equal(prefetched(k), before);
        for (uint32_t p = 1; p < PASSES; p++)
            row(k, p, 5);
        k3_quiesce(k);
        struct k3_facts f;
        k3_facts(k, &f);
        assert_int_equal(f.reader.payload_bytes,
                         f.resident_read_bytes +
                             k3_read_bytes(&f.totals[K3_PREFILL]) +
                             k3_read_bytes(&f.totals[K3_DECODE]));
        k3_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_sequence),
    };
    small_model_make(&model, 0);
    int failed = cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
    small_model_remove(&model);
    return failed;
}
