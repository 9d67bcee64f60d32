#include "model/synth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "model/shards.h"
#include "model/slurp.h"
#include "model/synth_internal.h"

#define PIECE_BYTES (8u << 20)  /* of one write */
#define SYNC_BYTES (64u << 20)  /* shards from here on are synced */
#define SPARE_BYTES (16u << 20) /* the small files and the file system's own */
#define INDEX_NAME "model.safetensors.index.json"

struct job {
    const struct synth_options *o;
    struct config     config;
    json_t           *root;
    struct synth_fill fill;
    uint32_t          shards;
    uint64_t          all_bytes;   /* of the shards */
    uint64_t          data_bytes;  /* the tensors of all shards */
    uint64_t          disk_bytes;  /* what the drive must have free */
    uint64_t          done_bytes;
    struct why       *why;
};

static void job_free(struct job *j)
{
    config_free(&j->config);
    json_decref(j->root);
    j->root = NULL;
}

static int no_memory(struct job *j)
{
    return why_set(j->why, -ENOMEM, "%s: no memory", j->o->dir);
}

static uint32_t count_shards(const struct job *j)
{
    bool vision = json_object_get(j->root, "vision_config") != NULL;
    return synth_shard_count(&j->config, vision);
}

/* Sum the sizes of all shards. */
static int measure(struct job *j)
{
    j->shards = count_shards(j);
    j->all_bytes = j->data_bytes = j->disk_bytes = 0;
    if (j->shards > SHARDS_MAX)
        return why_set(j->why, -EINVAL, "%s: too many shards", j->o->dir);
    for (uint32_t i = 0; i < j->shards; i++) {
        struct synth_shard s;
        if (synth_shard_init(&s, &j->config, i))
            return no_memory(j);
        j->all_bytes += s.header_bytes + s.data_bytes;
        j->data_bytes += s.data_bytes;
        /* The index has each name once more, with its shard. */
        j->disk_bytes += 2 * s.header_bytes;
        for (uint32_t t = 0; t < s.count; t++)
            if (!j->o->sparse || synth_fill_sparse(&s.tensor[t]))
                j->disk_bytes += s.tensor[t].length_bytes;
        synth_shard_free(&s);
    }
    j->disk_bytes += SPARE_BYTES;
    return 0;
}

/* Choose num_experts so that the shards are at most size_bytes together. The
 * size grows with the number, nearly evenly: a search by halves. */
static int choose_experts(struct job *j, struct synth_facts *facts)
{
    uint32_t least = synth_experts_min(j->o, &j->config), most = 65535;
    uint32_t low = least, high = most + 1;
    if ((uint64_t)j->config.layers * most > CONFIG_EXPERTS_MAX)
        high = CONFIG_EXPERTS_MAX / j->config.layers + 1;
    uint64_t per_expert = (uint64_t)config_moe_layers(&j->config) *
                          expert_bytes(&j->config);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        j->config.experts = middle;
        /* A bound that spares laying out what cannot fit. */
        bool fits = (uint64_t)middle * per_expert <= j->o->size_bytes;
        if (fits) {
            int error = measure(j);
            if (error)
                return error;
            fits = j->all_bytes <= j->o->size_bytes;
        }
        *(fits ? &low : &high) = middle;
    }
    job_free(j);
    int error = synth_config(&j->root, &j->config, j->o, low, j->why);
    if (!error)
        error = measure(j);
    facts->above_size = !error && j->all_bytes > j->o->size_bytes;
    return error;
}

static int prepare(struct job *j, const struct synth_options *o,
                   struct synth_facts *facts, struct why *why)
{
    *facts = (struct synth_facts){ 0 };
    *j = (struct job){ .o = o, .why = why };
    if (o->echo && o->sparse)
        return why_set(why, -EINVAL, "%s: a sparse checkpoint cannot echo",
                       o->dir);
    int error = synth_config(&j->root, &j->config, o, 0, why);
    if (!error)
        error = o->size_bytes ? choose_experts(j, facts) : measure(j);
    if (!error && o->echo > j->config.vocab - SYNTH_SPECIALS)
        error = why_set(why, -EINVAL,
                        "%s: a cycle of %u ids needs a vocabulary of %u",
                        o->dir, o->echo, o->echo + SYNTH_SPECIALS);
    if (error) {
        job_free(j);
        return error;
    }
    j->fill = (struct synth_fill){ &j->config, o->seed, o->echo };
    facts->shards = j->shards;
    facts->experts = j->config.experts;
    facts->bytes = j->all_bytes;
    return 0;
}

int synth_plan(const struct synth_options *o, struct synth_facts *facts,
               struct why *why)
{
    struct job j;
    int error = prepare(&j, o, facts, why);
    if (!error)
        job_free(&j);
    return error;
}

/* Was config.json written by this program? */
static bool is_ours(const char *dir)
{
    char *path, *text = NULL;
    size_t length;
    bool ours = false;
    if (asprintf(&path, "%s/config.json", dir) < 0)
        return false;
    if (!slurp_file(&text, &length, path, 16u << 20, NULL)) {
        json_t *root = json_loadb(text, length, 0, NULL);
        const char *mark = json_string_value(
            json_object_get(root, "_name_or_path"));
        ours = mark && !strncmp(mark, SYNTH_MARK, strlen(SYNTH_MARK));
        json_decref(root);
    }
    free(text);
    free(path);
    return ours;
}

