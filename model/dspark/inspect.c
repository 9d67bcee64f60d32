#include "model/dspark/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ckpt/safetensors.h"
#include "model/ckpt/slurp.h"
#include "model/dspark/weights.h"

enum { PIECE_BYTES = 4 << 20 };
#define CONFIG_BYTES_MAX (16u << 20)

/* config.json; NULL: there is none that can be read. */
static json_t *load(const char *dir)
{
    char path[4096], *text;
    size_t length;
    struct error error = { 0 };
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    if (n < 0 || (size_t)n >= sizeof path ||
        slurp_file(&text, &length, path, CONFIG_BYTES_MAX, &error))
        return NULL;
    json_t *root = json_loadb(text, length, 0, NULL);
    free(text);
    return root;
}

bool dspark_is_drafter(const char *dir)
{
    json_t *root = load(dir);
    const char *name = json_string_value(
        json_array_get(json_object_get(root, "architectures"), 0));
    bool is = name && (!strcmp(name, "K3DSparkModel") ||
                       !strcmp(name, "DSparkDraftModel"));
    json_decref(root);
    return is;
}

static uint32_t number(const json_t *root, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(root, name));
    return n > 0 && n <= 1 << 24 ? (uint32_t)n : 0;
}

/* The model that the drafter says it is for. */
static struct config model_of(const char *dir)
{
    json_t *root = load(dir);
    struct config k3 = { .hidden = number(root, "hidden_size"),
                         .vocab = number(root, "vocab_size"),
                         .layers = number(root, "target_num_hidden_layers") };
    if (!k3.layers)
        k3.layers = number(root, "num_target_layers");
    json_decref(root);
    return k3;
}

static int open_file(struct dspark_about *out, struct dspark_weights *w,
                     char path[4096], const char *dir, struct error *error)
{
    struct config k3 = model_of(dir);
    memset(out, 0, sizeof *out);
    int err = dspark_config_load(&out->config, dir, &k3, DSPARK_STREAM_AUTO,
                                 error);
    snprintf(path, 4096, "%s/model.safetensors", dir);
    if (!err)
        err = dspark_weights_open(w, path, &out->config, error);
    out->model_layers = k3.layers;
    return err;
}

int dspark_inspect(struct dspark_about *out, const char *dir,
                   struct error *error)
{
    struct dspark_weights w;
    char path[4096];
    int err = open_file(out, &w, path, dir, error);
    if (err)
        return err;
    out->file_bytes = w.file_bytes;
    for (uint32_t i = 0; i < DSPARK_LAYERS_MAX; i++)
        for (uint32_t r = 0; r < DSPARK_ROLES; r++) {
            out->tensors += w.at[i][r].length_bytes > 0;
            out->used_bytes += r == D_EMBED ? 0 : w.at[i][r].length_bytes;
        }
    return 0;
}

static bool finite(const uint16_t *value, size_t count)
{
    uint16_t worst = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t v = value[i] & 0x7f80;
        worst = v > worst ? v : worst;
    }
    return worst != 0x7f80;
}

int dspark_verify(const char *dir, struct error *error)
{
    struct dspark_about about;
    struct dspark_weights w;
    char path[4096];
    uint64_t bytes;
    uint16_t *piece = malloc(PIECE_BYTES);
    int err = piece ? open_file(&about, &w, path, dir, error)
                    : error_set(error, -ENOMEM, "no memory to read with");
    int fd = err ? -1 : slurp_open(path, &bytes, error);
    err = !err && fd < 0 ? fd : err;
    for (uint32_t i = 0; i < DSPARK_LAYERS_MAX * DSPARK_ROLES && !err; i++) {
        enum dspark_role role = (enum dspark_role)(i % DSPARK_ROLES);
        const struct dspark_tensor *t = &w.at[i / DSPARK_ROLES][role];
        for (uint64_t at = 0; at < t->length_bytes && !err;) {
            uint64_t n = t->length_bytes - at;
            char name[DSPARK_NAME_BYTES];
            n = n < PIECE_BYTES ? n : PIECE_BYTES;
            err = slurp_at(fd, piece, n, t->offset_bytes + at, path, error);
            at += n;
            if (err || finite(piece, n / 2))
                continue;
            dspark_name(name, &about.config, role, i / DSPARK_ROLES);
            err = error_set(error, -EBADMSG, "%s: tensor %s has a value that "
                            "is not finite", path, name);
        }
    }
    if (fd >= 0)
        close(fd);
    free(piece);
    return err;
}
