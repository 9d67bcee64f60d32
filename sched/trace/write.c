#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sched/trace/trace_internal.h"

struct trace_writer {
    int fd;
    int error; /* the first; nothing is written after one */
    struct trace_info info;
    struct trace_layout layout;
    struct trace_crc crc;
    uint8_t header[TRACE_HEADER_BYTES];
    uint64_t bytes;   /* written */
    uint8_t *pass;    /* [rows_max] records */
    uint32_t rows_max, rows;
    uint32_t step;
};

static int write_at(int fd, const void *from, size_t n, uint64_t offset)
{
    const char *p = from;
    while (n > 0) {
        ssize_t r = pwrite(fd, p, n, (off_t)offset);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r ? -errno : -EIO;
        p += r;
        n -= (size_t)r;
        offset += (uint64_t)r;
    }
    return 0;
}

static void seal_header(struct trace_writer *w)
{
    put64(w->header + AT_RECORDS, w->info.records);
    put32(w->header + AT_SEQUENCES, w->info.sequences);
    put32(w->header + AT_STEPS, w->info.steps);
    put32(w->header + AT_HEADER_CRC,
          trace_crc_of(&w->crc, w->header, AT_HEADER_CRC));
}

static void make_header(struct trace_writer *w, uint32_t header_bytes,
                        uint32_t meta_bytes)
{
    const struct trace_info *i = &w->info;
    uint8_t *h = w->header;
    memcpy(h + AT_MAGIC, "MOETRACE", 8);
    put16(h + AT_MAJOR, TRACE_MAJOR);
    put32(h + AT_HEADER_BYTES, header_bytes);
    put32(h + AT_FLAGS, i->flags);
    put16(h + AT_LAYERS, i->layers);
    put16(h + AT_FIRST_LAYER, i->first_layer);
    put16(h + AT_MODEL_LAYERS, i->model_layers);
    put16(h + AT_EXPERTS, i->experts);
    put16(h + AT_TOP_K, i->top_k);
    put16(h + AT_ID_BYTES, 2);
    put64(h + AT_EXPERT_BYTES, i->expert_bytes);
    put64(h + AT_TRUNK_BYTES, i->trunk_bytes);
    put64(h + AT_MODEL_HASH, i->model_hash);
    put64(h + AT_CREATED, i->created_us);
    put32(h + AT_SCORE_FORMAT, i->flags & TRACE_SCORES ? SCORES_U16
                                                       : SCORES_NONE);
    put32(h + AT_META_BYTES, meta_bytes);
    put32(h + AT_RECORD_HEAD, TRACE_RECORD_HEAD);
    seal_header(w);
}

static int start_file(struct trace_writer *w, const char *meta)
{
    static const char padding[8] = "        ";
    size_t meta_bytes = meta ? strlen(meta) : 0;
    size_t pad = (8 - meta_bytes % 8) % 8;
    if (meta_bytes > 1u << 20)
        return -EINVAL;
    w->bytes = TRACE_HEADER_BYTES + meta_bytes + pad;
    make_header(w, (uint32_t)w->bytes, (uint32_t)(meta_bytes + pad));
    int error = write_at(w->fd, w->header, sizeof w->header, 0);
    if (!error && meta_bytes)
        error = write_at(w->fd, meta, meta_bytes, TRACE_HEADER_BYTES);
    if (!error && pad)
        error = write_at(w->fd, padding, pad, TRACE_HEADER_BYTES + meta_bytes);
    return error;
}

static void close_writer(struct trace_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    free(w->pass);
    free(w);
}

static bool can_hold(const struct trace_info *info, uint32_t rows_max)
{
    return info->layers && info->experts && info->top_k && rows_max &&
           info->layers <= UINT16_MAX && info->experts <= UINT16_MAX &&
           info->first_layer <= UINT16_MAX &&
           info->model_layers <= UINT16_MAX && info->top_k <= info->experts &&
           !(info->flags & ~TRACE_KNOWN_FLAGS);
}

/* Takes over the descriptor. */
static int create(struct trace_writer **out, int fd,
                  const struct trace_info *info, const char *meta,
                  uint32_t rows_max)
{
    struct trace_writer *w = calloc(1, sizeof *w);
    if (!w) {
        close(fd);
        return -ENOMEM;
    }
    w->fd = fd;
    w->info = *info;
    w->info.records = w->info.sequences = w->info.steps = 0;
    w->rows_max = rows_max;
    trace_crc_init(&w->crc);
    int error = -EINVAL;
    if (trace_lay_out(&w->layout, info, TRACE_RECORD_HEAD, SCORES_U16)) {
        w->pass = malloc((size_t)rows_max * w->layout.record_bytes);
        error = w->pass ? start_file(w, meta) : -ENOMEM;
    }
    if (error) {
        close_writer(w);
        return error;
    }
    *out = w;
    return 0;
}

