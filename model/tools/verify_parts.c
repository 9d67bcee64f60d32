/* verify_parts.c - the parts of a model, read back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kern.h"
#include "io/clock.h"
#include "model/parts/parts.h"
#include "model/parts/spread.h"
#include "model/tools/verify.h"

struct looking {
    const struct verify_options *o;
    struct verify_facts *facts;
    const char *path;
};

static void found(void *arg, const char *text)
{
    struct looking *l = arg;
    l->facts->problems++;
    l->o->problem(l->o->arg, l->path, NULL, text);
}

static uint64_t file_bytes(const struct parts *p, uint32_t file)
{
    return p->file[file].part->box.head.file_bytes;
}

static int look_at_files(struct looking *l, const struct parts *p,
                         struct error *error)
{
    struct kern kern;
    uint64_t all = 0;
    int code = 0;
    kern_init(&kern, ISA_COUNT - 1);
    for (uint32_t f = 0; f < p->files; f++)
        all += file_bytes(p, f);
    for (uint32_t f = 0; f < p->files && !code; f++) {
        const struct part *part = p->file[f].part;
        l->path = part->path;
        code = part_prove(part, p->c, &kern, l->o->threads, found, l, error);
        l->facts->files++;
        l->facts->tensors += part->head->matrices + part->head->smalls +
                             (uint64_t)part->head->experts * EXPERT_TENSORS;
        l->facts->bytes += file_bytes(p, f);
        if (l->o->progress)
            l->o->progress(l->o->arg, l->facts->bytes, all);
    }
    return code;
}

int verify_parts(struct verify_facts *facts, const struct verify_options *o,
                 const char *const *dir, uint32_t dirs, struct error *error)
{
    struct looking l = { .o = o, .facts = facts };
    struct error why = { 0 };
    struct config c;
    struct parts *p;
    int64_t begin_ns = clock_ns();
    memset(facts, 0, sizeof *facts);
    facts->method = "pread";
    int code = config_load(&c, o->dir, error);
    if (code)
        return code;
    if (parts_open(&p, dir, dirs, NULL, &c, &why)) {
        found(&l, why.text);
    } else {
        code = look_at_files(&l, p, error);
        parts_close(p);
    }
    config_free(&c);
    facts->seconds = (double)(clock_ns() - begin_ns) / 1e9;
    return code;
}
