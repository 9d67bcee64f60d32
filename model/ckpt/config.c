#include "model/ckpt/config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The objects of a config.json. In a flat file `text` is the root; `linear` is
 * NULL if there is no linear_attn_config. */
struct source {
    const char *file;
    json_t     *root, *text, *linear;
    bool        flat;
    struct error *error;
};

enum place { ROOT, TEXT, LINEAR };

/* The prefix of a field's name, for sentences. */
static const char *path_of(const struct source *s, enum place place)
{
    if (place == ROOT || (s->flat && place == TEXT))
        return "";
    if (place == TEXT)
        return "text_config.";
    return s->flat ? "linear_attn_config." : "text_config.linear_attn_config.";
}

static json_t *object_of(const struct source *s, enum place place)
{
    return place == ROOT ? s->root : place == TEXT ? s->text : s->linear;
}

/* The value of a field, or NULL. An alias is a name in text_config that means
 * the same; *code is an error if both are there. */
static json_t *find(const struct source *s, enum place place, const char *name,
                    const char *alias, int *code)
{
    json_t *value = json_object_get(object_of(s, place), name);
    json_t *other = alias ? json_object_get(s->text, alias) : NULL;
    *code = 0;
    if (value && other && value != other)
        *code = error_set(s->error, -EBADMSG,
                          "%s: %s%s and its alias %s are both given", s->file,
                          path_of(s, place), name, alias);
    return value ? value : other;
}

static int missing(const struct source *s, enum place place, const char *name)
{
    return error_set(s->error, -EBADMSG, "%s: field %s%s is missing", s->file,
                     path_of(s, place), name);
}

/* A field that has to be there; NULL: *code says why not. */
static json_t *need(const struct source *s, enum place place, const char *name,
                    const char *alias, int *code)
{
    json_t *value = find(s, place, name, alias, code);
    if (!value && !*code)
        *code = missing(s, place, name);
    return *code ? NULL : value;
}

static int malformed(const struct source *s, enum place place, const char *name,
                     const char *should_be)
{
    return error_set(s->error, -EBADMSG, "%s: field %s%s is not %s", s->file,
                     path_of(s, place), name, should_be);
}

struct whole_field {
    const char *name, *alias;
    enum place  place;
    size_t      offset;
    json_int_t min, max;
};

#define AT(field) offsetof(struct config, field)
static const struct whole_field whole_fields[] = {
    { "hidden_size", NULL, TEXT, AT(hidden), 1, 1 << 20 },
    { "num_hidden_layers", NULL, TEXT, AT(layers), 1, 4096 },
    { "vocab_size", NULL, TEXT, AT(vocab), 1, 1 << 24 },
    { "intermediate_size", NULL, TEXT, AT(dense_inter), 1, 1 << 22 },
    { "attn_res_block_size", NULL, TEXT, AT(attn_res_block), 1, 4096 },
    { "num_attention_heads", NULL, TEXT, AT(heads), 1, 4096 },
    { "q_lora_rank", NULL, TEXT, AT(q_rank), 1, 1 << 16 },
    { "kv_lora_rank", NULL, TEXT, AT(kv_rank), 1, 1 << 16 },
    { "qk_nope_head_dim", NULL, TEXT, AT(nope), 1, 4096 },
    { "qk_rope_head_dim", NULL, TEXT, AT(rope), 1, 4096 },
    { "v_head_dim", NULL, TEXT, AT(v_dim), 1, 4096 },
    { "num_heads", "kda_num_heads", LINEAR, AT(kda_heads), 1, 4096 },
    { "head_dim", "kda_head_dim", LINEAR, AT(kda_dim), 1, 4096 },
    { "short_conv_kernel_size", "short_conv_kernel_size", LINEAR,
      AT(conv_kernel), 1, CONFIG_CONV_KERNEL_MAX },
    { "num_experts", NULL, TEXT, AT(experts), 1, 65535 },
    { "num_experts_per_token", NULL, TEXT, AT(top_k), 1, 65535 },
    { "num_shared_experts", NULL, TEXT, AT(shared_experts), 1, 1024 },
    { "moe_intermediate_size", NULL, TEXT, AT(moe_inter), 1, 1 << 18 },
    { "routed_expert_hidden_size", NULL, TEXT, AT(latent), 1, 1 << 18 },
    { "first_k_dense_replace", NULL, TEXT, AT(first_dense), 0, 4096 },
};

