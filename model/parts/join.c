/* join.c - the shards again, byte by byte, from the parts. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "io/clock.h"
#include "io/file.h"
#include "model/parts/parts_internal.h"

#define SKELETON "/.sluice-skeleton"

/* One shard that is written, a file that skeleton.c made. */
struct joiner {
    const struct parts *p;
    const struct spread_options *o;
    const struct ckpt *k;
    uint32_t shard;
    uint32_t first[CUTS_PARTS_MAX + 1]; /* things of part r: from first[r] */
    struct read_back back[CUTS_PARTS_MAX];
    int      fd;
    const char *path;
    struct spread_facts *facts;
};

static const struct part *file_of(const struct joiner *j, uint32_t r)
{
    return j->p->file[j->shard * j->p->cuts.parts + r].part;
}

static int put(struct joiner *j, const void *from, uint64_t bytes, uint64_t at,
               struct error *why)
{
    int code = file_write_all(j->fd, from, bytes, at);
    return code ? error_set(why, code, "%s: %s", j->path, strerror(-code)) : 0;
}

static int join_matrix(struct joiner *j, struct back_bench *b, uint32_t r,
                       const struct part_matrix *m, struct error *why)
{
    const struct part *p = file_of(j, r);
    struct extent e;
    uint32_t crc = 0;
    uint64_t row_bytes = 2ull * m->cols;
    int code = ckpt_tensor(j->k, m->layer, (enum tensor_role)m->role, &e);
    if (code || e.file != j->shard)
        return part_damaged(p, m->at, why);
    for (uint32_t i = 0; i < m->block_count && !code; i++) {
        uint32_t rows = part_block_rows(m, i);
        const uint8_t *from;
        const char *wrong;
        code = read_back_block(&j->back[r], b, m, i, &from, &wrong, why);
        if (code)
            return code;
        if (wrong)
            return part_damaged(p, p->block[m->first_block + i].at, why);
        crc = crc32c(crc, from, rows * row_bytes);
        code = put(j, from, rows * row_bytes,
                   e.offset_bytes +
                       (m->row + (uint64_t)i * m->block_rows) * row_bytes,
                   why);
    }
    return code || crc == m->source_crc ? code : part_damaged(p, m->at, why);
}

static int join_expert(struct joiner *j, struct back_bench *b, uint32_t r,
                       const struct part_expert *x, struct error *why)
{
    const struct part *p = file_of(j, r);
    const struct config *c = j->p->c;
    const struct slice_shape *s = &j->p->slice[r];
    struct extent e[EXPERT_TENSORS];
    uint8_t *plane[SIDECAR_PLANES];
    const uint8_t *at;
    const char *wrong;
    int code = read_back_slice(&j->back[r], b, x, &at, plane, &wrong, why);
    if (code)
        return code;
    if (wrong)
        return part_damaged(p, slice_ref(x, s).at, why);
    ckpt_expert(j->k, c->first_dense + x->number / c->experts,
                x->number % c->experts, e);
    for (uint32_t m = 0; m < SIDECAR_PLANES && !code; m++) {
        uint64_t rows = s->plane[m].rows, row = s->row[m].begin;
        if (!rows)
            continue;
        code = put(j, at + s->weights_at[m], rows * s->row_bytes[m],
                   e[2 * m].offset_bytes + row * s->row_bytes[m], why);
        if (!code)
            code = put(j, plane[m], rows * s->plane[m].cols,
                       e[2 * m + 1].offset_bytes + row * s->plane[m].cols,
                       why);
    }
    return code;
}

static int join_small(struct joiner *j, struct back_bench *b,
                      const struct part_small *s, struct error *why)
{
    const struct part *p = file_of(j, 0);
    struct extent e;
    const uint8_t *at;
    const char *wrong;
    int code = ckpt_tensor(j->k, s->layer, (enum tensor_role)s->role, &e);
    if (code || e.file != j->shard || e.length_bytes != s->ref.bytes)
        return part_damaged(p, s->ref.at, why);
    code = read_back_bytes(&j->back[0], b, &s->ref, &at, &wrong, why);
    if (!code && wrong)
        return part_damaged(p, s->ref.at, why);
    return code ? code : put(j, at, s->ref.bytes, e.offset_bytes, why);
}

static int join_thing(void *arg, void *bench, uint32_t thing,
                      struct error *why)
{
    struct joiner *j = arg;
    uint32_t r = 0;
    while (thing >= j->first[r + 1])
        r++;
    const struct part *p = file_of(j, r);
    const struct part_head *h = p->head;
    thing -= j->first[r];
    if (thing < h->matrices)
        return join_matrix(j, bench, r, &p->matrix[thing], why);
    thing -= h->matrices;
    if (thing < h->experts)
        return join_expert(j, bench, r, &p->expert[thing], why);
    return join_small(j, bench, &p->small[thing - h->experts], why);
}

