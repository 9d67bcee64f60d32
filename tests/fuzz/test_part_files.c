/* Goal    a file of a part that was damaged anywhere is refused or told to be
 *         damaged; one that lies about itself with good checksums does not lead
 *         outside its buffers.
 * Method  the files of a layer with experts, of a tiny checkpoint in two parts;
 *         bytes flipped, cut or copied elsewhere, as they are and with the
 *         checksums of head and tables made good again; then the file is opened
 *         and all of it is read, checked and decoded. As they are, a change of
 *         a byte that anything refers to must be found. MUTATIONS is how many,
 *         10000 in check-long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/kern.h"
#include "model/ckpt/slurp.h"
#include "model/parts/parts.h"
#include "model/parts/spread.h"
#include "tests/fuzz/damage.h"

static char dir[64], path[120];
static struct config config;
static struct kern kern;
static uint8_t *good, *bad;
static size_t good_bytes;
static bool *used; /* [good_bytes]: something refers to the byte */
static void use(uint64_t at, uint64_t bytes)
{
    assert_true(at + bytes <= good_bytes);
    memset(used + at, 1, bytes);
}

static void find_used(void)
{
    struct error error = { 0 };
    struct part *p;
    if (part_open(&p, path, &config, &error))
        fail_msg("%s", error.text);
    struct cuts cuts = part_cuts(p->head);
    struct slice_shape s = slice_shape(&cuts, p->head->part, &config);
    use(0, BOX_PAGE);
    use(p->box.head.tables_at, p->box.head.tables_bytes);
    for (uint32_t i = 0; i < p->head->blocks; i++)
        use(p->block[i].at, p->block[i].bytes);
    for (uint32_t i = 0; i < p->head->smalls; i++)
        use(p->small[i].ref.at, p->small[i].ref.bytes);
    for (uint32_t i = 0; i < p->head->rests; i++)
        use(p->rest[i].ref.at, p->rest[i].ref.bytes);
    for (uint32_t i = 0; i < p->head->experts; i++) {
        struct box_ref ref = slice_ref(&p->expert[i], &s);
        use(ref.at, ref.bytes);
    }
    assert_true(p->head->experts && p->head->rests && p->head->smalls);
    part_close(p);
}

static int begin(void **state)
{
    struct error error = { 0 };
    struct spread_facts facts;
    char part[2][80], *text;
    (void)state;
    strcpy(dir, "/tmp/sluice-part-files-XXXXXX");
    damage_checkpoint(dir);
    damage_seed = 17;
    kern_init(&kern, ISA_COUNT - 1);
    if (config_load(&config, dir, &error))
        fail_msg("%s", error.text);
    struct spread_options s = { .model = dir, .jobs = 2, .kern = &kern,
                                .cuts = { 2, { 2, 1 } } };
    for (int r = 0; r < 2; r++) {
        snprintf(part[r], sizeof part[r], "%s/part%d", dir, r);
        s.dir[r] = part[r];
    }
    if (spread_run(&facts, &s, &config, &error))
        fail_msg("%s", error.text);
    snprintf(path, sizeof path, "%s/model-00003-of-00005.part", part[0]);
    if (access(path, R_OK))
        snprintf(path, sizeof path, "%s/model-00003-of-000005.part", part[0]);
    assert_int_equal(slurp_file(&text, &good_bytes, path, 1u << 30, NULL), 0);
    good = (uint8_t *)text;
    bad = malloc(good_bytes);
    used = calloc(good_bytes, sizeof *used);
    assert_true(bad && used);
    find_used();
    return 0;
}

static int end(void **state)
{
    char command[200];
    (void)state;
    free(good);
    free(bad);
    free(used);
    config_free(&config);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void count(void *arg, const char *text)
{
    assert_true(text[0]);
    ++*(uint32_t *)arg;
}

/* How much is wrong with the file in `bad`; opening it counts. */
static uint32_t problems(size_t bytes)
{
    struct error error = { 0 };
    struct part *p;
    uint32_t n = 0;
    damage_store(path, bad, bytes);
    if (part_open(&p, path, &config, &error)) {
        assert_non_null(strstr(error.text, path));
        return 1;
    }
    if (part_prove(p, &config, &kern, 1, count, &n, &error))
        n++;
    part_close(p);
    return n;
}

/* Flip some bytes, or copy some over others. Was a byte changed that anything
 * refers to? */
static bool wound(void)
{
    uint64_t tables = damage_tables_at(good);
    bool changed = false;
    for (uint64_t i = 1 + damage_draw(3); i; i--) {
        uint64_t at = damage_draw(good_bytes), n = 1 + damage_draw(8);
        if (damage_draw(2)) /* the tables, or the head */
            at = damage_draw(3) ? tables + damage_draw(good_bytes - tables)
                                : damage_draw(BOX_PAGE);
        n = n < good_bytes - at ? n : good_bytes - at;
        if (damage_draw(2))
            for (uint64_t k = 0; k < n; k++)
                bad[at + k] ^= (uint8_t)(1u << damage_draw(8));
        else
            memmove(bad + at, bad + damage_draw(good_bytes - n), n);
    }
    for (size_t i = 0; i < good_bytes && !changed; i++)
        changed = used[i] && good[i] != bad[i];
    return changed;
}

enum { ROUNDS = 300 };

static void damage_is_found(void **state)
{
    uint32_t rounds = damage_rounds(ROUNDS);
    (void)state;
    memcpy(bad, good, good_bytes);
    assert_int_equal(problems(good_bytes), 0);
    for (uint32_t i = 0; i < rounds; i++) {
        size_t bytes = damage_draw(8) ? good_bytes : damage_draw(good_bytes);
        memcpy(bad, good, good_bytes);
        bool changed = wound();
        uint32_t n = problems(bytes);
        assert_true(n || (!changed && bytes == good_bytes));
    }
}

static void lies_lead_nowhere(void **state)
{
    uint32_t opened = 0, rounds = damage_rounds(ROUNDS);
    (void)state;
    for (uint32_t i = 0; i < rounds; i++) {
        memcpy(bad, good, good_bytes);
        wound();
        memcpy(bad, good, damage_draw(4) ? sizeof(struct box_head)
                                         : sizeof PART_MAGIC - 1);
        damage_seal(bad, good_bytes);
        struct part *p;
        problems(good_bytes);
        if (!part_open(&p, path, &config, NULL)) {
            opened++;
            part_close(p);
        }
    }
    assert_true(opened > rounds / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(lies_lead_nowhere),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
