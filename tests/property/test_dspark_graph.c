/* Goal    a drafter computes what its description says, at other shapes than
 *         those of the fixtures; and every mistake that is easily made there
 *         would be seen.
 * Method  random drafters of both layouts for a small model, and a second
 *         implementation in double, written from the formulas, that is given
 *         the same taps: logits within 1e-4 of the largest, ids equal, for two
 *         sequences at once, after a prompt longer than what waits at one time,
 *         a copy of a context, and a window that has gone around. Then the
 *         second implementation makes one mistake at a time, and has to differ.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/ckpt/ckpt.h"
#include "model/dspark/dspark.h"
#include "model/dspark/weights.h"
#include "model/k3/weights.h"
#include "model/tools/synth_drafter.h"
#include "tests/property/small_model.h"

enum { CONTEXT = 200, SEQUENCES = 3, PROMPT = 150, BLOCK = DSPARK_BLOCK };

enum mistake {
    NONE, EPSILON, INPUT_NORM_ON_CONTEXT, CAUSAL, NO_MASK_ROWS, PAIRING,
    NO_MAGNITUDE, NO_YARN, POSITION_PLUS_ONE, ROWS_FROM_ONE, NO_MARKOV,
    HEAD_GROUPS, NO_KEY_NORM, SITU_LIKE_UP, SKIPS_LAST_NORM, MISTAKES
};

static const char *const mistake_names[MISTAKES] = {
    "none", "epsilon 1e-3", "input norm on the context", "causal block",
    "mask rows left out", "wrong pairs rotated", "no magnitude", "no YaRN",
    "block a place too far", "rows from 1", "no Markov head",
    "heads share other keys", "keys not normed", "gate and up swapped",
    "no last norm"
};

/* ---- tensors as doubles ---- */

struct ref {
    struct dspark_config c;
    struct dspark_weights w;
    int      fd;
    double  *tensor[DSPARK_LAYERS_MAX][DSPARK_ROLES];
    double  *embed, *head; /* of the model, [vocab][hidden] */
    double  *taps;         /* [position][taps * hidden] of one sequence */
    uint32_t positions, first; /* the context: [first, positions) */
    enum mistake mistake;
};

