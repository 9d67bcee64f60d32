#include "model/pack/pack.h"

#include <assert.h>
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

#include "io/clock.h"
#include "model/ckpt/figure.h"
#include "model/pack/pack_internal.h"

struct packer {
    const struct pack_options *o;
    const struct ckpt *k;
    struct pack_facts *facts;
    struct pack_progress progress;
    uint32_t files;
    struct pack_shard *shard; /* [files] */
    char   **path;            /* [files] of the sidecars */
    bool    *kept;            /* [files] */
    int      folder;          /* locked while we work */
    struct error *error;
};

static uint64_t matrix_bytes(const struct pack_shard *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->matrices; i++)
        sum += (uint64_t)s->matrix[i].rows * s->matrix[i].cols * 2;
    return sum;
}

static uint64_t scale_bytes(const struct pack_shard *s)
{
    uint64_t sum = 0;
    for (int p = 0; p < SIDECAR_PLANES; p++)
        sum += (uint64_t)s->plane[p].rows * s->plane[p].cols;
    return sum * s->experts;
}

uint64_t pack_read_bytes(const struct pack_shard *s, uint32_t what)
{
    return (what & SIDECAR_TRUNK ? matrix_bytes(s) : 0) +
           (what & SIDECAR_SCALES ? scale_bytes(s) : 0);
}

/* Trained weights take .67 to .70 and .21 to .5; 72 % and half are room. */
uint64_t pack_room_bytes(const struct pack_shard *s, uint32_t what)
{
    uint64_t room = 1 << 20;
    if (what & SIDECAR_TRUNK)
        room += matrix_bytes(s) / 100 * 72 + s->matrices * (uint64_t)BOX_PAGE;
    if (what & SIDECAR_SCALES)
        room += scale_bytes(s) / 2 + s->experts * (uint64_t)BOX_PAGE;
    return room;
}

/* A page a block, and the tables. */
static uint64_t pack_holes_bytes(const struct pack_shard *s)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < s->matrices; i++)
        blocks += s->matrix[i].rows / s->matrix[i].block_rows + 1;
    return blocks * (BOX_PAGE + 80) + s->experts * (uint64_t)64 + (1 << 20);
}

/* ---- the folder ---- */

/* What a killed pack left, where files without a name cannot be made. */
static int sweep(struct packer *p)
{
    static const char mark[] = ".pack.sluice-";
    struct dirent *e;
    DIR *dir = opendir(p->o->to);
    if (!dir)
        return error_set(p->error, -errno, "%s: %s", p->o->to,
                         strerror(errno));
    while ((e = readdir(dir)))
        if (e->d_name[0] == '.' && strstr(e->d_name, mark))
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    return 0;
}