int trace_create(struct trace_writer **out, const char *path,
                 const struct trace_info *info, const char *meta,
                 uint32_t rows_max)
{
    *out = NULL;
    if (!can_hold(info, rows_max))
        return -EINVAL;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd < 0 ? -errno : create(out, fd, info, meta, rows_max);
}

int trace_create_at(struct trace_writer **out, int fd,
                    const struct trace_info *info, const char *meta,
                    uint32_t rows_max)
{
    *out = NULL;
    if (!can_hold(info, rows_max))
        return -EINVAL;
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? -errno : create(out, fd, info, meta, rows_max);
}

static uint8_t *record(struct trace_writer *w, uint32_t row)
{
    assert(row < w->rows);
    return w->pass + (size_t)row * w->layout.record_bytes;
}

void trace_begin(struct trace_writer *w, uint32_t step, uint32_t rows)
{
    assert(rows <= w->rows_max);
    assert(step >= w->step);
    w->step = step;
    w->rows = rows;
    memset(w->pass, 0, (size_t)rows * w->layout.record_bytes);
}

void trace_row(struct trace_writer *w, uint32_t row, uint32_t sequence,
               uint32_t position, uint32_t token, enum trace_phase phase,
               uint8_t flags)
{
    uint8_t *r = record(w, row);
    put32(r + AT_BYTES, w->layout.record_bytes);
    put32(r + AT_SEQUENCE, sequence);
    put32(r + AT_POSITION, position);
    put32(r + AT_TOKEN, token);
    put32(r + AT_STEP, w->step);
    r[AT_PHASE] = (uint8_t)phase;
    r[AT_ROW_FLAGS] = flags;
    put16(r + AT_ROWS, w->info.layers);
    if (sequence >= w->info.sequences && sequence < UINT32_MAX)
        w->info.sequences = sequence + 1;
}

void trace_choice(struct trace_writer *w, uint32_t row, uint32_t m,
                  const uint32_t *ids, const float *weights)
{
    uint32_t k = w->info.top_k;
    uint8_t *r = record(w, row);
    assert(m < w->info.layers);
    uint8_t *cells = r + w->layout.ids + 2 * (size_t)m * k;
    for (uint32_t i = 0; i < k; i++) {
        assert(ids[i] < w->info.experts);
        put16(cells + 2 * (size_t)i, ids[i]);
    }
    if (!w->layout.scores || !weights)
        return;
    uint8_t *scores = r + w->layout.scores + 2 * (size_t)m * k;
    for (uint32_t i = 0; i < k; i++) {
        float s = weights[i] > 0 ? weights[i] : 0;
        put16(scores + 2 * i,
              s >= 1 ? UINT16_MAX : (uint32_t)lrintf(s * UINT16_MAX));
    }
}

void trace_hits(struct trace_writer *w, uint32_t row, uint32_t m,
                const uint8_t *hits)
{
    uint8_t *r = record(w, row);
    assert(m < w->info.layers);
    if (w->layout.hits)
        memcpy(r + w->layout.hits + (size_t)m * w->info.top_k, hits,
               w->info.top_k);
}

void trace_times(struct trace_writer *w, uint32_t row, uint32_t m,
                 const uint32_t us[TRACE_TIME_COLUMNS])
{
    uint8_t *r = record(w, row);
    assert(m < w->info.layers);
    if (!w->layout.times)
        return;
    uint8_t *times = r + w->layout.times + (size_t)m * TRACE_TIME_COLUMNS * 4;
    for (uint32_t i = 0; i < TRACE_TIME_COLUMNS; i++)
        put32(times + 4 * (size_t)i, us[i]);
}

int trace_commit(struct trace_writer *w)
{
    uint32_t bytes = w->layout.record_bytes;
    for (uint32_t i = 0; w->layout.crc && i < w->rows; i++) {
        uint8_t *r = record(w, i);
        put32(r + w->layout.crc, trace_crc_of(&w->crc, r, w->layout.crc));
    }
    if (!w->error)
        w->error = write_at(w->fd, w->pass, (size_t)w->rows * bytes, w->bytes);
    if (w->error)
        return w->error;
    w->bytes += (uint64_t)w->rows * bytes;
    w->info.records += w->rows;
    w->info.steps += w->rows > 0;
    return 0;
}

int trace_finish(struct trace_writer *w)
{
    if (!w)
        return 0;
    int error = w->error;
    if (!error) {
        seal_header(w);
        error = write_at(w->fd, w->header, sizeof w->header, 0);
    }
    if (close(w->fd) && !error)
        error = -errno;
    w->fd = -1;
    close_writer(w);
    return error;
}
