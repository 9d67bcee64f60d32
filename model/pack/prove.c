#include "model/pack/prove.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "model/pack/object.h"
#include "model/pack/source.h"

enum { STACK_BYTES = 64 << 10 /* that a thread touches, and its heap */ };

/* The largest, in bytes: of what is read at once, and decoded from it. */
struct sizes {
    uint64_t coded, raw, plane, back;
};

struct prover {
    const struct sidecar *s;
    const struct prove_options *o;
    struct source coded, shard;
    struct sizes size;
    pthread_mutex_t lock;
};

struct bench {
    uint8_t *coded, *raw; /* pages that are read into */
    uint8_t *back;        /* what was decoded */
};

static uint64_t plane_bytes(const struct sidecar *s, int p)
{
    return (uint64_t)s->head->plane[p].rows * s->head->plane[p].cols;
}

uint64_t prove_bytes(const struct sidecar *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->head->tensors; i++)
        sum += s->tensor[i].bytes + s->tensor[i].source_bytes;
    for (uint32_t i = 0; i < s->head->experts; i++)
        for (int p = 0; p < SIDECAR_PLANES; p++)
            sum += plane_bytes(s, p);
    for (uint32_t i = 0; i < s->head->experts; i++)
        sum += s->expert[i].ref.bytes;
    return sum;
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct sizes find_largest(const struct sidecar *s)
{
    struct sizes z = { 1, 1, 1, 1 };
    for (uint32_t i = 0; i < s->head->tensors; i++) {
        const struct sidecar_tensor *t = &s->tensor[i];
        uint64_t raw = (uint64_t)sidecar_block_rows(t, 0) * t->cols * 2;
        z.raw = max_of(z.raw, raw);
    }
    for (uint32_t i = 0; i < s->head->blocks; i++)
        z.coded = max_of(z.coded, s->block[i].bytes);
    for (uint32_t i = 0; i < s->head->experts; i++)
        z.coded = max_of(z.coded, s->expert[i].ref.bytes);
    for (int p = 0; p < SIDECAR_PLANES && s->head->experts; p++)
        z.plane = max_of(z.plane, plane_bytes(s, p));
    z.raw = max_of(z.raw, z.plane);
    z.back = max_of(z.raw, SIDECAR_PLANES * z.plane);
    return z;
}

uint64_t prove_job_bytes(const struct sidecar *s)
{
    struct sizes z = find_largest(s);
    return source_pages_bytes(z.coded) + source_pages_bytes(z.raw) +
           source_pages_bytes(z.back) + STACK_BYTES;
}

static void close_bench(void *bench)
{
    struct bench *b = bench;
    if (!b)
        return;
    free(b->coded);
    free(b->raw);
    free(b->back);
    free(b);
}

static int open_bench(void *arg, void **out)
{
    const struct prover *v = arg;
    struct bench *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return -ENOMEM;
    b->coded = source_pages(v->size.coded);
    b->raw = source_pages(v->size.raw);
    b->back = source_pages(v->size.back);
    return b->coded && b->raw && b->back ? 0 : -ENOMEM;
}

static void __attribute__((format(printf, 2, 3)))
found(struct prover *v, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&v->lock);
    v->o->found(v->o->arg, text);
    pthread_mutex_unlock(&v->lock);
}

static void done(struct prover *v, uint64_t bytes)
{
    if (!v->o->progress)
        return;
    pthread_mutex_lock(&v->lock);
    v->o->progress(v->o->arg, bytes);
    pthread_mutex_unlock(&v->lock);
}

