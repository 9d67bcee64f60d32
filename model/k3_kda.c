/* k3_kda.c - Kimi Delta Attention (k3-spec 3.5), and its replay for drafts.
 *
 * The state cannot be rewound. Rows that are sure go into it; draft rows go on
 * from a copy of one head's state, a head at a time, and leave behind what
 * k3_accept needs to put the ones that come true into the state later.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/conv.h"
#include "compute/glu.h"
#include "compute/kda.h"
#include "compute/norm.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"

enum { CONV_GRAIN = 1024 };

static const float l2_eps = 1e-6f;

/* What one draft row leaves behind in one layer: the inputs of the
 * convolutions, for the history, and what goes into the state. The taps are not
 * there any more when the row is accepted, so k and v are kept from after the
 * convolution too. */
struct draft {
    float *raw[3], *key, *value, *decay, *beta;
};

static struct draft draft_at(struct k3 *k, uint32_t index, uint32_t number)
{
    size_t width = k->shape.width;
    float *at = k->s.drafts + ((size_t)index * k->o.drafts + number) *
                                  (6 * width + k->c.kda_heads);
    struct draft d = { .key = at + 3 * width, .value = at + 4 * width,
                       .decay = at + 5 * width, .beta = at + 6 * width };
    for (int i = 0; i < 3; i++)
        d.raw[i] = at + (size_t)i * width;
    return d;
}

/* ---- convolution ---- */

struct conv_job {
    struct k3 *k;
    uint32_t index; /* among KDA layers */
};

static const enum tensor_role taps[3] = { T_QCONV, T_KCONV, T_VCONV };

/* Convolve a run's inputs, which follow the history. Channels [begin, end). */
static void conv_run(const struct k3 *k, const float *history,
                     const float *raw, float *out, const void *taps_f32,
                     uint32_t count, size_t begin, size_t end)
{
    size_t width = k->shape.width;
    uint32_t kernel = k->c.conv_kernel, past = kernel - 1;
    const float *in[CONV_KERNEL_MAX];
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < kernel; j++)
            in[j] = i + j < past ? history + (i + j) * width
                                 : raw + (size_t)(i + j - past) * width;
        conv_silu(out + i * width, in, taps_f32, begin, end, kernel);
    }
}

/* One input more in the history. Channels [begin, end). */
static void push_history(const struct k3 *k, float *history, const float *raw,
                         size_t begin, size_t end)
{
    size_t width = k->shape.width, bytes = (end - begin) * sizeof(float);
    for (uint32_t j = 0; j < k->shape.conv_history; j++) {
        const float *next = j + 1 < k->shape.conv_history
                                ? history + (j + 1) * width
                                : raw;
        memcpy(history + j * width + begin, next + begin, bytes);
    }
}

static void conv_channels(void *arg, size_t begin, size_t end,
                          unsigned worker)
{
    (void)worker;
    struct conv_job *j = arg;
    struct k3 *k = j->k;
    for (uint32_t i = 0; i < k->runs; i++) {
        const struct run *run = &k->run[i];
        uint8_t *state = k->state + run->sequence * k->shape.bytes;
        size_t first = (size_t)run->first * k->shape.width;
        for (uint32_t w = 0; w < 3; w++) {
            float *history = state_conv(state, &k->shape, j->index, w);
            const float *raw = k->s.raw[w] + first;
            conv_run(k, history, raw, k->s.conv[w] + first,
                     k->small.at[taps[w]], run->count, begin, end);
            for (uint32_t r = 0; r < run->kept; r++)
                push_history(k, history, raw + r * k->shape.width, begin,
                             end);
            for (uint32_t r = run->kept; r < run->count; r++) {
                struct draft d = draft_at(k, j->index,
                                          run->draft + r - run->kept);
                memcpy(d.raw[w] + begin, raw + r * k->shape.width + begin,
                       (end - begin) * sizeof(float));
            }
        }
    }
}

/* ---- recurrence ---- */

struct head_job {
    struct k3 *k;
    uint32_t index;
};

