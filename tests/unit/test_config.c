/* Goal    a config.json gives the right shape or is refused with the name of
 *         the field.
 * Method  the config of a synthetic model, with each required field removed,
 *         each value replaced by one that is not supported or out of range; the
 *         same model in the flat layout; the k3 preset against the values that
 *         are published, and against the released file where it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/tools/synth_internal.h"
#include "tests/skip.h"
#include "tests/unit/ckpt_files.h"

static json_t *root;

static int setup(void **state)
{
    struct config c;
    struct error error = { 0 };
    struct synth_options o = { .dir = "-", .preset = "tiny" };
    (void)state;
    if (synth_config(&root, &c, &o, 0, &error))
        return -1;
    config_free(&c);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(root);
    return 0;
}

/* The object that holds the last name of a path like "a.b.c", and the name. */
static json_t *holder(json_t *from, const char *path, const char **name)
{
    const char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        from = json_object_get(from, key);
        assert_non_null(from);
    }
    *name = path;
    return from;
}

/* Parse a copy with `path` set to `literal`, or removed where that is NULL. */
static int parse_with(const char *path, const char *literal, struct config *c,
                      struct error *error)
{
    const char *name;
    json_t *copy = json_deep_copy(root);
    json_t *object = holder(copy, path, &name);
    if (literal) {
        json_t *value = json_loads(literal, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        json_object_set_new(object, name, value);
    } else {
        assert_non_null(json_object_get(object, name));
        json_object_del(object, name);
    }
    *error = (struct error){ 0 };
    int code = config_parse(c, copy, "config.json", error);
    json_decref(copy);
    return code;
}

static void refused(const char *path, const char *literal, int code)
{
    struct config c;
    struct error error;
    const char *name = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
    int got = parse_with(path, literal, &c, &error);
    if (got != code || !strstr(error.text, name) ||
        !strstr(error.text, "config"))
        fail_msg("%s = %s: %d, %s", path, literal ? literal : "(removed)", got,
                 error.text);
    assert_null(c.is_mla);
}

#define T "text_config."
#define L "text_config.linear_attn_config."
#define Q "text_config.quantization_config."

static void test_required(void **state)
{
    static const char *const required[] = {
        "model_type", "text_config",
        T "hidden_size", T "num_hidden_layers", T "vocab_size",
        T "rms_norm_eps", T "hidden_act", T "activation_situ_beta",
        T "activation_situ_linear_beta", T "attn_res_block_size",
        T "num_attention_heads", T "q_lora_rank",
        T "kv_lora_rank", T "qk_nope_head_dim", T "qk_rope_head_dim",
        T "v_head_dim", T "mla_use_nope", T "mla_use_output_gate",
        T "first_k_dense_replace", T "intermediate_size",
        T "num_experts", T "num_experts_per_token", T "num_shared_experts",
        T "moe_intermediate_size", T "routed_expert_hidden_size",
        T "latent_moe_use_norm", T "moe_router_activation_func",
        T "moe_renormalize", T "routed_scaling_factor", T "topk_method",
        T "tie_word_embeddings",
        T "quantization_config", Q "quant_method", Q "format",
        Q "config_groups", Q "config_groups.group_0.weights.num_bits",
        Q "config_groups.group_0.weights.group_size",
        Q "config_groups.group_0.weights.type", L "num_heads", L "head_dim",
        L "short_conv_kernel_size", L "gate_lower_bound",
        L "use_full_rank_gate", L "full_attn_layers", L "kda_layers",
    };
    (void)state;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        refused(required[i], NULL, -EBADMSG);
}

static void test_not_supported(void **state)
{
    static const char *const cases[][2] = {
        { "model_type", "\"llama\"" },
        { "tie_word_embeddings", "true" },
        { "dtype", "\"float16\"" },
        { T "hidden_act", "\"silu\"" },
        { T "moe_router_activation_func", "\"softmax\"" },
        { T "topk_method", "\"greedy\"" },
        { T "num_expert_group", "2" },
        { T "topk_group", "2" },
        { T "moe_layer_freq", "2" },
        { T "num_nextn_predict_layers", "1" },
        { T "mla_use_nope", "false" },
        { T "mla_use_output_gate", "false" },
        { T "tie_word_embeddings", "true" },
        { T "num_key_value_heads", "2" },
        { T "first_k_dense_replace", "13" }, /* all of them */
        { T "first_k_dense_replace", "14" },
        { L "use_full_rank_gate", "false" },
        { Q "quant_method", "\"gptq\"" },
        { Q "format", "\"pack-quantized\"" },
        { Q "quantization_status", "\"frozen\"" },
        { Q "config_groups.group_0.weights.num_bits", "8" },
        { Q "config_groups.group_0.weights.group_size", "16" },
        { Q "config_groups.group_0.weights.type", "\"int\"" },
        { Q "config_groups.group_0.weights.strategy", "\"channel\"" },
        { Q "config_groups.group_0.input_activations", "{\"num_bits\":8}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], cases[i][1], -ENOTSUP);
}

static void test_out_of_range(void **state)
{
    static const char *const cases[][2] = {
        { T "hidden_size", "0" },
        { T "hidden_size", "-1" },
        { T "hidden_size", "4294967296" },
        { T "hidden_size", "144.0" },
        { T "hidden_size", "\"144\"" },
        { T "hidden_size", "null" },
        { T "num_hidden_layers", "4097" },
        { T "vocab_size", "0" },
        { T "num_experts", "65536" },
        { T "num_experts_per_token", "15" }, /* of 14 */
        { T "num_experts_per_token", "0" },
        { T "routed_expert_hidden_size", "48" },
        { T "moe_intermediate_size", "100" },
        { T "attn_res_block_size", "0" },
        { T "rms_norm_eps", "0" },
        { T "rms_norm_eps", "-1e-5" },
        { T "rms_norm_eps", "true" },
        { T "rms_norm_eps", "1e-60" }, /* 0 as a float */
        { T "activation_situ_beta", "0" },
        { T "routed_scaling_factor", "-1.0" },
        { T "moe_renormalize", "1" },
        { T "mla_use_nope", "\"true\"" },
        { T "bos_token_id", "513" }, /* 512 at the root */
        { "media_placeholder_token_id", "768" },
        { "media_placeholder_token_id", "-1" },
        { L "gate_lower_bound", "0" },
        { L "gate_lower_bound", "5" },
        { L "short_conv_kernel_size", "0" },
        { L "head_dim", "1e3" },
        { L "full_attn_layers", "[]" },
        { L "full_attn_layers", "4" },
        { L "full_attn_layers", "[0,4,8,12,13]" },
        { L "full_attn_layers", "[4,8,12,14]" },
        { L "full_attn_layers", "[4,8,12,\"13\"]" },
        { L "kda_layers", "{}" },
        { "text_config", "[]" },
        { T "linear_attn_config", "7" },
        { T "quantization_config", "\"mxfp4\"" },
        { Q "config_groups", "{}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i][0], cases[i][1], -EBADMSG);
}

/* One layer in both lists, or in none: the sentence names the layer. */
static void test_layer_lists(void **state)
{
    static const char *const cases[][2] = {
        { L "full_attn_layers", "[4,8,12]" },
        { L "full_attn_layers", "[4,8,12,13,3]" },
        { L "full_attn_layers", "[4,8,12,13,13]" },
        { L "kda_layers", "[1,2,3,5,6,7,9,10]" },
    };
    static const char *const layers[] = { "13", "3", "13", "11" };
    struct config c;
    struct error error;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char words[20];
        snprintf(words, sizeof words, "layer %s ", layers[i]);
        assert_int_equal(parse_with(cases[i][0], cases[i][1], &c, &error),
                         -EBADMSG);
        assert_non_null(strstr(error.text, words));
    }
}

static void test_values(void **state)
{
    struct config c;
    struct error error = { 0 };
    (void)state;
    assert_int_equal(config_parse(&c, root, "config.json", &error), 0);
    assert_int_equal(c.hidden, 144);
    assert_int_equal(c.layers, 13);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kda_heads, 5);
    assert_int_equal(c.kda_dim, 16);
    assert_int_equal(config_kda_width(&c), 80);
    assert_int_equal(config_shared_inter(&c), 192);
    assert_int_equal(c.eos_id, 514);
    assert_int_equal(c.media_pad_id, 533);
    assert_true(c.renormalize && c.latent_norm);
    assert_true(fabsf(c.mla_latent_eps - 1e-6f) < 1e-12f);
    for (uint32_t l = 0; l < c.layers; l++)
        assert_int_equal(config_is_mla(&c, l),
                         l == 3 || l == 7 || l == 11 || l == 12);
    assert_true(config_is_dense(&c, 0) && !config_is_dense(&c, 1));
    config_free(&c);
}

/* Ids as files have them: one, a list, null, none. What the text model never
 * uses may be left out. */
static void test_ids(void **state)
{
    static const struct {
        const char *value;
        int         code;
        uint32_t    ends, eos, last;
    } cases[] = {
        { "5", 0, 1, 5, 5 },          { "[5]", 0, 1, 5, 5 },
        { "[5, 7, 514]", 0, 3, 5, 514 }, { "null", 0, 0, UINT32_MAX, 0 },
        { "[]", 0, 0, UINT32_MAX, 0 }, { "[5, -1]", -EBADMSG, 0, 0, 0 },
        { "[[5]]", -EBADMSG, 0, 0, 0 }, { "768", -EBADMSG, 0, 0, 0 },
        { "[5, \"7\"]", -EBADMSG, 0, 0, 0 },
        { "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", -EBADMSG, 0, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct error error = { 0 };
        json_t *copy = json_deep_copy(root);
        json_t *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
        json_object_set(copy, "eos_token_id", value);
        json_object_set(json_object_get(copy, "text_config"), "eos_token_id",
                        value);
        assert_int_equal(config_parse(&c, copy, "config.json", &error),
                         cases[i].code);
        if (!cases[i].code) {
            assert_int_equal(c.ends, cases[i].ends);
            assert_int_equal(c.eos_id, cases[i].eos);
            if (c.ends)
                assert_int_equal(c.end_id[c.ends - 1], cases[i].last);
            config_free(&c);
        }
        json_decref(value);
        json_decref(copy);
    }
}

static void test_two_ids(void **state)
{
    (void)state;
    json_t *copy = json_deep_copy(root);
    struct config two;
    struct error differ = { 0 };
    json_object_set_new(copy, "eos_token_id", json_pack("[i, i]", 1, 2));
    assert_int_equal(config_parse(&two, copy, "config.json", &differ),
                     -EBADMSG);
    /* A list without ids says as little as null. */
    json_object_set_new(copy, "eos_token_id", json_array());
    assert_int_equal(config_parse(&two, copy, "config.json", NULL), 0);
    assert_int_equal(two.ends, 1);
    config_free(&two);
    json_object_set_new(json_object_get(copy, "text_config"), "eos_token_id",
                        json_array());
    assert_int_equal(config_parse(&two, copy, "config.json", NULL), 0);
    assert_int_equal(two.ends, 0);
    assert_int_equal(two.eos_id, CONFIG_NO_ID);
    config_free(&two);
    json_decref(copy);
}

static void test_unused(void **state)
{
    static const char *const unused[] = {
        "max_position_embeddings", "moe_layer_freq", "num_expert_group",
        "topk_group", "num_nextn_predict_layers", "num_key_value_heads",
        "pad_token_id", "bos_token_id",
    };
    (void)state;
    json_t *copy = json_deep_copy(root);
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        json_object_del(copy, unused[i]);
        json_object_del(json_object_get(copy, "text_config"), unused[i]);
    }
    json_object_set_new(copy, "media_placeholder_token_id", json_null());
    struct config c;
    struct error error = { 0 };
    assert_int_equal(config_parse(&c, copy, "config.json", &error), 0);
    assert_int_equal(c.pad_id, UINT32_MAX);
    assert_int_equal(c.media_pad_id, UINT32_MAX);
    config_free(&c);
    json_decref(copy);
}

/* The same model with everything in the root and the names of flat files. */
static json_t *flat_root(void)
{
    static const char *const renamed[][2] = {
        { "num_heads", "kda_num_heads" },
        { "head_dim", "kda_head_dim" },
        { "activation_situ_beta", "situ_beta" },
        { "activation_situ_linear_beta", "situ_linear_beta" },
    };
    json_t *flat = json_deep_copy(json_object_get(root, "text_config"));
    json_object_update(flat, json_object_get(flat, "linear_attn_config"));
    json_object_del(flat, "linear_attn_config");
    json_object_del(flat, "kda_layers");
    json_object_del(flat, "use_full_rank_gate");
    for (size_t i = 0; i < 4; i++) {
        json_object_set(flat, renamed[i][1],
                        json_object_get(flat, renamed[i][0]));
        json_object_del(flat, renamed[i][0]);
    }
    return flat;
}

static void test_flat(void **state)
{
    struct config nested, c;
    struct error error = { 0 };
    json_t *flat = flat_root();
    (void)state;
    assert_int_equal(config_parse(&nested, root, "config.json", &error), 0);
    if (config_parse(&c, flat, "config.json", &error))
        fail_msg("%s", error.text);
    assert_int_equal(c.media_pad_id, UINT32_MAX);
    c.media_pad_id = nested.media_pad_id;
    bool *is_mla = c.is_mla;
    assert_memory_equal(is_mla, nested.is_mla, c.layers * sizeof *is_mla);
    c.is_mla = nested.is_mla;
    assert_memory_equal(&c, &nested, sizeof c);
    c.is_mla = is_mla;
    config_free(&c);
    config_free(&nested);

    /* MLA has a head_dim of its own in other models: not an alias. */
    json_object_del(flat, "kda_head_dim");
    json_object_set_new(flat, "head_dim", json_integer(16));
    assert_int_equal(config_parse(&c, flat, "config.json", &error), -EBADMSG);
    json_object_del(flat, "hidden_size");
    error.code = 0;
    assert_int_equal(config_parse(&c, flat, "config.json", &error), -EBADMSG);
    assert_non_null(strstr(error.text, "text_config is missing"));
    json_decref(flat);
}

static void test_both_names(void **state)
{
    struct config c;
    struct error error;
    (void)state;
    assert_int_equal(parse_with(T "situ_beta", "4.0", &c, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "both"));
    assert_int_equal(parse_with(T "gate_lower_bound", "-5.0", &c, &error),
                     -EBADMSG);
}

/* The file itself: absent, not JSON, a name twice, nothing beside it. */
static void test_load(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        { "", -EBADMSG, "line 1" },
        { "[]", -EBADMSG, "object" },
        { "{\"a\":1,\"a\":2}", -EBADMSG, "duplicate" },
        { "{\n\n\"a\":}", -EBADMSG, "line 3" },
        { "{}", -EBADMSG, "text_config" },
        { "{\"a\":1} x", -EBADMSG, "config.json" },
    };
    struct config c;
    char *dir = ckpt_files_place();
    char *around = strdup(dir);
    (void)state;
    *strrchr(around, '/') = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = { 0 };
        ckpt_files_write(around, "config.json", cases[i].text,
                         strlen(cases[i].text));
        assert_int_equal(config_load(&c, around, &error), cases[i].code);
        assert_non_null(strstr(error.text, cases[i].words));
        assert_non_null(strstr(error.text, around));
    }
    char *text = json_dumps(root, 0);
    struct error error = { 0 };
    ckpt_files_write(around, "config.json", text, strlen(text));
    assert_int_equal(config_load(&c, around, &error), 0);
    config_free(&c);
    free(text);
    assert_int_equal(config_load(&c, dir, &error), -ENOENT);
    assert_non_null(strstr(error.text, "model/config.json"));
    text = ckpt_files_read(around, "config.json", &(size_t){ 0 });
    free(text);
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", around);
    unlink(path);
    free(around);
    ckpt_files_remove(dir);
}

/* The config of the k3 preset as a file, and its shape. */
static json_t *k3_root(struct config *c)
{
    json_t *k3;
    struct error error = { 0 };
    struct synth_options o = { .dir = "-", .preset = "k3" };
    if (synth_config(&k3, c, &o, 0, &error))
        fail_msg("%s", error.text);
    return k3;
}

static void test_k3(void **state)
{
    struct config c;
    (void)state;
    json_decref(k3_root(&c));
    assert_int_equal(c.layers, 93);
    assert_int_equal(c.hidden, 7168);
    assert_int_equal(c.experts, 896);
    assert_int_equal(c.top_k, 16);
    assert_int_equal(c.dense_inter, 33792);
    assert_int_equal(c.eos_id, 163586);
    uint32_t mla = 0;
    for (uint32_t l = 0; l < c.layers; l++)
        mla += config_is_mla(&c, l);
    assert_int_equal(mla, 24);
    assert_true(config_is_mla(&c, 91) && config_is_mla(&c, 92));
    config_free(&c);
}

/* Every field of ours is in the released file, with the same value. */
static void same_fields(const json_t *ours, const json_t *released)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)ours, key, value) {
        json_t *other = json_object_get(released, key);
        if (!strcmp(key, "_name_or_path") || !strcmp(key, "use_cache"))
            continue; /* nobody reads them */
        if (json_is_object(value) && json_is_object(other))
            same_fields(value, other);
        else if (!json_equal(value, other))
            fail_msg("%s is not the released one", key);
    }
}

static void test_released(void **state)
{
    static const char path[] = "../shared/data/kimi-k3/config.json";
    struct config ours, c;
    struct error error = { 0 };
    (void)state;
    if (access(path, R_OK))
        skip_because("%s is absent", path);
    json_t *released = json_load_file(path, 0, NULL), *k3 = k3_root(&ours);
    assert_non_null(released);
    same_fields(k3, released);
    assert_int_equal(config_parse(&c, released, path, &error), 0);
    assert_int_equal(memcmp(c.is_mla, ours.is_mla, c.layers), 0);
    config_free(&c);
    config_free(&ours);
    json_decref(released);
    json_decref(k3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_two_ids),
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_not_supported),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_layer_lists),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_both_names),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_k3),
        cmocka_unit_test(test_released),
    };
    return cmocka_run_group_tests_name("config", tests, setup, teardown);
}
