/* synth_config.c - presets and settings to a config.json. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tools/synth_internal.h"

enum kind { WHOLE, REAL, FLAG, LIST, TEXT };
enum place { ROOT, TEXT_CONFIG, LINEAR };
enum { PRESETS = 4 };

static const char *const preset_names[PRESETS] = { "tiny", "small", "bench",
                                                   "k3" };
/* With --size: the fewest experts of a layer. */
static const uint32_t preset_experts_min[PRESETS] = { 8, 16, 32, 32 };

/* NULL in a preset: derived from the other fields. */
static const struct field {
    const char *name;
    enum place  place;
    enum kind   kind;
    const char *value[PRESETS];
} fields[] = {
#define SAME(v) { v, v, v, v }
#define DERIVED { NULL, NULL, NULL, NULL }
    { "hidden_size", TEXT_CONFIG, WHOLE, { "144", "1024", "7168", "7168" } },
    { "num_hidden_layers", TEXT_CONFIG, WHOLE, { "13", "9", "5", "93" } },
    { "vocab_size", TEXT_CONFIG, WHOLE, { "768", "8192", "16384", "163840" } },
    { "rms_norm_eps", TEXT_CONFIG, REAL, SAME("1e-05") },
    { "hidden_act", TEXT_CONFIG, TEXT, SAME("situ") },
    { "activation_situ_beta", TEXT_CONFIG, REAL, SAME("4.0") },
    { "activation_situ_linear_beta", TEXT_CONFIG, REAL, SAME("25.0") },
    { "attn_res_block_size", TEXT_CONFIG, WHOLE, { "3", "4", "12", "12" } },
    { "num_attention_heads", TEXT_CONFIG, WHOLE, { "4", "8", "96", "96" } },
    { "num_key_value_heads", TEXT_CONFIG, WHOLE, DERIVED },
    { "q_lora_rank", TEXT_CONFIG, WHOLE, { "48", "256", "1536", "1536" } },
    { "kv_lora_rank", TEXT_CONFIG, WHOLE, { "40", "128", "512", "512" } },
    { "qk_nope_head_dim", TEXT_CONFIG, WHOLE, { "24", "64", "128", "128" } },
    { "qk_rope_head_dim", TEXT_CONFIG, WHOLE, { "8", "32", "64", "64" } },
    { "v_head_dim", TEXT_CONFIG, WHOLE, { "20", "64", "128", "128" } },
    { "mla_use_nope", TEXT_CONFIG, FLAG, SAME("true") },
    { "mla_use_output_gate", TEXT_CONFIG, FLAG, SAME("true") },
    { "first_k_dense_replace", TEXT_CONFIG, WHOLE, SAME("1") },
    { "moe_layer_freq", TEXT_CONFIG, WHOLE, SAME("1") },
    { "intermediate_size", TEXT_CONFIG, WHOLE,
      { "256", "4096", "6144", "33792" } },
    { "num_experts", TEXT_CONFIG, WHOLE, { "14", "48", "33", "896" } },
    { "num_experts_per_token", TEXT_CONFIG, WHOLE, { "4", "8", "16", "16" } },
    { "num_shared_experts", TEXT_CONFIG, WHOLE, SAME("2") },
    { "moe_intermediate_size", TEXT_CONFIG, WHOLE,
      { "96", "512", "3072", "3072" } },
    { "routed_expert_hidden_size", TEXT_CONFIG, WHOLE,
      { "64", "512", "3584", "3584" } },
    { "latent_moe_use_norm", TEXT_CONFIG, FLAG, SAME("true") },
    { "moe_router_activation_func", TEXT_CONFIG, TEXT, SAME("sigmoid") },
    { "moe_renormalize", TEXT_CONFIG, FLAG, SAME("true") },
    { "routed_scaling_factor", TEXT_CONFIG, REAL, SAME("1.0") },
    { "num_expert_group", TEXT_CONFIG, WHOLE, SAME("1") },
    { "topk_group", TEXT_CONFIG, WHOLE, SAME("1") },
    { "use_grouped_topk", TEXT_CONFIG, FLAG, SAME("true") },
    { "topk_method", TEXT_CONFIG, TEXT, SAME("noaux_tc") },
    { "num_nextn_predict_layers", TEXT_CONFIG, WHOLE, SAME("0") },
    { "max_position_embeddings", TEXT_CONFIG, WHOLE,
      { "8192", "65536", "1048576", "1048576" } },
    { "num_heads", LINEAR, WHOLE, { "5", "12", "96", "96" } },
    { "head_dim", LINEAR, WHOLE, { "16", "128", "128", "128" } },
    { "short_conv_kernel_size", LINEAR, WHOLE, SAME("4") },
    { "gate_lower_bound", LINEAR, REAL, SAME("-5.0") },
    { "use_full_rank_gate", LINEAR, FLAG, SAME("true") },
    { "full_attn_layers", LINEAR, LIST, { NULL, NULL, "4", NULL } },
    { "bos_token_id", ROOT, WHOLE, DERIVED },
    { "eos_token_id", ROOT, WHOLE, DERIVED },
    { "pad_token_id", ROOT, WHOLE, DERIVED },
    { "media_placeholder_token_id", ROOT, WHOLE, DERIVED },
};
enum { FIELDS = sizeof fields / sizeof *fields };

