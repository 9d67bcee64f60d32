#include "model/tools/synth_drafter.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/dspark/weights.h"
#include "model/tools/synth_internal.h"

enum {
    LAYERS = 5,
    PIECE_VALUES = 1 << 20, /* of one write */
    HEADER_MAX = 64 << 10,
    HIDDEN = 7168,  /* of the published ones, as below */
    WIDE = 1024,    /* from here on, heads are as wide as the published ones */
};

struct entry {
    char name[DSPARK_NAME_BYTES];
    enum dspark_role role;
    uint64_t values;
};

struct job {
    const struct synth_drafter_options *o;
    struct config k3;
    struct dspark_config c;
    struct entry entry[LAYERS * DSPARK_ROLES];
    size_t entries;
    struct error *error;
};

/* `published` in proportion to the width, at least 1. */
static uint32_t share(const struct job *j, uint32_t published, uint32_t unit)
{
    uint64_t n = (uint64_t)published * j->c.hidden / HIDDEN / unit * unit;
    return n ? (uint32_t)n : unit;
}

static void shape(struct job *j)
{
    static const uint32_t layer[2][LAYERS] = { { 7, 23, 51, 67, 83 },
                                               { 2, 23, 47, 71, 89 } };
    struct dspark_config *c = &j->c;
    uint32_t narrow = j->k3.hidden < WIDE ? 4 : 1;
    *c = (struct dspark_config){ .kind = j->o->kind, .hidden = j->k3.hidden,
                                 .vocab = j->k3.vocab };
    c->layers = LAYERS;
    c->inter = 2 * c->hidden;
    c->rank = share(j, 256, 16);
    c->head_dim = 64 / narrow;
    c->nope = c->v_dim = 128 / narrow;
    c->rope = 64 / narrow;
    c->q_rank = share(j, 1536, 16);
    c->kv_rank = share(j, 512, 16);
    c->heads = share(j, 64 * narrow, 8);
    c->kv_heads = c->heads / 4;
    c->mask_id = c->vocab - (c->kind == DSPARK_MLA ? 3 : 16);
    for (uint32_t i = 0; i < LAYERS; i++) {
        uint32_t at = layer[c->kind][i] * j->k3.layers / 93;
        if (!c->taps || at > c->tap[c->taps - 1])
            c->tap[c->taps++] = at;
    }
}

static uint64_t all_bytes(const struct job *j)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < DSPARK_ROLES; r++) {
        uint32_t rows, cols;
        dspark_shape(&j->c, (enum dspark_role)r, &rows, &cols);
        if (dspark_has(&j->c, (enum dspark_role)r) && r != D_EMBED)
            sum += 2ull * rows * cols *
                   dspark_count(&j->c, (enum dspark_role)r);
    }
    return sum;
}

static void shrink(struct job *j)
{
    struct dspark_config *c = &j->c;
    while (j->o->size_bytes && all_bytes(j) > j->o->size_bytes) {
        if (c->layers > 1)
            c->layers--;
        else if (c->taps > 1)
            c->taps--;
        else if (c->inter > 64)
            c->inter /= 2;
        else
            return;
    }
}

/* ---- config.json ---- */