static double *values(int fd, uint64_t offset, uint64_t bytes)
{
    uint16_t *raw = malloc(bytes);
    double *out = malloc(bytes / 2 * sizeof *out);
    assert_int_equal(pread(fd, raw, bytes, (off_t)offset), bytes);
    for (uint64_t i = 0; i < bytes / 2; i++) {
        uint32_t bits = (uint32_t)raw[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        out[i] = (double)f;
    }
    free(raw);
    return out;
}

static double *of(struct ref *r, enum dspark_role role, uint32_t index)
{
    const struct dspark_tensor *t = &r->w.at[index][role];
    if (!r->tensor[index][role])
        r->tensor[index][role] = values(r->fd, t->offset_bytes,
                                        t->length_bytes);
    return r->tensor[index][role];
}

static double *of_model(const struct k3 *k, enum tensor_role role)
{
    struct extent e;
    const struct ckpt *ckpt = k3_weights(k)->ckpt;
    assert_int_equal(ckpt_tensor(ckpt, TENSOR_MODEL_LEVEL, role, &e), 0);
    int fd = open(ckpt_path(ckpt, e.file), O_RDONLY);
    double *out = values(fd, e.offset_bytes, e.length_bytes);
    close(fd);
    return out;
}

static double *zeros(size_t n)
{
    double *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void multiply(double *y, const double *w, const double *x,
                     uint32_t rows, uint32_t cols)
{
    for (uint32_t o = 0; o < rows; o++) {
        y[o] = 0;
        for (uint32_t i = 0; i < cols; i++)
            y[o] += w[(size_t)o * cols + i] * x[i];
    }
}

static void norm(const struct ref *r, double *y, const double *x,
                 const double *gain, uint32_t n)
{
    double sum = 0, eps = r->mistake == EPSILON ? 1e-3 : (double)r->c.eps;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    double root = 1 / sqrt(sum / n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * root * gain[i];
}

/* ---- rotation ---- */

static double ramp(const struct ref *r, double i, double dim)
{
    const struct dspark_rope *p = &r->c.rotation;
    double two_ln = 2 * log(p->theta);
    double low = floor(dim * log(p->original / (32 * 2 * M_PI)) / two_ln);
    double high = ceil(dim * log(p->original / (2 * M_PI)) / two_ln);
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    return fmin(fmax((i - low) / (high == low ? 0.001 : high - low), 0), 1);
}

static void rotate(const struct ref *r, double *x, uint32_t dim,
                   double position)
{
    const struct dspark_rope *p = &r->c.rotation;
    bool mla = r->c.kind == DSPARK_MLA, near = mla;
    double mag = mla || r->mistake == NO_MAGNITUDE ? 1
                                                   : 0.1 * log(p->factor) + 1;
    near ^= r->mistake == PAIRING;
    position += r->mistake == POSITION_PLUS_ONE && position >= r->positions;
    for (uint32_t i = 0; i < dim / 2; i++) {
        double e = pow(p->theta, -2.0 * i / dim), g = ramp(r, i, dim);
        double inv = r->mistake == NO_YARN ? e
                                           : e * (1 - g) + e / p->factor * g;
        double *a = &x[near ? 2 * i : i], *b = &x[near ? 2 * i + 1
                                                       : i + dim / 2];
        double c = cos(position * inv) * mag, s = sin(position * inv) * mag;
        double was = *a;
        *a = was * c - *b * s;
        *b = *b * c + was * s;
    }
}

/* ---- keys and values ---- */

/* Of one row: k [heads of keys][dim], v the same; for MLA expanded from the
 * latent, [heads][nope + rope] and [heads][v_dim]. */
static void keys(struct ref *r, uint32_t layer, const double *h,
                 double position, double *k, double *v)
{
    const struct dspark_config *c = &r->c;
    if (c->kind == DSPARK_GQA) {
        uint32_t n = c->kv_heads * c->head_dim;
        multiply(k, of(r, D_K, layer), h, n, c->hidden);
        multiply(v, of(r, D_V, layer), h, n, c->hidden);
        for (uint32_t i = 0; i < c->kv_heads; i++) {
            double *at = k + i * c->head_dim;
            if (r->mistake != NO_KEY_NORM)
                norm(r, at, at, of(r, D_K_NORM, layer), c->head_dim);
            rotate(r, at, c->head_dim, position);
        }
        return;
    }
    uint32_t width = c->kv_rank + c->rope, query = c->nope + c->rope;
    uint32_t rows = c->nope + c->v_dim;
    double *kv = zeros(width), *both = zeros(c->heads * rows);
    multiply(kv, of(r, D_KVA, layer), h, width, c->hidden);
    if (r->mistake != NO_KEY_NORM)
        norm(r, kv, kv, of(r, D_KVA_NORM, layer), c->kv_rank);
    rotate(r, kv + c->kv_rank, c->rope, position);
    multiply(both, of(r, D_KVB, layer), kv, c->heads * rows, c->kv_rank);
    for (uint32_t i = 0; i < c->heads; i++) {
        memcpy(k + i * query, both + i * rows, c->nope * sizeof *k);
        memcpy(k + i * query + c->nope, kv + c->kv_rank, c->rope * sizeof *k);
        memcpy(v + i * c->v_dim, both + i * rows + c->nope,
               c->v_dim * sizeof *v);
    }
    free(kv);
    free(both);
}

struct sizes {
    uint32_t query, value, key_heads; /* of a head; heads of keys */
};

static struct sizes sizes(const struct dspark_config *c)
{
    return c->kind == DSPARK_MLA
               ? (struct sizes){ c->nope + c->rope, c->v_dim, c->heads }
               : (struct sizes){ c->head_dim, c->head_dim, c->kv_heads };
}

static void query(struct ref *r, uint32_t layer, const double *h,
                  double position, double *q)
{
    const struct dspark_config *c = &r->c;
    struct sizes s = sizes(c);
    if (c->kind == DSPARK_GQA) {
        multiply(q, of(r, D_Q, layer), h, c->heads * s.query, c->hidden);
    } else {
        double *latent = zeros(c->q_rank);
        multiply(latent, of(r, D_QA, layer), h, c->q_rank, c->hidden);
        norm(r, latent, latent, of(r, D_QA_NORM, layer), c->q_rank);
        multiply(q, of(r, D_QB, layer), latent, c->heads * s.query, c->q_rank);
        free(latent);
    }
    for (uint32_t i = 0; i < c->heads; i++) {
        double *at = q + i * s.query;
        if (c->kind == DSPARK_GQA)
            norm(r, at, at, of(r, D_Q_NORM, layer), s.query);
        rotate(r, c->kind == DSPARK_GQA ? at : at + c->nope,
               c->kind == DSPARK_GQA ? s.query : c->rope, position);
    }
}

/* ---- a block ---- */

static void attend(struct ref *r, uint32_t layer, const double *context,
                   const double *h, double *out)
{
    const struct dspark_config *c = &r->c;
    struct sizes s = sizes(c);
    uint32_t n = r->positions - r->first, all = n + BLOCK;
    double scale = 1 / sqrt(s.query), *scores = zeros(all);
    double *k = zeros((size_t)all * s.key_heads * s.query);
    double *v = zeros((size_t)all * s.key_heads * s.value);
    double *q = zeros((size_t)c->heads * s.query);
    if (c->kind == DSPARK_MLA)
        scale *= pow(0.1 * log(c->rotation.factor) + 1, 2);
    for (uint32_t i = 0; i < all; i++) {
        const double *from = i < n ? context + (size_t)i * c->hidden
                                   : h + (size_t)(i - n) * c->hidden;
        double *normed = zeros(c->hidden);
        if (i < n && r->mistake == INPUT_NORM_ON_CONTEXT) {
            norm(r, normed, from, of(r, D_INPUT_NORM, layer), c->hidden);
            from = normed;
        }
        keys(r, layer, from, r->first + i,
             k + (size_t)i * s.key_heads * s.query,
             v + (size_t)i * s.key_heads * s.value);
        free(normed);
    }
    for (uint32_t row = 0; row < BLOCK; row++) {
        query(r, layer, h + (size_t)row * c->hidden, r->positions + row, q);
        for (uint32_t head = 0; head < c->heads; head++) {
            uint32_t group = c->heads / s.key_heads, key = head / group;
            double most = -INFINITY, sum = 0;
            double *o = out + ((size_t)row * c->heads + head) * s.value;
            if (r->mistake == HEAD_GROUPS)
                key = head % s.key_heads;
            memset(o, 0, s.value * sizeof *o);
            for (uint32_t i = 0; i < all; i++) {
                const double *at = k + ((size_t)i * s.key_heads + key) *
                                           s.query;
                bool seen = r->mistake != CAUSAL || i <= n + row;
                seen &= r->mistake != NO_MASK_ROWS || i <= n;
                scores[i] = seen ? 0 : -INFINITY;
                for (uint32_t d = 0; d < s.query && seen; d++)
                    scores[i] += q[head * s.query + d] * at[d] * scale;
                most = fmax(most, scores[i]);
            }
            for (uint32_t i = 0; i < all; i++)
                sum += scores[i] = exp(scores[i] - most);
            for (uint32_t i = 0; i < all; i++)
                for (uint32_t d = 0; d < s.value; d++)
                    o[d] += scores[i] / sum *
                            v[((size_t)i * s.key_heads + key) * s.value + d];
        }
    }
    free(scores);
    free(k);
    free(v);
    free(q);
}

static void layer(struct ref *r, uint32_t l, const double *context, double *x)
{
    const struct dspark_config *c = &r->c;
    uint32_t value = c->heads * sizes(c).value;
    double *h = zeros((size_t)BLOCK * c->hidden), *out = zeros(c->hidden);
    double *mix = zeros((size_t)BLOCK * value);
    double *g = zeros(c->inter), *u = zeros(c->inter);
    bool swap = r->mistake == SITU_LIKE_UP;
    for (uint32_t i = 0; i < BLOCK; i++)
        norm(r, h + i * c->hidden, x + i * c->hidden, of(r, D_INPUT_NORM, l),
             c->hidden);
    attend(r, l, context, h, mix);
    for (uint32_t i = 0; i < BLOCK; i++) {
        double *at = x + i * c->hidden;
        multiply(out, of(r, D_O, l), mix + (size_t)i * value, c->hidden, value);
        for (uint32_t d = 0; d < c->hidden; d++)
            at[d] += out[d];
        norm(r, h, at, of(r, D_POST_NORM, l), c->hidden);
        multiply(g, of(r, swap ? D_UP : D_GATE, l), h, c->inter, c->hidden);
        multiply(u, of(r, swap ? D_GATE : D_UP, l), h, c->inter, c->hidden);
        for (uint32_t d = 0; d < c->inter; d++)
            g[d] = g[d] / (1 + exp(-g[d])) * u[d];
        multiply(out, of(r, D_DOWN, l), g, c->hidden, c->inter);
        for (uint32_t d = 0; d < c->hidden; d++)
            at[d] += out[d];
    }
    free(h);
    free(out);
    free(mix);
    free(g);
    free(u);
}

/* Logits [BLOCK][vocab] and the ids that they give. */
static void run_block(struct ref *r, uint32_t id, double *logits,
                      uint32_t ids[BLOCK])
{
    const struct dspark_config *c = &r->c;
    uint32_t n = r->positions - r->first, width = c->taps * c->hidden;
    double *context = zeros((size_t)(n + 1) * c->hidden);
    double *x = zeros((size_t)(BLOCK + 1) * c->hidden), *u = zeros(c->vocab);
    for (uint32_t i = 0; i < n; i++) {
        double *at = context + (size_t)i * c->hidden;
        multiply(at, of(r, D_FUSE, 0), r->taps + (size_t)(r->first + i) * width,
                 c->hidden, width);
        norm(r, at, at, of(r, D_CONTEXT_NORM, 0), c->hidden);
    }
    for (uint32_t i = 0; i < BLOCK; i++)
        memcpy(x + i * c->hidden,
               r->embed + (size_t)(i ? c->mask_id : id) * c->hidden,
               c->hidden * sizeof *x);
    for (uint32_t l = 0; l < c->layers; l++)
        layer(r, l, context, x);
    for (uint32_t i = 0; i < BLOCK; i++) {
        double *row = logits + (size_t)i * c->vocab;
        uint32_t from = r->mistake == ROWS_FROM_ONE ? (i + 1) % BLOCK : i;
        double *at = x + BLOCK * c->hidden; /* room for one more */
        if (r->mistake == SKIPS_LAST_NORM)
            memcpy(at, x + from * c->hidden, c->hidden * sizeof *at);
        else
            norm(r, at, x + from * c->hidden, of(r, D_NORM, 0), c->hidden);
        multiply(row, r->head, at, c->vocab, c->hidden);
        multiply(u, of(r, D_W2, 0), of(r, D_W1, 0) + (size_t)id * c->rank,
                 c->vocab, c->rank);
        ids[i] = 0;
        for (uint32_t v = 0; v < c->vocab; v++) {
            row[v] += r->mistake == NO_MARKOV ? 0 : u[v];
            ids[i] = row[v] > row[ids[i]] ? v : ids[i];
        }
        id = ids[i];
    }
    free(context);
    free(x);
    free(u);
}

/* ---- both of them ---- */

struct rig {
    struct ref     ref[SEQUENCES];
    struct k3     *k;
    struct dspark *d;
};

static struct small_model model;
static char dir[64];

static void make(struct rig *r, enum dspark_kind kind, uint32_t window)
{
    struct error error = { 0 };
    struct k3_options o = small_model_options(200 << 20);
    struct config k3;
    uint64_t bytes;
    char path[128];
    struct synth_drafter_options s = { .dir = dir, .like = model.dir,
                                       .kind = kind, .seed = 3 };
    memset(r, 0, sizeof *r);
    if (synth_drafter(&s, &bytes, &error) ||
        config_load(&k3, model.dir, &error))
        fail_msg("%s", error.text);
    struct dspark_options d = { .context = CONTEXT, .sequences = SEQUENCES,
                                .threads = 2, .window = window };
    if (dspark_open(&r->d, dir, &k3, &d, &error))
        fail_msg("%s", error.text);
    o.context = CONTEXT;
    o.sequences = SEQUENCES;
    o.rows = 160;
    o.guest = dspark_guest(r->d);
    r->k = small_model_open(&model, &o);
    if (dspark_start(r->d, r->k, &error))
        fail_msg("%s", error.text);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct ref *f = &r->ref[i];
        f->c = *dspark_config(r->d);
        assert_int_equal(dspark_weights_open(&f->w, path, &f->c, &error), 0);
        f->fd = open(path, O_RDONLY);
        f->embed = of_model(r->k, T_EMBED);
        f->head = of_model(r->k, T_HEAD);
        f->taps = zeros((size_t)CONTEXT * f->c.taps * f->c.hidden);
    }
    config_free(&k3);
}

static void drop(struct rig *r)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct ref *f = &r->ref[i];
        for (uint32_t l = 0; l < DSPARK_LAYERS_MAX; l++)
            for (uint32_t t = 0; t < DSPARK_ROLES; t++)
                free(f->tensor[l][t]);
        close(f->fd);
        free(f->embed);
        free(f->head);
        free(f->taps);
    }
    k3_close(r->k);
    dspark_close(r->d);
}

