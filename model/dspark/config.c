#include "model/dspark/config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/slurp.h"

#define CONFIG_BYTES_MAX (16u << 20)

struct source {
    const char *file;
    json_t *root, *rope; /* rope: NULL if there is none */
    struct error *error;
};

static const char *const nested[] = { "dspark_config", "dflash_config" };

static json_t *find(const struct source *s, const char *name)
{
    json_t *value = json_object_get(s->root, name);
    for (size_t i = 0; !value && i < sizeof nested / sizeof *nested; i++)
        value = json_object_get(json_object_get(s->root, nested[i]), name);
    return json_is_null(value) ? NULL : value;
}

static int malformed(const struct source *s, const char *name,
                     const char *should_be)
{
    if (!find(s, name))
        return error_set(s->error, -EBADMSG, "%s: field %s is missing",
                         s->file, name);
    return error_set(s->error, -EBADMSG, "%s: field %s is not %s", s->file,
                     name, should_be);
}

static int whole(const struct source *s, const char *name, json_int_t min,
                 json_int_t max, uint32_t *out)
{
    char range[64];
    json_t *value = find(s, name);
    json_int_t n = json_integer_value(value);
    snprintf(range, sizeof range, "a whole number from %lld to %lld",
             (long long)min, (long long)max);
    if (!json_is_integer(value) || n < min || n > max)
        return malformed(s, name, range);
    *out = (uint32_t)n;
    return 0;
}

/* What is refused: fields that change the arithmetic. */
static int check_refused(const struct source *s)
{
    static const char *const must_be_false[] = {
        "causal", "full_attention_causal", "use_sliding_window",
        "attention_bias", "mla_use_nope", "mla_use_output_gate",
        "tie_word_embeddings" };
    static const char *const must_be_true[] = {
        "enable_confidence_head", "confidence_head_with_markov" };
    for (size_t i = 0; i < sizeof must_be_false / sizeof *must_be_false; i++) {
        json_t *value = find(s, must_be_false[i]);
        if (value && !json_is_false(value))
            return error_set(s->error, -ENOTSUP,
                             "%s: field %s is not false: such drafters are not "
                             "supported", s->file, must_be_false[i]);
    }
    for (size_t i = 0; i < sizeof must_be_true / sizeof *must_be_true; i++) {
        json_t *value = find(s, must_be_true[i]);
        if (value && !json_is_true(value))
            return error_set(s->error, -ENOTSUP,
                             "%s: field %s is not true: such drafters are not "
                             "supported", s->file, must_be_true[i]);
    }
    if (find(s, "speculators_model_type"))
        return error_set(s->error, -ENOTSUP, "%s: has speculators_model_type: "
                         "drafters of that layout are not supported", s->file);
    const char *head = json_string_value(find(s, "markov_head_type"));
    if (find(s, "markov_head_type") && (!head || strcmp(head, "vanilla")))
        return error_set(s->error, -ENOTSUP, "%s: markov_head_type is not "
                         "vanilla: not supported", s->file);
    json_t *types = find(s, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention"))
            return error_set(s->error, -ENOTSUP, "%s: layer_types has other "
                             "layers than full_attention: not supported",
                             s->file);
    }
    json_t *act = find(s, "hidden_act");
    if (act && (!json_is_string(act) || strcmp(json_string_value(act), "silu")))
        return error_set(s->error, -ENOTSUP, "%s: hidden_act is not silu: not "
                         "supported", s->file);
    return 0;
}

static int read_kind(const struct source *s, struct dspark_config *c)
{
    json_t *names = json_object_get(s->root, "architectures");
    const char *name = json_string_value(json_array_get(names, 0));
    if (name && !strcmp(name, "K3DSparkModel"))
        c->kind = DSPARK_MLA;
    else if (name && !strcmp(name, "DSparkDraftModel"))
        c->kind = DSPARK_GQA;
    else
        return error_set(s->error, -ENOTSUP, "%s: architectures is %s%.60s%s: "
                         "a drafter's is DSparkDraftModel or K3DSparkModel",
                         s->file, name ? "\"" : "", name ? name : "missing",
                         name ? "\"" : "");
    return 0;
}