const char *synth_presets(void)
{
    return "tiny|small|bench|k3";
}

static int preset_index(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (!strcmp(preset_names[i], name))
            return i;
    return -1;
}

bool synth_is_preset(const char *name)
{
    return preset_index(name) >= 0;
}

const char *synth_field(size_t i)
{
    return i < FIELDS ? fields[i].name : NULL;
}

const char *synth_field_metavar(size_t i)
{
    static const char *const metavars[] = {
        [WHOLE] = "N",       [REAL] = "REAL", [FLAG] = "true|false",
        [LIST] = "N,N,...", [TEXT] = "TEXT",
    };
    return metavars[fields[i].kind];
}

/* A list of numbers, without spaces. */
static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    for (;;) {
        char *end;
        errno = 0;
        long long value = *text >= '0' && *text <= '9'
                              ? strtoll(text, &end, 10)
                              : -1;
        if (value < 0 || errno || (*end && *end != ',')) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, json_integer(value));
        if (!*end)
            return list;
        text = end + 1;
    }
}

/* The JSON of a value, or NULL if the text is not of this kind. */
static json_t *value_of(enum kind kind, const char *text)
{
    json_t *value = NULL;
    switch (kind) {
    case LIST:
        return list_of(text);
    case TEXT:
        return json_string(text);
    case FLAG:
        if (!strcmp(text, "true") || !strcmp(text, "false"))
            return json_boolean(text[0] == 't');
        return NULL;
    case WHOLE:
    case REAL:
        value = json_loads(text, JSON_DECODE_ANY, NULL);
        if (kind == WHOLE ? json_is_integer(value) : json_is_number(value))
            return value;
        json_decref(value);
    }
    return NULL;
}

const char *synth_field_wrong(size_t i, const char *value)
{
    static const char *const wrongs[] = {
        [WHOLE] = "is not a whole number",
        [REAL] = "is not a number",
        [FLAG] = "is not true or false",
        [LIST] = "is not a list like 4,8,12",
        [TEXT] = "is not text",
    };
    json_t *json = value_of(fields[i].kind, value);
    json_decref(json);
    return json ? NULL : wrongs[fields[i].kind];
}

static const char *setting(const struct synth_options *o, const char *field)
{
    for (size_t i = o->settings; i-- > 0;)
        if (!strcmp(o->setting[i].field, field))
            return o->setting[i].value;
    return NULL;
}

bool synth_has_setting(const struct synth_options *o, const char *field)
{
    return setting(o, field) != NULL;
}

static json_int_t whole_in(json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* Every fourth layer and the last, counted from 1: the rule of K3. */
static json_t *default_mla(json_int_t layers)
{
    json_t *list = json_array();
    for (json_int_t l = 1; l <= layers && l <= 4096; l++)
        if (l % 4 == 0 || l == layers)
            json_array_append_new(list, json_integer(l));
    return list;
}

static json_t *others(json_t *mla, json_int_t layers)
{
    json_t *list = json_array();
    for (json_int_t l = 1; l <= layers && l <= 4096; l++) {
        bool is_mla = false;
        for (size_t i = 0; i < json_array_size(mla); i++)
            is_mla |= json_integer_value(json_array_get(mla, i)) == l;
        if (!is_mla)
            json_array_append_new(list, json_integer(l));
    }
    return list;
}

/* The value of a field that depends on others. */
static json_t *derived(const char *name, json_t *text)
{
    static const struct {
        const char *name;
        int         above; /* the first of the special ids */
    } ids[] = {
        { "bos_token_id", 0 },
        { "eos_token_id", 2 },
        { "pad_token_id", SYNTH_SPECIALS - 1 },
        { "media_placeholder_token_id", 21 },
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (!strcmp(ids[i].name, name))
            return json_integer(whole_in(text, "vocab_size") - SYNTH_SPECIALS +
                                ids[i].above);
    if (!strcmp(name, "num_key_value_heads"))
        return json_integer(whole_in(text, "num_attention_heads"));
    return default_mla(whole_in(text, "num_hidden_layers"));
}

static json_t *quantization(void)
{
    return json_pack(
        "{s:s, s:s, s:s, s:{s:{s:s, s:[s], s:{s:i, s:s, s:i, s:s, s:b, s:b, "
        "s:s, s:s}, s:n}}}",
        "quant_method", "compressed-tensors", "format", "mxfp4-pack-quantized",
        "quantization_status", "compressed", "config_groups", "group_0",
        "format", "mxfp4-pack-quantized", "targets", "Linear", "weights",
        "num_bits", 4, "type", "float", "group_size", CONFIG_MXFP4_GROUP,
        "strategy", "group", "symmetric", 1, "dynamic", 0, "scale_dtype",
        "torch.uint8", "observer", "minmax", "input_activations");
}

static json_t *vision(void)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:[i,i], s:i, s:i}",
                     "vt_hidden_size", 1024, "qkv_hidden_size", 1536,
                     "vt_num_attention_heads", 12, "vt_num_hidden_layers", 27,
                     "vt_intermediate_size", 4096, "merge_kernel_size", 2, 2,
                     "mm_hidden_size", 1024, "text_hidden_size", 7168);
}

