#include "model/verify.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ckpt.h"
#include "model/safetensors.h"
#include "model/shards.h"
#include "model/slurp.h"
#include "model/tok.h"
#include "model/verify_internal.h"

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_BYTES_MAX ((size_t)512 << 20)

enum { INDEX_TOLD_MAX = 8 }; /* of tensors that the index alone has */

void verify_problem(struct verify *v, const char *file, const char *tensor,
                    const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&v->lock);
    v->facts->problems++;
    v->o->problem(v->o->arg, file, tensor, text);
    pthread_mutex_unlock(&v->lock);
}

/* ---- config and tokenizer ---- */

static bool check_config(struct verify *v, struct config *c)
{
    struct why why = { 0 };
    struct tok *tok;
    bool found = !config_load(c, v->o->dir, &why);
    if (!found)
        verify_problem(v, NULL, NULL, "%s", why.text);
    why = (struct why){ 0 };
    if (tok_open(&tok, v->o->dir, &why)) {
        verify_problem(v, NULL, NULL, "%s", why.text);
        return found;
    }
    if (found && tok_vocab(tok) != c->vocab)
        verify_problem(v, NULL, NULL, "%s/tiktoken.model: %" PRIu32 " ids "
                       "with the special ones, the config has %" PRIu32,
                       v->o->dir, tok_vocab(tok), c->vocab);
    tok_close(tok);
    return found;
}

/* ---- the index ---- */

/* The map from tensor to file, from which headers strike what they have; NULL
 * where there is none, which is allowed. */
static json_t *read_index(struct verify *v, char path[4096])
{
    char *text;
    size_t length;
    struct stat st;
    struct why why = { 0 };
    json_error_t at;
    snprintf(path, 4096, "%s/" INDEX_NAME, v->o->dir);
    if (stat(path, &st) && errno == ENOENT)
        return NULL;
    if (slurp_file(&text, &length, path, INDEX_BYTES_MAX, &why)) {
        verify_problem(v, NULL, NULL, "%s", why.text);
        return NULL;
    }
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    json_t *map = json_object_get(root, "weight_map");
    if (!root)
        verify_problem(v, path, NULL, "is not JSON: %s", at.text);
    else if (!json_is_object(map))
        verify_problem(v, path, NULL, "has no weight_map");
    map = json_is_object(map) ? json_incref(map) : NULL;
    json_decref(root);
    return map;
}

static void strike(struct verify *v, json_t *map, const char *path,
                   const char *name)
{
    const char *base = strrchr(path, '/');
    const char *said = json_string_value(json_object_get(map, name));
    base = base ? base + 1 : path;
    if (!said)
        verify_problem(v, path, name, "is not in " INDEX_NAME);
    else if (strcmp(said, base))
        verify_problem(v, path, name, "is in %s, as " INDEX_NAME " says",
                       said);
    json_object_del(map, name);
}

static bool has_file(const struct verify *v, const char *name)
{
    for (uint32_t i = 0; i < v->paths; i++)
        if (!strcmp(strrchr(v->path[i], '/') + 1, name))
            return true;
    return false;
}

/* What no header has. Tensors of a shard that is missing or damaged are not
 * told: that it is has been said. */
static void check_rest(struct verify *v, json_t *map, const char *path)
{
    const char *name;
    json_t *value;
    uint32_t index, of;
    uint64_t all = 0;
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        file = file ? file : "a file without a name";
        if (!has_file(v, file) && !shards_parse(file, &index, &of))
            continue;
        if (all++ < INDEX_TOLD_MAX)
            verify_problem(v, path, name, "should be in %s and is not", file);
    }
    if (all > INDEX_TOLD_MAX)
        verify_problem(v, path, NULL, "names %" PRIu64 " more tensors that "
                       "are not in their files", all - INDEX_TOLD_MAX);
}

/* ---- shards ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_path(struct verify *v, const char *name)
{
    char **more = realloc(v->path, (v->paths + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    v->path = more;
    if (asprintf(&v->path[v->paths], "%s/%s", v->o->dir, name) < 0)
        return -ENOMEM;
    v->paths++;
    return 0;
}

static bool is_shard(const char *name)
{
    size_t length = strlen(name), suffix = strlen(".safetensors");
    return name[0] != '.' && length > suffix &&
           !strcmp(name + length - suffix, ".safetensors");
}

/* Of a set "-of-N", each number that is not there. */
static int check_missing(struct verify *v, uint32_t of)
{
    uint8_t *seen = calloc(of + 1, 1);
    if (!seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < v->paths; i++) {
        uint32_t index, all;
        if (!shards_parse(strrchr(v->path[i], '/') + 1, &index, &all) &&
            all == of && index <= of)
            seen[index] = 1;
        else
            verify_problem(v, v->path[i], NULL, "is not one of shards 1 to "
                           "%" PRIu32, of);
    }
    for (uint32_t i = 1; i <= of; i++)
        if (!seen[i])
            verify_problem(v, NULL, NULL, "%s/model-%05u-of-%06u.safetensors "
                           "is missing", v->o->dir, i, of);
    free(seen);
    return 0;
}

