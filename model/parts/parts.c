#include "model/parts/parts.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/slurp.h"
#include "model/parts/parts_internal.h"

enum { LIST_BYTES_MAX = 1 << 16 };

static int no_memory(struct error *error)
{
    return error_set(error, -ENOMEM, "no memory for the tables of parts");
}

/* ---- folders ---- */

struct folders {
    uint32_t count;
    char    *dir[CUTS_PARTS_MAX];
};

static int add_folder(struct folders *f, const char *beside, const char *dir,
                      struct error *error)
{
    size_t before = beside && dir[0] != '/' && strrchr(beside, '/')
                        ? (size_t)(strrchr(beside, '/') - beside) + 1
                        : 0;
    if (f->count == CUTS_PARTS_MAX)
        return error_set(error, -ENOTSUP, "%s: a model has at most %d parts",
                         dir, CUTS_PARTS_MAX);
    char *whole = malloc(before + strlen(dir) + 1);
    if (!whole)
        return no_memory(error);
    memcpy(whole, beside ? beside : "", before);
    strcpy(whole + before, dir);
    f->dir[f->count++] = whole;
    return 0;
}

/* A folder a line; empty lines and those that begin with # are none. */
static int read_list(struct folders *f, const char *path, struct error *error)
{
    char *text, *rest;
    size_t length;
    int code = slurp_file(&text, &length, path, LIST_BYTES_MAX, error);
    if (code)
        return code;
    for (char *line = strtok_r(text, "\r\n", &rest); line && !code;
         line = strtok_r(NULL, "\r\n", &rest))
        if (*line && *line != '#')
            code = add_folder(f, path, line, error);
    free(text);
    return code;
}

static int find_folders(struct folders *f, const char *const *path, uint32_t n,
                        struct error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < n && !code; i++) {
        struct stat st;
        bool list = !stat(path[i], &st) && S_ISREG(st.st_mode);
        code = list ? read_list(f, path[i], error)
                    : add_folder(f, NULL, path[i], error);
    }
    return code || f->count ? code
                            : error_set(error, -ENOENT, "%s: names no folder",
                                        path[0]);
}

