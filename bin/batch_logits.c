#include "bin/batch_logits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void name_of(const struct batch_logits *l, uint64_t line,
                    char out[4096])
{
    snprintf(out, 4096, "%s.%" PRIu64, l->prefix, line);
}

static struct batch_logits_file *find(struct batch_logits *l, uint64_t line)
{
    uint32_t i = 0;
    while (l->open[i].line != line)
        i++;
    return &l->open[i];
}

static int failed(const struct batch_logits *l, uint64_t line,
                  struct why *why)
{
    char name[4096];
    name_of(l, line, name);
    return why_set(why, errno ? -errno : -EIO, "%s: %s", name,
                   strerror(errno));
}

int batch_logits_begin(struct batch_logits *l, uint64_t line, struct why *why)
{
    char name[4096];
    if (l->count == l->capacity) {
        uint32_t capacity = l->capacity * 2 + 16;
        struct batch_logits_file *larger =
            realloc(l->open, capacity * sizeof *larger);
        if (!larger)
            return why_set(why, -ENOMEM, "no memory for a file");
        l->open = larger;
        l->capacity = capacity;
    }
    name_of(l, line, name);
    FILE *f = fopen(name, "w");
    if (!f)
        return failed(l, line, why);
    l->open[l->count++] = (struct batch_logits_file){ line, f };
    return 0;
}

int batch_logits_row(struct batch_logits *l, uint64_t line, const float *row,
                     uint32_t vocab, struct why *why)
{
    errno = 0;
    return fwrite(row, sizeof *row, vocab, find(l, line)->f) == vocab
               ? 0
               : failed(l, line, why);
}

int batch_logits_end(struct batch_logits *l, uint64_t line, struct why *why)
{
    struct batch_logits_file *f = find(l, line);
    errno = 0;
    int err = fclose(f->f) ? failed(l, line, why) : 0;
    *f = l->open[--l->count];
    return err;
}

void batch_logits_close(struct batch_logits *l)
{
    char name[4096];
    for (uint32_t i = 0; i < l->count; i++) {
        name_of(l, l->open[i].line, name);
        fclose(l->open[i].f);
        remove(name);
    }
    free(l->open);
    l->open = NULL;
    l->count = l->capacity = 0;
}
