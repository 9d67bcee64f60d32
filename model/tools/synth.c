#include "model/tools/synth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "model/ckpt/figure.h"
#include "model/ckpt/shards.h"
#include "model/ckpt/slurp.h"
#include "model/pack/pack.h"
#include "model/tools/synth_internal.h"

#define PIECE_BYTES (8u << 20)  /* of one write */
#define SYNC_BYTES (64u << 20)  /* shards of this size are synced */
#define SPARE_BYTES (16u << 20) /* for the small files and the file system */
#define INDEX_NAME "model.safetensors.index.json"

struct job {
    const struct synth_options *o;
    struct config     config;
    json_t           *root;
    struct synth_fill fill;
    struct synth_llm  llm;
    uint32_t          shards;
    uint64_t          all_bytes;   /* of the shards */
    uint64_t          data_bytes;  /* the tensors of all shards */
    uint64_t          disk_bytes;  /* that must be free */
    uint64_t          done_bytes;
    int               lock_fd; /* of the folder, or -1 */
    struct error *error;
};

static void job_free(struct job *j)
{
    config_free(&j->config);
    if (j->lock_fd >= 0)
        close(j->lock_fd);
    json_decref(j->root);
    j->root = NULL;
}

static int no_memory(struct job *j)
{
    return error_set(j->error, -ENOMEM, "%s: no memory", j->o->dir);
}

static uint32_t count_shards(const struct job *j)
{
    bool vision = json_object_get(j->root, "vision_config") != NULL;
    return published_shard_count(&j->config, vision);
}

/* Sum the sizes of all shards. */
static int measure(struct job *j)
{
    j->shards = count_shards(j);
    j->all_bytes = j->data_bytes = j->disk_bytes = 0;
    if (j->shards > SHARDS_MAX)
        return error_set(j->error, -EINVAL, "%s: too many shards", j->o->dir);
    for (uint32_t i = 0; i < j->shards; i++) {
        struct published_shard s;
        if (published_shard_init(&s, &j->config, i))
            return no_memory(j);
        j->all_bytes += s.header_bytes + s.data_bytes;
        j->data_bytes += s.data_bytes;
        /* The index has each name once more, with its shard. */
        j->disk_bytes += 2 * s.header_bytes;
        for (uint32_t t = 0; t < s.count; t++)
            if (!j->o->sparse || synth_fill_sparse(&s.tensor[t]))
                j->disk_bytes += s.tensor[t].length_bytes;
        published_shard_free(&s);
    }
    j->disk_bytes += SPARE_BYTES;
    return 0;
}

/* Choose the largest num_experts whose shards have at most size_bytes, by
 * binary search. */
static int choose_experts(struct job *j, struct synth_facts *facts)
{
    uint32_t min = synth_experts_min(j->o, &j->config), max = 65535;
    uint32_t low = min, high = max + 1;
    if ((uint64_t)j->config.layers * max > CONFIG_EXPERTS_MAX)
        high = CONFIG_EXPERTS_MAX / j->config.layers + 1;
    uint64_t per_expert = (uint64_t)config_moe_layers(&j->config) *
                          expert_bytes(&j->config);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        j->config.experts = middle;
        /* A lower bound, so that what cannot fit is not laid out. */
        bool fits = (uint64_t)middle * per_expert <= j->o->size_bytes;
        if (fits) {
            int code = measure(j);
            if (code)
                return code;
            fits = j->all_bytes <= j->o->size_bytes;
        }
        *(fits ? &low : &high) = middle;
    }
    job_free(j);
    int code = synth_config(&j->root, &j->config, j->o, low, j->error);
    if (!code)
        code = measure(j);
    facts->above_size = !code && j->all_bytes > j->o->size_bytes;
    return code;
}

static int prepare(struct job *j, const struct synth_options *o,
                   struct synth_facts *facts, struct error *error)
{
    *facts = (struct synth_facts){ 0 };
    *j = (struct job){ .o = o, .lock_fd = -1, .error = error };
    if (o->echo && o->sparse)
        return error_set(error, -EINVAL, "%s: a sparse checkpoint cannot echo",
                         o->dir);
    if (o->echo && o->llm)
        return error_set(error, -EINVAL, "%s: trained weights do not echo",
                         o->dir);
    if (o->packed && !o->sparse)
        return error_set(error, -EINVAL, "%s: coded weights that are assumed "
                         "go with --sparse; sluice pack makes others", o->dir);
    int code = synth_config(&j->root, &j->config, o, 0, error);
    if (!code)
        code = o->size_bytes ? choose_experts(j, facts) : measure(j);
    if (!code && o->echo > j->config.vocab - SYNTH_SPECIALS)
        code = error_set(error, -EINVAL,
                         "%s: an echo of %u ids needs a vocabulary of %u",
                         o->dir, o->echo, o->echo + SYNTH_SPECIALS);
    if (code) {
        job_free(j);
        return code;
    }
    j->fill = (struct synth_fill){ &j->config, o->seed, o->echo,
                                   o->llm ? &j->llm : NULL };
    if (o->llm)
        synth_fill_llm(&j->llm);
    facts->shards = j->shards;
    facts->experts = j->config.experts;
    facts->bytes = j->all_bytes;
    return 0;
}

