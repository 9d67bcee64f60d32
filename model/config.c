#include "model/config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/attnres.h"
#include "compute/conv.h"
#include "model/slurp.h"

#define CONFIG_BYTES_MAX (16u << 20)

/* The objects of one config.json. In a flat file text is the root; linear is
 * NULL when there is no linear_attn_config. */
struct source {
    const char *file;
    json_t     *root, *text, *linear;
    bool        flat;
    struct why *why;
};

enum place { ROOT, TEXT, LINEAR };

/* The way to a place, for sentences. */
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

/* The value of a field, or NULL when it is not there. An alias stands beside
 * the fields of text_config. `*error` is set when both are there. */
static json_t *find(const struct source *s, enum place place, const char *name,
                    const char *alias, int *error)
{
    json_t *value = json_object_get(object_of(s, place), name);
    json_t *other = alias ? json_object_get(s->text, alias) : NULL;
    *error = 0;
    if (value && other && value != other)
        *error = why_set(s->why, -EBADMSG,
                         "%s: %s%s and its alias %s are both given", s->file,
                         path_of(s, place), name, alias);
    return value ? value : other;
}

static int missing(const struct source *s, enum place place, const char *name)
{
    return why_set(s->why, -EBADMSG, "%s: field %s%s is missing", s->file,
                   path_of(s, place), name);
}

static int malformed(const struct source *s, enum place place, const char *name,
                     const char *should_be)
{
    return why_set(s->why, -EBADMSG, "%s: field %s%s is not %s", s->file,
                   path_of(s, place), name, should_be);
}

struct whole_field {
    const char *name, *alias;
    enum place  place;
    size_t      offset;
    json_int_t  least, most;
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
      AT(conv_kernel), 1, CONV_KERNEL_MAX },
    { "num_experts", NULL, TEXT, AT(experts), 1, 65535 },
    { "num_experts_per_token", NULL, TEXT, AT(top_k), 1, 65535 },
    { "num_shared_experts", NULL, TEXT, AT(shared_experts), 1, 1024 },
    { "moe_intermediate_size", NULL, TEXT, AT(moe_inter), 1, 1 << 18 },
    { "routed_expert_hidden_size", NULL, TEXT, AT(latent), 1, 1 << 18 },
    { "first_k_dense_replace", NULL, TEXT, AT(first_dense), 0, 4096 },
    { "max_position_embeddings", NULL, TEXT, AT(max_positions), 1, 1 << 30 },
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
    ptrdiff_t   offset; /* of the bool, or MUST_BE_ + the value served */
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

/* Fields with one value that is served, written as JSON prints it. */
struct fixed_field {
    const char *name;
    enum place  place;
    const char *text;  /* NULL: `whole` counts */
    json_int_t  whole;
    bool        optional;
};

static const struct fixed_field fixed_fields[] = {
    { "hidden_act", TEXT, "situ", 0, false },
    { "moe_router_activation_func", TEXT, "sigmoid", 0, false },
    { "topk_method", TEXT, "noaux_tc", 0, false },
    { "moe_layer_freq", TEXT, NULL, 1, false },
    { "num_expert_group", TEXT, NULL, 1, false },
    { "topk_group", TEXT, NULL, 1, false },
    { "num_nextn_predict_layers", TEXT, NULL, 0, false },
    { "dtype", TEXT, "bfloat16", 0, true },
    { "dtype", ROOT, "bfloat16", 0, true },
};

static int read_wholes(struct config *c, const struct source *s)
{
    for (size_t i = 0; i < sizeof whole_fields / sizeof *whole_fields; i++) {
        const struct whole_field *f = &whole_fields[i];
        int error;
        json_t *value = find(s, f->place, f->name, f->alias, &error);
        if (error)
            return error;
        if (!value)
            return missing(s, f->place, f->name);
        if (!json_is_integer(value))
            return malformed(s, f->place, f->name, "a whole number");
        json_int_t number = json_integer_value(value);
        if (number < f->least || number > f->most)
            return why_set(s->why, -EBADMSG,
                           "%s: field %s%s is %lld, not in %lld..%lld", s->file,
                           path_of(s, f->place), f->name, (long long)number,
                           (long long)f->least, (long long)f->most);
        *(uint32_t *)((char *)c + f->offset) = (uint32_t)number;
    }
    return 0;
}