static int open_bench(void *arg, void **out)
{
    const struct joiner *j = arg;
    uint64_t read_max = 0, raw_max = 0;
    for (uint32_t r = 0; r < j->p->cuts.parts; r++) {
        const struct read_back *b = &j->back[r];
        read_max = b->read_max > read_max ? b->read_max : read_max;
        raw_max = b->raw_max > raw_max ? b->raw_max : raw_max;
    }
    return back_bench_open(out, read_max, raw_max);
}

static int fill(struct joiner *j, struct error *error)
{
    uint32_t opened = 0, parts = j->p->cuts.parts;
    int code = 0;
    j->fd = open(j->path, O_RDWR | O_CLOEXEC);
    if (j->fd < 0)
        return error_set(error, -errno, "%s: %s", j->path, strerror(errno));
    while (opened < parts && !code) {
        const struct part *p = file_of(j, opened);
        code = read_back_open(&j->back[opened], p, &j->p->slice[opened],
                              j->o->kern, false, error);
        j->first[opened + 1] = j->first[opened] + p->head->matrices +
                               p->head->experts +
                               (opened ? 0 : p->head->smalls);
        opened += !code;
    }
    struct work w = { .jobs = j->o->jobs, .things = j->first[parts],
                      .name = j->path, .arg = j, .open = open_bench,
                      .one = join_thing, .close = back_bench_close };
    if (!code)
        code = work_run(&w, error);
    if (!code && fsync(j->fd))
        code = error_set(error, -errno, "%s: %s", j->path, strerror(errno));
    for (uint32_t r = 0; r < opened; r++)
        read_back_close(&j->back[r]);
    close(j->fd);
    return code;
}

/* Give it its name, on the drive too. */
static int publish(const char *from, const char *to, const char *dir,
                   struct error *error)
{
    int fd = rename(from, to) ? -1 : open(dir, O_RDONLY | O_DIRECTORY |
                                                   O_CLOEXEC);
    int code = fd < 0 || fsync(fd)
                   ? error_set(error, -errno, "%s: %s", to, strerror(errno))
                   : 0;
    if (fd >= 0)
        close(fd);
    return code;
}

static int join_shard(struct joiner *j, const char *dir, uint64_t *done,
                      uint64_t all, struct error *error)
{
    const struct part *first = file_of(j, 0);
    struct stat st;
    char *to = skeleton_shard(dir, first->path);
    int code = to ? 0 : error_set(error, -ENOMEM, "%s: no memory", dir);
    bool any = !code && !lstat(to, &st);
    bool there = any && !part_bind(first, to, NULL);
    if (any && !there)
        code = error_set(error, -EEXIST, "%s: is there, and is not the shard "
                         "that the parts are of: remove it, or give another "
                         "folder", to);
    if (there) {
        j->facts->kept++;
    } else if (!code) {
        code = fill(j, error);
        if (!code)
            code = publish(j->path, to, dir, error);
        j->facts->made += !code;
        j->facts->read_bytes += first->head->source_bytes;
    }
    *done += first->head->source_bytes;
    j->facts->file_bytes += first->head->source_bytes;
    if (!code && j->o->progress)
        j->o->progress(j->o->arg, *done, all);
    free(to);
    return code;
}

static int join_shards(struct spread_facts *facts, const struct parts *p,
                       const char *dir, const char *skeleton,
                       const struct spread_options *o, struct error *error)
{
    struct part **first = calloc(p->shards, sizeof *first);
    struct ckpt *k = NULL;
    uint64_t done = 0, all = 0;
    if (!first)
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    for (uint32_t f = 0; f < p->shards; f++) {
        first[f] = p->file[f * p->cuts.parts].part;
        all += first[f]->head->source_bytes;
    }
    int code = skeleton_make(skeleton, NULL, first, p->shards, error);
    if (!code)
        code = ckpt_open(&k, skeleton, p->c, error);
    for (uint32_t f = 0; f < p->shards && !code; f++) {
        struct joiner j = { .p = p, .o = o, .k = k, .shard = f,
                            .path = ckpt_path(k, f), .facts = facts };
        code = join_shard(&j, dir, &done, all, error);
    }
    ckpt_close(k);
    free(first);
    return code;
}

int spread_join(struct spread_facts *facts, const struct parts *p,
                const char *dir, const struct spread_options *o,
                struct error *error)
{
    int64_t begin_ns = clock_ns();
    char *skeleton;
    memset(facts, 0, sizeof *facts);
    facts->shards = p->shards;
    if (mkdir(dir, 0777) && errno != EEXIST)
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    if (asprintf(&skeleton, "%s" SKELETON, dir) < 0)
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    int code = join_shards(facts, p, dir, skeleton, o, error);
    skeleton_remove(skeleton);
    free(skeleton);
    facts->seconds = (double)(clock_ns() - begin_ns) / 1e9;
    return code;
}
