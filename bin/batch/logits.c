#include "bin/batch/logits.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct batch_logits_file *find(struct batch_logits *l, uint64_t line)
{
    uint32_t i = 0;
    while (i < l->count && l->open[i].line != line)
        i++;
    assert(i < l->count); /* begun, and not ended */
    return &l->open[i];
}

int batch_logits_begin(struct batch_logits *l, uint64_t line,
                       struct error *error)
{
    struct batch_logits_file f = { .line = line };
    if (l->count == l->capacity) {
        uint32_t capacity = l->capacity * 2 + 16;
        struct batch_logits_file *larger =
            realloc(l->open, capacity * sizeof *larger);
        if (!larger)
            return error_set(error, -ENOMEM, "no memory for a file");
        l->open = larger;
        l->capacity = capacity;
    }
    if (asprintf(&f.path, "%s.%" PRIu64, l->prefix, line) < 0)
        return error_set(error, -ENOMEM, "no memory for a file");
    int err = output_open_beside(&f.out, f.path, "the logits", error);
    if (err)
        free(f.path);
    else
        l->open[l->count++] = f;
    return err;
}

int batch_logits_row(struct batch_logits *l, uint64_t line, const float *row,
                     uint32_t vocab, struct error *error)
{
    struct output *o = &find(l, line)->out;
    errno = 0;
    return fwrite(row, sizeof *row, vocab, o->f) == vocab
               ? 0
               : output_failed(o, errno ? errno : EIO, error);
}

int batch_logits_end(struct batch_logits *l, uint64_t line, struct error *error)
{
    struct batch_logits_file *f = find(l, line);
    int err = output_close(&f->out, true, error);
    free(f->path);
    *f = l->open[--l->count];
    return err;
}

void batch_logits_close(struct batch_logits *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        output_close(&l->open[i].out, false, NULL);
        free(l->open[i].path);
    }
    free(l->open);
    l->open = NULL;
    l->count = l->capacity = 0;
}