/* n random rows of a sequence. */
static void feed(struct rig *r, uint32_t sequence, uint32_t n, uint64_t *state)
{
    struct ref *f = &r->ref[sequence];
    struct k3_row row[PROMPT] = { 0 };
    struct error error = { 0 };
    uint32_t width = f->c.taps * f->c.hidden;
    for (uint32_t i = 0; i < n; i++)
        row[i] = (struct k3_row){ .sequence = sequence,
                                  .position = f->positions + i,
                                  .id = small_model_random(state) %
                                        f->c.vocab };
    if (k3_pass(r->k, row, n, &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < width; j++)
            f->taps[(size_t)(f->positions + i) * width + j] =
                (double)k3_taps(r->k, i)[j];
    dspark_keep(r->d, sequence, f->positions, 0, n);
    f->positions += n;
}

/* The largest difference of the logits, over the largest. */
static double difference(struct rig *r, struct ref *f, uint32_t ask,
                         const uint32_t *ids, uint32_t id)
{
    size_t n = (size_t)BLOCK * f->c.vocab;
    double *want = zeros(n), most = 0, off = 0;
    uint32_t wanted[BLOCK];
    run_block(f, id, want, wanted);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs(want[i] -
                             (double)dspark_logits(r->d, ask)[i]));
    }
    free(want);
    return memcmp(ids, wanted, sizeof wanted) ? 1 : off / most;
}

