/* synth_fill.c - the bytes of a tensor from seed, name and position.
 *
 * Word w of a stream is synth_mix(key + w): 8 bytes of packed codes, 8 scales,
 * 4 BF16 or 2 F32 values. BF16 values come from a table of 4,096 points of a
 * uniform range, so that a value costs a load; arithmetic is only what IEEE
 * 754 rounds exactly (no libm but sqrt), so that every machine gives the same
 * bytes. */
#include <math.h>
#include <string.h>

#include "model/tools/synth_internal.h"

enum { POINTS = 4096, POINT_BITS = 12 };

/* The distribution of a role's values. SPREAD: uniform with standard deviation
 * a / sqrt(cols), so that an input of deviation 1 gives an output of deviation
 * a; in echo mode times b. RANGE: uniform in a..b. */
enum law { SPREAD, RANGE };

/* Inputs are normed, so a is the deviation of the outputs. Gates and ups of the
 * MLPs reach the nonlinear part of SiTU; downs scale the product back to about
 * 1. MLA scores deviate by about 1.5, AttnRes scores by 2, router scores by 1.5
 * before the sigmoid; the bias shifts them by up to 0.15 after it. In echo mode
 * what is added to the residual is small against the embedding. */
#define ECHO (1.0 / 1024)
static const struct recipe {
    enum law law;
    double   a, b;
} recipes[T_COUNT] = {
    [T_INPUT_NORM] = { RANGE, 0.6, 1.4 },
    [T_POST_NORM] = { RANGE, 0.6, 1.4 },
    [T_ATTN_RES_NORM] = { RANGE, 0.6, 1.4 },
    [T_ATTN_RES_PROJ] = { SPREAD, 2.0, 1 },
    [T_MLP_RES_NORM] = { RANGE, 0.6, 1.4 },
    [T_MLP_RES_PROJ] = { SPREAD, 2.0, 1 },
    [T_G] = { SPREAD, 1.5, 1 },
    [T_O] = { SPREAD, 1.5, ECHO },
    [T_Q] = { SPREAD, 1.0, 1 },
    [T_K] = { SPREAD, 1.0, 1 },
    [T_V] = { SPREAD, 1.5, 1 },
    [T_FA] = { SPREAD, 1.0, 1 },
    [T_FB] = { SPREAD, 1.0, 1 },
    [T_B] = { SPREAD, 1.5, 1 },
    [T_QCONV] = { RANGE, -0.9, 0.9 },
    [T_KCONV] = { RANGE, -0.9, 0.9 },
    [T_VCONV] = { RANGE, -0.9, 0.9 },
    [T_A_LOG] = { RANGE, -0.7, 0.9 },
    [T_DT_BIAS] = { RANGE, -5.0, 1.0 },
    [T_O_NORM] = { RANGE, 0.6, 1.4 },
    [T_QA] = { SPREAD, 1.0, 1 },
    [T_QA_NORM] = { RANGE, 0.6, 1.4 },
    [T_QB] = { SPREAD, 1.5, 1 },
    [T_KVA] = { SPREAD, 1.0, 1 },
    [T_KVA_NORM] = { RANGE, 0.6, 1.4 },
    [T_KVB] = { SPREAD, 1.0, 1 },
    [T_GATE_PROJ] = { SPREAD, 2.5, 1 },
    [T_UP_PROJ] = { SPREAD, 2.5, 1 },
    [T_DOWN_PROJ] = { SPREAD, 0.3, ECHO },
    [T_ROUTER] = { SPREAD, 1.5, 1 },
    [T_ROUTER_BIAS] = { RANGE, -0.15, 0.15 },
    [T_LATENT_DOWN] = { SPREAD, 0.8, 1 },
    [T_LATENT_UP] = { SPREAD, 1.0, ECHO },
    [T_LATENT_NORM] = { RANGE, 0.6, 1.4 },
    [T_SHARED_GATE] = { SPREAD, 2.0, 1 },
    [T_SHARED_UP] = { SPREAD, 2.0, 1 },
    [T_SHARED_DOWN] = { SPREAD, 0.4, ECHO },
    [T_EMBED] = { RANGE, -1.75, 1.75 },
    [T_HEAD] = { SPREAD, 4.0, 1 },
    [T_NORM] = { RANGE, 0.6, 1.4 },
    [T_OUT_RES_NORM] = { RANGE, 0.6, 1.4 },
    [T_OUT_RES_PROJ] = { SPREAD, 2.0, 1 },
};

