#include "model/pack/sidecars.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/pack/pack.h"

struct opener {
    struct sidecars *s;
    const struct config *c;
    const struct ckpt *k;
    bool require;
    sidecars_note_fn *note;
    void *arg;
    struct error *error;
};

/* What is coded must be what this program would look for. */
static int check_against(const struct sidecar *s, const struct pack_shard *w,
                         struct error *error)
{
    const struct sidecar_head *h = s->head;
    uint32_t found = 0;
    for (uint32_t i = 0; i < w->matrices; i++)
        found += sidecar_find(s, w->matrix[i].at, w->matrix[i].rows,
                              w->matrix[i].cols) != NULL;
    if (found != h->tensors)
        return error_set(error, -ESTALE, "%s: has %" PRIu32 " matrices that "
                         "the config does not have", s->path,
                         h->tensors - found);
    if (h->experts &&
        (h->experts != w->experts || h->experts_at != w->experts_at ||
         h->expert_stride != w->expert_stride ||
         memcmp(h->plane, w->plane, sizeof h->plane) ||
         memcmp(h->plane_at, w->plane_at, sizeof h->plane_at)))
        return error_set(error, -ESTALE, "%s: has other experts than the "
                         "config", s->path);
    return 0;
}

static int open_one(struct opener *o, uint32_t file, const char *path,
                    const struct pack_shard *w, struct error *why)
{
    struct sidecar *s;
    bool moved = false;
    int code = sidecar_open(&s, path, why);
    if (code)
        return code;
    code = sidecar_bind(s, ckpt_path(o->k, file), &moved, why);
    if (!code)
        code = check_against(s, w, why);
    if (code) {
        sidecar_close(s);
        return code;
    }
    o->s->of[file] = s;
    o->s->number[file] = o->s->files + o->s->used++;
    o->s->moved += moved;
    return 0;
}

static int look_for(struct opener *o, uint32_t file)
{
    struct error why = { 0 };
    struct pack_shard w;
    char *path = sidecar_path(o->s->dir, ckpt_path(o->k, file));
    int code = path ? pack_shard_of(&w, o->c, o->k, file) : -ENOMEM;
    if (code) {
        free(path);
        return error_set(o->error, code, "%s: no memory", o->s->dir);
    }
    if (w.matrices || w.experts) {
        code = open_one(o, file, path, &w, &why);
        o->s->absent += code == -ENOENT;
        o->s->refused += code && code != -ENOENT;
        if (code && o->require)
            code = error_set(o->error, code, "%s", why.text);
        else if (code == -ENOMEM)
            code = error_set(o->error, code, "%s: no memory", path);
        else if (code && code != -ENOENT && o->note)
            o->note(o->arg, why.text);
        code = o->require || code == -ENOMEM ? code : 0;
    }
    pack_shard_free(&w);
    free(path);
    return code;
}

static void tell_some(const struct opener *o)
{
    const struct sidecars *s = o->s;
    struct error text = { 0 };
    if (!o->note)
        return;
    if (s->used && s->absent) {
        error_set(&text, -ENOENT, "%s: lacks %" PRIu32 " of %" PRIu32 " files; "
                  "those shards are read as they are", s->dir, s->absent,
                  s->used + s->absent + s->refused);
        o->note(o->arg, text.text);
    }
    text = (struct error){ 0 };
    if (s->moved) {
        error_set(&text, -ESTALE, "%s: %" PRIu32 " shards have another time of "
                  "change than when they were packed; their header and samples "
                  "are the same", s->dir, s->moved);
        o->note(o->arg, text.text);
    }
}

int sidecars_open(struct sidecars *out, const char *packed, const char *model,
                  const struct config *c, const struct ckpt *k,
                  sidecars_note_fn *note, void *arg, struct error *error)
{
    memset(out, 0, sizeof *out);
    bool automatic = !packed || !strcmp(packed, "auto");
    struct opener o = { .s = out, .c = c, .k = k, .note = note, .arg = arg,
                        .error = error,
                        .require = packed && !strcmp(packed, "require") };
    out->files = ckpt_files(k);
    out->of = calloc(out->files, sizeof *out->of);
    out->number = calloc(out->files, sizeof *out->number);
    out->dir = automatic || o.require ? sidecar_folder(model)
                                      : strdup(packed ? packed : "");
    int code = out->of && out->number && out->dir
                   ? 0
                   : error_set(error, -ENOMEM, "%s: no memory", model);
    if (packed && !strcmp(packed, "off"))
        return code;
    for (uint32_t f = 0; f < out->files && !code; f++)
        code = look_for(&o, f);
    if (!code && !automatic && !o.require && !out->used)
        code = error_set(error, -ENOENT, "%s: has no coded weights of %s that "
                         "can be used", out->dir, model);
    if (code)
        sidecars_close(out);
    else
        tell_some(&o);
    return code;
}

void sidecars_close(struct sidecars *s)
{
    for (uint32_t f = 0; s->of && f < s->files; f++)
        sidecar_close(s->of[f]);
    free(s->of);
    free(s->number);
    free(s->dir);
    memset(s, 0, sizeof *s);
}
