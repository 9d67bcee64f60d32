#include "model/parts/spread.h"

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
#include "io/file.h"
#include "model/parts/parts_internal.h"

#define SKELETON "/.sluice-skeleton"

struct spreader {
    const struct spread_options *o;
    const struct config *c;
    struct spread_facts *facts;
    struct error *error;
    int    folder[CUTS_PARTS_MAX]; /* locked while we work; -1: none */
    char  *skeleton;  /* a folder, or NULL */
    struct ckpt *k;
    struct identity model;
    bool   known;     /* the identity, from a file that is there */
    uint32_t shards;
    bool  *gone;      /* [shards]: the shard is not there any more */
    char **path;      /* [shards][parts], or NULL */
    bool  *there;     /* [shards][parts]: made before */
    uint64_t done_bytes, all_bytes;
};

static int no_memory(struct spreader *s)
{
    return error_set(s->error, -ENOMEM, "%s: no memory", s->o->model);
}

static void progress(void *arg, uint64_t bytes)
{
    struct spreader *s = arg;
    s->done_bytes += bytes;
    if (s->o->progress)
        s->o->progress(s->o->arg, s->done_bytes, s->all_bytes);
}

/* ---- folders ---- */

/* What a killed spread left, where files without a name cannot be made. */
static void sweep(int folder)
{
    int fd = dup(folder);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    while (dir && (e = readdir(dir)))
        if (e->d_name[0] == '.' && strstr(e->d_name, ".part.sluice-"))
            unlinkat(folder, e->d_name, 0);
    if (dir)
        closedir(dir);
}