static int read_reals(struct config *c, const struct source *s)
{
    for (size_t i = 0; i < sizeof real_fields / sizeof *real_fields; i++) {
        const struct real_field *f = &real_fields[i];
        int error;
        json_t *value = find(s, f->place, f->name, f->alias, &error);
        if (error)
            return error;
        if (!value)
            return missing(s, f->place, f->name);
        if (!json_is_number(value))
            return malformed(s, f->place, f->name, "a number");
        double number = json_number_value(value);
        float kept = (float)number;
        if (!(number > f->above && number < f->below) || kept == 0.0f)
            return why_set(s->why, -EBADMSG,
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
        int error;
        json_t *value = find(s, f->place, f->name, f->alias, &error);
        if (error)
            return error;
        if (!value && f->place == LINEAR && !s->linear)
            continue; /* a flat file need not say so */
        if (!value)
            return missing(s, f->place, f->name);
        if (!json_is_boolean(value))
            return malformed(s, f->place, f->name, "true or false");
        bool on = json_is_true(value);
        if (f->offset >= 0)
            *(bool *)((char *)c + f->offset) = on;
        else if (on != (f->offset == MUST_BE_TRUE))
            return why_set(s->why, -ENOTSUP,
                           "%s: field %s%s is %s, which is not served", s->file,
                           path_of(s, f->place), f->name,
                           on ? "true" : "false");
    }
    return 0;
}

/* `served` as text, or a whole number where it is NULL. */
static int check_fixed(const struct source *s, const char *path,
                       const char *name, json_t *value, const char *served,
                       json_int_t whole)
{
    if (served ? !json_is_string(value) : !json_is_integer(value))
        return why_set(s->why, -EBADMSG, "%s: field %s%s is not %s", s->file,
                       path, name, served ? "text" : "a whole number");
    if (!served && json_integer_value(value) != whole)
        return why_set(s->why, -ENOTSUP,
                       "%s: field %s%s is %lld; only %lld is served", s->file,
                       path, name, (long long)json_integer_value(value),
                       (long long)whole);
    if (served && strcmp(json_string_value(value), served))
        return why_set(s->why, -ENOTSUP,
                       "%s: field %s%s is \"%.60s\"; only \"%s\" is served",
                       s->file, path, name, json_string_value(value), served);
    return 0;
}

static int read_fixed(const struct source *s)
{
    for (size_t i = 0; i < sizeof fixed_fields / sizeof *fixed_fields; i++) {
        const struct fixed_field *f = &fixed_fields[i];
        json_t *value = json_object_get(object_of(s, f->place), f->name);
        if (!value && !f->optional)
            return missing(s, f->place, f->name);
        int error = value ? check_fixed(s, path_of(s, f->place), f->name, value,
                                        f->text, f->whole)
                          : 0;
        if (error)
            return error;
    }
    json_t *tied = json_object_get(s->root, "tie_word_embeddings");
    if (tied && !json_is_false(tied))
        return why_set(s->why, -ENOTSUP,
                       "%s: field tie_word_embeddings is not false, which is "
                       "not served",
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
            return why_set(s->why, -EBADMSG, "%s: field %s%s is missing",
                           s->file, path, f->name);
        int error = check_fixed(s, path, f->name, value, f->text, f->whole);
        if (error)
            return error;
    }
    return 0;
}

/* Weight-only MXFP4 in groups of 32 is the one scheme served. Which matrices
 * are packed is seen from the tensors, not from the lists in here. */
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
    int error = check_quant_object(s, path, quant, top,
                                   sizeof top / sizeof *top);
    if (error)
        return error;
    json_t *groups = json_object_get(quant, "config_groups");
    if (!json_object_size(groups))
        return why_set(s->why, -EBADMSG,
                       "%s: field %sconfig_groups is missing or empty", s->file,
                       path);
    const char *key;
    json_t *group;
    json_object_foreach(groups, key, group)
    {
        snprintf(path, sizeof path, "%squantization_config.%.20s.weights.",
                 path_of(s, TEXT), key);
        error = check_quant_object(s, path, json_object_get(group, "weights"),
                                   weight, sizeof weight / sizeof *weight);
        if (error)
            return error;
        json_t *inputs = json_object_get(group, "input_activations");
        if (inputs && !json_is_null(inputs))
            return why_set(s->why, -ENOTSUP,
                           "%s: field %squantization_config.%.20s."
                           "input_activations is not null, which is not served",
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
            return why_set(s->why, -EBADMSG,
                           "%s: field %s%s has an entry that is not in 1..%u",
                           s->file, path_of(s, LINEAR), name, c->layers);
        if (seen[layer - 1])
            return why_set(s->why, -EBADMSG,
                           "%s: layer %lld is named twice in full_attn_layers "
                           "and kda_layers",
                           s->file, (long long)layer);
        seen[layer - 1] = 1;
        c->is_mla[layer - 1] = mla;
    }
    return 0;
}

/* full_attn_layers and kda_layers must partition the layers. A flat file may
 * do with the first. */
static int read_layer_map(struct config *c, const struct source *s)
{
    int error;
    json_t *mla = find(s, LINEAR, "full_attn_layers", "full_attn_layers",
                       &error);
    if (error)
        return error;
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
        return why_set(s->why, -ENOMEM, "%s: no memory", s->file);
    }
    error = read_layer_list(c, s, "full_attn_layers", mla, true, seen);
    if (!error && !json_array_size(mla))
        error = malformed(s, LINEAR, "full_attn_layers", "a list with entries");
    if (!error && kda)
        error = read_layer_list(c, s, "kda_layers", kda, false, seen);
    for (uint32_t l = 0; !error && kda && l < c->layers; l++)
        if (!seen[l])
            error = why_set(s->why, -EBADMSG,
                            "%s: layer %u is in neither full_attn_layers nor "
                            "kda_layers",
                            s->file, l + 1);
    free(seen);
    return error;
}