struct real_field {
    const char *name, *alias;
    enum place  place;
    size_t      offset;
    double      above, below; /* exclusive */
};

static const struct real_field real_fields[] = {
    { "rms_norm_eps", NULL, TEXT, AT(rms_eps), 0, 1 },
    { "activation_situ_beta", "situ_beta", TEXT, AT(situ_b1), 0, 1e6 },
    { "activation_situ_linear_beta", "situ_linear_beta", TEXT, AT(situ_b2), 0,
      1e6 },
    { "gate_lower_bound", "gate_lower_bound", LINEAR, AT(gate_lower_bound),
      -1e3, 0 },
    { "routed_scaling_factor", NULL, TEXT, AT(routed_scaling), 0, 1e6 },
};

struct bool_field {
    const char *name, *alias;
    enum place  place;
    ptrdiff_t   offset; /* of the bool in struct config, or MUST_BE_... */
};

enum { MUST_BE_FALSE = -2, MUST_BE_TRUE = -1 };

static const struct bool_field bool_fields[] = {
    { "moe_renormalize", NULL, TEXT, AT(renormalize) },
    { "latent_moe_use_norm", NULL, TEXT, AT(latent_norm) },
    { "mla_use_nope", NULL, TEXT, MUST_BE_TRUE },
    { "mla_use_output_gate", NULL, TEXT, MUST_BE_TRUE },
    { "use_full_rank_gate", "use_full_rank_gate", LINEAR, MUST_BE_TRUE },
    { "tie_word_embeddings", NULL, TEXT, MUST_BE_FALSE },
};

/* Fields of which one value is supported. */
struct fixed_field {
    const char *name;
    enum place  place;
    const char *text;  /* the value; NULL: it is `whole` */
    json_int_t  whole;
    bool        optional;
};

static const struct fixed_field fixed_fields[] = {
    { "hidden_act", TEXT, "situ", 0, false },
    { "moe_router_activation_func", TEXT, "sigmoid", 0, false },
    { "topk_method", TEXT, "noaux_tc", 0, false },
    /* Without these the model is what it is with them. */
    { "moe_layer_freq", TEXT, NULL, 1, true },
    { "num_expert_group", TEXT, NULL, 1, true },
    { "topk_group", TEXT, NULL, 1, true },
    { "num_nextn_predict_layers", TEXT, NULL, 0, true },
    { "dtype", TEXT, "bfloat16", 0, true },
    { "dtype", ROOT, "bfloat16", 0, true },
};

static int read_wholes(struct config *c, const struct source *s)
{
    for (size_t i = 0; i < sizeof whole_fields / sizeof *whole_fields; i++) {
        const struct whole_field *f = &whole_fields[i];
        int code;
        json_t *value = need(s, f->place, f->name, f->alias, &code);
        if (!value)
            return code;
        if (!json_is_integer(value))
            return malformed(s, f->place, f->name, "a whole number");
        json_int_t number = json_integer_value(value);
        if (number < f->min || number > f->max)
            return error_set(
                s->error, -EBADMSG, "%s: field %s%s is %lld, not in %lld..%lld",
                s->file, path_of(s, f->place), f->name, (long long)number,
                (long long)f->min, (long long)f->max);
        *(uint32_t *)((char *)c + f->offset) = (uint32_t)number;
    }
    return 0;
}

