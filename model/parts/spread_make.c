/* spread_make.c - the files of one shard, for all parts at once. Threads take
 * things in order, code them in any, and give them their places in the files in
 * order again. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/crc32c.h"
#include "compute/u3.h"
#include "io/file.h"
#include "io/replace.h"
#include "model/pack/source.h"
#include "model/parts/things.h"

/* One file that is made. */
struct output {
    struct replace file;
    bool     open;
    uint64_t at; /* where the next thing goes */
    uint8_t *tables;
    struct part_tables where;
    struct box_ref    *block;
    struct part_small *small;
    struct part_expert *expert;
    uint32_t *crc_of_block; /* of what each decodes to */
};

struct maker {
    const struct spread_shard *s;
    struct things t;
    struct source source;
    uint32_t parts;
    struct slice_shape slice[CUTS_PARTS_MAX];
    struct row_range wanted[SIDECAR_PLANES]; /* of experts, by any part */
    uint64_t read_max, coded_max;            /* bytes of a thing */
    struct output out[CUTS_PARTS_MAX];
    struct turns turns; /* of things, to their places */
};

struct bench {
    struct mill *mill;
    uint8_t *read;  /* pages */
    uint8_t *plane[EXPERT_TENSORS]; /* pages: the tensors of an expert */
    uint8_t *coded;
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- places ---- */

/* What a thing needs in one file. */
struct need {
    uint64_t bytes, align; /* bytes 0: nothing */
    uint64_t at;           /* its place */
};

/* Wait for the turn of a thing and give it its places; false after a
 * failure. */
static bool place(struct maker *m, uint32_t thing, struct need *need,
                  uint64_t read_bytes)
{
    if (!turns_begin(&m->turns, thing))
        return false;
    for (uint32_t r = 0; r < m->parts; r++)
        if (need[r].bytes) {
            need[r].at = round_up(m->out[r].at, need[r].align);
            m->out[r].at = need[r].at + need[r].bytes;
        }
    if (m->s->done)
        m->s->done(m->s->arg, read_bytes);
    turns_end(&m->turns);
    return true;
}

/* Write, and let the drive begin with it. */
static int put(struct maker *m, uint32_t part, const void *from, uint64_t bytes,
               uint64_t at, struct error *why)
{
    int fd = m->out[part].file.fd;
    int code = file_write_all(fd, from, bytes, at);
    if (code)
        return error_set(why, code, "%s: %s", m->s->path[part],
                         strerror(-code));
    (void)!sync_file_range(fd, (off_t)at, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    return 0;
}

/* ---- things ---- */

static int do_rest(struct maker *m, struct bench *b, uint32_t thing,
                   struct error *why)
{
    struct part_rest *r = &m->t.rest[m->t.thing[thing].index];
    struct need need[CUTS_PARTS_MAX] = { { r->ref.bytes, 1, 0 } };
    const uint8_t *from;
    int code = source_read(&m->source, b->read, r->source_at, r->ref.bytes,
                           &from, why);
    if (code || !place(m, thing, need, r->ref.bytes))
        return code;
    r->ref.at = need[0].at;
    r->ref.crc = crc32c(0, from, r->ref.bytes);
    return put(m, 0, from, r->ref.bytes, r->ref.at, why);
}

static int do_smalls(struct maker *m, struct bench *b, uint32_t thing,
                     struct error *why)
{
    const struct thing *t = &m->t.thing[thing];
    struct need need[CUTS_PARTS_MAX] = { { 0 } };
    uint64_t bytes = 0;
    struct box_ref ref[T_COUNT];
    for (uint32_t i = 0; i < t->block; i++) {
        const struct thing_source *x = &m->t.small[t->index + i];
        const uint8_t *from;
        int code = source_read(&m->source, b->read, x->extent.offset_bytes,
                               x->extent.length_bytes, &from, why);
        if (code)
            return code;
        memcpy(b->coded + bytes, from, x->extent.length_bytes);
        ref[i] = (struct box_ref){
            .at = bytes, .bytes = (uint32_t)x->extent.length_bytes,
            .crc = crc32c(0, from, x->extent.length_bytes) };
        bytes += x->extent.length_bytes;
    }
    for (uint32_t r = 0; r < m->parts; r++)
        if (m->s->path[r])
            need[r] = (struct need){ bytes, BOX_PAGE, 0 };
    if (!place(m, thing, need, bytes))
        return 0;
    for (uint32_t r = 0; r < m->parts; r++) {
        if (!m->s->path[r])
            continue;
        for (uint32_t i = 0; i < t->block; i++) {
            const struct thing_source *x = &m->t.small[t->index + i];
            struct part_small *to = &m->out[r].small[t->index + i];
            *to = (struct part_small){ x->layer, x->role, ref[i] };
            to->ref.at += need[r].at;
        }
        int code = put(m, r, b->coded, bytes, need[r].at, why);
        if (code)
            return code;
    }
    return 0;
}

static int do_block(struct maker *m, struct bench *b, uint32_t thing,
                    struct error *why)
{
    const struct thing *t = &m->t.thing[thing];
    struct output *out = &m->out[t->part];
    struct part_matrix *x = &m->t.matrix[t->part][t->index];
    const struct extent *e = &m->t.source[t->part][t->index].extent;
    uint32_t rows = part_block_rows(x, t->block);
    uint64_t row_bytes = 2ull * x->cols, raw = rows * row_bytes;
    uint64_t row = x->row + (uint64_t)t->block * x->block_rows;
    struct need need[CUTS_PARTS_MAX] = { { 0 } };
    const uint8_t *from;
    int code = source_read(&m->source, b->read,
                           e->offset_bytes + row * row_bytes, raw, &from, why);
    if (code)
        return code;
    struct made made = { .bytes = (uint32_t)raw };
    if (x->coded)
        code = mill_block(b->mill, &made, b->coded, from, rows, x->cols);
    else
        made.crc = made.source_crc = crc32c(0, from, raw);
    need[t->part] = (struct need){
        made.bytes, t->block ? (x->coded ? U3_ALIGN : 1) : BOX_PAGE, 0 };
    if (code || !place(m, thing, need, raw))
        return code;
    uint32_t index = x->first_block + t->block;
    uint64_t at = need[t->part].at;
    out->block[index] = (struct box_ref){ at, made.bytes, made.crc };
    out->crc_of_block[index] = made.source_crc;
    pthread_mutex_lock(&m->turns.lock); /* several threads have its blocks */
    x->patches += made.patches;
    x->bytes += made.bytes;
    if (!t->block)
        x->at = at;
    pthread_mutex_unlock(&m->turns.lock);
    return put(m, t->part, x->coded ? b->coded : from, made.bytes, at, why);
}

/* The tensors of an expert, as far as any part wants them; tensor[i] is where
 * its row 0 would be. */
static int read_expert(struct maker *m, struct bench *b, uint32_t number,
                       const uint8_t *tensor[EXPERT_TENSORS],
                       uint64_t *read_bytes, struct error *why)
{
    const struct config *c = m->s->c;
    struct extent e[EXPERT_TENSORS];
    ckpt_expert(m->s->k, c->first_dense + number / c->experts,
                number % c->experts, e);
    *read_bytes = 0;
    for (uint32_t i = 0; i < EXPERT_TENSORS; i++) {
        const struct row_range *w = &m->wanted[i / 2];
        uint32_t rows, cols;
        expert_shape(i, c, &rows, &cols);
        uint64_t skip = (uint64_t)w->begin * cols;
        uint64_t bytes = (uint64_t)(w->end - w->begin) * cols;
        tensor[i] = NULL;
        if (!bytes)
            continue;
        int code = source_read(&m->source, b->plane[i],
                               e[i].offset_bytes + skip, bytes, &tensor[i],
                               why);
        if (code)
            return code;
        tensor[i] -= skip;
        *read_bytes += bytes;
    }
    return 0;
}

static int code_slice(struct maker *m, struct bench *b, uint32_t part,
                      struct part_expert *e, uint8_t *object,
                      const uint8_t *const tensor[EXPERT_TENSORS])
{
    static const uint8_t order[SIDECAR_PLANES] = { 0, 2, 1 };
    const struct slice_shape *s = &m->slice[part];
    const uint8_t *plane[SIDECAR_PLANES] = { NULL };
    for (uint32_t i = 0; i < SIDECAR_PLANES; i++) {
        uint32_t w = order[i];
        if (s->plane[w].rows)
            e->weights_crc =
                crc32c(e->weights_crc,
                       tensor[2 * w] + (size_t)s->row[w].begin *
                                           s->row_bytes[w],
                       (size_t)s->plane[w].rows * s->row_bytes[w]);
        if (s->plane[w].rows)
            plane[w] = tensor[2 * w + 1] +
                       (size_t)s->row[w].begin * s->plane[w].cols;
    }
    return slice_code(b->mill, e, object, plane, s, m->s->o->raw);
}

static int put_slice(struct maker *m, uint32_t part,
                     const struct part_expert *e, const uint8_t *object,
                     const uint8_t *const tensor[EXPERT_TENSORS],
                     struct error *why)
{
    const struct slice_shape *s = &m->slice[part];
    uint64_t at = slice_ref(e, s).at;
    int code = 0;
    for (uint32_t w = 0; w < SIDECAR_PLANES && !code; w++)
        if (s->plane[w].rows)
            code = put(m, part,
                       tensor[2 * w] + (size_t)s->row[w].begin *
                                           s->row_bytes[w],
                       (uint64_t)s->plane[w].rows * s->row_bytes[w],
                       at + s->weights_at[w], why);
    return code ? code : put(m, part, object, e->scales.ref.bytes,
                             e->scales.ref.at, why);
}

static int do_expert(struct maker *m, struct bench *b, uint32_t thing,
                     struct error *why)
{
    uint32_t index = m->t.thing[thing].index, number = m->t.expert[index];
    const uint8_t *tensor[EXPERT_TENSORS];
    struct part_expert made[CUTS_PARTS_MAX] = { 0 };
    struct need need[CUTS_PARTS_MAX] = { { 0 } };
    uint64_t read_bytes, object_at[CUTS_PARTS_MAX] = { 0 }, room = 0;
    int code = read_expert(m, b, number, tensor, &read_bytes, why);
    for (uint32_t r = 0; r < m->parts && !code; r++) {
        if (!m->s->path[r] || !m->slice[r].weights_bytes)
            continue;
        made[r].number = number;
        object_at[r] = room;
        room += slice_object_max(&m->slice[r]);
        code = code_slice(m, b, r, &made[r], b->coded + object_at[r], tensor);
        need[r] = (struct need){ (uint64_t)m->slice[r].weights_bytes +
                                     made[r].scales.ref.bytes, BOX_PAGE, 0 };
    }
    if (code || !place(m, thing, need, read_bytes))
        return code;
    for (uint32_t r = 0; r < m->parts && !code; r++) {
        if (!need[r].bytes)
            continue;
        made[r].scales.ref.at = need[r].at + m->slice[r].weights_bytes;
        m->out[r].expert[index] = made[r];
        code = put_slice(m, r, &made[r], b->coded + object_at[r], tensor, why);
    }
    return code;
}

/* ---- the crew ---- */

static int open_bench(void *arg, void **out)
{
    struct maker *m = arg;
    struct bench *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return -ENOMEM;
    int code = mill_open(&b->mill, m->s->o->kern);
    b->read = source_pages(m->read_max);
    b->coded = aligned_alloc(U3_ALIGN, round_up(m->coded_max, U3_ALIGN));
    for (uint32_t i = 0; i < EXPERT_TENSORS && m->t.experts; i++) {
        uint32_t rows, cols;
        expert_shape(i, m->s->c, &rows, &cols);
        b->plane[i] = source_pages((uint64_t)rows * cols);
        if (!b->plane[i])
            code = -ENOMEM;
    }
    return !code && b->read && b->coded ? 0 : -ENOMEM;
}

static void close_bench(void *bench)
{
    struct bench *b = bench;
    if (!b)
        return;
    mill_close(b->mill);
    free(b->read);
    free(b->coded);
    for (uint32_t i = 0; i < EXPERT_TENSORS; i++)
        free(b->plane[i]);
    free(b);
}

static int do_thing(void *arg, void *bench, uint32_t thing, struct error *why)
{
    static int (*const todo[])(struct maker *, struct bench *, uint32_t,
                               struct error *) = {
        [THING_REST] = do_rest, [THING_SMALLS] = do_smalls,
        [THING_BLOCK] = do_block, [THING_EXPERT] = do_expert };
    struct maker *m = arg;
    int code = todo[m->t.thing[thing].kind](m, bench, thing, why);
    return code ? turns_fail(&m->turns, code,
                             ckpt_path(m->s->k, m->s->file), why)
                : 0;
}

/* The most that a thing of the shard takes. */
static void find_largest(struct maker *m)
{
    const struct things *t = &m->t;
    m->read_max = m->coded_max = PART_REST_MAX;
    for (uint32_t r = 0; r < m->parts; r++)
        for (uint32_t i = 0; i < t->head[r].matrices; i++) {
            const struct part_matrix *x = &t->matrix[r][i];
            uint64_t raw = 2ull * part_block_rows(x, 0) * x->cols;
            uint64_t coded = u3_bytes_max(part_block_rows(x, 0), x->cols);
            m->read_max = raw > m->read_max ? raw : m->read_max;
            m->coded_max = coded > m->coded_max ? coded : m->coded_max;
        }
    for (uint32_t i = 0; i < t->count; i++) {
        uint64_t sum = 0;
        if (t->thing[i].kind != THING_SMALLS)
            continue;
        for (uint32_t k = 0; k < t->thing[i].block; k++) {
            uint64_t one =
                t->small[t->thing[i].index + k].extent.length_bytes;
            m->read_max = one > m->read_max ? one : m->read_max;
            sum += one;
        }
        m->coded_max = sum > m->coded_max ? sum : m->coded_max;
    }
    uint64_t objects = 0;
    for (uint32_t r = 0; r < m->parts; r++)
        objects += slice_object_max(&m->slice[r]);
    m->coded_max = objects > m->coded_max ? objects : m->coded_max;
}

static void find_wanted(struct maker *m)
{
    for (uint32_t w = 0; w < SIDECAR_PLANES; w++)
        m->wanted[w] = (struct row_range){ UINT32_MAX, 0 };
    for (uint32_t r = 0; r < m->parts; r++) {
        m->slice[r] = slice_shape(&m->s->o->cuts, r, m->s->c);
        for (uint32_t w = 0; w < SIDECAR_PLANES && m->s->path[r]; w++) {
            const struct row_range *own = &m->slice[r].row[w];
            struct row_range *all = &m->wanted[w];
            if (own->begin == own->end)
                continue;
            all->begin = own->begin < all->begin ? own->begin : all->begin;
            all->end = own->end > all->end ? own->end : all->end;
        }
    }
    for (uint32_t w = 0; w < SIDECAR_PLANES; w++)
        if (m->wanted[w].end == 0)
            m->wanted[w].begin = 0;
}

/* ---- files ---- */

static int open_output(struct maker *m, uint32_t r, struct error *error)
{
    struct output *out = &m->out[r];
    const struct part_head *h = &m->t.head[r];
    out->at = BOX_PAGE;
    out->where = part_tables(h);
    out->tables = calloc(1, out->where.bytes + 1);
    out->crc_of_block = calloc(h->blocks + 1, sizeof *out->crc_of_block);
    if (!out->tables || !out->crc_of_block)
        return error_set(error, -ENOMEM, "%s: no memory", m->s->path[r]);
    out->block = (void *)(out->tables + out->where.block);
    out->small = (void *)(out->tables + out->where.small);
    out->expert = (void *)(out->tables + out->where.expert);
    int code = replace_open(&out->file, m->s->path[r], 0);
    out->open = !code;
    return code ? error_set(error, code, "%s: %s", m->s->path[r],
                            strerror(-code))
                : 0;
}

static int finish_output(struct maker *m, uint32_t r, struct error *error)
{
    struct output *out = &m->out[r];
    const struct part_head *h = &m->t.head[r];
    struct part_matrix *matrix = m->t.matrix[r];
    uint8_t page[BOX_PAGE] = { 0 };
    uint64_t tables_at = round_up(out->at, BOX_PAGE);
    for (uint32_t i = 0; i < h->matrices; i++)
        for (uint32_t b = 0; b < matrix[i].block_count; b++)
            matrix[i].source_crc = crc32c_join(
                matrix[i].source_crc,
                out->crc_of_block[matrix[i].first_block + b],
                2ull * part_block_rows(&matrix[i], b) * matrix[i].cols);
    memcpy(out->tables + out->where.matrix, matrix,
           h->matrices * sizeof *matrix);
    if (h->rests)
        memcpy(out->tables + out->where.rest, m->t.rest,
               h->rests * sizeof *m->t.rest);
    memcpy(out->tables + out->where.spot, m->t.spot,
           h->spots * sizeof *m->t.spot);
    memcpy(page + BOX_OWN, h, sizeof *h);
    box_seal(page, PART_MAGIC, PART_VERSION, tables_at, out->tables,
             out->where.bytes);
    int code = file_write_all(out->file.fd, out->tables, out->where.bytes,
                          tables_at);
    if (!code)
        code = file_write_all(out->file.fd, page, sizeof page, 0);
    if (!code) {
        out->open = false;
        code = replace_commit(&out->file, true);
    }
    return code ? error_set(error, code, "%s: %s", m->s->path[r],
                            strerror(-code))
                : 0;
}

static int bind_heads(struct maker *m, struct error *error)
{
    struct sidecar_head like = { 0 };
    int code = sidecar_source(&like, m->t.spot, m->t.spots,
                              ckpt_path(m->s->k, m->s->file), error);
    for (uint32_t r = 0; r < m->parts; r++) {
        struct part_head *h = &m->t.head[r];
        h->source_bytes = like.source_bytes;
        h->source_mtime_ns = like.source_mtime_ns;
        memcpy(h->source_header_sha256, like.source_header_sha256,
               sizeof h->source_header_sha256);
    }
    return code;
}

static int check_source(struct maker *m, struct error *error)
{
    const char *shard = ckpt_path(m->s->k, m->s->file);
    bool changed = false;
    int code = source_changed(&m->source, shard,
                              m->t.head[0].source_mtime_ns, &changed);
    if (code)
        return error_set(error, code, "%s: %s", shard, strerror(-code));
    return changed ? error_set(error, -ESTALE, "%s: changed while it was read",
                               shard)
                   : 0;
}

static int make_files(struct maker *m, struct error *error)
{
    int code = bind_heads(m, error);
    for (uint32_t r = 0; r < m->parts && !code; r++)
        if (m->s->path[r])
            code = open_output(m, r, error);
    struct work w = { .jobs = m->s->o->jobs, .things = m->t.count,
                      .name = ckpt_path(m->s->k, m->s->file), .arg = m,
                      .open = open_bench, .one = do_thing,
                      .close = close_bench };
    if (!code)
        code = work_run(&w, error);
    if (!code)
        code = check_source(m, error);
    for (uint32_t r = 0; r < m->parts && !code; r++)
        if (m->s->path[r])
            code = finish_output(m, r, error);
    return code;
}

int spread_make(const struct spread_shard *s, struct error *error)
{
    struct maker m = { .s = s, .parts = s->o->cuts.parts };
    int code = source_open(&m.source, ckpt_path(s->k, s->file), error);
    if (code)
        return code;
    turns_open(&m.turns);
    find_wanted(&m);
    code = things_list(&m.t, s, error);
    if (!code) {
        find_largest(&m);
        code = make_files(&m, error);
    }
    for (uint32_t r = 0; r < m.parts; r++) {
        if (m.out[r].open)
            replace_abort(&m.out[r].file);
        free(m.out[r].tables);
        free(m.out[r].crc_of_block);
    }
    things_free(&m.t);
    turns_close(&m.turns);
    source_close(&m.source);
    return code;
}

/* A coded block takes at most 128 bytes more than its rows, a run the rest of a
 * page. */
int spread_needs(const struct spread_shard *s, uint64_t *read_bytes,
                 uint64_t room[CUTS_PARTS_MAX], struct error *error)
{
    struct maker m = { .s = s, .parts = s->o->cuts.parts };
    int code = things_list(&m.t, s, error);
    *read_bytes = 0;
    memset(room, 0, CUTS_PARTS_MAX * sizeof *room);
    if (code)
        return code;
    find_wanted(&m);
    for (uint32_t r = 0; r < m.parts; r++) {
        const struct part_head *h = &m.t.head[r];
        uint64_t slice = m.slice[r].weights_bytes +
                         slice_object_max(&m.slice[r]);
        if (!s->path[r])
            continue;
        room[r] = part_tables(h).bytes + 4 * BOX_PAGE + 128ull * h->blocks +
                  (uint64_t)BOX_PAGE * (h->matrices + h->smalls + h->experts) +
                  h->experts * slice;
        *read_bytes += h->experts * (uint64_t)m.slice[r].weights_bytes +
                       h->experts * slice_object_max(&m.slice[r]);
        for (uint32_t i = 0; i < h->matrices; i++) {
            uint64_t raw = 2ull * m.t.matrix[r][i].rows *
                           m.t.matrix[r][i].cols;
            room[r] += raw;
            *read_bytes += raw;
        }
        for (uint32_t i = 0; i < h->smalls; i++)
            room[r] += m.t.small[i].extent.length_bytes;
        for (uint32_t i = 0; i < h->rests; i++) {
            room[r] += m.t.rest[i].ref.bytes;
            *read_bytes += m.t.rest[i].ref.bytes;
        }
    }
    for (uint32_t i = 0; i < m.t.smalls; i++)
        *read_bytes += m.t.small[i].extent.length_bytes;
    things_free(&m.t);
    return 0;
}