/* That the drafter was made for this model. */
static int check_model(const struct source *s, const struct dspark_config *c,
                       const struct config *k3)
{
    const char *count = c->kind == DSPARK_MLA ? "target_num_hidden_layers"
                                              : "num_target_layers";
    const struct { const char *name; uint32_t want; bool optional; } same[] = {
        { "hidden_size", k3->hidden, false },
        { "vocab_size", k3->vocab, false },
        { count, k3->layers, false },
        { "draft_vocab_size", k3->vocab, true },
        { "target_hidden_size", k3->hidden, true },
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        uint32_t got;
        if (same[i].optional && !find(s, same[i].name))
            continue;
        int err = whole(s, same[i].name, 1, 1 << 24, &got);
        if (err)
            return err;
        if (got != same[i].want)
            return error_set(s->error, -EBADMSG, "%s: %s is %" PRIu32 ", the "
                             "model has %" PRIu32 ": this drafter is another "
                             "model's", s->file, same[i].name, got,
                             same[i].want);
    }
    json_t *block = find(s, "block_size");
    if (block && (!json_is_integer(block) ||
                  json_integer_value(block) != DSPARK_BLOCK))
        return error_set(s->error, -ENOTSUP, "%s: block_size is not %d: not "
                         "supported", s->file, DSPARK_BLOCK);
    return 0;
}

static int read_taps(const struct source *s, struct dspark_config *c,
                     const struct config *k3)
{
    json_t *list = find(s, "target_layer_ids");
    c->taps = (uint32_t)json_array_size(list);
    if (!c->taps || json_array_size(list) > DSPARK_TAPS_MAX)
        return malformed(s, "target_layer_ids", "a list of 1 to 16 layers");
    for (uint32_t i = 0; i < c->taps; i++) {
        json_t *value = json_array_get(list, i);
        json_int_t layer = json_integer_value(value);
        if (!json_is_integer(value) || layer < 0 ||
            layer >= (json_int_t)k3->layers ||
            (i && layer <= (json_int_t)c->tap[i - 1]))
            return malformed(s, "target_layer_ids",
                             "a list of layers of the model, ascending");
        c->tap[i] = (uint32_t)layer;
    }
    return 0;
}

static int read_stream(const struct source *s, struct dspark_config *c,
                       enum dspark_stream stream)
{
    const char *said = json_string_value(find(s, "aux_hidden_stream"));
    c->mixed = c->kind == DSPARK_GQA;
    if (said && !strcmp(said, "prefix"))
        c->mixed = false;
    else if (said && !strcmp(said, "attn_res"))
        c->mixed = true;
    else if (find(s, "aux_hidden_stream"))
        return malformed(s, "aux_hidden_stream", "\"prefix\" or \"attn_res\"");
    if (stream != DSPARK_STREAM_AUTO)
        c->mixed = stream == DSPARK_STREAM_MIXED;
    json_t *norm = find(s, "fc_norm");
    c->tap_norm = json_is_true(norm);
    if (norm && !json_is_boolean(norm))
        return malformed(s, "fc_norm", "true or false");
    return 0;
}

/* ---- rotation ---- */

static int real(const struct source *s, const char *name, double above,
                double below, double missing, double *out)
{
    json_t *value = json_object_get(s->rope, name);
    if (!value && s->rope)
        value = json_object_get(s->root, name); /* rope_theta */
    *out = json_number_value(value);
    if (!value || json_is_null(value)) {
        *out = missing;
        if (missing >= 0)
            return 0;
        return error_set(s->error, -EBADMSG, "%s: field %s of the rotation is "
                         "missing", s->file, name);
    }
    if (!json_is_number(value) || !(*out > above) || !(*out < below))
        return error_set(s->error, -EBADMSG, "%s: field %s of the rotation is "
                         "not a number between %g and %g", s->file, name,
                         above, below);
    return 0;
}

static int read_rope(struct source *s, struct dspark_config *c)
{
    struct dspark_rope *r = &c->rotation;
    s->rope = find(s, "rope_parameters");
    if (!s->rope)
        s->rope = find(s, "rope_scaling");
    json_t *type = json_object_get(s->rope, "rope_type");
    if (!type)
        type = json_object_get(s->rope, "type");
    const char *name = json_string_value(type);
    if (!s->rope || (name && !strcmp(name, "default"))) {
        if (!s->rope)
            s->rope = s->root;
        return real(s, "rope_theta", 1, 1e12, -1, &r->theta);
    }
    if (!name || strcmp(name, "yarn"))
        return error_set(s->error, -ENOTSUP, "%s: the rotation is of type "
                         "%.40s: only yarn and default are supported", s->file,
                         name ? name : "none");
    r->yarn = true;
    int err = real(s, "rope_theta", 1, 1e12, -1, &r->theta);
    if (!err)
        err = real(s, "factor", 0.999999, 1e6, -1, &r->factor);
    if (!err)
        err = real(s, "original_max_position_embeddings", 0, 1e9, -1,
                   &r->original);
    if (!err)
        err = real(s, "beta_fast", 0, 1e6, 32, &r->beta_fast);
    if (!err)
        err = real(s, "beta_slow", 0, 1e6, 1, &r->beta_slow);
    if (!err)
        err = real(s, "mscale", 0, 1e3, 0, &r->mscale);
    if (!err)
        err = real(s, "mscale_all_dim", 0, 1e3, 0, &r->mscale_all);
    if (!err)
        err = real(s, "attention_factor", 0, 1e3, 0, &r->attention_factor);
    return err;
}

