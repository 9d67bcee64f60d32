#include "model/ckpt/ckpt.h"

#include <assert.h>
#include <errno.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ckpt/safetensors.h"
#include "model/ckpt/shards.h"

/* Where an expert's tensor is, in one word: file in the high bits, offset in
 * the low ones. Zero: not found yet, since every file begins with a header. */
enum { OFFSET_BITS = 48 };
enum { PARSERS_MAX = 4 }; /* threads, each with one parsed header */
#define OFFSET_MASK ((UINT64_C(1) << OFFSET_BITS) - 1)

#define HEADER_BYTES_A_TENSOR 512
#define HEADER_BYTES_SLACK (1u << 20)

struct ckpt {
    uint32_t       layers, first_dense, experts;
    struct shards  shards;
    uint64_t      *file_bytes;   /* [shards.count] */
    struct stat   *was;          /* [shards.count] before it was read */
    uint64_t      *end_bytes;    /* [shards.count] where the tensors end */
    struct extent *trunk;        /* [layers + 1][T_COUNT]; length 0: none */
    uint64_t      *expert;       /* [MoE layers][experts][EXPERT_TENSORS] */
    uint64_t       expert_length[EXPERT_TENSORS];
};

/* The tensor that a name means. role T_COUNT: tensor `which` of an expert. */
struct place {
    int64_t          layer;
    enum tensor_role role;
    uint32_t         expert, which;
};

static struct extent *trunk_at(const struct ckpt *k, int64_t layer,
                               enum tensor_role role)
{
    size_t row = layer < 0 ? k->layers : (size_t)layer;
    return &k->trunk[row * T_COUNT + role];
}

static uint64_t *expert_at(const struct ckpt *k, uint32_t layer,
                           uint32_t expert)
{
    size_t index = (size_t)(layer - k->first_dense) * k->experts + expert;
    return &k->expert[index * EXPERT_TENSORS];
}

/* Read a decimal number below `limit`, without leading zeros, and a dot.
 * Returns what follows, or NULL. */
static const char *number_dot(const char *s, uint32_t limit, uint32_t *out)
{
    const char *start = s;
    uint32_t value = 0;
    for (; *s >= '0' && *s <= '9' && s - start < 9; s++)
        value = value * 10 + (uint32_t)(*s - '0');
    if (s == start || *s != '.' || (*start == '0' && s - start > 1) ||
        value >= limit)
        return NULL;
    *out = value;
    return s + 1;
}

static const char *after(const char *s, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(s, prefix, length) ? NULL : s + length;
}

/* Find the tensor of a name. Returns -1 if the config has no such tensor. */
static int locate(struct place *p, const struct config *c, const char *name)
{
    uint32_t layer;
    *p = (struct place){ .layer = TENSOR_MODEL_LEVEL };
    const char *rest = after(name, TENSOR_LAYER_PREFIX);
    if (!rest) {
        p->role = tensor_find(name, true);
        return p->role == T_COUNT ? -1 : 0;
    }
    rest = number_dot(rest, c->layers, &layer);
    if (!rest)
        return -1;
    p->layer = layer;
    const char *expert = after(rest, TENSOR_EXPERT_PREFIX);
    if (expert && !config_is_dense(c, layer)) {
        p->role = T_COUNT;
        rest = number_dot(expert, c->experts, &p->expert);
        for (p->which = 0; rest && p->which < EXPERT_TENSORS; p->which++)
            if (!strcmp(rest, expert_suffix(p->which)))
                return 0;
        return -1;
    }
    p->role = tensor_find(rest, false);
    return p->role == T_COUNT || !tensor_in_layer(p->role, c, layer) ? -1 : 0;
}

static void print_dims(char *out, size_t size, const struct tensor_dims *d)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < d->count && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%llu", i ? "," : "",
                              (unsigned long long)d->size[i]);
}

/* Check that the entry has the dtype and shape of the config. */
static int check_kind(const struct safetensors_entry *e, const struct place *p,
                      const struct config *c, const char *path,
                      struct error *error)
{
    enum tensor_dtype dtype = DTYPE_U8;
    struct tensor_dims want;
    if (p->role != T_COUNT) {
        dtype = tensor_dtype(p->role);
        tensor_dims(p->role, c, p->layer, &want);
    } else {
        uint32_t rows, cols;
        expert_shape(p->which, c, &rows, &cols);
        want = (struct tensor_dims){ 2, { rows, cols } };
    }
    if (e->dtype != dtype)
        return error_set(error, -EBADMSG, "%s: tensor %s is %s, expected %s",
                         path, e->name, tensor_dtype_name(e->dtype),
                         tensor_dtype_name(dtype));
    if (p->role == T_A_LOG && e->dims.count == 1 &&
        e->dims.size[0] >= want.size[0] && e->dims.size[0] <= A_LOG_MAX)
        return 0;
    if (e->dims.count == want.count &&
        !memcmp(e->dims.size, want.size, want.count * sizeof *want.size))
        return 0;
    char found[96], expected[96];
    print_dims(found, sizeof found, &e->dims);
    print_dims(expected, sizeof expected, &want);
    return error_set(error, -EBADMSG,
                     "%s: tensor %s has the shape [%s], by the config [%s]",
                     path, e->name, found, expected);
}

