/* make.c - one sidecar from one shard. Threads take things in order, code them
 * in any, and give them their place in the file in order again. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "io/file.h"
#include "io/replace.h"
#include "model/pack/assume.h"
#include "model/pack/object.h"
#include "model/pack/pack_internal.h"
#include "model/pack/source.h"

enum { EXPERT_SPOTS = 32 };

struct maker {
    const struct pack_options *o;
    const struct pack_shard *s;
    const char *shard, *path;
    struct pack_progress *p;
    struct source  source;
    struct replace out;
    uint32_t matrices, experts, blocks, spots, things;
    struct sidecar_tensor *tensor;
    struct box_ref        *block;
    struct sidecar_expert *expert;
    struct sidecar_spot   *spot;
    uint8_t *tables;
    uint64_t tables_bytes;
    uint32_t *crc_of_block; /* of what each decodes to */

    struct turns turns; /* of things, to their places */
    uint64_t at;        /* where the next one goes */
    struct error *error;
};

/* What one thread works with. */
struct bench {
    struct mill *mill;
    struct assumed assumed; /* where nothing is read */
    uint8_t *read; /* pages */
    uint8_t *coded;
    uint8_t *plane[SIDECAR_PLANES];
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- tables ---- */

static void fill_tensors(struct maker *m)
{
    uint32_t block = 0;
    for (uint32_t i = 0; i < m->matrices; i++) {
        const struct pack_matrix *x = &m->s->matrix[i];
        struct sidecar_tensor *t = &m->tensor[i];
        *t = (struct sidecar_tensor){
            .source_at = x->at, .source_bytes = (uint64_t)x->rows * x->cols * 2,
            .rows = x->rows, .cols = x->cols, .block_rows = x->block_rows,
            .first_block = block,
            .block_count = (x->rows - 1) / x->block_rows + 1 };
        block += t->block_count;
    }
}

/* A spot in the middle of every matrix, and in the scales of some experts. */
static void place_spots(struct maker *m, uint64_t shard_bytes)
{
    for (uint32_t i = 0; i < m->spots; i++) {
        uint64_t at;
        if (i < m->matrices) {
            at = m->tensor[i].source_at + m->tensor[i].source_bytes / 2;
        } else {
            uint32_t e = (uint32_t)((uint64_t)(i - m->matrices) * m->experts /
                                    (m->spots - m->matrices));
            unsigned p = i % SIDECAR_PLANES;
            at = m->s->experts_at + e * m->s->expert_stride +
                 m->s->plane_at[p];
        }
        if (at + SIDECAR_SPOT > shard_bytes)
            at = shard_bytes - SIDECAR_SPOT;
        m->spot[i] = (struct sidecar_spot){ .source_at = at };
    }
}

static int make_tables(struct maker *m)
{
    m->matrices = m->o->what & SIDECAR_TRUNK ? m->s->matrices : 0;
    m->experts = m->o->what & SIDECAR_SCALES ? m->s->experts : 0;
    for (uint32_t i = 0; i < m->matrices; i++)
        m->blocks += (m->s->matrix[i].rows - 1) / m->s->matrix[i].block_rows +
                     1;
    m->spots = m->matrices +
               (m->experts < EXPERT_SPOTS ? m->experts : EXPERT_SPOTS);
    if (m->source.size_bytes < SIDECAR_SPOT)
        m->spots = 0;
    m->things = m->blocks + m->experts;
    uint64_t tensors = m->matrices * sizeof *m->tensor;
    uint64_t blocks = m->blocks * sizeof *m->block;
    uint64_t experts = m->experts * sizeof *m->expert;
    m->tables_bytes = tensors + blocks + experts + m->spots * sizeof *m->spot;
    m->tables = calloc(1, m->tables_bytes + 1);
    if (!m->tables)
        return -ENOMEM;
    m->tensor = (void *)m->tables;
    m->block = (void *)(m->tables + tensors);
    m->expert = (void *)(m->tables + tensors + blocks);
    m->spot = (void *)(m->tables + tensors + blocks + experts);
    fill_tensors(m);
    place_spots(m, m->source.size_bytes);
    return 0;
}

/* ---- the work ---- */

static void close_bench(void *bench)
{
    struct bench *b = bench;
    if (!b)
        return;
    mill_close(b->mill);
    free(b->read);
    free(b->coded);
    for (int p = 0; p < SIDECAR_PLANES; p++)
        free(b->plane[p]);
    free(b);
}

static int open_bench(void *arg, void **out)
{
    const struct maker *m = arg;
    struct bench *b = calloc(1, sizeof *b);
    uint64_t raw = 1, coded = 1, scales = 0;
    *out = b;
    if (!b)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->matrices; i++) {
        const struct sidecar_tensor *t = &m->tensor[i];
        uint64_t max = u3_bytes_max(t->block_rows, t->cols);
        coded = max > coded ? max : coded;
    }
    for (int p = 0; p < SIDECAR_PLANES && m->experts; p++) {
        uint64_t plane = (uint64_t)m->s->plane[p].rows * m->s->plane[p].cols;
        scales += plane;
        raw = plane > raw ? plane : raw;
        b->plane[p] = malloc(plane);
        if (!b->plane[p])
            return -ENOMEM;
    }
    coded = scales > coded ? scales : coded;
    raw = coded > raw ? coded : raw;
    b->read = source_pages(raw);
    b->coded = aligned_alloc(BOX_PAGE, round_up(coded, BOX_PAGE));
    if (!b->read || !b->coded)
        return -ENOMEM;
    return mill_open(&b->mill, m->o->kern);
}