static json_t *make_config(const struct job *j)
{
    const struct dspark_config *c = &j->c;
    json_t *taps = json_array();
    for (uint32_t i = 0; i < c->taps; i++)
        json_array_append_new(taps, json_integer(c->tap[i]));
    if (c->kind == DSPARK_MLA)
        return json_pack(
            "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, "
            "s:b, s:i, s:f, s:i, s:i, s:i, s:o, s:i, s:i, s:s, s:b, s:b, s:i, "
            "s:{s:s, s:f, s:i, s:f, s:i, s:i, s:f, s:f}}",
            "architectures", "K3DSparkModel", "model_type", "k3_dspark",
            "hidden_size", c->hidden, "intermediate_size", c->inter,
            "num_hidden_layers", c->layers, "num_attention_heads", c->heads,
            "q_lora_rank", c->q_rank, "kv_lora_rank", c->kv_rank,
            "qk_nope_head_dim", c->nope, "qk_rope_head_dim", c->rope,
            "v_head_dim", c->v_dim, "mla_use_nope", 0, "mla_use_output_gate",
            0, "vocab_size", c->vocab, "rms_norm_eps", 1e-5,
            "num_target_layers", c->taps, "target_hidden_size", c->hidden,
            "target_num_hidden_layers", j->k3.layers, "target_layer_ids",
            taps, "mask_token_id", c->mask_id, "markov_rank", c->rank,
            "markov_head_type", "vanilla", "enable_confidence_head", 1,
            "confidence_head_with_markov", 1, "draft_vocab_size", c->vocab,
            "rope_parameters", "rope_type", "yarn", "factor", 32.0,
            "original_max_position_embeddings", 32768, "rope_theta", 50000.0,
            "beta_fast", 32, "beta_slow", 1, "mscale", 1.0, "mscale_all_dim",
            1.0);
    return json_pack(
        "{s:[s], s:b, s:i, s:b, s:{s:s, s:i, s:s, s:o}, s:b, s:i, s:s, s:i, "
        "s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:{s:f, s:i, s:f, s:s}, s:b, "
        "s:i}",
        "architectures", "DSparkDraftModel", "attention_bias", 0, "block_size",
        DSPARK_BLOCK, "confidence_head_with_markov", 1, "dflash_config",
        "attention_mode", "gqa", "mask_token_id", c->mask_id,
        "projector_type", "dspark", "target_layer_ids", taps,
        "enable_confidence_head", 1, "head_dim", c->head_dim, "hidden_act",
        "silu", "hidden_size", c->hidden, "intermediate_size", c->inter,
        "markov_head_type", "vanilla", "markov_rank", c->rank,
        "num_attention_heads", c->heads, "num_hidden_layers", c->layers,
        "num_key_value_heads", c->kv_heads, "num_target_layers",
        j->k3.layers, "rms_norm_eps", 1e-5, "rope_parameters", "factor", 16.0,
        "original_max_position_embeddings", 65536, "rope_theta", 10000.0,
        "rope_type", "yarn", "use_sliding_window", 0, "vocab_size", c->vocab);
}

static int write_config(const struct job *j)
{
    struct synth_out out;
    json_t *root = make_config(j);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return error_set(j->error, -ENOMEM, "%s: no memory", j->o->dir);
    int err = synth_out_open(&out, j->o->dir, "config.json", j->error);
    if (!err) {
        synth_out_text(&out, "%s\n", text);
        err = synth_out_close(&out, false);
    }
    free(text);
    return err;
}

/* ---- model.safetensors ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name,
                  ((const struct entry *)b)->name);
}

static void list(struct job *j)
{
    for (uint32_t r = 0; r < DSPARK_ROLES; r++) {
        enum dspark_role role = (enum dspark_role)r;
        uint32_t rows, cols;
        if (!dspark_has(&j->c, role) || role == D_EMBED)
            continue;
        dspark_shape(&j->c, role, &rows, &cols);
        for (uint32_t i = 0; i < dspark_count(&j->c, role); i++) {
            struct entry *e = &j->entry[j->entries++];
            e->role = role;
            e->values = (uint64_t)rows * cols;
            dspark_name(e->name, &j->c, role, i);
        }
    }
    qsort(j->entry, j->entries, sizeof *j->entry, by_name);
}

/* The JSON of the header; returns its length. */
static size_t make_header(const struct job *j, char *out)
{
    uint64_t at = 0;
    size_t n = (size_t)snprintf(out, HEADER_MAX,
                                "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < j->entries; i++) {
        const struct entry *e = &j->entry[i];
        uint32_t rows, cols;
        char dims[32];
        dspark_shape(&j->c, e->role, &rows, &cols);
        if (dspark_is_vector(e->role))
            snprintf(dims, sizeof dims, "%" PRIu32, cols);
        else
            snprintf(dims, sizeof dims, "%" PRIu32 ",%" PRIu32, rows, cols);
        n += (size_t)snprintf(out + n, HEADER_MAX - n,
                              ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],"
                              "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                              e->name, dims, at, at + 2 * e->values);
        at += 2 * e->values;
    }
    n += (size_t)snprintf(out + n, HEADER_MAX - n, "}");
    while (n % 8)
        out[n++] = ' ';
    return n;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x8000) >> 16);
}