static int put(struct ckpt *k, const struct place *p, uint32_t file,
               const struct safetensors_entry *e, struct error *error)
{
    uint32_t other;
    if (p->role != T_COUNT) {
        struct extent *at = trunk_at(k, p->layer, p->role);
        other = at->file;
        if (!at->length_bytes) {
            *at = (struct extent){ file, e->offset_bytes, e->length_bytes };
            return 0;
        }
    } else {
        uint64_t *at = expert_at(k, (uint32_t)p->layer, p->expert) + p->which;
        other = (uint32_t)(*at >> OFFSET_BITS);
        if (!*at) {
            *at = (uint64_t)file << OFFSET_BITS | e->offset_bytes;
            return 0;
        }
    }
    return error_set(error, -EBADMSG, "%s: tensor %s is also in %s",
                     k->shards.path[file], e->name, k->shards.path[other]);
}

static int take_entry(struct ckpt *k, const struct config *c, uint32_t file,
                      const struct safetensors_entry *e, struct error *error)
{
    const char *path = k->shards.path[file];
    struct place p;
    if (after(e->name, "vision_tower.") || after(e->name, "mm_projector."))
        return 0;
    if (locate(&p, c, e->name))
        return error_set(error, -EBADMSG,
                         "%s: tensor %s does not belong to the config", path,
                         e->name);
    int code = check_kind(e, &p, c, path, error);
    return code ? code : put(k, &p, file, e, error);
}

/* Take the tensors of one header. */
static int take_shard(struct ckpt *k, const struct config *c, uint32_t file,
                      const struct safetensors *s, struct error *error)
{
    int code = 0;
    if (s->file_bytes > OFFSET_MASK)
        code = error_set(error, -EBADMSG, "%s: longer than 2^%d bytes",
                         k->shards.path[file], OFFSET_BITS);
    for (uint32_t i = 0; !code && i < s->count; i++)
        code = take_entry(k, c, file, &s->entry[i], error);
    k->file_bytes[file] = s->file_bytes;
    k->end_bytes[file] = s->end_bytes;
    return code;
}

/* A tensor is missing. The sentence names the shard with the rest of its layer,
 * if there is one. */
static int lacking(const struct ckpt *k, const char *dir, int64_t layer,
                   const char *name, struct error *error)
{
    const char *where = dir;
    for (int r = 0; r < T_COUNT; r++) {
        const struct extent *at = trunk_at(k, layer, (enum tensor_role)r);
        if (at->length_bytes)
            where = k->shards.path[at->file];
    }
    return error_set(error, -ENOENT, "%s: tensor %s is missing", where, name);
}

static int check_complete(const struct ckpt *k, const struct config *c,
                          const char *dir, struct error *error)
{
    char name[TENSOR_NAME_BYTES];
    for (int64_t l = TENSOR_MODEL_LEVEL; l < c->layers; l++) {
        for (int r = 0; r < T_COUNT; r++) {
            enum tensor_role role = (enum tensor_role)r;
            if (!tensor_in_layer(role, c, l) ||
                trunk_at(k, l, role)->length_bytes)
                continue;
            tensor_name(name, role, l);
            return lacking(k, dir, l, name, error);
        }
        if (l < c->first_dense)
            continue;
        const uint64_t *at = expert_at(k, (uint32_t)l, 0);
        for (uint32_t i = 0; i < c->experts * EXPERT_TENSORS; i++)
            if (!at[i]) {
                expert_name(name, (uint32_t)l, i / EXPERT_TENSORS,
                            i % EXPERT_TENSORS);
                return lacking(k, dir, l, name, error);
            }
    }
    return 0;
}

static uint64_t header_max_of(const struct config *c)
{
    uint64_t tensors = (uint64_t)c->layers * T_COUNT +
                       (uint64_t)config_moe_layers(c) * c->experts *
                           EXPERT_TENSORS;
    uint64_t bytes = HEADER_BYTES_SLACK + tensors * HEADER_BYTES_A_TENSOR;
    return bytes < SAFETENSORS_HEADER_MAX ? bytes : SAFETENSORS_HEADER_MAX;
}

/* Several threads parse the headers. The tensors are taken in the order of the
 * files, so that the same checkpoint always gives the same error. */
static int read_headers(struct ckpt *k, const struct config *c,
                        struct error *error)
{
    const uint64_t header_max = header_max_of(c);
    int64_t files = k->shards.count;
    int first_error = 0; /* read and set in file order only */
    atomic_bool stop = false;
    int parsers = omp_get_max_threads();
    if (parsers > PARSERS_MAX)
        parsers = PARSERS_MAX;
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(parsers)
    for (int64_t f = 0; f < files; f++) {
        struct safetensors s = { 0 };
        struct error local = { 0 };
        int code = 0;
        if (!stop)
            code = safetensors_open(&s, k->shards.path[f], header_max, &local);
#pragma omp ordered
        {
            if (!code && !first_error)
                code = take_shard(k, c, (uint32_t)f, &s, &local);
            if (code && !first_error) {
                first_error = error_set(error, code, "%s", local.text);
                stop = true;
            }
        }
        safetensors_close(&s);
    }
    return first_error;
}