static int take_folder(struct packer *p)
{
    const char *to = p->o->to;
    if (mkdir(to, 0777) && errno != EEXIST)
        return error_set(p->error, -errno, "%s: %s", to, strerror(errno));
    p->folder = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->folder < 0)
        return error_set(p->error, -errno, "%s: %s", to, strerror(errno));
    if (flock(p->folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(p->error, -EBUSY, "%s: another pack is at work there",
                         to);
    return sweep(p);
}

static int check_room(struct packer *p)
{
    struct statvfs fs;
    uint64_t wanted = 0, freed = 0;
    for (uint32_t f = 0; f < p->files; f++) {
        struct stat st;
        if (p->kept[f] || !pack_read_bytes(&p->shard[f], p->o->what))
            continue;
        wanted += p->o->assume_ratio > 0
                      ? pack_holes_bytes(&p->shard[f])
                      : pack_room_bytes(&p->shard[f], p->o->what);
        if (!stat(p->path[f], &st)) /* it goes when the new one comes */
            freed += (uint64_t)st.st_blocks * 512;
    }
    if (fstatvfs(p->folder, &fs))
        return error_set(p->error, -errno, "%s: %s", p->o->to,
                         strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize + freed;
    if (wanted <= room)
        return 0;
    return error_set(p->error, -ENOSPC, "%s: needs about %s GB of disk, the "
                     "file system has %s GB free", p->o->to,
                     figure((double)wanted / 1e9).text,
                     figure((double)room / 1e9).text);
}

/* ---- shards ---- */

/* Is the sidecar of a shard there, of this shard, with all that is asked? */
static bool is_there(struct packer *p, uint32_t f)
{
    struct sidecar *s;
    bool moved, there = false;
    if (sidecar_open(&s, p->path[f], NULL))
        return false;
    there = !sidecar_bind(s, ckpt_path(p->k, f), &moved, NULL) &&
            (s->head->whole & p->o->what) == p->o->what;
    const struct pack_shard *w = &p->shard[f];
    for (uint32_t i = 0; i < w->matrices && there; i++)
        if (p->o->what & SIDECAR_TRUNK)
            there = sidecar_find(s, w->matrix[i].at, w->matrix[i].rows,
                                 w->matrix[i].cols) != NULL;
    sidecar_close(s);
    return there;
}

static int look_at_shards(struct packer *p, const struct config *c)
{
    for (uint32_t f = 0; f < p->files; f++) {
        p->path[f] = sidecar_path(p->o->to, ckpt_path(p->k, f));
        int code = p->path[f] ? pack_shard_of(&p->shard[f], c, p->k, f)
                              : -ENOMEM;
        if (code)
            return error_set(p->error, code, "%s: no memory", p->o->to);
        uint64_t bytes = pack_read_bytes(&p->shard[f], p->o->what);
        p->kept[f] = bytes && is_there(p, f);
        p->progress.all_bytes += p->kept[f] ? 0 : bytes;
    }
    return 0;
}

static enum tensor_role role_of(const struct pack_shard *w, uint64_t at)
{
    for (uint32_t i = 0; i < w->matrices; i++)
        if (w->matrix[i].at == at)
            return w->matrix[i].role;
    return T_EMBED; /* which is never coded */
}

/* Add what a finished sidecar says. */
static int count(struct packer *p, uint32_t f)
{
    struct sidecar *s;
    int code = sidecar_open(&s, p->path[f], p->error);
    if (code)
        return code;
    for (uint32_t i = 0; i < s->head->tensors; i++) {
        const struct sidecar_tensor *t = &s->tensor[i];
        struct pack_kind *kind =
            &p->facts->kind[role_of(&p->shard[f], t->source_at)];
        kind->count++;
        kind->raw_bytes += t->source_bytes;
        kind->stored_bytes += t->bytes;
        kind->patches += t->patches;
        p->facts->stored_bytes += t->bytes;
    }
    struct pack_kind *scales = &p->facts->kind[T_COUNT];
    for (uint32_t i = 0; i < s->head->experts; i++) {
        const struct sidecar_expert *e = &s->expert[i];
        scales->count++;
        scales->stored_bytes += e->ref.bytes;
        p->facts->stored_bytes += e->ref.bytes;
        for (int q = 0; q < SIDECAR_PLANES; q++) {
            scales->raw_bytes += (uint64_t)s->head->plane[q].rows *
                                 s->head->plane[q].cols;
            scales->patches += e->patches[q];
        }
    }
    p->facts->file_bytes += s->box.head.file_bytes;
    sidecar_close(s);
    return 0;
}

static int do_shards(struct packer *p)
{
    int code = 0;
    for (uint32_t f = 0; f < p->files && !code; f++) {
        uint64_t bytes = pack_read_bytes(&p->shard[f], p->o->what);
        if (!bytes) {
            p->facts->empty++;
            continue;
        }
        if (!p->kept[f])
            code = pack_make(p->o, &p->shard[f], ckpt_path(p->k, f),
                             p->path[f], &p->progress, p->error);
        if (code)
            break;
        p->facts->read_bytes += p->kept[f] ? 0 : bytes;
        *(p->kept[f] ? &p->facts->kept : &p->facts->made) += 1;
        code = count(p, f);
    }
    return code;
}

int pack_run(struct pack_facts *facts, const struct pack_options *o,
             const struct config *c, const struct ckpt *k, struct error *error)
{
    struct packer p = { .o = o, .k = k, .facts = facts, .error = error,
                        .files = ckpt_files(k), .folder = -1,
                        .progress = { .o = o } };
    int64_t begin_ns = clock_ns();
    assert(o->jobs && o->what);
    memset(facts, 0, sizeof *facts);
    p.shard = calloc(p.files, sizeof *p.shard);
    p.path = calloc(p.files, sizeof *p.path);
    p.kept = calloc(p.files, sizeof *p.kept);
    int code = p.shard && p.path && p.kept
                   ? take_folder(&p)
                   : error_set(error, -ENOMEM, "%s: no memory", o->to);
    if (!code)
        code = look_at_shards(&p, c);
    if (!code)
        code = check_room(&p);
    if (!code)
        code = do_shards(&p);
    for (uint32_t f = 0; f < p.files; f++) {
        if (p.shard)
            pack_shard_free(&p.shard[f]);
        if (p.path)
            free(p.path[f]);
    }
    free(p.shard);
    free(p.path);
    free(p.kept);
    if (p.folder >= 0)
        close(p.folder);
    facts->seconds = (double)(clock_ns() - begin_ns) / 1e9;
    return code;
}
