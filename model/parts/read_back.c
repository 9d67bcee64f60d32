/* read_back.c - things of a part's file, read again and decoded. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "model/parts/parts_internal.h"

static void larger(uint64_t *max, uint64_t n)
{
    *max = n > *max ? n : *max;
}

static void find_largest(struct read_back *b)
{
    const struct part *p = b->p;
    const struct part_head *h = p->head;
    b->read_max = 0;
    b->raw_max = slice_object_max(b->slice);
    for (uint32_t i = 0; i < h->matrices; i++)
        larger(&b->raw_max, 2ull * part_block_rows(&p->matrix[i], 0) *
                                p->matrix[i].cols);
    for (uint32_t i = 0; i < h->blocks; i++)
        larger(&b->read_max, p->block[i].bytes);
    for (uint32_t i = 0; i < h->smalls; i++)
        larger(&b->read_max, p->small[i].ref.bytes);
    for (uint32_t i = 0; i < h->rests; i++)
        larger(&b->read_max, p->rest[i].ref.bytes);
    for (uint32_t i = 0; i < h->experts; i++)
        larger(&b->read_max, slice_ref(&p->expert[i], b->slice).bytes);
}

int read_back_open(struct read_back *b, const struct part *p,
                   const struct slice_shape *slice, const struct kern *kern,
                   bool drive, struct error *error)
{
    b->p = p;
    b->slice = slice;
    b->kern = kern;
    b->drive = drive;
    find_largest(b);
    return source_open(&b->source, p->path, error);
}

void read_back_close(struct read_back *b)
{
    source_close(&b->source);
}

int back_bench_open(void **out, uint64_t read_max, uint64_t raw_max)
{
    struct back_bench *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return -ENOMEM;
    b->read = source_pages(read_max);
    b->decoded = source_pages(raw_max);
    return b->read && b->decoded ? 0 : -ENOMEM;
}

void back_bench_close(void *bench)
{
    struct back_bench *b = bench;
    if (!b)
        return;
    free(b->read);
    free(b->decoded);
    free(b);
}

static int take(const struct read_back *b, struct back_bench *bench,
                const struct box_ref *ref, const uint8_t **at,
                struct error *why)
{
    return b->drive ? source_read_drive(&b->source, bench->read, ref->at,
                                        ref->bytes, at, why)
                    : source_read(&b->source, bench->read, ref->at, ref->bytes,
                                  at, why);
}

int read_back_bytes(const struct read_back *b, struct back_bench *bench,
                    const struct box_ref *ref, const uint8_t **at,
                    const char **wrong, struct error *why)
{
    int code = take(b, bench, ref, at, why);
    *wrong = !code && crc32c(0, *at, ref->bytes) != ref->crc
                 ? "its checksum does not match"
                 : NULL;
    return code;
}

int read_back_block(const struct read_back *b, struct back_bench *bench,
                    const struct part_matrix *m, uint32_t i,
                    const uint8_t **rows, const char **wrong,
                    struct error *why)
{
    const struct box_ref *ref = &b->p->block[m->first_block + i];
    uint32_t count = part_block_rows(m, i);
    if (!m->coded)
        return read_back_bytes(b, bench, ref, rows, wrong, why);
    const uint8_t *at;
    int code = take(b, bench, ref, &at, why);
    *rows = bench->decoded;
    *wrong = code ? NULL : object_check_block(at, ref, count, m->cols);
    if (code || *wrong)
        return code;
    struct u3 u; /* at a multiple of 64 */
    u3_open(&u, at);
    u3_rows(b->kern, bench->decoded, &u, 0, count);
    return 0;
}

int read_back_slice(const struct read_back *b, struct back_bench *bench,
                    const struct part_expert *e, const uint8_t **weights,
                    uint8_t *plane[SIDECAR_PLANES], const char **wrong,
                    struct error *why)
{
    const struct slice_shape *s = b->slice;
    struct box_ref ref = slice_ref(e, s);
    uint8_t *to = bench->decoded;
    *wrong = NULL;
    int code = take(b, bench, &ref, weights, why);
    if (code)
        return code;
    const uint8_t *object = *weights + s->weights_bytes;
    *wrong = slice_check(object, e, s, true);
    if (crc32c(0, *weights, s->weights_bytes) != e->weights_crc)
        *wrong = "the checksum of its weights does not match";
    for (uint32_t p = 0; p < SIDECAR_PLANES; p++) {
        plane[p] = to;
        to += (uint64_t)s->plane[p].rows * s->plane[p].cols;
    }
    if (*wrong)
        return 0;
    slice_expand(plane, object, e, s);
    if (crc32c(0, bench->decoded, slice_object_max(s)) != e->scales.source_crc)
        *wrong = "its scales decode to others than they were made from";
    return 0;
}

int part_damaged(const struct part *p, uint64_t at, struct error *why)
{
    return error_set(why, -EBADMSG, "%s: is damaged at byte %" PRIu64
                     "; sluice verify finds all", p->path, at);
}
