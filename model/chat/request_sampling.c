#include "model/chat/request_sampling.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double bias_max = 100;

/* ---- numbers ---- */

struct number {
    const char *name;
    double min, max;
    bool open; /* min itself is too little */
    const char *wrong;
};

static int take(const struct jv *body, const struct number *n, double *out,
                struct refusal *r)
{
    const struct jv *v = jv_given(body, n->name);
    double value;
    if (!v)
        return 0;
    if (!jv_real(v, &value) || !isfinite(value) || value < n->min ||
        value > n->max || (n->open && !(value > n->min)))
        return refusal_set(r, n->name, "%s", n->wrong);
    *out = value;
    return 0;
}

static int take_top_k(struct request_sampling *s, const struct jv *v,
                      struct refusal *r)
{
    int64_t k;
    if (!v)
        return 0;
    if (!jv_integer(v, &k) || k < -1)
        return refusal_set(r, "top_k", "it is not a whole number from -1");
    s->top_k = k < 0 ? 0 : k < UINT32_MAX ? (uint32_t)k : UINT32_MAX;
    return 0;
}

static int take_seed(struct request_sampling *s, const struct jv *v,
                     struct refusal *r)
{
    int64_t whole;
    char *end;
    s->has_seed = v != NULL;
    if (!v)
        return 0;
    if (jv_integer(v, &whole)) {
        s->seed = (uint64_t)whole;
        return 0;
    }
    errno = 0;
    s->seed = v->type == JV_NUMBER ? strtoull(v->raw, &end, 10) : 0;
    if (v->type != JV_NUMBER || *v->raw == '-' || errno ||
        end != v->raw + v->raw_bytes)
        return refusal_set(r, "seed", "it is not a whole number of 64 bits");
    return 0;
}

int request_sampling(struct request_sampling *s, const struct jv *body,
                     struct refusal *r)
{
    const struct {
        struct number number;
        double *out;
    } all[] = {
        { { "temperature", 0, HUGE_VAL, false, "it is not a number from 0" },
          &s->temperature },
        { { "top_p", 0, 1, true, "it is not a number above 0 and at most 1" },
          &s->top_p },
        { { "min_p", 0, 1, false, "it is not a number from 0 to 1" },
          &s->min_p },
        { { "presence_penalty", -2, 2, false,
            "it is not a number from -2 to 2" }, &s->presence },
        { { "frequency_penalty", -2, 2, false,
            "it is not a number from -2 to 2" }, &s->frequency },
        { { "repetition_penalty", 0, 100, true,
            "it is not a number above 0 and at most 100" }, &s->repetition },
    };
    int err = take_seed(s, jv_given(body, "seed"), r);
    if (!err)
        err = take_top_k(s, jv_given(body, "top_k"), r);
    for (size_t i = 0; i < sizeof all / sizeof *all && !err; i++)
        err = take(body, &all[i].number, all[i].out, r);
    return err;
}

/* ---- biases ---- */

static int id_of(const struct jv *key, uint32_t vocab, uint32_t *out,
                 struct refusal *r)
{
    char *end;
    errno = 0;
    unsigned long long id = strtoull(key->text, &end, 10);
    if (key->bytes == 0 || key->text[0] < '0' || key->text[0] > '9' ||
        end != key->text + key->bytes || errno)
        return refusal_set(r, "logit_bias", "%.40s is not a token id",
                           key->text);
    if (id >= vocab)
        return refusal_set(r, "logit_bias",
                           "token id %llu is out of range, the vocabulary has "
                           "%" PRIu32,
                           id, vocab);
    *out = (uint32_t)id;
    return 0;
}

/* Stable, so that of equal ids the last stays last. */
static void sort(struct request_bias *b, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct request_bias x = b[i];
        uint32_t at = i;
        for (; at > 0 && b[at - 1].id > x.id; at--)
            b[at] = b[at - 1];
        b[at] = x;
    }
}

int request_biases(const struct jv *bias, uint32_t vocab,
                   struct request_bias *out, uint32_t *count,
                   struct refusal *r)
{
    uint32_t n = 0;
    *count = 0;
    if (bias && bias->type != JV_OBJECT)
        return refusal_set(r, "logit_bias", "it is not an object");
    if (bias && bias->bytes > REQUEST_BIASES_MAX)
        return refusal_set(r, "logit_bias", "it has more than %d ids",
                           (int)REQUEST_BIASES_MAX);
    for (const struct jv *k = jv_first(bias); k; k = jv_next(bias, k)) {
        double add;
        int err = id_of(k, vocab, &out[n].id, r);
        if (err)
            return err;
        if (!jv_real(k + 1, &add) || !(fabs(add) <= bias_max))
            return refusal_set(r, "logit_bias",
                               "the bias of %.40s is not a number from -100 "
                               "to 100",
                               k->text);
        out[n++].add = (float)add;
    }
    sort(out, n);
    for (uint32_t i = 0; i < n; i++) {
        if (*count && out[*count - 1].id == out[i].id)
            out[*count - 1] = out[i];
        else
            out[(*count)++] = out[i];
    }
    return 0;
}