static int take_folders(struct spreader *s)
{
    for (uint32_t r = 0; r < s->o->cuts.parts; r++) {
        const char *dir = s->o->dir[r];
        if (!dir)
            continue;
        if (mkdir(dir, 0777) && errno != EEXIST)
            return error_set(s->error, -errno, "%s: %s", dir, strerror(errno));
        s->folder[r] = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->folder[r] < 0)
            return error_set(s->error, -errno, "%s: %s", dir, strerror(errno));
        if (flock(s->folder[r], LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
            return error_set(s->error, -EBUSY, "%s: is given twice, or another "
                             "spread is at work there", dir);
        sweep(s->folder[r]);
    }
    return 0;
}

/* ---- the shards, of which some may be gone ---- */

/* The files of part 0 that are there, by shard; [n]. */
static int find_first(struct spreader *s, struct part ***out, uint32_t *n)
{
    DIR *d = s->o->dir[0] ? opendir(s->o->dir[0]) : NULL;
    struct dirent *e;
    *out = NULL;
    *n = 0;
    while (d && (e = readdir(d))) {
        size_t length = strlen(e->d_name);
        char path[4096];
        struct part *p;
        if (e->d_name[0] == '.' || length < 6 ||
            strcmp(e->d_name + length - 5, ".part"))
            continue;
        snprintf(path, sizeof path, "%s/%s", s->o->dir[0], e->d_name);
        if (part_open(&p, path, s->c, NULL))
            continue;
        if (!*out) {
            *n = p->head->shards;
            *out = calloc(*n, sizeof **out);
        }
        if (!*out || p->head->part || p->head->shards != *n ||
            (*out)[p->head->shard])
            part_close(p);
        else
            (*out)[p->head->shard] = p;
    }
    if (d)
        closedir(d);
    return 0;
}

static int open_skeleton(struct spreader *s, struct error *first_error)
{
    struct part **first;
    uint32_t n, known = 0;
    int code = find_first(s, &first, &n);
    for (uint32_t i = 0; i < n; i++)
        if (first[i] && !known++) {
            s->model = first[i]->head->model;
            s->known = true;
        }
    if (!code && !known)
        code = error_set(s->error, first_error->code, "%s", first_error->text);
    if (!code && asprintf(&s->skeleton, "%s" SKELETON, s->o->dir[0]) < 0) {
        s->skeleton = NULL;
        code = no_memory(s);
    }
    if (!code)
        code = skeleton_make(s->skeleton, s->o->model, first, n, s->error);
    for (uint32_t i = 0; i < n; i++)
        part_close(first[i]);
    free(first);
    return code ? code : ckpt_open(&s->k, s->skeleton, s->c, s->error);
}

/* Shards may be missing where an earlier spread moved them. */
static int open_shards(struct spreader *s)
{
    struct error why = { 0 };
    int code = ckpt_open(&s->k, s->o->model, s->c, &why);
    if (code == -ENOENT)
        code = open_skeleton(s, &why);
    else if (code)
        return error_set(s->error, code, "%s", why.text);
    if (code)
        return code;
    s->shards = ckpt_files(s->k);
    s->gone = calloc(s->shards, sizeof *s->gone);
    s->path = calloc((size_t)s->shards * CUTS_PARTS_MAX, sizeof *s->path);
    s->there = calloc((size_t)s->shards * CUTS_PARTS_MAX, sizeof *s->there);
    if (!s->gone || !s->path || !s->there)
        return no_memory(s);
    for (uint32_t f = 0; f < s->shards && s->skeleton; f++) {
        struct stat st;
        s->gone[f] = lstat(ckpt_path(s->k, f), &st) || !S_ISLNK(st.st_mode);
    }
    return s->known ? 0 : identity_of(&s->model, s->k, s->c, s->error);
}

/* ---- what is there ---- */

static char **path_of(struct spreader *s, uint32_t f, uint32_t r)
{
    return &s->path[(size_t)f * CUTS_PARTS_MAX + r];
}

static bool *there_of(struct spreader *s, uint32_t f, uint32_t r)
{
    return &s->there[(size_t)f * CUTS_PARTS_MAX + r];
}

/* Is it the file that would be made now? */
static bool is_there(struct spreader *s, uint32_t f, uint32_t r)
{
    struct part *p;
    struct cuts cuts;
    if (part_open(&p, *path_of(s, f, r), s->c, NULL))
        return false;
    cuts = part_cuts(p->head);
    bool coded = false, there =
        !memcmp(&cuts, &s->o->cuts, sizeof cuts) && p->head->part == r &&
        p->head->shard == f && p->head->shards == s->shards &&
        !memcmp(&p->head->model, &s->model, sizeof s->model);
    for (uint32_t i = 0; i < p->head->matrices; i++)
        coded |= p->matrix[i].coded;
    there &= !(coded && s->o->raw);
    if (there && !s->gone[f])
        there = !part_bind(p, ckpt_path(s->k, f), NULL);
    part_close(p);
    return there;
}

/* What is at a part's path may be replaced: nothing, or a part of this model,
 * damaged or not. After --move a part of another may be all there is of it. */
static int check_place(struct spreader *s, const char *path)
{
    char begin[sizeof PART_MAGIC - 1];
    struct box box;
    int got = file_first(path, 0, begin, sizeof begin);
    if (got == -ENOENT)
        return 0;
    bool part = !got ||
                (got == sizeof begin && !memcmp(begin, PART_MAGIC, got));
    if (!part)
        return error_set(s->error, -EEXIST, "%s: is not a file of sluice "
                         "spread, and would be replaced", path);
    if (box_open(&box, path, PART_MAGIC, PART_VERSION, UINT64_MAX, NULL))
        return 0;
    const struct part_head *h = (const void *)(box.page + BOX_OWN);
    bool other = memcmp(&h->model, &s->model, sizeof s->model);
    box_close(&box);
    return other ? error_set(s->error, -EEXIST, "%s: is a part of another "
                             "model, and would be replaced", path)
                 : 0;
}

static int look(struct spreader *s)
{
    for (uint32_t f = 0; f < s->shards; f++)
        for (uint32_t r = 0; r < s->o->cuts.parts; r++) {
            if (!s->o->dir[r])
                continue;
            *path_of(s, f, r) = part_path(s->o->dir[r], ckpt_path(s->k, f));
            if (!*path_of(s, f, r))
                return no_memory(s);
            *there_of(s, f, r) = is_there(s, f, r);
            if (s->gone[f] && !*there_of(s, f, r))
                return error_set(s->error, -ENOENT, "%s: is not there, or is "
                                 "not of this model and these weights, and the "
                                 "shard it is made from is gone",
                                 *path_of(s, f, r));
            if (!*there_of(s, f, r) && check_place(s, *path_of(s, f, r)))
                return -EEXIST;
        }
    return 0;
}

/* ---- room ---- */

static struct spread_shard shard_of(struct spreader *s, uint32_t f)
{
    struct spread_shard x = { .o = s->o, .c = s->c, .k = s->k, .file = f,
                              .model = s->model, .done = progress, .arg = s };
    for (uint32_t r = 0; r < s->o->cuts.parts; r++)
        if (s->o->dir[r] && !*there_of(s, f, r))
            x.path[r] = *path_of(s, f, r);
    return x;
}

/* File systems that are written to, and what is free there. */
struct room {
    dev_t    dev[CUTS_PARTS_MAX];
    uint64_t free[CUTS_PARTS_MAX];
    uint32_t of[CUTS_PARTS_MAX]; /* by part */
    uint32_t count;
};

static int measure_room(struct spreader *s, struct room *room)
{
    for (uint32_t r = 0; r < s->o->cuts.parts; r++) {
        struct statvfs fs;
        struct stat st;
        if (s->folder[r] < 0)
            continue;
        if (fstat(s->folder[r], &st) || fstatvfs(s->folder[r], &fs))
            return error_set(s->error, -errno, "%s: %s", s->o->dir[r],
                             strerror(errno));
        uint32_t i = 0;
        while (i < room->count && room->dev[i] != st.st_dev)
            i++;
        room->of[r] = i;
        if (i < room->count)
            continue;
        room->dev[room->count] = st.st_dev;
        room->free[room->count++] = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    return 0;
}

/* Go through the shards as spread will. */
static int check_room(struct spreader *s)
{
    struct room room = { .count = 0 };
    int code = measure_room(s, &room);
    for (uint32_t f = 0; f < s->shards && !code; f++) {
        struct spread_shard x = shard_of(s, f);
        uint64_t bytes, needs[CUTS_PARTS_MAX] = { 0 };
        struct stat st;
        if (s->gone[f])
            continue;
        code = spread_needs(&x, &bytes, needs, s->error);
        s->all_bytes += bytes;
        for (uint32_t r = 0; r < s->o->cuts.parts && !code; r++) {
            uint64_t *left = &room.free[room.of[r]];
            if (!x.path[r])
                continue;
            if (needs[r] > *left)
                return error_set(s->error, -ENOSPC, "%s: the file system has "
                                 "room for the parts of %u of %u shards",
                                 s->o->dir[r], f, s->shards);
            *left -= needs[r];
        }
        if (s->o->move && !stat(ckpt_path(s->k, f), &st))
            for (uint32_t i = 0; i < room.count; i++)
                if (room.dev[i] == st.st_dev)
                    room.free[i] += (uint64_t)st.st_blocks * 512;
    }
    return code;
}

/* ---- shards ---- */

/* Read every part of a shard back, then remove it: a link and what it leads
 * to. */
static int move_shard(struct spreader *s, uint32_t f)
{
    const char *path = ckpt_path(s->k, f);
    const char *name = strrchr(path, '/') + 1;
    char *named = NULL;
    int code = 0;
    for (uint32_t r = 0; r < s->o->cuts.parts && !code; r++) {
        struct part *p;
        code = part_open(&p, *path_of(s, f, r), s->c, s->error);
        if (code)
            break;
        code = part_prove(p, s->c, s->o->kern, s->o->jobs, NULL, NULL,
                          s->error);
        part_close(p);
        /* A file that an earlier spread made may not be on the drive yet. */
        int fd = code ? -1 : open(*path_of(s, f, r), O_RDONLY | O_CLOEXEC);
        if (!code && (fd < 0 || fsync(fd) || fsync(s->folder[r])))
            code = error_set(s->error, -errno, "%s: %s", *path_of(s, f, r),
                             strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    if (!code && asprintf(&named, "%s/%s", s->o->model, name) < 0) {
        named = NULL;
        code = no_memory(s);
    }
    char *real = code ? NULL : realpath(named, NULL);
    if (!code && (!real || unlink(real) ||
                  (unlink(named) && errno != ENOENT)))
        code = error_set(s->error, -errno, "%s: %s", named, strerror(errno));
    free(real);
    free(named);
    s->facts->removed += !code;
    return code;
}

static int count_files(struct spreader *s, uint32_t f, uint32_t made)
{
    for (uint32_t r = 0; r < s->o->cuts.parts; r++) {
        struct stat st;
        if (!s->o->dir[r])
            continue;
        if (stat(*path_of(s, f, r), &st))
            return error_set(s->error, -errno, "%s: %s", *path_of(s, f, r),
                             strerror(errno));
        s->facts->file_bytes += (uint64_t)st.st_size;
        s->facts->part_bytes[r] += (uint64_t)st.st_size;
        s->facts->kept += *there_of(s, f, r);
    }
    s->facts->made += made;
    return 0;
}

static int do_shards(struct spreader *s)
{
    int code = 0;
    for (uint32_t f = 0; f < s->shards && !code; f++) {
        struct spread_shard x = shard_of(s, f);
        uint32_t made = 0;
        for (uint32_t r = 0; r < s->o->cuts.parts; r++)
            made += x.path[r] != NULL;
        if (made)
            code = spread_make(&x, s->error);
        if (!code)
            code = count_files(s, f, made);
        if (!code && s->o->move && !s->gone[f])
            code = move_shard(s, f);
    }
    return code;
}

int spread_run(struct spread_facts *facts, const struct spread_options *o,
               const struct config *c, struct error *error)
{
    struct spreader s = { .o = o, .c = c, .facts = facts, .error = error };
    int64_t begin_ns = clock_ns();
    assert(o->jobs && o->jobs <= WORK_JOBS_MAX);
    memset(facts, 0, sizeof *facts);
    for (uint32_t r = 0; r < CUTS_PARTS_MAX; r++) {
        s.folder[r] = -1;
        assert(!o->move || r >= o->cuts.parts || o->dir[r]);
    }
    int (*const step[])(struct spreader *) = { take_folders, open_shards, look,
                                               check_room, do_shards };
    int code = 0;
    for (size_t i = 0; i < sizeof step / sizeof *step && !code; i++)
        code = step[i](&s);
    facts->shards = s.shards;
    facts->read_bytes = s.done_bytes;
    facts->seconds = (double)(clock_ns() - begin_ns) / 1e9;
    for (size_t i = 0; s.path && i < (size_t)s.shards * CUTS_PARTS_MAX; i++)
        free(s.path[i]);
    free(s.path);
    free(s.there);
    free(s.gone);
    ckpt_close(s.k);
    if (s.skeleton)
        skeleton_remove(s.skeleton);
    free(s.skeleton);
    for (uint32_t r = 0; r < CUTS_PARTS_MAX; r++)
        if (s.folder[r] >= 0)
            close(s.folder[r]);
    return code;
}