/* One head of one run: rows in order through the state. */
static void head_rows(struct k3 *k, const struct run *run, uint32_t index,
                      uint32_t head, float *copy)
{
    struct scratch *s = &k->s;
    size_t dim = k->c.kda_dim, width = k->shape.width, at = head * dim;
    uint8_t *block = k->state + run->sequence * k->shape.bytes;
    float *state = state_kda(block, &k->shape, index) + at * dim;
    float a_log;
    memcpy(&a_log, k->small.at[T_A_LOG] + head * sizeof a_log, sizeof a_log);
    const uint8_t *dt_bias = k->small.at[T_DT_BIAS] + at * sizeof(float);
    float key_scale = 1.0f, query_scale = 1.0f / sqrtf((float)dim);
    for (uint32_t i = 0; i < run->count; i++) {
        size_t row = run->first + i, cell = row * width + at;
        float *q = s->conv[0] + cell, *key = s->conv[1] + cell;
        float *decay = s->decay + cell;
        float beta = s->beta[row * k->c.kda_heads + head];
        if (i == run->kept) {
            memcpy(copy, state, dim * dim * sizeof *copy);
            state = copy;
        }
        l2_norm(q, dim, l2_eps, query_scale);
        l2_norm(key, dim, l2_eps, key_scale);
        kda_decay(decay, decay, dt_bias, a_log, k->c.gate_lower_bound, dim);
        if (i >= run->kept) {
            struct draft d = draft_at(k, index, run->draft + i - run->kept);
            memcpy(d.key + at, key, dim * sizeof *key);
            memcpy(d.value + at, s->conv[2] + cell, dim * sizeof *key);
            memcpy(d.decay + at, decay, dim * sizeof *key);
            d.beta[head] = beta;
        }
        kda_step(s->conv[2] + cell, state, q, key, s->conv[2] + cell, decay,
                 beta, dim, dim);
        rms_norm_f32(q, s->conv[2] + cell, k->small.at[T_O_NORM], dim,
                     k->c.rms_eps);
        sigmoid_gate(q, q, s->gate + cell, dim);
    }
}

static void heads(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct head_job *j = arg;
    struct k3 *k = j->k;
    float *copy = (void *)(k->s.worker + worker * k->s.worker_bytes);
    for (size_t i = begin; i < end; i++)
        head_rows(k, &k->run[i / k->c.kda_heads], j->index,
                  (uint32_t)(i % k->c.kda_heads), copy);
}

/* beta = sigma(b x), in place. */
static void make_beta(struct pass *p)
{
    struct k3 *k = p->k;
    size_t n = k->c.kda_heads;
    float ones[256];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    for (size_t at = 0; at < p->rows * n; at += 256) {
        size_t left = p->rows * n - at;
        float *beta = k->s.beta + at;
        sigmoid_gate(beta, ones, beta, left < 256 ? left : 256);
    }
}

int k3_kda(struct pass *p, uint32_t layer)
{
    struct k3 *k = p->k;
    struct scratch *s = &k->s;
    size_t width = k->shape.width;
    static const enum tensor_role roles[4] = { T_Q, T_K, T_V, T_G };
    float *to[4] = { s->raw[0], s->raw[1], s->raw[2], s->gate };
    uint32_t index = k->index_in_kind[layer];
    for (int i = 0; i < 4; i++) {
        int err = k3_product(p, (int)layer, roles[i], s->xp, p->rows, to[i],
                             width);
        if (err)
            return err;
    }
    int64_t begin = stream_clock_ns();
    make_beta(p);
    struct conv_job conv = { k, index };
    team_for(k->team, width, CONV_GRAIN, conv_channels, &conv);
    struct head_job job = { k, index };
    team_for(k->team, (size_t)k->runs * k->c.kda_heads, 1, heads, &job);
    k3_pack(k, s->op, s->conv[0], p->rows, width);
    k3_note(k, K3_RECURRENCE, layer, begin);
    return k3_product(p, (int)layer, T_O, s->op, p->rows, s->out,
                      k->c.hidden);
}

/* ---- drafts that came true ---- */

struct replay_job {
    struct k3 *k;
    const struct run *run;
    uint32_t rows;
};

static void replay_heads(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct replay_job *j = arg;
    struct k3 *k = j->k;
    uint8_t *block = k->state + j->run->sequence * k->shape.bytes;
    float *unused = (void *)(k->s.worker + worker * k->s.worker_bytes);
    size_t dim = k->c.kda_dim;
    for (size_t i = begin; i < end; i++) {
        uint32_t index = (uint32_t)(i / k->c.kda_heads);
        uint32_t head = (uint32_t)(i % k->c.kda_heads);
        size_t at = head * dim;
        float *state = state_kda(block, &k->shape, index) + at * dim;
        for (uint32_t r = 0; r < j->rows; r++) {
            struct draft d = draft_at(k, index, j->run->draft + r);
            kda_step(unused, state, d.key + at, d.key + at, d.value + at,
                     d.decay + at, d.beta[head], dim, dim);
            for (uint32_t w = 0; w < 3; w++)
                push_history(k, state_conv(block, &k->shape, index, w),
                             d.raw[w], at, at + dim);
        }
    }
}

struct accept_job {
    struct k3 *k;
    struct replay_job replay;
};

static void replay(void *arg)
{
    struct accept_job *j = arg;
    team_for(j->k->team, (size_t)j->k->shape.kda_layers * j->k->c.kda_heads, 1,
             replay_heads, &j->replay);
}

void k3_accept(struct k3 *k, uint32_t sequence, uint32_t n)
{
    for (uint32_t i = 0; i < k->runs; i++) {
        const struct run *run = &k->run[i];
        if (run->sequence != sequence)
            continue;
        assert(n <= run->count - run->kept);
        struct accept_job j = { k, { k, run, n } };
        if (n)
            team_run(k->team, replay, &j);
        state_header(k->state + sequence * k->shape.bytes)->positions += n;
        if (k->o.accepted)
            k->o.accepted(k->o.routed_arg, sequence, n);
    }
}
