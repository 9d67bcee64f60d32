#include "model/tools/verify.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/figure.h"
#include "model/ckpt/mistaken.h"
#include "model/ckpt/safetensors.h"
#include "model/ckpt/shards.h"
#include "model/ckpt/slurp.h"
#include "model/text/tok.h"
#include "model/tools/verify_internal.h"

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_BYTES_MAX ((size_t)512 << 20)

enum {
    INDEX_REPORTED_MAX = 8, /* tensors reported that only the index has */
    INDEX_COST = 4,
};

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

const char *verify_unread(int code)
{
    switch (code) {
    case -EACCES:
    case -EPERM:
        return "; it may be whole: chmod u+r makes it readable";
    case -EIO:
        return "; it may be whole: dmesg says what the drive has";
    default:
        return "";
    }
}

/* ---- config and tokenizer ---- */

static bool check_config(struct verify *v, struct config *c)
{
    struct error error = { 0 };
    struct tok *tok;
    bool found = !config_load(c, v->o->dir, &error);
    if (!found)
        verify_problem(v, NULL, NULL, "%s", error.text);
    error = (struct error){ 0 };
    if (tok_open(&tok, v->o->dir, &error)) {
        verify_problem(v, NULL, NULL, "%s", error.text);
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

/* The index's map from tensor to file; the headers remove what they have. NULL:
 * there is no index, which is allowed. */
static json_t *read_index(struct verify *v, char path[4096])
{
    char *text;
    size_t length;
    struct stat st;
    struct error error = { 0 };
    json_error_t at;
    snprintf(path, 4096, "%s/" INDEX_NAME, v->o->dir);
    if (stat(path, &st) && errno == ENOENT)
        return NULL;
    if (slurp_file(&text, &length, path, INDEX_BYTES_MAX, &error)) {
        verify_problem(v, NULL, NULL, "%s", error.text);
        return NULL;
    }
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    const char *mistaken = root ? NULL : mistaken_for(text, length);
    free(text);
    json_t *map = json_object_get(root, "weight_map");
    if (!root && mistaken)
        verify_problem(v, path, NULL, "is %s", mistaken);
    else if (!root)
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

/* Report tensors of the index that no header has, but not those of a shard that
 * was already reported as missing or damaged. */
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
        if (all++ < INDEX_REPORTED_MAX)
            verify_problem(v, path, name, "should be in %s and is not", file);
    }
    if (all > INDEX_REPORTED_MAX)
        verify_problem(v, path, NULL, "names %" PRIu64 " more tensors that "
                       "are not in their files", all - INDEX_REPORTED_MAX);
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

/* Report the missing numbers of a set "-of-N". */
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

static int list_shards(struct verify *v, struct error *error)
{
    uint32_t index, of, wanted = 0;
    struct dirent *entry;
    DIR *dir = opendir(v->o->dir);
    if (!dir)
        return error_set(error, -errno, "%s: %s", v->o->dir, strerror(errno));
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
        verify_problem(v, NULL, NULL, "%s: has no *.safetensors file",
                       v->o->dir);
    if (!err && wanted)
        err = check_missing(v, wanted);
    return err ? error_set(error, err, "%s: no memory", v->o->dir) : 0;
}

/* The tensors leave no gaps, and nothing follows them. */
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

/* Check every header and drop the paths of wrong ones. */
static void check_headers(struct verify *v, json_t *map)
{
    uint32_t kept = 0;
    for (uint32_t f = 0; f < v->paths; f++) {
        struct safetensors s;
        struct error error = { 0 };
        char *path = v->path[f];
        int err = safetensors_open(&s, path, SAFETENSORS_HEADER_MAX, &error);
        if (err) {
            verify_problem(v, NULL, NULL, "%s%s", error.text,
                           verify_unread(err));
            free(path);
            continue;
        }
        check_places(v, path, &s);
        for (uint32_t i = 0; map && i < s.count; i++)
            strike(v, map, path, s.entry[i].name);
        v->data_bytes += s.file_bytes;
        if (s.header_bytes > v->header_max_bytes)
            v->header_max_bytes = s.header_bytes;
        v->facts->tensors += s.count;
        v->path[kept++] = path;
        safetensors_close(&s);
    }
    v->paths = kept;
}

static void check_against_config(struct verify *v, const struct config *c)
{
    struct error error = { 0 };
    struct ckpt *k;
    if (ckpt_open(&k, v->o->dir, c, &error))
        verify_problem(v, NULL, NULL, "%s", error.text);
    else
        ckpt_close(k);
}

/* ---- digests ---- */

/* The small files, of which each is looked at every time. */
static void check_small(struct verify *v)
{
    static const char *const names[] = {
        "config.json", "tiktoken.model", "tokenizer_config.json",
        "generation_config.json", INDEX_NAME,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sum want;
        struct digest *d = NULL;
        char path[4096], hex[DIGEST_HEX], *text;
        size_t length;
        snprintf(path, sizeof path, "%s/%s", v->o->dir, names[i]);
        if (!sums_find(v->sums, names[i], &want) ||
            slurp_file(&text, &length, path, INDEX_BYTES_MAX, NULL))
            continue;
        if (!digest_open(&d, want.kind, length))
            digest_add(d, text, length);
        digest_end(d, hex);
        free(text);
        v->facts->summed++;
        if (strcmp(hex, want.hex))
            verify_problem(v, path, NULL, "its digest is %.16s..., by %s it "
                           "should be %.16s...", hex, want.source, want.hex);
    }
}

/* Put the files that the list has and that are unchanged behind those that are
 * to be read. What was true of their bytes is true still, but by now the
 * download may say otherwise. */
static void pass_unchanged(struct verify *v)
{
    v->reads = 0;
    for (uint32_t i = 0; i < v->paths; i++) {
        struct sum want;
        struct stat st;
        char hex[DIGEST_HEX], *path = v->path[i];
        bool known = sums_find(v->sums, strrchr(path, '/') + 1, &want) &&
                     want.kind == DIGEST_SHA256;
        if (!v->list || v->o->again ||
            !verified_unchanged(v->list, path, hex) ||
            (known && strcmp(hex, want.hex))) {
            v->path[i] = v->path[v->reads];
            v->path[v->reads++] = path;
            continue;
        }
        v->facts->unchanged++;
        v->facts->summed += known;
        v->data_bytes -= stat(path, &st) ? 0 : (uint64_t)st.st_size;
    }
}

/* ---- all ---- */

/* An index takes some three times its text while it is compared. */
static int check_memory(const struct verify *v, struct error *error)
{
    struct stat st;
    char path[4096];
    uint64_t floor = verify_read_floor(v), index = 0, packed;
    if (verify_packed_floor(v, &packed))
        return error_set(error, -ENOMEM, "%s: no memory", v->o->dir);
    snprintf(path, sizeof path, "%s/" INDEX_NAME, v->o->dir);
    if (!stat(path, &st))
        index = (uint64_t)st.st_size * INDEX_COST + ((uint64_t)24 << 20);
    floor = floor > index ? floor : index;
    floor = floor > packed ? floor : packed;
    if (v->memory_bytes >= floor)
        return 0;
    return error_set(error, -ENOBUFS, "%s: verifying it takes %" PRIu64
                     " bytes of memory at least (%s GiB), %" PRIu64
                     " are allowed", v->o->dir, floor,
                     figure((double)floor / 0x1p30).text, v->memory_bytes);
}

/* The longest header of the shards, parsed or not. */
static void measure_headers(struct verify *v)
{
    for (uint32_t i = 0; i < v->paths; i++) {
        uint64_t size, length = 0;
        uint8_t raw[8];
        int fd = slurp_open(v->path[i], &size, NULL);
        if (fd < 0)
            continue;
        if (!slurp_at(fd, raw, sizeof raw, 0, v->path[i], NULL))
            for (int k = 7; k >= 0; k--)
                length = length << 8 | raw[k];
        close(fd);
        if (length <= SAFETENSORS_HEADER_MAX && length <= size &&
            length > v->header_max_bytes)
            v->header_max_bytes = length;
    }
}

static void check_names(struct verify *v)
{
    struct config c;
    char index[4096];
    json_t *map = read_index(v, index);
    check_headers(v, map);
    if (map)
        check_rest(v, map, index);
    json_decref(map);
    uint64_t known = v->facts->problems;
    bool configured = check_config(v, &c);
    /* ckpt_open stops at the first problem, which was reported already. */
    if (configured && !known)
        check_against_config(v, &c);
    if (configured)
        config_free(&c);
#ifdef __GLIBC__
    malloc_trim(0); /* the index and the headers are gone */
#endif
}

int verify_run(struct verify_facts *facts, const struct verify_options *o,
               struct error *error)
{
    struct verify v = { .o = o, .facts = facts,
                        .memory_bytes = o->memory_bytes
                                            ? o->memory_bytes
                                            : VERIFY_MEMORY_BYTES };
    assert(o->threads > 0);
    memset(facts, 0, sizeof *facts);
    pthread_mutex_init(&v.lock, NULL);
    int err = list_shards(&v, error);
    if (!err && ((o->keep_list && verified_open(&v.list, o->dir)) ||
                 sums_open(&v.sums, o->dir)))
        err = error_set(error, -ENOMEM, "%s: no memory", o->dir);
    if (!err) {
        measure_headers(&v);
        err = check_memory(&v, error);
    }
    if (!err) {
        check_names(&v);
        check_small(&v);
        pass_unchanged(&v);
        facts->files = v.reads;
        if (v.reads)
            err = verify_read(&v, error);
        if (!err)
            err = verify_packed(&v, error);
    }
    for (uint32_t i = 0; i < v.paths; i++)
        free(v.path[i]);
    free(v.path);
    sums_close(v.sums);
    facts->list_error = verified_close(v.list);
    pthread_mutex_destroy(&v.lock);
    return err;
}
