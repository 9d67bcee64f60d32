/* kda.c - Kimi Delta Attention, and its replay for drafts.
 *
 *     q, k, v = silu(conv(Wq x)), silu(conv(Wk x)), silu(conv(Wv x))
 *     q, k of each head to length 1, q then over sqrt(dim)
 *     alpha = exp(lower_bound * sigmoid(exp(A_log) (Wfb Wfa x + dt_bias)))
 *     S = diag(alpha) S;  S += beta k (v - S' k)';  o = S' q;
 *     beta = sigmoid(Wb x)
 *     out = Wo (rms(o) * sigmoid(Wg x)), the norm over each head
 *
 * The state S cannot be rewound. Rows that are certain update it. Draft rows
 * work on a copy of one head's state, a head at a time, and their inputs are
 * kept: k3_accept applies those of the accepted rows to the state.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/conv.h"
#include "compute/glu.h"
#include "compute/kda.h"
#include "compute/norm.h"
#include "model/k3/k3_internal.h"

enum { CONV_GRAIN = 1024 };

static const float l2_eps = 1e-6f;

/* What is kept of one draft row in one layer: the inputs of the convolutions,
 * for the history, and what updates the state. When the row is accepted the
 * taps of the convolution are no longer in memory, so its outputs k and v are
 * kept as well. */
struct draft {
    float *raw[3], *key, *value, *decay, *beta;
};

static struct draft draft_at(struct k3 *k, uint32_t index, uint32_t number)
{
    size_t width = config_kda_width(&k->c);
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

/* Convolve the inputs of a run of rows, which follow the history. Of our
 * channels [begin, end), where all pointers begin. */
static void conv_run(const struct k3 *k, const float *history,
                     const float *raw, float *out, const void *taps_f32,
                     uint32_t count, size_t begin, size_t end)
{
    size_t width = config_kda_width(&k->c), own = k->shape.width;
    uint32_t kernel = k->c.conv_kernel, past = kernel - 1;
    const float *in[CONV_KERNEL_MAX];
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < kernel; j++)
            in[j] = i + j < past ? history + (i + j) * own
                                 : raw + (size_t)(i + j - past) * width;
        conv_silu(&k->kern, out + i * width, in, taps_f32, begin, end, kernel);
    }
}