/* Rows of lm_head that never win: special ids, so that generation does not stop
 * early, and single bytes that are not characters, so that the output is
 * text. */
#define UNLIKELY_FACTOR 0.125

static bool is_unlikely(const struct synth_fill *f, uint32_t id)
{
    return id < 32 || (id >= 127 && id < 256) ||
           id >= f->config->vocab - SYNTH_SPECIALS;
}

static uint64_t key_of(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return synth_mix(synth_mix(seed) ^ hash);
}

static uint16_t bf16_of(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- weights as trained ones are spread ---- */

/* One column in twenty is from a normal law four times as wide, and the scale
 * of a row is exp(0.3 N); then the deviation over all is 1. */
enum { WIDE_SHARE = 20, WIDE = 4, ROW_LEVELS = 32 };
#define ROW_SPREAD 0.3
#define LLM_NORM 1.4473 /* sqrt(exp(2 * 0.3^2) * (1 + 15 / 20)) */

/* The normal distribution function for |x| < 4.5, by its series: only
 * operations that are the same on every machine. */
static double normal_below(double x)
{
    double term = x, sum = x;
    for (int k = 1; k < 80; k++) {
        term *= -x * x / (2 * k);
        sum += term / (2 * k + 1);
    }
    return 0.5 + 0.3989422804014327 * sum;
}

/* x with normal_below(x) = part, by halves. */
static double normal_point(double part)
{
    double low = -4.5, high = 4.5;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        if (normal_below(middle) < part)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static double exponential(double x) /* |x| < 2 */
{
    double term = 1, sum = 1;
    for (int k = 1; k < 30; k++) {
        term *= x / k;
        sum += term;
    }
    return sum;
}

void synth_fill_llm(struct synth_llm *llm)
{
    const int wide = POINTS / WIDE_SHARE, plain = POINTS - wide;
    for (int i = 0; i < plain; i++)
        llm->point[i] = (float)normal_point((i + 0.5) / plain);
    for (int i = 0; i < wide; i++)
        llm->point[plain + i] =
            WIDE * (float)normal_point((i + 0.5) / wide);
    for (int i = 0; i < ROW_LEVELS; i++)
        llm->level[i] = (float)(exponential(ROW_SPREAD * normal_point(
                                                (i + 0.5) / ROW_LEVELS)) /
                                LLM_NORM);
}

/* How a word becomes 8 bytes. */
struct painter {
    enum tensor_dtype dtype;
    bool              scales;   /* U8: scale bytes, not codes */
    bool              trained;  /* scales as trained ones are spread */
    uint8_t           scale;    /* the lowest of three */
    double            low, high;
    uint16_t          point[POINTS];
};

static void painter_range(struct painter *p, double low, double high)
{
    p->low = low;
    p->high = high;
    if (p->dtype == DTYPE_BF16)
        for (int i = 0; i < POINTS; i++)
            p->point[i] = bf16_of(low + (high - low) * (i + 0.5) / POINTS);
}

static uint64_t paint_f32(const struct painter *p, uint64_t word)
{
    float value[2];
    for (int i = 0; i < 2; i++) {
        double part = ((double)(uint32_t)(word >> 32 * i) + 0.5) / 4294967296.0;
        value[i] = (float)(p->low + (p->high - p->low) * part);
    }
    uint64_t out;
    memcpy(&out, value, sizeof out);
    return out;
}

/* The points of a row whose scale is of this level. */
static void painter_level(struct painter *p, const struct synth_llm *llm,
                          double deviation, uint32_t level)
{
    double by = deviation * (double)llm->level[level];
    for (int i = 0; i < POINTS; i++)
        p->point[i] = bf16_of((double)llm->point[i] * by);
}

/* Of 256 scales 39 are the least and 2 the greatest, as in the released
 * weights: 15 and .5 %. */
static uint8_t trained_scale(unsigned byte)
{
    return byte < 39 ? 0 : byte < 254 ? 1 : 2;
}

static uint64_t paint_scales(const struct painter *p, uint64_t word)
{
    uint8_t byte[8];
    for (int i = 0; i < 8; i++) {
        unsigned b = word >> 8 * i & 255;
        byte[i] = (uint8_t)(p->scale +
                            (p->trained ? trained_scale(b) : b * 3 >> 8));
    }
    uint64_t out;
    memcpy(&out, byte, sizeof out);
    return out;
}

/* Words [first, first + count) of the stream of `key`. */
static void paint_words(uint8_t *out, const struct painter *p, uint64_t key,
                        uint64_t first, size_t count)
{
    for (size_t w = 0; w < count; w++) {
        uint64_t word = synth_mix(key + first + w);
        if (p->dtype == DTYPE_BF16) {
            uint16_t value[4];
            for (int i = 0; i < 4; i++)
                value[i] = p->point[word >> (16 * i + 16 - POINT_BITS) &
                                    (POINTS - 1)];
            memcpy(out + 8 * w, value, sizeof value);
            continue;
        }
        if (p->dtype == DTYPE_F32)
            word = paint_f32(p, word);
        else if (p->scales)
            word = paint_scales(p, word);
        memcpy(out + 8 * w, &word, sizeof word);
    }
}

/* Bytes [begin, begin + length) of the stream; `begin` may be inside a word. */
static void paint(uint8_t *out, const struct painter *p, uint64_t key,
                  uint64_t begin, size_t length)
{
    uint8_t word[8];
    size_t skip = (size_t)(begin % 8);
    if (skip && length) {
        size_t n = length < 8 - skip ? length : 8 - skip;
        paint_words(word, p, key, begin / 8, 1);
        memcpy(out, word + skip, n);
        out += n;
        begin += n;
        length -= n;
    }
    paint_words(out, p, key, begin / 8, length / 8);
    if (length % 8) {
        paint_words(word, p, key, begin / 8 + length / 8, 1);
        memcpy(out + length / 8 * 8, word, length % 8);
    }
}

static double spread_of(double deviation, uint32_t cols)
{
    return deviation * sqrt(3.0 / cols);
}

/* The lowest of the three scales of a matrix with `cols` columns: 120 for
 * 3,584, as in the published files. It falls by 1 for each factor of 4, so that
 * the output's deviation stays between 2 and 4. */
static uint8_t scale_for(uint32_t cols)
{
    uint8_t scale = 120;
    for (; (uint64_t)cols * 4 <= 3584; cols *= 4)
        scale++;
    return scale;
}

static bool is_llm(const struct synth_fill *f, const struct published_tensor *t)
{
    return f->llm && t->role != T_COUNT && t->role != T_EMBED &&
           t->dtype == DTYPE_BF16 && t->dims.count == 2 &&
           t->dims.size[0] > 1;
}

static bool is_rowwise(const struct synth_fill *f, enum tensor_role role)
{
    return role == T_HEAD || (role == T_EMBED && f->echo);
}

/* The first id of the cycle; the others follow it. */
static uint32_t echo_first(const struct synth_fill *f)
{
    uint32_t plain = f->config->vocab - SYNTH_SPECIALS;
    return plain >= 256 + f->echo ? 256 : 0;
}

/* The level of a row; unlikely rows of the head have levels of their own. */
static uint32_t level_of(const struct synth_fill *f,
                         const struct published_tensor *t, uint64_t key,
                         uint64_t row)
{
    uint32_t level = (uint32_t)(synth_mix(key ^ ~row) % ROW_LEVELS);
    bool unlikely = t->role == T_HEAD && is_unlikely(f, (uint32_t)row);
    return level + (unlikely ? ROW_LEVELS : 0);
}

/* A matrix as trained ones are spread: the rows of one level after another's,
 * since its points are made once. */
static void fill_llm(uint8_t *out, struct painter *p,
                     const struct synth_fill *f,
                     const struct published_tensor *t, double deviation,
                     uint64_t begin, size_t length)
{
    uint64_t key = key_of(f->seed, t->name), end = begin + length;
    uint64_t row_bytes = t->dims.size[1] * 2;
    for (uint32_t level = 0; level < 2 * ROW_LEVELS; level++) {
        bool made = false;
        double factor = level < ROW_LEVELS ? 1 : UNLIKELY_FACTOR;
        for (uint64_t row = begin / row_bytes; row * row_bytes < end; row++) {
            if (level_of(f, t, key, row) != level)
                continue;
            uint64_t from = row * row_bytes, to = from + row_bytes;
            from = from < begin ? begin : from;
            to = to > end ? end : to;
            if (!made)
                painter_level(p, f->llm, deviation * factor,
                              level % ROW_LEVELS);
            made = true;
            paint(out + (from - begin), p, key, from, (size_t)(to - from));
        }
    }
}

/* One row of the embedding or the head. In echo mode the class of an id is its
 * distance from the first id of the cycle, modulo P. Ids of a class have the
 * same embedding row, and the head row of an id in the cycle is the embedding
 * row of the class before. So the next id of the cycle always has the largest
 * logit. */
static void paint_row(uint8_t *out, struct painter *p,
                      const struct synth_fill *f,
                      const struct published_tensor *t,
                      uint32_t row, uint64_t begin, size_t length)
{
    uint32_t cols = f->config->hidden;
    uint64_t source = row;
    char name[TENSOR_NAME_BYTES];
    memcpy(name, t->name, sizeof name);
    double deviation = 1;
    if (t->role == T_HEAD && is_unlikely(f, row))
        deviation = UNLIKELY_FACTOR;
    if (f->echo) {
        uint32_t first = echo_first(f), cycle = f->echo;
        uint32_t class = (row + cycle - first % cycle) % cycle;
        bool in_cycle = row >= first && row < first + cycle;
        if (t->role == T_EMBED)
            source = class;
        else if (in_cycle)
            source = (class + cycle - 1) % cycle;
        if (t->role == T_HEAD)
            deviation = in_cycle ? 1 : UNLIKELY_FACTOR;
        if (t->role == T_EMBED || in_cycle)
            tensor_name(name, T_EMBED, TENSOR_MODEL_LEVEL);
    }
    const struct recipe *recipe = &recipes[t->role];
    double high = recipe->law == RANGE ? recipe->b
                                       : spread_of(recipe->a * deviation, cols);
    if (p->high != high)
        painter_range(p, -high, high);
    paint(out, p, synth_mix(key_of(f->seed, name) ^ source), begin, length);
}

static void fill_rows(uint8_t *out, struct painter *p,
                      const struct synth_fill *f,
                      const struct published_tensor *t,
                      uint64_t begin, size_t length)
{
    uint64_t row_bytes = (uint64_t)f->config->hidden * 2;
    while (length) {
        uint64_t row = begin / row_bytes, skip = begin % row_bytes;
        size_t n = (size_t)(row_bytes - skip);
        if (n > length)
            n = length;
        paint_row(out, p, f, t, (uint32_t)row, skip, n);
        out += n;
        begin += n;
        length -= n;
    }
}

/* A_log has zeros after the values of the heads. */
static void clear_tail(uint8_t *out, const struct synth_fill *f, uint64_t begin,
                       size_t length)
{
    uint64_t used = (uint64_t)f->config->kda_heads * 4;
    uint64_t from = used > begin ? used - begin : 0;
    if (from < length)
        memset(out + from, 0, length - (size_t)from);
}

void synth_fill(uint8_t *out, const struct synth_fill *f,
                const struct published_tensor *t, uint64_t begin, size_t length)
{
    struct painter p = { .dtype = t->dtype };
    uint64_t key = key_of(f->seed, t->name);
    if (t->role == T_COUNT) {
        p.scales = t->which % 2;
        p.trained = f->llm != NULL;
        if (p.scales)
            p.scale = scale_for((uint32_t)t->dims.size[1] * CONFIG_MXFP4_GROUP);
        else if (t->which == EXPERT_TENSORS)
            painter_range(&p, -0.05, 0.05);
        paint(out, &p, key, begin, length);
        return;
    }
    if (is_llm(f, t)) {
        uint32_t cols = (uint32_t)t->dims.size[1];
        fill_llm(out, &p, f, t,
                 spread_of(recipes[t->role].a, cols) / sqrt(3.0), begin,
                 length);
        return;
    }
    if (is_rowwise(f, t->role)) {
        fill_rows(out, &p, f, t, begin, length);
        return;
    }
    const struct recipe *recipe = &recipes[t->role];
    double low = recipe->a, high = recipe->b;
    if (recipe->law == SPREAD) {
        uint32_t cols = (uint32_t)t->dims.size[t->dims.count - 1];
        high = spread_of(recipe->a * (f->echo ? recipe->b : 1), cols);
        low = -high;
    }
    painter_range(&p, low, high);
    paint(out, &p, key, begin, length);
    if (t->role == T_A_LOG)
        clear_tail(out, f, begin, length);
}

bool synth_fill_sparse(const struct published_tensor *t)
{
    return t->role != T_COUNT && (t->dims.count == 1 || t->dims.size[0] == 1);
}
