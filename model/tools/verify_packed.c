/* verify_packed.c - the coded weights beside the shards, decoded and compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/kern.h"
#include "model/pack/prove.h"
#include "model/tools/verify_internal.h"

struct one {
    struct verify *v;
    const char *path;
};

static void found(void *arg, const char *text)
{
    const struct one *one = arg;
    verify_problem(one->v, one->path, NULL, "%s", text);
}

static void progress(void *arg, uint64_t bytes)
{
    struct verify *v = ((struct one *)arg)->v;
    v->facts->packed_bytes += bytes;
    if (v->o->progress)
        v->o->progress(v->o->arg, v->facts->bytes + v->facts->packed_bytes,
                       v->data_bytes + v->packed_bytes);
}

/* The sidecar of a shard, if it is there and bound; else NULL, and a problem
 * where it is there. */
static struct sidecar *open_bound(struct verify *v, const char *path,
                                  const char *shard, bool require)
{
    struct error error = { 0 };
    struct sidecar *s;
    bool moved;
    int code = sidecar_open(&s, path, &error);
    if (code == -ENOENT && !require)
        return NULL;
    if (!code) {
        code = sidecar_bind(s, shard, &moved, &error);
        if (!code)
            return s;
        sidecar_close(s);
    }
    verify_problem(v, NULL, NULL, "%s", error.text);
    return NULL;
}

/* Where the coded weights are looked for; NULL and 0: nowhere. */
static int folder_of(char **out, const struct verify *v)
{
    const char *packed = v->o->packed ? v->o->packed : "auto";
    *out = NULL;
    if (!strcmp(packed, "off"))
        return 0;
    *out = !strcmp(packed, "require") || !strcmp(packed, "auto")
               ? sidecar_folder(v->o->dir)
               : strdup(packed);
    return *out ? 0 : -ENOMEM;
}

/* Without what its jobs take. */
static uint64_t base_bytes(const struct sidecar *s)
{
    return VERIFY_PROGRAM_BYTES + s->box.head.tables_bytes;
}

int verify_packed_floor(const struct verify *v, uint64_t *bytes)
{
    char *dir;
    int code = folder_of(&dir, v);
    *bytes = 0;
    for (uint32_t f = 0; dir && f < v->paths && !code; f++) {
        struct sidecar *s = NULL;
        char *path = sidecar_path(dir, v->path[f]);
        code = path ? 0 : -ENOMEM;
        if (path && !sidecar_open(&s, path, NULL)) {
            uint64_t want = base_bytes(s) + prove_job_bytes(s);
            *bytes = want > *bytes ? want : *bytes;
        }
        sidecar_close(s);
        free(path);
    }
    free(dir);
    return code;
}

/* Two a thread, since half of them wait for drives, as the memory allows. */
static uint32_t jobs_of(const struct verify *v, const struct sidecar *s)
{
    uint64_t base = base_bytes(s), jobs = 2 * (uint64_t)v->o->threads;
    uint64_t room = v->memory_bytes > base
                        ? (v->memory_bytes - base) / prove_job_bytes(s)
                        : 0;
    jobs = jobs < room ? jobs : room;
    jobs = jobs < WORK_JOBS_MAX ? jobs : WORK_JOBS_MAX;
    return jobs ? (uint32_t)jobs : 1; /* the floor has room for one */
}

int verify_packed(struct verify *v, struct error *error)
{
    struct stat st;
    struct kern kern;
    char *dir;
    int code = folder_of(&dir, v);
    if (code)
        return error_set(error, code, "%s: no memory", v->o->dir);
    if (!dir)
        return 0;
    kern_init(&kern, ISA_COUNT - 1);
    bool require = v->o->packed && !strcmp(v->o->packed, "require");
    bool there = !stat(dir, &st);
    if (!there && v->o->packed && strcmp(v->o->packed, "auto"))
        verify_problem(v, NULL, NULL, "%s: %s", dir, strerror(errno));
    for (uint32_t f = 0; there && f < v->paths && !code; f++) {
        struct one one = { v, sidecar_path(dir, v->path[f]) };
        struct sidecar *s = one.path ? open_bound(v, one.path, v->path[f],
                                                  require)
                                     : NULL;
        if (s) {
            struct prove_options o = { .jobs = jobs_of(v, s), .kern = &kern,
                                       .found = found, .progress = progress,
                                       .arg = &one };
            v->packed_bytes += prove_bytes(s);
            v->facts->packed_files++;
            code = prove_sidecar(s, v->path[f], &o, error);
        }
        sidecar_close(s);
        free((char *)one.path);
    }
    free(dir);
    return code;
}