static int read_reals(struct config *c, const struct source *s)
{
    for (size_t i = 0; i < sizeof real_fields / sizeof *real_fields; i++) {
        const struct real_field *f = &real_fields[i];
        int code;
        json_t *value = need(s, f->place, f->name, f->alias, &code);
        if (!value)
            return code;
        if (!json_is_number(value))
            return malformed(s, f->place, f->name, "a number");
        double number = json_number_value(value);
        bool within = number > f->above && number < f->below;
        float kept = within ? (float)number : 0;
        if (kept == 0.0f)
            return error_set(s->error, -EBADMSG,
                             "%s: field %s%s is %g, not between %g and %g",
                             s->file, path_of(s, f->place), f->name, number,
                             f->above, f->below);
        *(float *)((char *)c + f->offset) = kept;
    }
    return 0;
}

static int read_bools(struct config *c, const struct source *s)
{
    for (size_t i = 0; i < sizeof bool_fields / sizeof *bool_fields; i++) {
        const struct bool_field *f = &bool_fields[i];
        int code;
        json_t *value = find(s, f->place, f->name, f->alias, &code);
        if (code)
            return code;
        if (!value && f->place == LINEAR && !s->linear)
            continue; /* may be missing in a flat file */
        if (!value)
            return missing(s, f->place, f->name);
        if (!json_is_boolean(value))
            return malformed(s, f->place, f->name, "true or false");
        bool on = json_is_true(value);
        if (f->offset >= 0)
            *(bool *)((char *)c + f->offset) = on;
        else if (on != (f->offset == MUST_BE_TRUE))
            return error_set(s->error, -ENOTSUP,
                             "%s: field %s%s is %s, which is not supported",
                             s->file, path_of(s, f->place), f->name,
                             on ? "true" : "false");
    }
    return 0;
}

/* Check for the supported value: the text `only`, or if NULL the number
 * `whole`. */
static int check_fixed(const struct source *s, const char *path,
                       const char *name, json_t *value, const char *only,
                       json_int_t whole)
{
    if (only ? !json_is_string(value) : !json_is_integer(value))
        return error_set(s->error, -EBADMSG, "%s: field %s%s is not %s",
                         s->file, path, name,
                         only ? "text" : "a whole number");
    if (!only && json_integer_value(value) != whole)
        return error_set(s->error, -ENOTSUP,
                         "%s: field %s%s is %lld; only %lld is supported",
                         s->file, path, name,
                         (long long)json_integer_value(value),
                         (long long)whole);
    if (only && strcmp(json_string_value(value), only))
        return error_set(s->error, -ENOTSUP,
                         "%s: field %s%s is \"%.60s\"; only \"%s\" is "
                         "supported",
                         s->file, path, name, json_string_value(value), only);
    return 0;
}

static int read_fixed(const struct source *s)
{
    for (size_t i = 0; i < sizeof fixed_fields / sizeof *fixed_fields; i++) {
        const struct fixed_field *f = &fixed_fields[i];
        json_t *value = json_object_get(object_of(s, f->place), f->name);
        if (!value && !f->optional)
            return missing(s, f->place, f->name);
        int code = value ? check_fixed(s, path_of(s, f->place), f->name, value,
                                       f->text, f->whole)
                         : 0;
        if (code)
            return code;
    }
    json_t *tied = json_object_get(s->root, "tie_word_embeddings");
    if (tied && !json_is_false(tied))
        return error_set(s->error, -ENOTSUP,
                         "%s: field tie_word_embeddings is not false, which is "
                         "not supported",
                         s->file);
    return 0;
}

struct quant_field {
    const char *name, *text;
    json_int_t  whole;
    bool        optional;
};

static int check_quant_object(const struct source *s, const char *path,
                              json_t *object, const struct quant_field *fields,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct quant_field *f = &fields[i];
        json_t *value = json_object_get(object, f->name);
        if (!value && f->optional)
            continue;
        if (!value)
            return error_set(s->error, -EBADMSG, "%s: field %s%s is missing",
                             s->file, path, f->name);
        int code = check_fixed(s, path, f->name, value, f->text, f->whole);
        if (code)
            return code;
    }
    return 0;
}