static json_t *frame(const char *preset)
{
    char mark[64];
    snprintf(mark, sizeof mark, SYNTH_MARK "%s", preset);
    return json_pack("{s:s, s:[s], s:s, s:s, s:i, s:s, s:b, s:{s:[s], s:s, "
                     "s:s, s:b, s:b}}",
                     "_name_or_path", mark, "architectures",
                     "KimiK3ForConditionalGeneration", "model_type", "kimi_k3",
                     "dtype", "bfloat16", "ignore_index", -100,
                     "image_placeholder", "<|kimi_image_placeholder|>",
                     "tie_word_embeddings", 0, "text_config", "architectures",
                     "KimiLinearForCausalLM", "model_type", "kimi_linear",
                     "dtype", "bfloat16", "tie_word_embeddings", 0, "use_cache",
                     1);
}

static int put_fields(json_t *root, const struct synth_options *o, int preset,
                      struct error *error)
{
    json_t *text = json_object_get(root, "text_config");
    json_t *linear = json_object();
    json_object_set_new(text, "linear_attn_config", linear);
    bool other_layers = synth_has_setting(o, "num_hidden_layers");
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *f = &fields[i];
        const char *given = setting(o, f->name);
        const char *from = given ? given : f->value[preset];
        if (!given && f->kind == LIST && other_layers)
            from = NULL;
        json_t *value = from ? value_of(f->kind, from)
                             : derived(f->name, text);
        if (!value)
            return error_set(error, -EINVAL, "%s: %s is not a value of %s",
                             o->dir, from ? from : "nothing", f->name);
        json_object_set_new(f->place == LINEAR ? linear : text, f->name, value);
        if (f->place == ROOT)
            json_object_set(root, f->name, value);
    }
    json_object_set_new(linear, "kda_layers",
                        others(json_object_get(linear, "full_attn_layers"),
                               whole_in(text, "num_hidden_layers")));
    json_object_del(text, "media_placeholder_token_id");
    return 0;
}

int synth_config(json_t **root, struct config *c, const struct synth_options *o,
                 uint32_t experts, struct error *error)
{
    int preset = preset_index(o->preset);
    *root = NULL;
    memset(c, 0, sizeof *c);
    if (preset < 0)
        return error_set(error, -EINVAL, "%s: %s is not a preset (%s)", o->dir,
                         o->preset, synth_presets());
    json_t *made = frame(o->preset);
    json_t *text = json_object_get(made, "text_config");
    int code = put_fields(made, o, preset, error);
    if (!code && experts)
        json_object_set_new(text, "num_experts", json_integer(experts));
    json_object_set_new(text, "quantization_config", quantization());
    if (preset == PRESETS - 1)
        json_object_set_new(made, "vision_config", vision());
    if (!code)
        code = config_parse(c, made, "config.json", error);
    if (!code && c->vocab < SYNTH_VOCAB_MIN) {
        code = error_set(error, -EINVAL,
                         "vocab_size is %u; a synthetic vocabulary has "
                         "at least %d",
                         c->vocab, SYNTH_VOCAB_MIN);
        config_free(c);
    }
    if (code) {
        json_decref(made);
        return code;
    }
    *root = made;
    return 0;
}

uint32_t synth_experts_min(const struct synth_options *o,
                           const struct config *c)
{
    uint32_t min = preset_experts_min[preset_index(o->preset)];
    return min > c->top_k ? min : c->top_k;
}