/* Uniform, so that products keep the size of what goes in; gains around 1. */
static void fill(const struct job *j, const struct entry *e, uint16_t *to,
                 uint64_t begin, uint64_t count, uint64_t key)
{
    uint32_t rows, cols;
    dspark_shape(&j->c, e->role, &rows, &cols);
    bool gain = dspark_is_vector(e->role) && e->role != D_CONFIDENCE_BIAS;
    float wide = gain ? 0.3f : (float)sqrt(3.0 / cols);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = synth_mix(key + (begin + i) / 4);
        int16_t one = (int16_t)(bits >> ((begin + i) % 4 * 16));
        to[i] = bf16_of((gain ? 1.0f : 0.0f) + wide * (float)one / 32768.0f);
    }
}

static int write_weights(const struct job *j, uint64_t *bytes)
{
    struct synth_out out;
    char *header = calloc(1, HEADER_MAX + 8);
    uint16_t *piece = malloc(PIECE_VALUES * sizeof *piece);
    int err = header && piece
                  ? synth_out_open(&out, j->o->dir, "model.safetensors",
                                   j->error)
                  : error_set(j->error, -ENOMEM, "%s: no memory", j->o->dir);
    if (!err) {
        uint64_t n = make_header(j, header + 8), at = n + 8;
        memcpy(header, &n, sizeof n);
        synth_out_at(&out, header, n + 8, 0);
        for (size_t i = 0; i < j->entries; i++) {
            const struct entry *e = &j->entry[i];
            uint64_t key = synth_mix(j->o->seed + 1) * (i + 1);
            for (uint64_t v = 0; v < e->values && !j->o->sparse;
                 v += PIECE_VALUES) {
                uint64_t left = e->values - v;
                left = left < PIECE_VALUES ? left : PIECE_VALUES;
                fill(j, e, piece, v, left, key);
                synth_out_at(&out, piece, left * 2, at + 2 * v);
            }
            at += 2 * e->values;
        }
        memset(piece, 0, 2);
        if (j->o->sparse)
            synth_out_at(&out, piece, 2, at - 2);
        *bytes = at;
        err = synth_out_close(&out, false);
    }
    free(piece);
    free(header);
    return err;
}

/* Nothing but a drafter may be overwritten. */
static int check_folder(const struct job *j)
{
    const char *dir = j->o->dir;
    struct dirent *e;
    if (mkdir(dir, 0777) && errno != EEXIST)
        return error_set(j->error, -errno, "%s: %s", dir, strerror(errno));
    DIR *d = opendir(dir);
    if (!d)
        return error_set(j->error, -errno, "%s: %s", dir, strerror(errno));
    bool other = false;
    while ((e = readdir(d)))
        other |= e->d_name[0] != '.' && strcmp(e->d_name, "config.json") &&
                 strncmp(e->d_name, "model.safetensors", 17);
    closedir(d);
    return other ? error_set(j->error, -EEXIST, "%s: has other files than a "
                             "drafter's", dir)
                 : 0;
}

int synth_drafter(const struct synth_drafter_options *o, uint64_t *bytes,
                  struct error *error)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return error_set(error, -ENOMEM, "%s: no memory", o->dir);
    j->o = o;
    j->error = error;
    int err = config_load(&j->k3, o->like, error);
    if (!err && j->k3.vocab < 32)
        err = error_set(error, -EINVAL, "%s: the vocabulary is too small for a "
                        "drafter", o->like);
    if (!err)
        err = check_folder(j);
    if (!err) {
        shape(j);
        shrink(j);
        list(j);
        err = write_config(j);
    }
    if (!err)
        err = write_weights(j, bytes);
    config_free(&j->k3);
    free(j);
    return err;
}
