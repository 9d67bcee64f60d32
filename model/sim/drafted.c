#include "model/sim/drafted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/sim/passes.h"

/* The rows of one sequence. */
struct rows {
    uint16_t *ids; /* [count][layers * top_k] */
    uint64_t count, room;
};

struct work {
    struct passes *passes;
    struct drafted *out;
    struct rows *rows; /* [slots] */
    uint32_t slots;
    uint32_t *seen;    /* [experts]: the last group that had it */
    uint32_t group;
};

static size_t row_values(const struct work *w)
{
    return (size_t)w->out->info.layers * w->out->info.top_k;
}

static int keep(struct work *w, const struct pass_row *row, uint32_t index)
{
    struct rows *r = &w->rows[row->slot];
    size_t n = row_values(w), top_k = w->out->info.top_k;
    if (r->count == r->room) {
        uint64_t room = r->room ? 2 * r->room : 64;
        uint16_t *more = realloc(r->ids, room * n * sizeof *more);
        if (!more)
            return -ENOMEM;
        r->ids = more;
        r->room = room;
    }
    for (uint32_t l = 0; l < w->out->info.layers; l++)
        memcpy(r->ids + r->count * n + l * top_k,
               passes_ids(w->passes, index, l), top_k * sizeof *r->ids);
    r->count++;
    w->out->rows++;
    return 0;
}

/* The rows of decode passes; of a trace without any, all rows. */
static int read_rows(struct work *w, struct error *error)
{
    const struct trace_pass *p;
    bool decode = passes_facts(w->passes)->decode_passes > 0;
    int more, err = 0;
    while (!err && (more = passes_next(w->passes, &p, error)) > 0)
        for (uint32_t i = 0; i < p->rows && !err; i++)
            if (!(p->row[i].flags & TRACE_REJECTED) &&
                (!decode || p->row[i].phase != TRACE_PREFILL))
                err = keep(w, &p->row[i], i);
    if (err)
        return error_set(error, err, "no memory for the rows of a trace");
    return more;
}

static uint64_t distinct(struct work *w, const struct rows *r, uint64_t first,
                         uint32_t count)
{
    size_t n = row_values(w), top_k = w->out->info.top_k;
    uint64_t sum = 0;
    for (uint32_t l = 0; l < w->out->info.layers; l++) {
        w->group++;
        for (uint32_t i = 0; i < count; i++)
            for (size_t k = 0; k < top_k; k++) {
                uint16_t id = r->ids[(first + i) * n + l * top_k + k];
                sum += w->seen[id] != w->group;
                w->seen[id] = w->group;
            }
    }
    return sum;
}

static int run(struct work *w, double chance, struct error *error)
{
    struct drafted *out = w->out;
    double ids = 1, all = 1;
    for (uint32_t n = 0; n <= DRAFTED_MAX; n++, ids += all *= chance) {
        uint64_t passes = 0, experts = 0;
        for (uint32_t s = 0; s < w->slots; s++) {
            const struct rows *r = &w->rows[s];
            for (uint64_t at = 0; at + n < r->count; at++, passes++)
                experts += distinct(w, r, at, 1 + n);
        }
        if (!passes)
            return n > 1 ? 0
                         : error_set(error, -ENODATA, "the trace has no "
                                     "sequence with two rows");
        out->ids[n] = ids;
        out->experts[n] = (double)experts / (double)passes;
    }
    return 0;
}

int drafted_run(struct drafted *out, const char *path, bool repair,
                double chance, struct error *error)
{
    struct work w = { .out = out };
    memset(out, 0, sizeof *out);
    int err = passes_open(&w.passes, path, repair, error);
    if (err)
        return err;
    out->info = passes_facts(w.passes)->info;
    w.slots = passes_facts(w.passes)->slots;
    w.rows = calloc(w.slots + 1, sizeof *w.rows);
    w.seen = calloc(out->info.experts + 1, sizeof *w.seen);
    err = w.rows && w.seen ? read_rows(&w, error)
                           : error_set(error, -ENOMEM,
                                       "no memory for the rows of a trace");
    if (!err)
        err = run(&w, chance, error);
    for (uint32_t s = 0; s < w.slots && w.rows; s++)
        free(w.rows[s].ids);
    free(w.rows);
    free(w.seen);
    passes_close(w.passes);
    return err;
}

double drafted_bytes(const struct drafted *d, uint32_t drafts)
{
    if (!d->info.expert_bytes || !(d->ids[drafts] > 0))
        return 0;
    return ((double)d->info.trunk_bytes +
            d->experts[drafts] * (double)d->info.expert_bytes) /
           d->ids[drafts];
}