static int prove_tensor(struct prover *v, struct bench *b, uint32_t i,
                        struct error *why)
{
    const struct sidecar_tensor *t = &v->s->tensor[i];
    uint64_t row_bytes = (uint64_t)t->cols * 2, source = t->source_at;
    uint32_t crc = 0;
    for (uint32_t k = 0; k < t->block_count; k++) {
        const struct box_ref *ref = &v->s->block[t->first_block + k];
        uint32_t rows = sidecar_block_rows(t, k);
        uint64_t raw = rows * row_bytes;
        const uint8_t *block, *src;
        int code = source_read(&v->coded, b->coded, ref->at, ref->bytes, &block,
                               why);
        if (!code)
            code = source_read(&v->shard, b->raw, source, raw, &src, why);
        if (code)
            return code;
        const char *wrong = object_check_block(block, ref, rows, t->cols);
        if (!wrong) {
            struct u3 u;
            u3_open(&u, block);
            u3_rows(v->o->kern, b->back, &u, 0, rows);
            if (memcmp(b->back, src, raw))
                wrong = "it decodes to other bytes than the shard has";
        }
        if (wrong)
            found(v, "block %" PRIu32 " of the tensor at byte %" PRIu64 ": %s",
                  k, t->source_at, wrong);
        crc = crc32c(crc, src, raw);
        source += raw;
        done(v, raw + ref->bytes);
    }
    if (crc != t->source_crc)
        found(v, "the checksum of the tensor at byte %" PRIu64 " is not that "
              "of the shard", t->source_at);
    return 0;
}

static int prove_expert(struct prover *v, struct bench *b, uint32_t i,
                        struct error *why)
{
    const struct sidecar_head *h = v->s->head;
    const struct sidecar_expert *e = &v->s->expert[i];
    const uint8_t *object, *src;
    uint8_t *plane[SIDECAR_PLANES];
    int code = source_read(&v->coded, b->coded, e->ref.at, e->ref.bytes,
                           &object, why);
    if (code)
        return code;
    const char *wrong = object_check_scales(object, e, h->plane, true);
    for (int p = 0; p < SIDECAR_PLANES; p++)
        plane[p] = b->back + p * v->size.plane;
    if (!wrong)
        object_expand(plane, object, e, h->plane);
    uint64_t first = h->experts_at + i * h->expert_stride, read = 0;
    uint32_t crc = 0;
    for (int p = 0; p < SIDECAR_PLANES; p++) {
        uint64_t bytes = plane_bytes(v->s, p);
        code = source_read(&v->shard, b->raw, first + h->plane_at[p], bytes,
                           &src, why);
        if (code)
            return code;
        if (!wrong && memcmp(plane[p], src, bytes))
            wrong = "they expand to other bytes than the shard has";
        crc = crc32c(crc, src, bytes);
        read += bytes;
    }
    if (!wrong && crc != e->source_crc)
        wrong = "their checksum is not that of the shard";
    if (wrong)
        found(v, "scales of expert %" PRIu32 " of the file: %s", i, wrong);
    done(v, read + e->ref.bytes);
    return 0;
}

/* Tensors, then experts. */
static int prove_thing(void *arg, void *bench, uint32_t thing,
                       struct error *why)
{
    struct prover *v = arg;
    uint32_t tensors = v->s->head->tensors;
    return thing < tensors ? prove_tensor(v, bench, thing, why)
                           : prove_expert(v, bench, thing - tensors, why);
}

int prove_sidecar(const struct sidecar *s, const char *shard,
                  const struct prove_options *o, struct error *error)
{
    struct prover v = { .s = s, .o = o, .size = find_largest(s) };
    int code = source_open(&v.coded, s->path, error);
    if (code)
        return code;
    code = source_open(&v.shard, shard, error);
    if (code) {
        source_close(&v.coded);
        return code;
    }
    pthread_mutex_init(&v.lock, NULL);
    struct work w = { .jobs = o->jobs,
                      .things = s->head->tensors + s->head->experts,
                      .name = s->path, .arg = &v, .open = open_bench,
                      .one = prove_thing, .close = close_bench };
    code = work_run(&w, error);
    pthread_mutex_destroy(&v.lock);
    source_close(&v.coded);
    source_close(&v.shard);
    return code;
}