static int is_part(const struct dirent *e)
{
    size_t length = strlen(e->d_name);
    return e->d_name[0] != '.' && length > 5 &&
           !strcmp(e->d_name + length - 5, ".part");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* ---- files ---- */

/* The folders that are asked for files of parts. */
struct asked {
    struct folders folders;
    const struct owned *share; /* or NULL */
};

/* The first file says of what the others are. */
static int begin_files(struct parts *p, const struct part *part,
                       const struct asked *a, struct error *error)
{
    const struct part_head *h = part->head;
    uint32_t ranks = a->share ? a->share->cuts.parts : 1;
    if (h->parts % ranks)
        return error_set(error, -EINVAL, "%s: a model in %" PRIu32 " parts "
                         "cannot be shared by %" PRIu32 " processes evenly",
                         part->path, h->parts, ranks);
    p->cuts = part_cuts(h);
    p->model = h->model;
    p->shards = h->shards;
    p->held = h->parts / ranks;
    p->first = a->share ? a->share->part * p->held : 0;
    p->held_cuts.parts = p->held;
    memcpy(p->held_cuts.weight, p->cuts.weight + p->first,
           p->held * sizeof *p->cuts.weight);
    p->files = h->shards * p->held;
    p->file = calloc(p->files, sizeof *p->file);
    return p->file ? 0 : no_memory(error);
}

static const char *any_file(const struct parts *p)
{
    for (uint32_t f = 0; f < p->files; f++)
        if (p->file[f].part)
            return p->file[f].part->path;
    return "the other parts";
}

/* Take a file of a folder, the i-th of `count` by name; *other: its part is
 * held by another process. */
static int take_file(struct parts *p, const char *path, const struct asked *a,
                     uint32_t i, uint32_t count, bool *other,
                     struct error *error)
{
    struct part *part;
    struct stat st;
    if (stat(path, &st))
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    int code = part_open(&part, path, p->c, error);
    if (code)
        return code;
    const struct part_head *h = part->head;
    if (!p->file)
        code = begin_files(p, part, a, error);
    const struct cuts cuts = part_cuts(h);
    uint32_t number = h->shard * p->held + h->part - p->first;
    *other = h->part < p->first || h->part - p->first >= p->held;
    if (!code && (memcmp(&cuts, &p->cuts, sizeof cuts) ||
                  memcmp(&h->model, &p->model, sizeof h->model) ||
                  h->shards != p->shards))
        code = error_set(error, -EBADMSG, "%s: is of another model, or was cut "
                         "otherwise, than %s", path, any_file(p));
    else if (!code && !a->share && h->parts != a->folders.count)
        code = error_set(error, -ENOENT, "%s: is part %" PRIu32 " of %" PRIu32
                         ", but the folders given are %" PRIu32, path, h->part,
                         h->parts, a->folders.count);
    else if (!code && *other)
        part_close(part);
    else if (!code && p->file[number].part)
        code = error_set(error, -EBADMSG, "%s: is the same part as %s", path,
                         p->file[number].part->path);
    else if (!code && (count != h->shards || h->shard != i))
        code = error_set(error, -ENOENT, "%s: file %" PRIu32 " of %" PRIu32
                         " is number %" PRIu32 " in its folder of %" PRIu32
                         ": some are missing; sluice spread goes on where it "
                         "stopped", path, h->shard + 1, h->shards, i + 1,
                         count);
    if (code)
        part_close(part);
    if (code || *other)
        return code;
    p->file[number] = (struct part_file){ part, st };
    return 0;
}

static int take_folder(struct parts *p, const char *dir,
                       const struct asked *a, struct error *error)
{
    struct dirent **entry;
    bool other = false;
    int n = scandir(dir, &entry, is_part, by_name), code = 0;
    if (n < 0 && errno == ENOENT && a->share && a->folders.count > 1)
        return 0;
    if (n < 0)
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    if (!n)
        code = error_set(error, -ENOENT, "%s: has no files of a part", dir);
    for (int i = 0; i < n; i++) {
        char *path = malloc(strlen(dir) + strlen(entry[i]->d_name) + 2);
        if (path)
            sprintf(path, "%s/%s", dir, entry[i]->d_name);
        if (!code && !other)
            code = path ? take_file(p, path, a, (uint32_t)i, (uint32_t)n,
                                    &other, error)
                        : no_memory(error);
        free(path);
        free(entry[i]);
    }
    free(entry);
    return code;
}

/* ---- the tables of the whole ---- */

static size_t row_of(const struct parts *p, int layer, enum tensor_role role)
{
    size_t row = layer < 0 ? p->c->layers : (size_t)layer;
    return row * T_COUNT + role;
}

/* The part whose copy of a layer's small tensors is read. */
static uint32_t small_from(const struct parts *p, int layer)
{
    return p->first + cuts_small_from(&p->held_cuts, layer);
}

static void index_file(struct parts *p, uint32_t file)
{
    const struct part *part = p->file[file].part;
    uint32_t r = parts_part_of(p, file), n = p->cuts.parts;
    for (uint32_t i = 0; i < part->head->matrices; i++) {
        const struct part_matrix *m = &part->matrix[i];
        size_t at = row_of(p, m->layer, (enum tensor_role)m->role);
        p->matrix[at * n + r] = (struct part_place){ file, m };
    }
    for (uint32_t i = 0; i < part->head->smalls; i++) {
        const struct part_small *s = &part->small[i];
        size_t at = row_of(p, s->layer, (enum tensor_role)s->role);
        if (small_from(p, s->layer) == r)
            p->small[at] = (struct part_small_place){ file, s };
    }
    for (uint32_t i = 0; i < part->head->experts; i++) {
        const struct part_expert *e = &part->expert[i];
        p->expert[e->number][0] = file / p->held;
        p->expert[e->number][1] = i;
        if (e->scales.ref.bytes > p->object_max[r])
            p->object_max[r] = e->scales.ref.bytes;
    }
}

static int lacks(const struct parts *p, const char *name, uint32_t part,
                 struct error *error)
{
    return error_set(error, -EBADMSG, "%s: part %" PRIu32 " lacks its rows of "
                     "%s", p->file[part - p->first].part->path, part, name);
}

static int check_trunk(const struct parts *p, struct error *error)
{
    char name[TENSOR_NAME_BYTES];
    for (int l = TENSOR_MODEL_LEVEL; l < (int)p->c->layers; l++)
        for (int i = 0; i < T_COUNT; i++) {
            enum tensor_role role = (enum tensor_role)i;
            uint32_t file;
            if (!tensor_in_layer(role, p->c, l))
                continue;
            tensor_name(name, role, l);
            if (cuts_small(role, p->c, l)) {
                if (!parts_small(p, l, role, &file))
                    return lacks(p, name, small_from(p, l), error);
                continue;
            }
            for (uint32_t r = p->first; r < p->first + p->held; r++) {
                struct row_range own = cuts_rows(&p->cuts, r, role, p->c, l);
                bool has = parts_matrix(p, l, role, r, &file) != NULL;
                if (has != (own.begin < own.end))
                    return lacks(p, name, r, error);
            }
        }
    return 0;
}

/* Every expert is in each part that has rows of experts, at the same place of
 * the files of one shard. */
static int check_experts(const struct parts *p, struct error *error)
{
    uint64_t all = (uint64_t)config_moe_layers(p->c) * p->c->experts;
    for (uint64_t i = 0; i < all; i++)
        for (uint32_t r = p->first; r < p->first + p->held; r++) {
            char name[TENSOR_NAME_BYTES];
            uint32_t shard = p->expert[i][0], rank = p->expert[i][1];
            const struct part *part =
                p->file[shard * p->held + r - p->first].part;
            if (!p->slice[r].weights_bytes ||
                (rank < part->head->experts &&
                 part->expert[rank].number == i))
                continue;
            expert_name(name,
                        p->c->first_dense + (uint32_t)(i / p->c->experts),
                        (uint32_t)(i % p->c->experts), 0);
            return lacks(p, name, r, error);
        }
    return 0;
}

static int check_sources(const struct parts *p, struct error *error)
{
    if (!p->file)
        return error_set(error, -ENOENT, "none of the folders given is here");
    for (uint32_t f = 0; f < p->files; f++) {
        const struct part *one = p->file[f].part;
        const struct part *first =
            p->file[f - f % p->held].part;
        if (!one)
            return error_set(error, -ENOENT, "part %" PRIu32 " of %" PRIu32
                             " is missing", parts_part_of(p, f),
                             p->cuts.parts);
        if (one->head->source_bytes != first->head->source_bytes ||
            memcmp(one->head->source_header_sha256,
                   first->head->source_header_sha256, 32))
            return error_set(error, -EBADMSG, "%s and %s: were made from "
                             "different shards", first->path, one->path);
    }
    return 0;
}

int parts_index(struct parts *p, struct error *error)
{
    const struct config *c = p->c;
    size_t rows = ((size_t)c->layers + 1) * T_COUNT;
    size_t experts = (size_t)config_moe_layers(c) * c->experts;
    for (uint32_t r = 0; r < p->cuts.parts; r++)
        p->slice[r] = slice_shape(&p->cuts, r, c);
    p->matrix = calloc(rows * p->cuts.parts, sizeof *p->matrix);
    p->small = calloc(rows, sizeof *p->small);
    p->expert = calloc(experts + 1, sizeof *p->expert);
    if (!p->matrix || !p->small || !p->expert)
        return no_memory(error);
    for (uint32_t f = 0; f < p->files; f++)
        index_file(p, f);
    int code = check_trunk(p, error);
    return code ? code : check_experts(p, error);
}

int parts_open(struct parts **out, const char *const *dir, uint32_t n,
               const struct owned *share, const struct config *c,
               struct error *error)
{
    struct asked a = { .share = share };
    *out = NULL;
    struct parts *p = calloc(1, sizeof *p);
    if (!p)
        return no_memory(error);
    p->c = c;
    int code = find_folders(&a.folders, dir, n, error);
    for (uint32_t i = 0; i < a.folders.count && !code; i++)
        code = take_folder(p, a.folders.dir[i], &a, error);
    if (!code)
        code = check_sources(p, error);
    if (!code)
        code = parts_index(p, error);
    for (uint32_t i = 0; i < a.folders.count; i++)
        free(a.folders.dir[i]);
    if (code) {
        parts_close(p);
        return code;
    }
    *out = p;
    return 0;
}

void parts_close(struct parts *p)
{
    if (!p)
        return;
    for (uint32_t f = 0; p->file && f < p->files; f++)
        part_close(p->file[f].part);
    free(p->file);
    free(p->matrix);
    free(p->small);
    free(p->expert);
    free(p);
}

/* ---- questions ---- */

const char *parts_path(const struct parts *p, uint32_t file)
{
    assert(file < p->files);
    return p->file[file].part->path;
}

uint32_t parts_file_of(const struct parts *p, int layer, enum tensor_role role)
{
    uint32_t file = 0;
    if (parts_small(p, layer, role, &file))
        return file;
    for (uint32_t r = p->first; r < p->first + p->held; r++)
        if (parts_matrix(p, layer, role, r, &file))
            return file;
    return 0;
}

int parts_changed(const struct parts *p, struct error *error)
{
    for (uint32_t f = 0; f < p->files; f++) {
        struct stat now;
        const struct stat *was = &p->file[f].was;
        if (!stat(parts_path(p, f), &now) && now.st_dev == was->st_dev &&
            now.st_ino == was->st_ino && now.st_size == was->st_size &&
            now.st_mtim.tv_sec == was->st_mtim.tv_sec &&
            now.st_mtim.tv_nsec == was->st_mtim.tv_nsec &&
            now.st_ctim.tv_sec == was->st_ctim.tv_sec &&
            now.st_ctim.tv_nsec == was->st_ctim.tv_nsec)
            continue;
        return error_set(error, -ESTALE,
                         "%s: was changed, replaced or removed while it was "
                         "in use", parts_path(p, f));
    }
    return 0;
}

const struct part_matrix *parts_matrix(const struct parts *p, int layer,
                                       enum tensor_role role, uint32_t part,
                                       uint32_t *file)
{
    const struct part_place *at =
        &p->matrix[row_of(p, layer, role) * p->cuts.parts + part];
    *file = at->file;
    return at->matrix;
}

const struct part_small *parts_small(const struct parts *p, int layer,
                                     enum tensor_role role, uint32_t *file)
{
    const struct part_small_place *at = &p->small[row_of(p, layer, role)];
    *file = at->file;
    return at->small;
}

const struct part_expert *parts_expert(const struct parts *p, uint32_t layer,
                                       uint32_t expert, uint32_t part,
                                       uint32_t *file)
{
    uint32_t number = (layer - p->c->first_dense) * p->c->experts + expert;
    *file = p->expert[number][0] * p->held + part - p->first;
    return p->slice[part].weights_bytes
               ? &p->file[*file].part->expert[p->expert[number][1]]
               : NULL;
}

struct cuts parts_cuts_of(const struct parts *p, const struct owned *share)
{
    struct cuts cuts = { .parts = share->cuts.parts };
    for (uint32_t i = 0; i < p->cuts.parts; i++)
        cuts.weight[i / p->held] += p->cuts.weight[i];
    return cuts;
}

uint64_t parts_memory_bytes(const struct parts *p)
{
    uint64_t bytes = sizeof *p + p->files * sizeof *p->file +
                     ((uint64_t)p->c->layers + 1) * T_COUNT *
                         (p->cuts.parts * sizeof *p->matrix +
                          sizeof *p->small) +
                     (uint64_t)config_moe_layers(p->c) * p->c->experts *
                         sizeof *p->expert;
    for (uint32_t f = 0; f < p->files; f++)
        bytes += sizeof(struct part) + p->file[f].part->box.head.tables_bytes;
    return bytes;
}