/* A shard or the index of an earlier run, or any of our files as it was when
 * that run was killed. */
static bool is_leftover(const char *name, bool *part)
{
    static const char *const kept[] = { "config.json", "tiktoken.model",
                                        "tokenizer_config.json",
                                        "generation_config.json" };
    char whole[256];
    uint32_t index, of;
    snprintf(whole, sizeof whole, "%s", name);
    char *dot = strrchr(whole, '.');
    *part = dot && !strcmp(dot, ".part");
    if (*part)
        *dot = 0;
    bool left = !shards_parse(whole, &index, &of) || !strcmp(whole, INDEX_NAME);
    for (size_t i = 0; *part && i < sizeof kept / sizeof *kept; i++)
        left |= !strcmp(whole, kept[i]);
    return left;
}

/* Walk the folder: count what is in it besides .part files, and the bytes that
 * removing the leftovers frees; remove them when told to. */
static int sweep(const char *dir, bool remove_them, uint32_t *entries,
                 uint64_t *freed, struct why *why)
{
    *entries = 0;
    *freed = 0;
    DIR *d = opendir(dir);
    if (!d)
        return why_set(why, -errno, "%s: %s", dir, strerror(errno));
    int error = 0;
    struct dirent *e;
    while (!error && (e = readdir(d))) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        bool part, left = is_leftover(e->d_name, &part);
        *entries += !(left && part);
        if (!left)
            continue;
        if (!fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            *freed += (uint64_t)st.st_blocks * 512;
        if (remove_them && unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT)
            error = why_set(why, -errno, "%s/%s: %s", dir, e->d_name,
                            strerror(errno));
    }
    closedir(d);
    return error;
}