/* Only MXFP4 weights in groups of 32 are supported. Which matrices are packed
 * follows from the tensors, not from the lists in the config. */
static int read_quantization(const struct source *s)
{
    static const struct quant_field top[] = {
        { "quant_method", "compressed-tensors", 0, false },
        { "format", "mxfp4-pack-quantized", 0, false },
        { "quantization_status", "compressed", 0, true },
    };
    static const struct quant_field weight[] = {
        { "num_bits", NULL, 4, false },
        { "group_size", NULL, CONFIG_MXFP4_GROUP, false },
        { "type", "float", 0, false },
        { "strategy", "group", 0, true },
        { "scale_dtype", "torch.uint8", 0, true },
    };
    char path[96];
    json_t *quant = json_object_get(s->text, "quantization_config");
    if (!quant)
        return missing(s, TEXT, "quantization_config");
    if (!json_is_object(quant))
        return malformed(s, TEXT, "quantization_config", "an object");
    snprintf(path, sizeof path, "%squantization_config.", path_of(s, TEXT));
    int code =
        check_quant_object(s, path, quant, top, sizeof top / sizeof *top);
    if (code)
        return code;
    json_t *groups = json_object_get(quant, "config_groups");
    if (!json_object_size(groups))
        return error_set(s->error, -EBADMSG,
                         "%s: field %sconfig_groups is missing or empty",
                         s->file, path);
    const char *key;
    json_t *group;
    json_object_foreach(groups, key, group)
    {
        snprintf(path, sizeof path, "%squantization_config.%.20s.weights.",
                 path_of(s, TEXT), key);
        code = check_quant_object(s, path, json_object_get(group, "weights"),
                                  weight, sizeof weight / sizeof *weight);
        if (code)
            return code;
        json_t *inputs = json_object_get(group, "input_activations");
        if (inputs && !json_is_null(inputs))
            return error_set(
                s->error, -ENOTSUP,
                "%s: field %squantization_config.%.20s."
                "input_activations is not null, which is not supported",
                s->file, path_of(s, TEXT), key);
    }
    return 0;
}

/* Mark the layers of one list (numbered from 1) in `seen`. */
static int read_layer_list(struct config *c, const struct source *s,
                           const char *name, json_t *list, bool mla,
                           uint8_t *seen)
{
    if (!json_is_array(list))
        return malformed(s, LINEAR, name, "a list of layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 1 || layer > c->layers)
            return error_set(s->error, -EBADMSG,
                             "%s: field %s%s has an entry that is not in 1..%u",
                             s->file, path_of(s, LINEAR), name, c->layers);
        if (seen[layer - 1])
            return error_set(
                s->error, -EBADMSG,
                "%s: layer %lld is named twice in full_attn_layers "
                "and kda_layers",
                s->file, (long long)layer);
        seen[layer - 1] = 1;
        c->is_mla[layer - 1] = mla;
    }
    return 0;
}

/* Each layer is in full_attn_layers or in kda_layers. In a flat file kda_layers
 * may be missing: it is then the rest. */