/* ---- all of it ---- */

static int read_shape(const struct source *s, struct dspark_config *c)
{
    const struct {
        const char *name;
        uint32_t *to;
        json_int_t max;
        int kind; /* -1: both */
    } fields[] = {
        { "num_hidden_layers", &c->layers, DSPARK_LAYERS_MAX, -1 },
        { "intermediate_size", &c->inter, 1 << 22, -1 },
        { "markov_rank", &c->rank, 1 << 16, -1 },
        { "num_attention_heads", &c->heads, 4096, -1 },
        { "num_key_value_heads", &c->kv_heads, 4096, DSPARK_GQA },
        { "head_dim", &c->head_dim, DSPARK_ROPE_MAX, DSPARK_GQA },
        { "q_lora_rank", &c->q_rank, 1 << 16, DSPARK_MLA },
        { "kv_lora_rank", &c->kv_rank, 1 << 14, DSPARK_MLA },
        { "qk_nope_head_dim", &c->nope, 1024, DSPARK_MLA },
        { "qk_rope_head_dim", &c->rope, DSPARK_ROPE_MAX, DSPARK_MLA },
        { "v_head_dim", &c->v_dim, 1024, DSPARK_MLA },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].kind >= 0 && fields[i].kind != (int)c->kind)
            continue;
        int err = whole(s, fields[i].name, 1, fields[i].max, fields[i].to);
        if (err)
            return err;
    }
    if (c->kind == DSPARK_GQA && c->heads % c->kv_heads)
        return malformed(s, "num_attention_heads",
                         "a multiple of num_key_value_heads");
    if (dspark_rotated(c) % 2)
        return malformed(s, c->kind == DSPARK_MLA ? "qk_rope_head_dim"
                                                  : "head_dim", "even");
    json_t *eps = find(s, "rms_norm_eps");
    c->eps = (float)json_number_value(eps);
    if (!json_is_number(eps) || !(c->eps > 0) || !(c->eps < 1))
        return malformed(s, "rms_norm_eps", "a number between 0 and 1");
    return 0;
}

static int parse(struct dspark_config *c, struct source *s,
                 const struct config *k3, enum dspark_stream stream)
{
    if (!json_is_object(s->root))
        return error_set(s->error, -EBADMSG, "%s: is not an object", s->file);
    int err = read_kind(s, c);
    if (!err)
        err = check_refused(s);
    if (!err)
        err = check_model(s, c, k3);
    if (!err)
        err = read_shape(s, c);
    if (!err)
        err = read_taps(s, c, k3);
    if (!err)
        err = read_stream(s, c, stream);
    if (!err)
        err = whole(s, "mask_token_id", 0, (json_int_t)k3->vocab - 1,
                    &c->mask_id);
    if (!err)
        err = read_rope(s, c);
    c->hidden = k3->hidden;
    c->vocab = k3->vocab;
    return err;
}

int dspark_config_load(struct dspark_config *out, const char *dir,
                       const struct config *k3, enum dspark_stream stream,
                       struct error *error)
{
    char path[4096], *text;
    size_t length;
    json_error_t at;
    memset(out, 0, sizeof *out);
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(error, -ENAMETOOLONG,
                         "%.200s...: the path is too long", dir);
    int err = slurp_file(&text, &length, path, CONFIG_BYTES_MAX, error);
    if (err)
        return err;
    struct source s = { .file = path, .error = error };
    s.root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!s.root)
        return error_set(error, -EBADMSG, "%s: line %d: %s", path, at.line,
                         at.text);
    err = parse(out, &s, k3, stream);
    json_decref(s.root);
    return err;
}

int dspark_stream_named(enum dspark_stream *out, const char *name)
{
    *out = !name                       ? DSPARK_STREAM_AUTO
           : !strcmp(name, "attn_res") ? DSPARK_STREAM_MIXED
                                       : DSPARK_STREAM_PREFIX;
    return !name || *out == DSPARK_STREAM_MIXED || !strcmp(name, "prefix")
               ? 0
               : -EINVAL;
}

const char *dspark_kind_name(enum dspark_kind kind)
{
    return kind == DSPARK_MLA ? "Inferact (MLA)" : "RadixArk (GQA)";
}
