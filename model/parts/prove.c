/* prove.c - a part's file, read back from its drive. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "model/pack/source.h"
#include "model/parts/parts_internal.h"

struct prover {
    const struct part *p;
    const struct config *c;
    const struct kern *kern;
    struct slice_shape slice;
    struct source source;
    uint64_t read_max, raw_max;
    pthread_mutex_t lock;
    part_found_fn *found;
    void *arg;
};

struct bench {
    uint8_t *read, *back; /* pages; what was decoded */
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

static int prove_matrix(struct prover *v, struct bench *b, uint32_t index,
                        struct error *why)
{
    const struct part_matrix *m = &v->p->matrix[index];
    char name[TENSOR_NAME_BYTES];
    uint32_t crc = 0;
    bool whole = true;
    int code = 0;
    tensor_name(name, (enum tensor_role)m->role, m->layer);
    for (uint32_t i = 0; i < m->block_count && !code; i++) {
        const struct box_ref *ref = &v->p->block[m->first_block + i];
        uint32_t rows = part_block_rows(m, i);
        uint64_t raw = 2ull * rows * m->cols;
        const uint8_t *at, *decoded;
        code = source_read_drive(&v->source, b->read, ref->at, ref->bytes, &at,
                                 why);
        if (code)
            return code;
        decoded = at;
        const char *wrong = NULL;
        if (m->coded) { /* at a multiple of 64 */
            wrong = object_check_block(at, ref, rows, m->cols);
            if (!wrong) {
                struct u3 u;
                u3_open(&u, at);
                u3_rows(v->kern, b->back, &u, 0, rows);
                decoded = b->back;
            }
        } else if (crc32c(0, at, ref->bytes) != ref->crc) {
            wrong = "its checksum does not match";
        }
        if (wrong) {
            whole = false;
            code = bad(v, why, "the block at byte %" PRIu64 " (rows from %"
                       PRIu32 " of %s) is damaged: %s", ref->at,
                       m->row + i * m->block_rows, name, wrong);
        } else {
            crc = crc32c(crc, decoded, raw);
        }
    }
    if (!code && whole && crc != m->source_crc)
        code = bad(v, why, "%s decodes to other rows than those it was made "
                   "from", name);
    return code;
}

static int prove_bytes(struct prover *v, struct bench *b,
                       const struct box_ref *ref, const char *what,
                       struct error *why)
{
    const uint8_t *at;
    int code = source_read_drive(&v->source, b->read, ref->at, ref->bytes, &at,
                                 why);
    if (!code && crc32c(0, at, ref->bytes) != ref->crc)
        code = bad(v, why, "%s at byte %" PRIu64 " is damaged", what, ref->at);
    return code;
}

static int prove_small(struct prover *v, struct bench *b, uint32_t index,
                       struct error *why)
{
    const struct part_small *s = &v->p->small[index];
    char name[TENSOR_NAME_BYTES];
    tensor_name(name, (enum tensor_role)s->role, s->layer);
    return prove_bytes(v, b, &s->ref, name, why);
}

static int prove_expert(struct prover *v, struct bench *b, uint32_t index,
                        struct error *why)
{
    const struct part_expert *e = &v->p->expert[index];
    struct box_ref ref = slice_ref(e, &v->slice);
    uint8_t *plane[SIDECAR_PLANES], *to = b->back;
    const uint8_t *at;
    int code = source_read_drive(&v->source, b->read, ref.at, ref.bytes, &at,
                                 why);
    if (code)
        return code;
    const uint8_t *object = at + v->slice.weights_bytes;
    const char *wrong = slice_check(object, e, &v->slice, true);
    if (crc32c(0, at, v->slice.weights_bytes) != e->weights_crc)
        wrong = "the checksum of its weights does not match";
    uint64_t bytes = slice_object_max(&v->slice);
    for (uint32_t p = 0; p < SIDECAR_PLANES; p++) {
        plane[p] = to;
        to += (uint64_t)v->slice.plane[p].rows * v->slice.plane[p].cols;
    }
    if (!wrong) {
        slice_expand(plane, object, e, &v->slice);
        if (crc32c(0, b->back, bytes) != e->scales.source_crc)
            wrong = "its scales decode to others than they were made from";
    }
    return wrong ? bad(v, why, "the slice at byte %" PRIu64 " (expert %" PRIu32
                       " of layer %" PRIu32 ") is damaged: %s", ref.at,
                       e->number % v->c->experts,
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

static void close_bench(void *bench)
{
    struct bench *b = bench;
    if (b) {
        free(b->read);
        free(b->back);
    }
    free(b);
}

static int open_bench(void *arg, void **out)
{
    const struct prover *v = arg;
    struct bench *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return -ENOMEM;
    b->read = source_pages(v->read_max);
    b->back = source_pages(v->raw_max);
    return b->read && b->back ? 0 : -ENOMEM;
}

static void larger(uint64_t *max, uint64_t n)
{
    *max = n > *max ? n : *max;
}

static void find_largest(struct prover *v)
{
    const struct part_head *h = v->p->head;
    v->raw_max = slice_object_max(&v->slice);
    for (uint32_t i = 0; i < h->matrices; i++)
        larger(&v->raw_max, 2ull * part_block_rows(&v->p->matrix[i], 0) *
                                v->p->matrix[i].cols);
    for (uint32_t i = 0; i < h->blocks; i++)
        larger(&v->read_max, v->p->block[i].bytes);
    for (uint32_t i = 0; i < h->smalls; i++)
        larger(&v->read_max, v->p->small[i].ref.bytes);
    for (uint32_t i = 0; i < h->rests; i++)
        larger(&v->read_max, v->p->rest[i].ref.bytes);
    for (uint32_t i = 0; i < h->experts; i++)
        larger(&v->read_max, slice_ref(&v->p->expert[i], &v->slice).bytes);
}

int part_prove(const struct part *p, const struct config *c,
               const struct kern *kern, uint32_t jobs, part_found_fn *found,
               void *arg, struct error *error)
{
    struct prover v = { .p = p, .c = c, .kern = kern, .found = found,
                        .arg = arg };
    const struct part_head *h = p->head;
    struct cuts cuts = part_cuts(h);
    int code = source_open(&v.source, p->path, error);
    if (code)
        return code;
    v.slice = slice_shape(&cuts, h->part, c);
    find_largest(&v);
    pthread_mutex_init(&v.lock, NULL);
    struct work w = { .jobs = jobs, .name = p->path,
                      .things = h->matrices + h->smalls + h->rests +
                                h->experts,
                      .arg = &v, .open = open_bench, .one = prove_thing,
                      .close = close_bench };
    code = work_run(&w, error);
    pthread_mutex_destroy(&v.lock);
    source_close(&v.source);
    return code;
}
