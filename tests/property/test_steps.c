/* Goal    the table of steps, the tiles cut along it and what the engine holds
 *         agree; a caller who breaks the order is stopped at once.
 * Method  every tensor that the config has, by ckpt/tensors.c and without the
 *         embedding, is in the tiles exactly once, all its rows; also where the
 *         vectors of a layer are spread over files. Passes of a small model,
 *         streamed, with ops in front of the engine's that write down what is
 *         held and what each step gets. Broken contracts in a child process,
 *         which must end by SIGABRT.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/ckpt/layout.h"
#include "model/k3/flow.h"
#include "tests/property/small_model.h"

static struct small_model model;

/* ---- table and tiles ---- */

struct spread {
    const struct layout *layout;
    uint32_t files; /* vectors and matrices go over so many files */
};

static int spread_tensor(const void *arg, int layer, enum tensor_role role,
                         struct extent *out)
{
    const struct spread *s = arg;
    int err = layout_tensor(s->layout, layer, role, out);
    if (!err && s->files)
        out->file = out->file * s->files + (uint32_t)role * 7 % s->files;
    return err;
}

/* Rows of each tensor are there once, in order. */
static void check_tensors(const struct tiles *t, const struct config *c)
{
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++)
        for (int r = 0; r < T_COUNT; r++) {
            enum tensor_role role = (enum tensor_role)r;
            uint32_t rows = 0, cols, next = 0;
            bool has = role != T_EMBED && tensor_in_layer(role, c, layer);
            if (has)
                tensor_shape(role, c, layer, &rows, &cols);
            for (uint32_t p = 0; p < t->piece_count; p++) {
                const struct tile_piece *piece = &t->piece[p];
                if (piece->layer != layer || piece->role != (uint32_t)role)
                    continue;
                assert_int_equal(piece->row, next);
                next += piece->rows;
            }
            assert_int_equal(next, rows);
        }
}

static void check_uses(const struct tiles *t)
{
    uint32_t opened = 0; /* tiles that have been used */
    assert_int_equal(t->first_use[t->steps.count], t->piece_count);
    for (uint32_t i = 0; i < t->steps.count; i++) {
        uint32_t end = t->first_use[i + 1];
        assert_int_equal(end > t->first_use[i],
                         step_has_pieces(&t->steps.step[i]));
        for (uint32_t u = t->first_use[i]; u < end; u++) {
            const struct tile_piece *piece = tiles_use(t, u);
            assert_int_equal(piece->step, i);
            assert_true(piece->tile <= opened); /* none is skipped */
            opened += piece->tile == opened;
            assert_true(u <= t->last_use[piece->tile]);
        }
    }
    assert_int_equal(opened, t->count);
}

static void test_table_and_tiles(void **state)
{
    (void)state;
    for (uint32_t files = 0; files < 5; files++) {
        struct config c;
        struct layout *layout;
        struct tiles *t;
        struct error error = { 0 };
        assert_int_equal(config_load(&c, model.dir, &error), 0);
        assert_int_equal(layout_open(&layout, &c), 0);
        struct spread s = { layout, files };
        struct tiles_source source = { .tensor = spread_tensor,
                                       .arg = &s };
        assert_int_equal(tiles_build(&t, &source, &c, &error), 0);
        check_tensors(t, &c);
        check_uses(t);
        tiles_free(t);
        layout_close(layout);
        config_free(&c);
    }
}

/* ---- the engine ---- */

struct watcher {
    const struct flow_ops *inner;
    void *arg;
    struct flow *flow;
    uint32_t held, used, frames; /* in this pass; frames: bytes were seen */
};

static int hold(void *arg, struct flow *f, uint32_t tile,
                const uint8_t **frame)
{
    struct watcher *w = arg;
    assert_int_equal(tile, w->held);
    w->held++;
    return w->inner->hold(w->arg, f, tile, frame);
}

static int see_piece(void *arg, const struct step *s,
                     const struct tile_piece *piece, const uint8_t *frame)
{
    struct watcher *w = arg;
    const struct tiles *t = w->flow->tiles;
    assert_ptr_equal(piece, tiles_use(t, w->used));
    assert_ptr_equal(s, &t->steps.step[piece->step]);
    assert_int_equal(w->held, piece->tile + 1); /* nothing before its time */
    w->used++;
    w->frames += frame != NULL;
    return w->inner->piece(w->arg, s, piece, frame);
}

static int see_step(void *arg, const struct step *s)
{
    struct watcher *w = arg;
    return w->inner->step(w->arg, s);
}

static int see_embedded(void *arg, uint32_t row, const uint8_t *bytes)
{
    struct watcher *w = arg;
    return w->inner->embedded(w->arg, row, bytes);
}

static void see_requested(void *arg, const struct step *s)
{
    struct watcher *w = arg;
    w->inner->requested(w->arg, s);
}

