/* Goal    the 96 headers of the full geometry are opened in little memory, and
 *         every expert of every layer is found in the shard of its layer.
 * Method  the sparse checkpoint, in a temporary folder: 1.56 TB of files in
 *         150 MB of disk. Skipped where the file system has no room or no
 *         holes of that size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "model/ckpt/ckpt.h"
#include "model/tools/synth.h"
#include "tests/skip.h"
#include "tests/unit/ckpt_files.h"
#include "tests/unit/own_malloc.h"

/* KDA and MLA layers 11 and 12 (from 0): where their first run begins. */
static void check_layer(const struct ckpt *k, uint32_t layer, uint64_t first)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t e = 0; e < 896; e++) {
        struct extent at[EXPERT_TENSORS];
        ckpt_expert(k, layer, e, at);
        if (at[0].offset_bytes < lowest)
            lowest = at[0].offset_bytes;
        assert_int_equal((at[0].offset_bytes - first) % 17547264, 0);
        for (uint32_t which = 0; which < EXPERT_TENSORS; which++)
            assert_int_equal(at[which].file, layer);
        for (uint32_t which = 1; which < EXPERT_TENSORS; which++)
            assert_int_equal(at[which].offset_bytes,
                             at[which - 1].offset_bytes +
                                 at[which - 1].length_bytes);
    }
    assert_int_equal(lowest, first);
}

static void test_open(void **state)
{
    char *dir = ckpt_files_place();
    struct synth_options o = { .dir = dir, .preset = "k3", .sparse = true };
    struct synth_facts facts;
    struct error error = { 0 };
    struct config c;
    struct ckpt *k;
    struct rusage usage;
    uint64_t all = 0;
    (void)state;
    int code = synth_write(&o, &facts, &error);
    if (code == -ENOSPC || code == -EFBIG) {
        ckpt_files_remove(dir);
        skip_because("no room for 1.56 TB of holes");
    }
    if (code || config_load(&c, dir, &error) || ckpt_open(&k, dir, &c, &error))
        fail_msg("%s", error.text);
    assert_int_equal(ckpt_files(k), 96);
    for (uint32_t f = 0; f < 96; f++)
        all += ckpt_file_size(k, f);
    assert_int_equal(all, 1560936091448);
    check_layer(k, 12, 1268568368);
    check_layer(k, 11, 845158632);
    ckpt_close(k);
    config_free(&c);
    ckpt_files_remove(dir);
#if OWN_MALLOC
    getrusage(RUSAGE_SELF, &usage);
    assert_in_range(usage.ru_maxrss, 1, 200 << 10);
#else
    (void)usage;
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_open) };
    return cmocka_run_group_tests_name("k3_headers", tests, NULL, NULL);
}