static int list_shards(struct verify *v, struct why *why)
{
    uint32_t index, of, wanted = 0;
    struct dirent *entry;
    DIR *dir = opendir(v->o->dir);
    if (!dir)
        return why_set(why, -errno, "%s: %s", v->o->dir, strerror(errno));
    int err = 0;
    while (!err && (entry = readdir(dir))) {
        if (!is_shard(entry->d_name))
            continue;
        if (!shards_parse(entry->d_name, &index, &of) && of > wanted &&
            of <= SHARDS_MAX)
            wanted = of;
        err = add_path(v, entry->d_name);
    }
    closedir(dir);
    if (v->paths)
        qsort(v->path, v->paths, sizeof *v->path, by_name);
    else if (!err)
        verify_problem(v, NULL, NULL, "%s: no *.safetensors in it",
                       v->o->dir);
    if (!err && wanted)
        err = check_missing(v, wanted);
    return err ? why_set(why, err, "%s: no memory", v->o->dir) : 0;
}

/* Data has no gaps, and nothing comes after it. */
static void check_places(struct verify *v, const char *path,
                         const struct safetensors *s)
{
    uint64_t at = s->header_bytes;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct safetensors_entry *e = &s->entry[i];
        if (e->offset_bytes != at)
            verify_problem(v, path, e->name, "%" PRIu64 " bytes before it "
                           "belong to no tensor", e->offset_bytes - at);
        at = e->offset_bytes + e->length_bytes;
    }
    if (s->file_bytes != at)
        verify_problem(v, path, NULL, "has %" PRIu64 " bytes, its tensors end "
                       "at %" PRIu64, s->file_bytes, at);
}

/* Look at every header; paths whose header is not sound are dropped. */
static void check_headers(struct verify *v, json_t *map)
{
    uint32_t kept = 0;
    for (uint32_t f = 0; f < v->paths; f++) {
        struct safetensors s;
        struct why why = { 0 };
        char *path = v->path[f];
        if (safetensors_open(&s, path, SAFETENSORS_HEADER_MAX, &why)) {
            verify_problem(v, NULL, NULL, "%s", why.text);
            free(path);
            continue;
        }
        check_places(v, path, &s);
        for (uint32_t i = 0; i < s.count; i++) {
            v->data_bytes += s.entry[i].length_bytes;
            if (map)
                strike(v, map, path, s.entry[i].name);
        }
        v->facts->tensors += s.count;
        v->path[kept++] = path;
        safetensors_close(&s);
    }
    v->paths = kept;
}

static void check_against_config(struct verify *v, const struct config *c)
{
    struct why why = { 0 };
    struct ckpt *k;
    if (ckpt_open(&k, v->o->dir, c, &why))
        verify_problem(v, NULL, NULL, "%s", why.text);
    else
        ckpt_close(k);
}

int verify_run(struct verify_facts *facts, const struct verify_options *o,
               struct why *why)
{
    struct verify v = { .o = o, .facts = facts };
    struct config c;
    char index[4096];
    assert(o->threads > 0);
    memset(facts, 0, sizeof *facts);
    pthread_mutex_init(&v.lock, NULL);
    int err = list_shards(&v, why);
    if (!err) {
        json_t *map = read_index(&v, index);
        check_headers(&v, map);
        if (map)
            check_rest(&v, map, index);
        json_decref(map);
        uint64_t known = facts->problems;
        bool configured = check_config(&v, &c);
        /* It stops at the first problem, which would be a known one. */
        if (configured && !known)
            check_against_config(&v, &c);
        if (configured)
            config_free(&c);
        facts->files = v.paths;
        if (v.paths)
            err = verify_read(&v, why);
    }
    for (uint32_t i = 0; i < v.paths; i++)
        free(v.path[i]);
    free(v.path);
    pthread_mutex_destroy(&v.lock);
    return err;
}