static int read_layer_map(struct config *c, const struct source *s)
{
    int code;
    json_t *mla =
        find(s, LINEAR, "full_attn_layers", "full_attn_layers", &code);
    if (code)
        return code;
    json_t *kda = json_object_get(s->linear ? s->linear : s->text,
                                  "kda_layers");
    if (!mla)
        return missing(s, LINEAR, "full_attn_layers");
    if (!kda && s->linear)
        return missing(s, LINEAR, "kda_layers");
    uint8_t *seen = calloc(c->layers, 1);
    c->is_mla = calloc(c->layers, sizeof *c->is_mla);
    if (!seen || !c->is_mla) {
        free(seen);
        return error_set(s->error, -ENOMEM, "%s: no memory", s->file);
    }
    code = read_layer_list(c, s, "full_attn_layers", mla, true, seen);
    if (!code && !json_array_size(mla))
        code = malformed(s, LINEAR, "full_attn_layers", "a list with entries");
    if (!code && kda)
        code = read_layer_list(c, s, "kda_layers", kda, false, seen);
    for (uint32_t l = 0; !code && kda && l < c->layers; l++)
        if (!seen[l])
            code = error_set(s->error, -EBADMSG,
                             "%s: layer %u is in neither full_attn_layers nor "
                             "kda_layers",
                             s->file, l + 1);
    free(seen);
    return code;
}

/* Not there, or said to be none: null, or a list without ids. */
static bool is_unset(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_array(value) && !json_array_size(value));
}

/* A field of the root or of text_config. */
static int find_id(json_t **out, const struct source *s, const char *name)
{
    json_t *at_root = json_object_get(s->root, name);
    json_t *value = json_object_get(s->text, name);
    at_root = is_unset(at_root) ? NULL : at_root;
    value = is_unset(value) ? NULL : value;
    if (at_root && value && !json_equal(at_root, value))
        return error_set(s->error, -EBADMSG,
                         "%s: %s differs between the root and text_config",
                         s->file, name);
    *out = value ? value : at_root;
    return 0;
}

static int read_id(uint32_t *out, const struct config *c,
                   const struct source *s, const char *name, json_t *value)
{
    json_int_t id = json_integer_value(value);
    *out = CONFIG_NO_ID;
    if (!value)
        return 0;
    if (!json_is_integer(value) || id < 0 || id >= c->vocab)
        return error_set(s->error, -EBADMSG,
                         "%s: field %s is not an id below vocab_size %u",
                         s->file, name, c->vocab);
    *out = (uint32_t)id;
    return 0;
}