int synth_plan(const struct synth_options *o, struct synth_facts *facts,
               struct error *error)
{
    struct job j;
    int code = prepare(&j, o, facts, error);
    if (!code)
        job_free(&j);
    return code;
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

/* Whether the name is that of a shard or index of an earlier run, or of a file
 * aside (io/replace.h) that a killed one left. The .part files of others are
 * theirs: a downloader's may hold a terabyte. */
static bool is_leftover(const char *name, bool *aside)
{
    uint32_t index, of;
    *aside = name[0] == '.' && strstr(name, ".sluice-");
    return *aside || !shards_parse(name, &index, &of) ||
           !strcmp(name, INDEX_NAME);
}

/* Count the entries of the folder, except files aside, and the bytes that
 * removing the files of an earlier run frees. Remove them if told to. */
static int sweep(const char *dir, bool remove_them, uint32_t *entries,
                 uint64_t *freed, struct error *error)
{
    *entries = 0;
    *freed = 0;
    DIR *d = opendir(dir);
    if (!d)
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    int code = 0;
    struct dirent *e;
    while (!code && (e = readdir(d))) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        bool aside, left = is_leftover(e->d_name, &aside);
        *entries += !aside;
        if (!left)
            continue;
        if (!fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            *freed += (uint64_t)st.st_blocks * 512;
        if (remove_them && unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT)
            code = error_set(error, -errno, "%s/%s: %s", dir, e->d_name,
                             strerror(errno));
    }
    closedir(d);
    return code;
}

/* One synth at a time in a folder. Where a file system has no locks, it goes
 * without. */
static int lock_folder(struct job *j)
{
    j->lock_fd = open(j->o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->lock_fd >= 0 && flock(j->lock_fd, LOCK_EX | LOCK_NB) &&
        errno == EWOULDBLOCK)
        return error_set(j->error, -EBUSY, "%s: another sluice synth is "
                         "writing to it", j->o->dir);
    return 0;
}

/* Make the folder, or empty it if synth made it, and check the free space. */
static int take_folder(struct job *j)
{
    const char *dir = j->o->dir;
    struct statvfs fs;
    uint32_t entries;
    uint64_t freed;
    bool made = !mkdir(dir, 0777);
    if (!made && errno != EEXIST)
        return error_set(j->error, -errno, "%s: %s", dir, strerror(errno));
    int code = lock_folder(j);
    if (!code)
        code = sweep(dir, false, &entries, &freed, j->error);
    if (code)
        return code;
    if (entries && !is_ours(dir))
        return error_set(j->error, -EEXIST,
                         "%s: not empty, and not made by sluice synth", dir);
    if (statvfs(dir, &fs))
        return error_set(j->error, -errno, "%s: %s", dir, strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize + freed;
    if (room < j->disk_bytes) {
        if (made)
            rmdir(dir);
        return error_set(j->error, -ENOSPC,
                         "%s: needs %s GB of disk, the file system has %s "
                         "GB free%s",
                         dir, figure((double)j->disk_bytes / 1e9).text,
                         figure((double)room / 1e9).text,
                         j->o->sparse ? "" : " (--sparse takes less)");
    }
    return sweep(dir, true, &entries, &freed, j->error);
}

static int write_config(const struct job *j)
{
    struct synth_out o;
    char *text = json_dumps(j->root, JSON_INDENT(1) | JSON_ENSURE_ASCII |
                                         JSON_REAL_PRECISION(9));
    if (!text)
        return error_set(j->error, -ENOMEM, "%s: no memory", j->o->dir);
    int code = synth_out_open(&o, j->o->dir, "config.json", j->error);
    if (!code) {
        synth_out_text(&o, "%s\n", text);
        code = synth_out_close(&o, false);
    }
    free(text);
    return code;
}

static void shard_name(char out[64], const struct job *j, uint32_t shard)
{
    snprintf(out, 64, "model-%05u-of-%06u.safetensors", shard + 1, j->shards);
}

/* The first tensor that ends after `offset`. */
static uint32_t tensor_at(const struct published_shard *s, uint64_t offset)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct published_tensor *t = &s->tensor[middle];
        if (t->offset_bytes + t->length_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes [begin, begin + length) of the shard's data. */
static void fill_piece(uint8_t *out, const struct job *j,
                       const struct published_shard *s, uint64_t begin,
                       size_t length)
{
    uint32_t i = tensor_at(s, begin);
    while (length) {
        const struct published_tensor *t = &s->tensor[i++];
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

/* Two threads: one fills a piece while the other writes one. */
static int write_pieces(struct job *j, const struct published_shard *s,
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
            if (!buffer || o->code)
                continue;
            fill_piece(buffer, j, s, begin, n);
            synth_out_at(o, buffer, n, s->header_bytes + begin);
            /* Start writing to the drive now, not when the cache is full. */
            sync_file_range(o->r.fd, (off_t)(s->header_bytes + begin), (off_t)n,
                            SYNC_FILE_RANGE_WRITE);
#pragma omp critical(synth_progress)
            tell(j, n);
        }
        free(buffer);
    }
    return short_of_memory ? no_memory(j) : 0;
}

/* Write what synth_fill_sparse names; the rest stays a hole. */
static int write_vectors(struct job *j, const struct published_shard *s,
                         struct synth_out *o)
{
    for (uint32_t i = 0; i < s->count && !o->code; i++) {
        const struct published_tensor *t = &s->tensor[i];
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

/* Allocate the blocks first, so that a full drive is an error at once. A sparse
 * file only gets its length. */
static int reserve(struct job *j, const struct synth_out *o, uint64_t bytes)
{
    int failed = 0;
    if (j->o->sparse)
        failed = ftruncate(o->r.fd, (off_t)bytes) ? errno : 0;
    else if (fallocate(o->r.fd, 0, 0, (off_t)bytes) && errno != EOPNOTSUPP &&
             errno != ENOSYS && errno != EINTR)
        failed = errno;
    return failed ? error_set(j->error, -failed, "%s: %llu bytes: %s", o->path,
                              (unsigned long long)bytes, strerror(failed))
                  : 0;
}

static int write_shard(struct job *j, const struct published_shard *s,
                       const char *name)
{
    struct synth_out o;
    uint64_t bytes = s->header_bytes + s->data_bytes;
    int code = synth_out_open(&o, j->o->dir, name, j->error);
    if (code)
        return code;
    code = reserve(j, &o, bytes);
    char *header = code ? NULL : published_shard_header(s);
    if (!code && !header)
        code = no_memory(j);
    if (!code) {
        synth_out_at(&o, header, s->header_bytes, 0);
        tell(j, s->header_bytes);
        code = j->o->sparse ? write_vectors(j, s, &o) : write_pieces(j, s, &o);
    }
    free(header);
    if (code)
        o.code = code;
    return synth_out_close(&o, !j->o->sparse && bytes >= SYNC_BYTES);
}

/* The index names every tensor, so it is written along with the shards. */
static void index_shard(struct synth_out *index,
                        const struct published_shard *s,
                        const char *name, bool first)
{
    for (uint32_t i = 0; i < s->count; i++)
        synth_out_text(index, "%s  \"%s\": \"%s\"", first && !i ? "" : ",\n",
                       s->tensor[i].name, name);
}

static int write_shards(struct job *j, struct synth_out *index)
{
    int code = 0;
    synth_out_text(index,
                   "{\n \"metadata\": {\n  \"total_size\": %llu\n },\n"
                   " \"weight_map\": {\n",
                   (unsigned long long)j->data_bytes);
    for (uint32_t i = 0; !code && i < j->shards; i++) {
        struct published_shard s;
        char name[64];
        shard_name(name, j, i);
        if (published_shard_init(&s, &j->config, i))
            return no_memory(j);
        code = write_shard(j, &s, name);
        index_shard(index, &s, name, i == 0);
        published_shard_free(&s);
    }
    synth_out_text(index, "\n }\n}\n");
    return code;
}

/* Coded weights beside a sparse checkpoint: holes too. */
static int write_packed(struct job *j)
{
    struct pack_facts facts;
    struct ckpt *k;
    char *to = sidecar_folder(j->o->dir);
    if (!to)
        return no_memory(j);
    int code = ckpt_open(&k, j->o->dir, &j->config, j->error);
    struct pack_options o = { .model = j->o->dir, .to = to, .jobs = 2,
                              .what = SIDECAR_TRUNK | SIDECAR_SCALES,
                              .assume_ratio = SYNTH_PACKED_RATIO };
    if (!code) {
        code = pack_run(&facts, &o, &j->config, k, j->error);
        ckpt_close(k);
    }
    free(to);
    return code;
}

int synth_write(const struct synth_options *o, struct synth_facts *facts,
                struct error *error)
{
    struct job j;
    struct synth_out index;
    int code = prepare(&j, o, facts, error);
    if (code)
        return code;
    if (!(code = take_folder(&j)) && !(code = write_config(&j)) &&
        !(code = synth_tokenizer(o->dir, &j.config, o->seed, error)) &&
        !(code = synth_out_open(&index, o->dir, INDEX_NAME, error))) {
        code = write_shards(&j, &index);
        if (code)
            index.code = code;
        code = synth_out_close(&index, false);
    }
    if (!code && o->packed)
        code = write_packed(&j);
    job_free(&j);
    return code;
}