static int read_id(uint32_t *out, const struct config *c,
                   const struct source *s, const char *name, bool optional)
{
    json_t *at_root = json_object_get(s->root, name);
    json_t *value = json_object_get(s->text, name);
    if (!at_root && !value && optional) {
        *out = UINT32_MAX;
        return 0;
    }
    if (!at_root && !value)
        return missing(s, ROOT, name);
    if (at_root && value && !json_equal(at_root, value))
        return why_set(s->why, -EBADMSG,
                       "%s: %s differs between the root and text_config",
                       s->file, name);
    if (!value)
        value = at_root;
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= c->vocab)
        return why_set(s->why, -EBADMSG,
                       "%s: field %s is not an id below vocab_size %u", s->file,
                       name, c->vocab);
    *out = (uint32_t)id;
    return 0;
}

/* What no single field can show. */
static int check_together(const struct config *c, const struct source *s)
{
    json_t *kv = json_object_get(s->text, "num_key_value_heads");
    if (!kv)
        return missing(s, TEXT, "num_key_value_heads");
    if (!json_is_integer(kv) || json_integer_value(kv) != c->heads)
        return why_set(s->why, -ENOTSUP,
                       "%s: field num_key_value_heads differs from "
                       "num_attention_heads (%u), which is not served",
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
            return why_set(s->why, -EBADMSG,
                           "%s: field %s is %u, not a multiple of %u", s->file,
                           multiples[i].name, multiples[i].value,
                           multiples[i].multiple_of);
    if (c->top_k > c->experts)
        return why_set(s->why, -EBADMSG,
                       "%s: num_experts_per_token is %u, more than num_experts "
                       "%u",
                       s->file, c->top_k, c->experts);
    /* A mix takes every snapshot and the running sum. */
    if ((c->layers + c->attn_res_block - 1) / c->attn_res_block + 1 >
        ATTN_SOURCES_MAX)
        return why_set(s->why, -ENOTSUP,
                       "%s: num_hidden_layers %u in blocks of "
                       "attn_res_block_size %u are more than the %d that are "
                       "served",
                       s->file, c->layers, c->attn_res_block,
                       ATTN_SOURCES_MAX - 1);
    if (c->first_dense >= c->layers)
        return why_set(s->why, -ENOTSUP,
                       "%s: first_k_dense_replace %u leaves no MoE layer of "
                       "%u, which is not served",
                       s->file, c->first_dense, c->layers);
    if ((uint64_t)c->shared_experts * c->moe_inter > 1 << 20)
        return why_set(s->why, -EBADMSG,
                       "%s: num_shared_experts times moe_intermediate_size is "
                       "above %d",
                       s->file, 1 << 20);
    if ((uint64_t)c->layers * c->experts > CONFIG_EXPERTS_MAX)
        return why_set(s->why, -EBADMSG,
                       "%s: num_hidden_layers times num_experts is above %d",
                       s->file, CONFIG_EXPERTS_MAX);
    return 0;
}

static int find_objects(struct source *s)
{
    if (!json_is_object(s->root))
        return why_set(s->why, -EBADMSG, "%s: not a JSON object", s->file);
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
        return why_set(s->why, -ENOTSUP,
                       "%s: field model_type is not \"kimi_k3\"", s->file);
    return 0;
}

static int read_all(struct config *c, struct source *s)
{
    static const struct {
        const char *name;
        size_t      offset;
    } ids[] = {
        { "bos_token_id", AT(bos_id) },
        { "eos_token_id", AT(eos_id) },
        { "pad_token_id", AT(pad_id) },
        { "media_placeholder_token_id", AT(media_pad_id) },
    };
    int error;
    if ((error = find_objects(s)) || (error = read_wholes(c, s)) ||
        (error = read_reals(c, s)) || (error = read_bools(c, s)) ||
        (error = read_fixed(s)) || (error = read_quantization(s)) ||
        (error = check_together(c, s)) || (error = read_layer_map(c, s)))
        return error;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        bool optional = s->flat && ids[i].offset == AT(media_pad_id);
        error = read_id((uint32_t *)((char *)c + ids[i].offset), c, s,
                        ids[i].name, optional);
        if (error)
            return error;
    }
    return 0;
}

int config_parse(struct config *out, json_t *root, const char *name,
                 struct why *why)
{
    struct source s = { .file = name, .root = root, .why = why };
    memset(out, 0, sizeof *out);
    out->mla_latent_eps = 1e-6f;
    int error = read_all(out, &s);
    if (error)
        config_free(out);
    return error;
}

int config_load(struct config *out, const char *dir, struct why *why)
{
    char path[4096];
    char *text;
    size_t length;
    memset(out, 0, sizeof *out);
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return why_set(why, -ENAMETOOLONG, "%.200s...: the path is too long",
                       dir);
    int error = slurp_file(&text, &length, path, CONFIG_BYTES_MAX, why);
    if (error)
        return error;
    json_error_t at;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!root)
        return why_set(why, -EBADMSG, "%s: line %d: %s", path, at.line,
                       at.text);
    error = config_parse(out, root, path, why);
    json_decref(root);
    return error;
}

void config_free(struct config *c)
{
    free(c->is_mla);
    memset(c, 0, sizeof *c);
}