static int see_experts(void *arg, const struct step *s,
                       const struct expert_batch *b)
{
    struct watcher *w = arg;
    assert_int_equal(s->op, STEP_EXPERTS);
    assert_true(b->parts >= 1 && b->rows >= b->parts);
    return w->inner->experts(w->arg, s, b);
}

static int see_failed(void *arg, int err, const struct step *s,
                      const struct tile_piece *piece)
{
    struct watcher *w = arg;
    return w->inner->failed(w->arg, err, s, piece);
}

static int see_next(void *arg, struct flow *f, uint32_t *item,
                    const struct load **load)
{
    struct watcher *w = arg;
    return w->inner->next(w->arg, f, item, load);
}

static const struct flow_ops watcher_ops = {
    .piece = see_piece, .step = see_step, .embedded = see_embedded,
    .requested = see_requested, .experts = see_experts, .failed = see_failed,
    .hold = hold, .next = see_next,
};

static void test_engine(void **state)
{
    (void)state;
    struct k3_options o = small_model_options(1);
    o.memory_bytes = small_model_floor(&model, o);
    struct k3 *k = small_model_open(&model, &o);
    struct flow *f = k3_flow(k);
    struct watcher w = { .inner = f->ops, .arg = f->arg, .flow = f };
    struct error error = { 0 };
    assert_true(k3_plan_of(k)->streamed_tiles > 0);
    f->ops = &watcher_ops;
    f->arg = &w;
    for (uint32_t i = 0; i < 3; i++) {
        struct k3_row row = { .position = i, .id = i + 3, .logits = i != 1 };
        w.held = w.used = w.frames = 0;
        assert_int_equal(k3_pass(k, &row, 1, &error), 0);
        assert_int_equal(w.held, f->tiles->count);
        assert_int_equal(w.used, f->tiles->piece_count);
        assert_int_equal(w.frames, w.used);
    }
    k3_close(k);
}

/* ---- broken contracts ---- */

/* Run it in a child; true when that was ended by an assert. */
static bool aborts(void (*broken)(struct k3 *k))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct rlimit none = { 0, 0 };
        struct k3_options o = small_model_options(1);
        alarm(60); /* a hang is no abort */
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        o.sequences = 2;
        o.rows = 2;
        o.memory_bytes = small_model_floor(&model, o);
        struct k3 *k = small_model_open(&model, &o);
        if (k3_plan_of(k)->streamed_tiles < 2 || k3_rows(k) < 2)
            _exit(3);
        broken(k);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status));
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static int pass(struct k3 *k, const struct k3_row *rows, uint32_t n)
{
    struct error error = { 0 };
    return k3_pass(k, rows, n, &error);
}

static void nothing_broken(struct k3 *k)
{
    struct k3_row rows[2] = { { .sequence = 0 }, { .sequence = 1 } };
    if (pass(k, rows, 2))
        abort();
    rows[0].position = rows[1].position = 1;
    if (pass(k, rows, 2))
        abort();
}

static void a_position_skipped(struct k3 *k)
{
    struct k3_row row = { .position = 1 };
    pass(k, &row, 1);
}

static void a_position_again(struct k3 *k)
{
    struct k3_row row = { .position = 0 };
    pass(k, &row, 1);
    pass(k, &row, 1);
}

static int skip_one(void *arg, struct flow *f, uint32_t tile,
                    const uint8_t **frame)
{
    (void)arg;
    while (tile + 1 < f->tiles->count &&
           (f->resident[tile] || f->resident[tile + 1]))
        tile++;
    return flow_hold(arg, f, tile + 1, frame);
}

static void a_tile_skipped(struct k3 *k)
{
    static struct flow_ops ops;
    struct flow *f = k3_flow(k);
    struct k3_row row = { .position = 0 };
    ops = *f->ops;
    ops.hold = skip_one;
    f->ops = &ops;
    pass(k, &row, 1);
}

static void a_tile_twice(struct k3 *k)
{
    const uint8_t *frame;
    struct flow *f = k3_flow(k);
    uint32_t tile = 0;
    while (f->resident[tile])
        tile++;
    k3_set_readahead(k, 1);
    stream_hold(k3_stream(k), tile, &frame);
    stream_hold(k3_stream(k), tile, &frame);
}

static void a_tile_not_read(struct k3 *k)
{
    const uint8_t *frame;
    struct flow *f = k3_flow(k);
    uint32_t tile = 0;
    while (f->resident[tile])
        tile++;
    stream_hold(k3_stream(k), tile, &frame);
}

static void test_contracts(void **state)
{
    (void)state;
    assert_false(aborts(nothing_broken));
    assert_true(aborts(a_position_skipped));
    assert_true(aborts(a_position_again));
    assert_true(aborts(a_tile_skipped));
    assert_true(aborts(a_tile_twice));
    assert_true(aborts(a_tile_not_read));
}

static int make_model(void **state)
{
    (void)state;
    small_model_make(&model, 0);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    small_model_remove(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_and_tiles),
        /* Before any session here: a child has no team of its parent's. */
        cmocka_unit_test(test_contracts),
        cmocka_unit_test(test_engine),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