/* Append one input to the history. Of our channels [begin, end). */
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
    size_t width = config_kda_width(&k->c), ours = k->shape.first;
    for (uint32_t i = 0; i < k->flow.runs; i++) {
        const struct flow_run *run = &k->flow.run[i];
        uint8_t *state = k->state + run->sequence * k->shape.bytes;
        size_t first = run->first * width + ours;
        for (uint32_t w = 0; w < 3; w++) {
            float *history = state_conv(state, &k->shape, j->index, w);
            const float *raw = k->s.raw[w] + first;
            conv_run(k, history, raw, k->s.conv[w] + first,
                     k->vectors.at[taps[w]] +
                         ours * k->c.conv_kernel * sizeof(float),
                     run->count, begin, end);
            for (uint32_t r = 0; r < run->kept; r++)
                push_history(k, history, raw + r * width, begin, end);
            for (uint32_t r = run->kept; r < run->count; r++) {
                struct draft d = draft_at(k, j->index,
                                          run->draft + r - run->kept);
                memcpy(d.raw[w] + ours + begin, raw + r * width + begin,
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
static void head_rows(struct k3 *k, const struct flow_run *run, uint32_t index,
                      uint32_t head, float *copy)
{
    struct scratch *s = &k->s;
    size_t dim = k->c.kda_dim, width = config_kda_width(&k->c);
    size_t at = head * dim;
    uint8_t *block = k->state + run->sequence * k->shape.bytes;
    float *state = state_kda(block, &k->shape, index) +
                   (at - k->shape.first) * dim;
    float a_log;
    memcpy(&a_log, k->vectors.at[T_A_LOG] + head * sizeof a_log, sizeof a_log);
    const uint8_t *dt_bias = k->vectors.at[T_DT_BIAS] + at * sizeof(float);
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
        l2_norm(&k->kern, q, dim, l2_eps, query_scale);
        l2_norm(&k->kern, key, dim, l2_eps, key_scale);
        kda_decay(&k->kern, decay, decay, dt_bias, a_log, k->c.gate_lower_bound,
                  dim);
        if (i >= run->kept) {
            struct draft d = draft_at(k, index, run->draft + i - run->kept);
            memcpy(d.key + at, key, dim * sizeof *key);
            memcpy(d.value + at, s->conv[2] + cell, dim * sizeof *key);
            memcpy(d.decay + at, decay, dim * sizeof *key);
            d.beta[head] = beta;
        }
        kda_step(&k->kern, s->conv[2] + cell, state, q, key, s->conv[2] + cell,
                 decay, beta, dim, dim);
        rms_norm_f32(&k->kern, q, s->conv[2] + cell, k->vectors.at[T_O_NORM],
                     dim, k->c.rms_eps);
        sigmoid_gate(&k->kern, q, q, s->kda_gate + cell, dim);
    }
}

static void heads(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct head_job *j = arg;
    struct k3 *k = j->k;
    float *copy = (void *)(k->s.worker + worker * k->s.worker_bytes);
    size_t first = k->shape.first / k->c.kda_dim;
    size_t own = k->shape.width / k->c.kda_dim;
    for (size_t i = begin; i < end; i++)
        head_rows(k, &k->flow.run[i / own], j->index,
                  (uint32_t)(first + i % own), copy);
}

/* beta = sigmoid(b x), in place. */
static void make_beta(struct k3 *k)
{
    size_t n = k->c.kda_heads;
    float ones[256];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    for (size_t at = 0; at < k->flow.rows * n; at += 256) {
        size_t left = k->flow.rows * n - at;
        float *beta = k->s.beta + at;
        sigmoid_gate(&k->kern, beta, ones, beta, left < 256 ? left : 256);
    }
}

void k3_recur(struct k3 *k, uint32_t layer)
{
    size_t own = k->shape.width;
    uint32_t index = k->index_in_kind[layer];
    make_beta(k);
    struct conv_job conv = { k, index };
    team_for(k->team, own, CONV_GRAIN, conv_channels, &conv);
    struct head_job job = { k, index };
    team_for(k->team, k->flow.runs * (own / k->c.kda_dim), 1, heads, &job);
    if (!k->o.owned) /* else a gather packs */
        k3_pack(k, k->s.attended_packed, k->s.conv[0], k->flow.rows, own);
}

/* ---- accepted drafts ---- */

struct replay_job {
    struct k3 *k;
    const struct flow_run *run;
    uint32_t rows;
};

static void replay_heads(void *arg, size_t begin, size_t end, unsigned worker)
{
    struct replay_job *j = arg;
    struct k3 *k = j->k;
    uint8_t *block = k->state + j->run->sequence * k->shape.bytes;
    float *unused = (void *)(k->s.worker + worker * k->s.worker_bytes);
    size_t dim = k->c.kda_dim, own = k->shape.width / dim;
    for (size_t i = begin; i < end; i++) {
        uint32_t index = (uint32_t)(i / own);
        size_t ours = i % own * dim, at = k->shape.first + ours;
        float *state = state_kda(block, &k->shape, index) + ours * dim;
        for (uint32_t r = 0; r < j->rows; r++) {
            struct draft d = draft_at(k, index, j->run->draft + r);
            kda_step(&k->kern, unused, state, d.key + at, d.key + at,
                     d.value + at, d.decay + at, d.beta[at / dim], dim, dim);
            for (uint32_t w = 0; w < 3; w++)
                push_history(k, state_conv(block, &k->shape, index, w),
                             d.raw[w] + k->shape.first, ours, ours + dim);
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
    size_t own = j->k->shape.width / j->k->c.kda_dim;
    team_for(j->k->team, j->k->shape.kda_layers * own, 1, replay_heads,
             &j->replay);
}

void k3_accept(struct k3 *k, uint32_t sequence, uint32_t n)
{
    for (uint32_t i = 0; i < k->flow.runs; i++) {
        const struct flow_run *run = &k->flow.run[i];
        if (run->sequence != sequence)
            continue;
        assert(n <= run->count - run->kept);
        struct accept_job j = { k, { k, run, n } };
        k3_say(k, SAID_ACCEPT, sequence, n, NULL);
        if (n)
            team_run(k->team, replay, &j);
        state_header(k->state + sequence * k->shape.bytes)->positions += n;
        if (k->o.accepted)
            k->o.accepted(k->o.routed_arg, sequence, n);
    }
}