/* Wait for the turn of `thing` and give it its place; false after a failure.
 * `read` bytes of the shard are done with. */
static bool place(struct maker *m, uint32_t thing, uint32_t bytes,
                  uint64_t align, uint64_t read, uint64_t *at)
{
    if (!turns_begin(&m->turns, thing))
        return false;
    *at = m->at = round_up(m->at, align);
    m->at += bytes;
    m->p->done_bytes += read;
    if (m->o->progress)
        m->o->progress(m->o->arg, m->p->done_bytes, m->p->all_bytes);
    turns_end(&m->turns);
    return true;
}

/* Write a thing in its place. */
static int put(struct maker *m, const uint8_t *from, size_t bytes, uint64_t at,
               struct error *why)
{
    int code = file_write_all(m->out.fd, from, bytes, at);
    return code ? error_set(why, code, "%s: %s", m->path, strerror(-code)) : 0;
}

/* The tensor of a block. */
static uint32_t tensor_of(const struct maker *m, uint32_t block)
{
    uint32_t low = 0, high = m->matrices;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (m->tensor[middle].first_block <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int code_block(struct maker *m, struct bench *b, struct made *made,
                      uint64_t from, uint32_t rows, uint32_t cols,
                      struct error *why)
{
    const uint8_t *src;
    int code = source_read(&m->source, b->read, from,
                           (uint64_t)rows * cols * 2, &src, why);
    return code ? code : mill_block(b->mill, made, b->coded, src, rows, cols);
}

static int do_block(struct maker *m, struct bench *b, uint32_t block,
                    struct error *why)
{
    struct sidecar_tensor *t = &m->tensor[tensor_of(m, block)];
    uint32_t index = block - t->first_block;
    uint32_t rows = sidecar_block_rows(t, index);
    uint64_t row_bytes = (uint64_t)t->cols * 2, raw = rows * row_bytes;
    uint64_t from = t->source_at + (uint64_t)index * t->block_rows * row_bytes;
    struct made made;
    uint64_t at;
    int code = m->o->assume_ratio > 0
                   ? assume_block(&b->assumed, &made, b->coded, rows, t->cols,
                                  m->o->assume_ratio)
                   : code_block(m, b, &made, from, rows, t->cols, why);
    if (code)
        return code;
    if (!place(m, block, made.bytes, index ? U3_ALIGN : BOX_PAGE, raw, &at))
        return 0;
    m->block[block] = (struct box_ref){ at, made.bytes, made.crc };
    m->crc_of_block[block] = made.source_crc;
    pthread_mutex_lock(&m->turns.lock); /* several threads have its blocks */
    t->patches += made.patches;
    t->bytes += made.bytes;
    if (!index)
        t->at = at;
    pthread_mutex_unlock(&m->turns.lock);
    uint32_t written = m->o->assume_ratio > 0 ? U3_HEADER : made.bytes;
    return put(m, b->coded, written, at, why);
}

static int code_expert(struct maker *m, struct bench *b,
                       struct sidecar_expert *made, uint64_t first,
                       struct error *why)
{
    const struct pack_shard *s = m->s;
    for (int p = 0; p < SIDECAR_PLANES; p++) {
        uint64_t bytes = (uint64_t)s->plane[p].rows * s->plane[p].cols;
        const uint8_t *src;
        int code = source_read(&m->source, b->read, first + s->plane_at[p],
                               bytes, &src, why);
        if (code)
            return code;
        memcpy(b->plane[p], src, bytes);
    }
    const uint8_t *const plane[] = { b->plane[0], b->plane[1], b->plane[2] };
    return mill_scales(b->mill, made, b->coded, plane, s->plane);
}

static int do_expert(struct maker *m, struct bench *b, uint32_t thing,
                     struct error *why)
{
    uint32_t rank = thing - m->blocks;
    const struct pack_shard *s = m->s;
    uint64_t first = s->experts_at + rank * s->expert_stride, read = 0, at;
    struct sidecar_expert made;
    for (int p = 0; p < SIDECAR_PLANES; p++)
        read += (uint64_t)s->plane[p].rows * s->plane[p].cols;
    int code = m->o->assume_ratio > 0
                   ? assume_scales(&b->assumed, &made, s->plane)
                   : code_expert(m, b, &made, first, why);
    if (code || !place(m, thing, made.ref.bytes, BOX_PAGE, read, &at))
        return code;
    made.ref.at = at;
    m->expert[rank] = made;
    return m->o->assume_ratio > 0
               ? 0
               : put(m, b->coded, made.ref.bytes, at, why);
}

static int do_thing(void *arg, void *bench, uint32_t thing, struct error *why)
{
    struct maker *m = arg;
    int code = thing < m->blocks ? do_block(m, bench, thing, why)
                                 : do_expert(m, bench, thing, why);
    return code ? turns_fail(&m->turns, code, m->shard, why) : 0;
}

/* ---- the file ---- */

static void join_checksums(struct maker *m)
{
    for (uint32_t i = 0; i < m->matrices; i++) {
        struct sidecar_tensor *t = &m->tensor[i];
        for (uint32_t b = 0; b < t->block_count; b++)
            t->source_crc = crc32c_join(
                t->source_crc, m->crc_of_block[t->first_block + b],
                (uint64_t)sidecar_block_rows(t, b) * t->cols * 2);
    }
}

static int finish(struct maker *m, struct sidecar_head *head)
{
    uint8_t page[BOX_PAGE] = { 0 };
    uint64_t tables_at = round_up(m->at, BOX_PAGE);
    bool moved = false;
    join_checksums(m);
    int code = file_write_all(m->out.fd, m->tables, m->tables_bytes, tables_at);
    memcpy(page + BOX_OWN, head, sizeof *head);
    box_seal(page, SIDECAR_MAGIC, SIDECAR_VERSION, tables_at, m->tables,
             m->tables_bytes);
    if (!code)
        code = file_write_all(m->out.fd, page, sizeof page, 0);
    if (code)
        return error_set(m->error, code, "%s: %s", m->path, strerror(-code));
    code = source_changed(&m->source, m->shard, head->source_mtime_ns, &moved);
    if (!code && moved)
        return error_set(m->error, -ESTALE, "%s: changed while it was read",
                         m->shard);
    return code ? error_set(m->error, code, "%s: %s", m->shard,
                            strerror(-code))
                : 0;
}

/* Nothing, or what a pack, whole or not, has made there? */
static bool is_ours(const char *path)
{
    char begin[sizeof SIDECAR_MAGIC - 1], none[sizeof begin] = { 0 };
    int got = file_first(path, 0, begin, sizeof begin);
    return !got || got == -ENOENT ||
           (got == sizeof begin && (!memcmp(begin, SIDECAR_MAGIC, got) ||
                                    !memcmp(begin, none, got)));
}

static int make_file(struct maker *m)
{
    struct sidecar_head head = {
        .tensors = m->matrices, .blocks = m->blocks, .experts = m->experts,
        .spots = m->spots, .whole = m->o->what };
    int code = sidecar_source(&head, m->spot, m->spots, m->shard, m->error);
    if (code)
        return code;
    if (m->experts) {
        head.experts_at = m->s->experts_at;
        head.expert_stride = m->s->expert_stride;
        memcpy(head.plane, m->s->plane, sizeof head.plane);
        memcpy(head.plane_at, m->s->plane_at, sizeof head.plane_at);
    }
    if (!is_ours(m->path))
        return error_set(m->error, -EEXIST, "%s: is not a file of sluice "
                         "pack, and would be replaced", m->path);
    code = replace_open(&m->out, m->path, 0);
    if (code)
        return error_set(m->error, code, "%s: %s", m->path, strerror(-code));
    struct work w = { .jobs = m->o->jobs, .things = m->things,
                      .name = m->path, .arg = m, .open = open_bench,
                      .one = do_thing, .close = close_bench };
    code = work_run(&w, m->error);
    if (!code)
        code = finish(m, &head);
    if (code) {
        replace_abort(&m->out);
        return code;
    }
    code = replace_commit(&m->out, true);
    return code ? error_set(m->error, code, "%s: %s", m->path, strerror(-code))
                : 0;
}

int pack_make(const struct pack_options *o, const struct pack_shard *s,
              const char *shard, const char *path, struct pack_progress *p,
              struct error *error)
{
    struct maker m = { .o = o, .s = s, .shard = shard, .path = path, .p = p,
                       .error = error, .at = BOX_PAGE };
    int code = source_open(&m.source, shard, error);
    if (code)
        return code;
    turns_open(&m.turns);
    code = make_tables(&m);
    m.crc_of_block = calloc(m.blocks + 1, sizeof *m.crc_of_block);
    if (code || !m.crc_of_block)
        code = error_set(error, -ENOMEM, "%s: no memory", shard);
    else
        code = make_file(&m);
    free(m.tables);
    free(m.crc_of_block);
    turns_close(&m.turns);
    source_close(&m.source);
    return code;
}