/* Make or empty the folder, if it is ours and the drive has the room. */
static int take_folder(struct job *j)
{
    const char *dir = j->o->dir;
    struct statvfs fs;
    uint32_t entries;
    uint64_t freed;
    bool made = !mkdir(dir, 0777);
    if (!made && errno != EEXIST)
        return why_set(j->why, -errno, "%s: %s", dir, strerror(errno));
    int error = sweep(dir, false, &entries, &freed, j->why);
    if (error)
        return error;
    if (entries && !is_ours(dir))
        return why_set(j->why, -EEXIST,
                       "%s: not empty, and not a synthetic checkpoint", dir);
    if (statvfs(dir, &fs))
        return why_set(j->why, -errno, "%s: %s", dir, strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize + freed;
    if (room < j->disk_bytes) {
        if (made)
            rmdir(dir);
        return why_set(j->why, -ENOSPC,
                       "%s: needs %.2f GB of disk, the file system has %.2f "
                       "GB free%s",
                       dir, (double)j->disk_bytes / 1e9, (double)room / 1e9,
                       j->o->sparse ? "" : " (--sparse takes less)");
    }
    return sweep(dir, true, &entries, &freed, j->why);
}

static int write_config(const struct job *j)
{
    struct synth_out o;
    char *text = json_dumps(j->root, JSON_INDENT(1) | JSON_ENSURE_ASCII |
                                         JSON_REAL_PRECISION(9));
    if (!text)
        return why_set(j->why, -ENOMEM, "%s: no memory", j->o->dir);
    int error = synth_out_open(&o, j->o->dir, "config.json", j->why);
    if (!error) {
        synth_out_text(&o, "%s\n", text);
        error = synth_out_close(&o, false);
    }
    free(text);
    return error;
}

static void shard_name(char out[64], const struct job *j, uint32_t shard)
{
    snprintf(out, 64, "model-%05u-of-%06u.safetensors", shard + 1, j->shards);
}

/* The first tensor that ends after `offset`. */
static uint32_t tensor_at(const struct synth_shard *s, uint64_t offset)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct synth_tensor *t = &s->tensor[middle];
        if (t->offset_bytes + t->length_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes [begin, begin + length) of the shard's data. */
static void fill_piece(uint8_t *out, const struct job *j,
                       const struct synth_shard *s, uint64_t begin,
                       size_t length)
{
    uint32_t i = tensor_at(s, begin);
    while (length) {
        const struct synth_tensor *t = &s->tensor[i++];
        uint64_t skip = begin - t->offset_bytes;
        size_t n = length;
        if (n > t->length_bytes - skip)
            n = (size_t)(t->length_bytes - skip);
        synth_fill(out, &j->fill, t, skip, n);
        out += n;
        begin += n;
        length -= n;
    }
}

static void tell(struct job *j, uint64_t bytes)
{
    j->done_bytes += bytes;
    if (j->o->progress)
        j->o->progress(j->o->progress_arg, j->done_bytes, j->all_bytes);
}

/* Two threads, each with its own piece: one fills while the other's bytes go
 * out. */
static int write_pieces(struct job *j, const struct synth_shard *s,
                        struct synth_out *o)
{
    int64_t pieces = (int64_t)((s->data_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    int short_of_memory = 0;
#pragma omp parallel num_threads(pieces > 1 ? 2 : 1)
    {
        uint8_t *buffer = malloc(PIECE_BYTES);
        if (!buffer) {
#pragma omp atomic write
            short_of_memory = 1;
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t p = 0; p < pieces; p++) {
            uint64_t begin = (uint64_t)p * PIECE_BYTES;
            size_t n = PIECE_BYTES;
            if (n > s->data_bytes - begin)
                n = (size_t)(s->data_bytes - begin);
            if (!buffer || o->error)
                continue;
            fill_piece(buffer, j, s, begin, n);
            synth_out_at(o, buffer, n, s->header_bytes + begin);
            /* Start the drive at once, not when the cache is full. */
            sync_file_range(o->fd, (off_t)(s->header_bytes + begin), (off_t)n,
                            SYNC_FILE_RANGE_WRITE);
#pragma omp critical(synth_progress)
            tell(j, n);
        }
        free(buffer);
    }
    return short_of_memory ? no_memory(j) : 0;
}

/* Only what synth_fill_sparse names; the rest stays a hole. */
static int write_vectors(struct job *j, const struct synth_shard *s,
                         struct synth_out *o)
{
    for (uint32_t i = 0; i < s->count && !o->error; i++) {
        const struct synth_tensor *t = &s->tensor[i];
        if (!synth_fill_sparse(t))
            continue;
        uint8_t *buffer = malloc(t->length_bytes);
        if (!buffer)
            return no_memory(j);
        synth_fill(buffer, &j->fill, t, 0, t->length_bytes);
        synth_out_at(o, buffer, t->length_bytes,
                     s->header_bytes + t->offset_bytes);
        free(buffer);
    }
    tell(j, s->data_bytes);
    return 0;
}

/* Take the blocks before writing, so that a full drive says so at once; all of
 * them are written afterwards. A sparse file is only given its length. */
static int reserve(struct job *j, const struct synth_out *o, uint64_t bytes)
{
    int failed = 0;
    if (j->o->sparse)
        failed = ftruncate(o->fd, (off_t)bytes) ? errno : 0;
    else if (fallocate(o->fd, 0, 0, (off_t)bytes) && errno != EOPNOTSUPP &&
             errno != ENOSYS && errno != EINTR)
        failed = errno;
    return failed ? why_set(j->why, -failed, "%s: %llu bytes: %s", o->part,
                            (unsigned long long)bytes, strerror(failed))
                  : 0;
}

static int write_shard(struct job *j, const struct synth_shard *s,
                       const char *name)
{
    struct synth_out o;
    uint64_t bytes = s->header_bytes + s->data_bytes;
    int error = synth_out_open(&o, j->o->dir, name, j->why);
    if (error)
        return error;
    error = reserve(j, &o, bytes);
    char *header = error ? NULL : synth_shard_header(s);
    if (!error && !header)
        error = no_memory(j);
    if (!error) {
        synth_out_at(&o, header, s->header_bytes, 0);
        tell(j, s->header_bytes);
        error = j->o->sparse ? write_vectors(j, s, &o) : write_pieces(j, s, &o);
    }
    free(header);
    if (error)
        o.error = error;
    return synth_out_close(&o, !j->o->sparse && bytes >= SYNC_BYTES);
}

/* The index names every tensor once: it is written along the way. */
static void index_shard(struct synth_out *index, const struct synth_shard *s,
                        const char *name, bool first)
{
    for (uint32_t i = 0; i < s->count; i++)
        synth_out_text(index, "%s  \"%s\": \"%s\"", first && !i ? "" : ",\n",
                       s->tensor[i].name, name);
}

static int write_shards(struct job *j, struct synth_out *index)
{
    int error = 0;
    synth_out_text(index,
                   "{\n \"metadata\": {\n  \"total_size\": %llu\n },\n"
                   " \"weight_map\": {\n",
                   (unsigned long long)j->data_bytes);
    for (uint32_t i = 0; !error && i < j->shards; i++) {
        struct synth_shard s;
        char name[64];
        shard_name(name, j, i);
        if (synth_shard_init(&s, &j->config, i))
            return no_memory(j);
        error = write_shard(j, &s, name);
        index_shard(index, &s, name, i == 0);
        synth_shard_free(&s);
    }
    synth_out_text(index, "\n }\n}\n");
    return error;
}

int synth_write(const struct synth_options *o, struct synth_facts *facts,
                struct why *why)
{
    struct job j;
    struct synth_out index;
    int error = prepare(&j, o, facts, why);
    if (error)
        return error;
    if (!(error = take_folder(&j)) && !(error = write_config(&j)) &&
        !(error = synth_tokenizer(o->dir, &j.config, o->seed, why)) &&
        !(error = synth_out_open(&index, o->dir, INDEX_NAME, why))) {
        error = write_shards(&j, &index);
        if (error)
            index.error = error;
        error = synth_out_close(&index, false);
    }
    job_free(&j);
    return error;
}