/* Bytes after the last tensor mean a wrong file. Checked last: a missing tensor
 * is the better error. */
static int check_ends(const struct ckpt *k, struct error *error)
{
    for (uint32_t f = 0; f < k->shards.count; f++)
        if (k->file_bytes[f] != k->end_bytes[f])
            return error_set(
                error, -EBADMSG, "%s: has %llu bytes, its tensors end at %llu",
                k->shards.path[f], (unsigned long long)k->file_bytes[f],
                (unsigned long long)k->end_bytes[f]);
    return 0;
}

static int read_shards(struct ckpt *k, const char *dir, const struct config *c,
                       struct error *error)
{
    int code = read_headers(k, c, error);
    if (!code)
        code = check_complete(k, c, dir, error);
    return code ? code : check_ends(k, error);
}

int ckpt_open(struct ckpt **out, const char *dir, const struct config *c,
              struct error *error)
{
    *out = NULL;
    struct ckpt *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    k->layers = c->layers;
    k->first_dense = c->first_dense;
    k->experts = c->experts;
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++) {
        uint32_t rows, cols;
        expert_shape(which, c, &rows, &cols);
        k->expert_length[which] = (uint64_t)rows * cols;
    }
    int code = shards_list(&k->shards, dir, error);
    if (!code) {
        size_t experts = (size_t)config_moe_layers(c) * c->experts;
        k->file_bytes = calloc(k->shards.count, sizeof *k->file_bytes);
        k->was = calloc(k->shards.count, sizeof *k->was);
        for (uint32_t f = 0; k->was && f < k->shards.count; f++)
            (void)!stat(k->shards.path[f], &k->was[f]); /* opening says why */
        k->end_bytes = calloc(k->shards.count, sizeof *k->end_bytes);
        k->trunk = calloc(((size_t)c->layers + 1) * T_COUNT, sizeof *k->trunk);
        k->expert = calloc(experts * EXPERT_TENSORS + 1, sizeof *k->expert);
        code = k->file_bytes && k->was && k->end_bytes && k->trunk && k->expert
                   ? read_shards(k, dir, c, error)
                   : error_set(error, -ENOMEM, "%s: no memory", dir);
    }
    if (code) {
        ckpt_close(k);
        return code;
    }
    *out = k;
    return 0;
}

void ckpt_close(struct ckpt *k)
{
    if (!k)
        return;
    shards_free(&k->shards);
    free(k->file_bytes);
    free(k->was);
    free(k->end_bytes);
    free(k->trunk);
    free(k->expert);
    free(k);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

int ckpt_changed(const struct ckpt *k, struct error *error)
{
    for (uint32_t f = 0; f < k->shards.count; f++) {
        struct stat now;
        const struct stat *was = &k->was[f];
        if (!stat(k->shards.path[f], &now) && now.st_dev == was->st_dev &&
            now.st_ino == was->st_ino && now.st_size == was->st_size &&
            same_time(&now.st_mtim, &was->st_mtim) &&
            same_time(&now.st_ctim, &was->st_ctim))
            continue;
        return error_set(error, -ESTALE,
                         "%s: was changed, replaced or removed while it was "
                         "in use",
                         k->shards.path[f]);
    }
    return 0;
}

uint32_t ckpt_files(const struct ckpt *k)
{
    return k->shards.count;
}

const char *ckpt_path(const struct ckpt *k, uint32_t file)
{
    assert(file < k->shards.count);
    return k->shards.path[file];
}

uint64_t ckpt_file_size(const struct ckpt *k, uint32_t file)
{
    assert(file < k->shards.count);
    return k->file_bytes[file];
}

int ckpt_tensor(const struct ckpt *k, int layer, enum tensor_role role,
                struct extent *out)
{
    assert(layer >= TENSOR_MODEL_LEVEL && layer < (int)k->layers);
    assert(role < T_COUNT);
    const struct extent *at = trunk_at(k, layer, role);
    if (!at->length_bytes)
        return -ENOENT;
    *out = *at;
    return 0;
}

void ckpt_expert(const struct ckpt *k, uint32_t layer, uint32_t expert,
                 struct extent out[EXPERT_TENSORS])
{
    assert(layer >= k->first_dense && layer < k->layers);
    assert(expert < k->experts);
    const uint64_t *at = expert_at(k, layer, expert);
    for (uint32_t which = 0; which < EXPERT_TENSORS; which++)
        out[which] = (struct extent){ (uint32_t)(at[which] >> OFFSET_BITS),
                                      at[which] & OFFSET_MASK,
                                      k->expert_length[which] };
}
