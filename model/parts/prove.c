/* prove.c - a part's file, read back from its drive. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "compute/crc32c.h"
#include "model/parts/parts_internal.h"

struct prover {
    const struct part *p;
    const struct config *c;
    struct slice_shape slice;
    struct read_back back;
    pthread_mutex_t lock;
    part_found_fn *found;
    void *arg;
};

/* Something is wrong: an error, or a call of `found`. */
static int __attribute__((format(printf, 3, 4)))
bad(struct prover *v, struct error *why, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!v->found)
        return error_set(why, -EBADMSG, "%s: %s", v->p->path, text);
    pthread_mutex_lock(&v->lock);
    v->found(v->arg, text);
    pthread_mutex_unlock(&v->lock);
    return 0;
}

static int prove_matrix(struct prover *v, struct back_bench *b, uint32_t index,
                        struct error *why)
{
    const struct part_matrix *m = &v->p->matrix[index];
    char name[TENSOR_NAME_BYTES];
    uint32_t crc = 0;
    bool whole = true;
    int code = 0;
    tensor_name(name, (enum tensor_role)m->role, m->layer);
    for (uint32_t i = 0; i < m->block_count && !code; i++) {
        const uint8_t *rows;
        const char *wrong;
        code = read_back_block(&v->back, b, m, i, &rows, &wrong, why);
        if (code)
            return code;
        if (wrong) {
            whole = false;
            code = bad(v, why, "the block at byte %" PRIu64 " (rows from %"
                       PRIu32 " of %s) is damaged: %s",
                       v->p->block[m->first_block + i].at,
                       m->row + i * m->block_rows, name, wrong);
        } else {
            crc = crc32c(crc, rows, 2ull * part_block_rows(m, i) * m->cols);
        }
    }
    if (!code && whole && crc != m->source_crc)
        code = bad(v, why, "%s decodes to other rows than those it was made "
                   "from", name);
    return code;
}

static int prove_bytes(struct prover *v, struct back_bench *b,
                       const struct box_ref *ref, const char *what,
                       struct error *why)
{
    const uint8_t *at;
    const char *wrong;
    int code = read_back_bytes(&v->back, b, ref, &at, &wrong, why);
    return code || !wrong ? code
                          : bad(v, why, "%s at byte %" PRIu64 " is damaged",
                                what, ref->at);
}

static int prove_small(struct prover *v, struct back_bench *b, uint32_t index,
                       struct error *why)
{
    const struct part_small *s = &v->p->small[index];
    char name[TENSOR_NAME_BYTES];
    tensor_name(name, (enum tensor_role)s->role, s->layer);
    return prove_bytes(v, b, &s->ref, name, why);
}

static int prove_expert(struct prover *v, struct back_bench *b, uint32_t index,
                        struct error *why)
{
    const struct part_expert *e = &v->p->expert[index];
    uint8_t *plane[SIDECAR_PLANES];
    const uint8_t *weights;
    const char *wrong;
    int code = read_back_slice(&v->back, b, e, &weights, plane, &wrong, why);
    if (code)
        return code;
    return wrong ? bad(v, why, "the slice at byte %" PRIu64 " (expert %" PRIu32
                       " of layer %" PRIu32 ") is damaged: %s",
                       slice_ref(e, &v->slice).at, e->number % v->c->experts,
                       v->c->first_dense + e->number / v->c->experts, wrong)
                 : 0;
}

static int prove_thing(void *arg, void *bench, uint32_t thing,
                       struct error *why)
{
    struct prover *v = arg;
    const struct part_head *h = v->p->head;
    if (thing < h->matrices)
        return prove_matrix(v, bench, thing, why);
    thing -= h->matrices;
    if (thing < h->smalls)
        return prove_small(v, bench, thing, why);
    thing -= h->smalls;
    if (thing < h->rests)
        return prove_bytes(v, bench, &v->p->rest[thing].ref, "the range", why);
    return prove_expert(v, bench, thing - h->rests, why);
}

static int open_bench(void *arg, void **out)
{
    const struct prover *v = arg;
    return back_bench_open(out, v->back.read_max, v->back.raw_max);
}

int part_prove(const struct part *p, const struct config *c,
               const struct kern *kern, uint32_t jobs, part_found_fn *found,
               void *arg, struct error *error)
{
    struct prover v = { .p = p, .c = c, .found = found, .arg = arg };
    const struct part_head *h = p->head;
    struct cuts cuts = part_cuts(h);
    v.slice = slice_shape(&cuts, h->part, c);
    int code = read_back_open(&v.back, p, &v.slice, kern, true, error);
    if (code)
        return code;
    pthread_mutex_init(&v.lock, NULL);
    struct work w = { .jobs = jobs, .name = p->path,
                      .things = h->matrices + h->smalls + h->rests +
                                h->experts,
                      .arg = &v, .open = open_bench, .one = prove_thing,
                      .close = back_bench_close };
    code = work_run(&w, error);
    pthread_mutex_destroy(&v.lock);
    read_back_close(&v.back);
    return code;
}