/* One id, or a list of them. */
static int read_ends(struct config *c, const struct source *s)
{
    json_t *value = NULL;
    int code = find_id(&value, s, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : !!value;
    if (!code && count > CONFIG_ENDS_MAX)
        code = error_set(s->error, -EBADMSG, "%s: field eos_token_id has more "
                         "than %d ids", s->file, CONFIG_ENDS_MAX);
    for (size_t i = 0; !code && i < count; i++)
        code = read_id(&c->end_id[i], c, s, "eos_token_id",
                       json_is_array(value) ? json_array_get(value, i)
                                            : value);
    c->ends = code ? 0 : (uint32_t)count;
    c->eos_id = c->ends ? c->end_id[0] : CONFIG_NO_ID;
    return code;
}

static int read_ids(struct config *c, const struct source *s)
{
    const struct {
        const char *name;
        uint32_t   *out;
    } ids[] = {
        { "bos_token_id", &c->bos_id },
        { "pad_token_id", &c->pad_id },
        { "media_placeholder_token_id", &c->media_pad_id },
    };
    int code = read_ends(c, s);
    for (size_t i = 0; !code && i < sizeof ids / sizeof *ids; i++) {
        json_t *value;
        code = find_id(&value, s, ids[i].name);
        if (!code)
            code = read_id(ids[i].out, c, s, ids[i].name, value);
    }
    return code;
}

/* Checks that need several fields. */
static int check_together(const struct config *c, const struct source *s)
{
    json_t *kv = json_object_get(s->text, "num_key_value_heads");
    if (kv && (!json_is_integer(kv) || json_integer_value(kv) != c->heads))
        return error_set(s->error, -ENOTSUP,
                         "%s: field num_key_value_heads differs from "
                         "num_attention_heads (%u), which is not supported",
                         s->file, c->heads);
    const struct {
        const char *name;
        uint32_t    value, multiple_of;
    } multiples[] = {
        { "routed_expert_hidden_size", c->latent, CONFIG_MXFP4_GROUP },
        { "moe_intermediate_size", c->moe_inter, CONFIG_MXFP4_GROUP },
    };
    for (size_t i = 0; i < sizeof multiples / sizeof *multiples; i++)
        if (multiples[i].value % multiples[i].multiple_of)
            return error_set(s->error, -EBADMSG,
                             "%s: field %s is %u, not a multiple of %u",
                             s->file, multiples[i].name, multiples[i].value,
                             multiples[i].multiple_of);
    if (c->top_k > c->experts)
        return error_set(
            s->error, -EBADMSG,
            "%s: num_experts_per_token is %u, more than num_experts "
            "%u",
            s->file, c->top_k, c->experts);
    /* A mix takes every snapshot and the running sum. */
    if ((c->layers + c->attn_res_block - 1) / c->attn_res_block + 1 >
        CONFIG_SOURCES_MAX)
        return error_set(s->error, -ENOTSUP,
                         "%s: num_hidden_layers %u in blocks of "
                         "attn_res_block_size %u are more than the %d that are "
                         "supported",
                         s->file, c->layers, c->attn_res_block,
                         CONFIG_SOURCES_MAX - 1);
    if (c->first_dense >= c->layers)
        return error_set(s->error, -ENOTSUP,
                         "%s: first_k_dense_replace %u leaves no MoE layer of "
                         "%u, which is not supported",
                         s->file, c->first_dense, c->layers);
    if ((uint64_t)c->shared_experts * c->moe_inter > 1 << 20)
        return error_set(
            s->error, -EBADMSG,
            "%s: num_shared_experts times moe_intermediate_size is "
            "above %d",
            s->file, 1 << 20);
    if ((uint64_t)c->layers * c->experts > CONFIG_EXPERTS_MAX)
        return error_set(s->error, -EBADMSG,
                         "%s: num_hidden_layers times num_experts is above %d",
                         s->file, CONFIG_EXPERTS_MAX);
    return 0;
}

static int find_objects(struct source *s)
{
    if (!json_is_object(s->root))
        return error_set(s->error, -EBADMSG, "%s: not a JSON object", s->file);
    s->text = json_object_get(s->root, "text_config");
    s->flat = !s->text;
    if (s->flat && !json_object_get(s->root, "hidden_size"))
        return missing(s, ROOT, "text_config");
    if (s->flat)
        s->text = s->root;
    if (!json_is_object(s->text))
        return malformed(s, ROOT, "text_config", "an object");
    s->linear = json_object_get(s->text, "linear_attn_config");
    if (s->linear && !json_is_object(s->linear))
        return malformed(s, TEXT, "linear_attn_config", "an object");
    json_t *kind = json_object_get(s->root, "model_type");
    if (!kind)
        return s->flat ? 0 : missing(s, ROOT, "model_type");
    if (!json_is_string(kind) ||
        (strcmp(json_string_value(kind), "kimi_k3") &&
         (!s->flat || strcmp(json_string_value(kind), "kimi_linear"))))
        return error_set(s->error, -ENOTSUP,
                         "%s: field model_type is not \"kimi_k3\"", s->file);
    return 0;
}

static int read_all(struct config *c, struct source *s)
{
    int code;
    if ((code = find_objects(s)) || (code = read_wholes(c, s)) ||
        (code = read_reals(c, s)) || (code = read_bools(c, s)) ||
        (code = read_fixed(s)) || (code = read_quantization(s)) ||
        (code = check_together(c, s)) || (code = read_layer_map(c, s)))
        return code;
    return read_ids(c, s);
}

int config_parse(struct config *out, json_t *root, const char *name,
                 struct error *error)
{
    struct source s = { .file = name, .root = root, .error = error };
    memset(out, 0, sizeof *out);
    out->mla_latent_eps = 1e-6f;
    int code = read_all(out, &s);
    if (code)
        config_free(out);
    return code;
}