static void both(enum dspark_kind kind, bool mistakes)
{
    struct rig r;
    uint64_t state = 7;
    uint32_t window = 64;
    make(&r, kind, window);
    assert_true(r.ref[0].c.taps > 1);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        dspark_begin(r.d, i, 0);
    feed(&r, 0, 40, &state);
    feed(&r, 1, 9, &state);
    struct dspark_ask ask[] = { { .sequence = 0, .id = 5 },
                                { .sequence = 1, .id = 6 } };
    assert_int_equal(dspark_draft(r.d, ask, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        double off = difference(&r, &r.ref[i], i, ask[i].ids, ask[i].id);
        if (!(off <= 1e-4))
            fail_msg("sequence %u is off by %g", i, off);
    }
    for (int m = 1; m < MISTAKES && mistakes; m++) {
        bool other = (m == NO_MAGNITUDE || m == HEAD_GROUPS) &&
                     kind == DSPARK_MLA; /* it has neither */
        r.ref[1].mistake = (enum mistake)m;
        double off = difference(&r, &r.ref[1], 1, ask[1].ids, ask[1].id);
        if (!other && off <= 3e-4)
            fail_msg("%s: only %g off", mistake_names[m], off);
        r.ref[1].mistake = NONE;
    }
    /* More rows at once than wait, a copy, and around the window. */
    feed(&r, 0, 1, &state);
    dspark_copy(r.d, 2, 0);
    memcpy(r.ref[2].taps, r.ref[0].taps, (size_t)CONTEXT * r.ref[0].c.taps *
                                             r.ref[0].c.hidden *
                                             sizeof(double));
    r.ref[2].positions = r.ref[0].positions;
    feed(&r, 0, PROMPT - 10, &state);
    for (uint32_t i = 0; i < 2; i++) {
        struct ref *f = &r.ref[i ? 2 : 0];
        if (f->positions > window)
            f->first = f->positions - window;
        ask[i] = (struct dspark_ask){ .sequence = i ? 2 : 0, .id = 9 + i };
    }
    assert_int_equal(dspark_draft(r.d, ask, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        double off = difference(&r, &r.ref[i ? 2 : 0], i, ask[i].ids,
                                ask[i].id);
        if (!(off <= 1e-4))
            fail_msg("%s is off by %g", i ? "the copy" : "the window", off);
    }
    drop(&r);
}

static void gqa(void **state)
{
    (void)state;
    both(DSPARK_GQA, true);
}

static void mla(void **state)
{
    (void)state;
    both(DSPARK_MLA, true);
}

static int set_up(void **state)
{
    (void)state;
    small_model_make(&model, 0);
    snprintf(dir, sizeof dir, "/tmp/sluice-dspark-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    small_model_remove(&model);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gqa),
                                        cmocka_unit_test(mla) };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
