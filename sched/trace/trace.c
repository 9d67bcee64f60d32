#include "sched/trace/trace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sched/trace/trace_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "columns are used as they are in the file");

#define TRACE_HEADER_MAX (16u << 20)  /* with the JSON object */
#define TRACE_WINDOW      (1u << 18)  /* bytes read at once, at least */

struct trace {
    int fd;
    bool unfinished;
    struct trace_info info;
    struct trace_layout layout;
    struct trace_crc crc;
    struct trace_fault fault;
    char *meta;
    uint32_t meta_bytes;
    uint32_t header_bytes;
    uint64_t records; /* whole ones in the file */
    uint64_t tail_bytes;
    uint64_t missing; /* records that the header counts and the file lacks */
    uint64_t next;    /* number of the record that trace_next returns */
    uint32_t step;    /* of the last record */
    uint8_t *record;  /* the record that trace_next returned, aligned */
    uint8_t *window;  /* [window_records] whole records */
    uint32_t window_records;
    uint64_t window_first; /* number of the first of them */
    uint32_t window_count; /* valid records in it */
    uint32_t *times;  /* the times column, aligned; NULL: the trace has none */
    uint64_t *seen;   /* [experts] number of the last choice that has it */
    uint64_t cells;   /* choices checked so far, the first is 1 */
};

static int fail(struct trace *t, enum trace_problem problem, uint64_t found,
                uint64_t expected)
{
    uint64_t record = t->next;
    t->fault = (struct trace_fault){
        .problem = problem,
        .record = record,
        .offset = t->header_bytes + record * t->layout.record_bytes,
        .found = found,
        .expected = expected,
    };
    return problem == TRACE_VERSION || problem == TRACE_FLAGS ? -ENOTSUP
                                                              : -EBADMSG;
}

/* 0 and *got <= n, less only at the end of the file; or a negative errno. */
static int read_at(int fd, void *to, size_t n, uint64_t offset, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t r = pread(fd, (char *)to + *got, n - *got,
                          (off_t)(offset + *got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        *got += (size_t)r;
    }
    return 0;
}

static int check_header(struct trace *t, const uint8_t *h)
{
    if (memcmp(h + AT_MAGIC, "MOETRACE", 8))
        return fail(t, TRACE_MAGIC, 0, 0);
    if (get16(h + AT_MAJOR) != TRACE_MAJOR)
        return fail(t, TRACE_VERSION, get16(h + AT_MAJOR), TRACE_MAJOR);
    uint32_t crc = trace_crc_of(&t->crc, h, AT_HEADER_CRC);
    if (crc != get32(h + AT_HEADER_CRC))
        return fail(t, TRACE_HEADER_CRC, crc, get32(h + AT_HEADER_CRC));
    struct trace_info *i = &t->info;
    *i = (struct trace_info){
        .flags = get32(h + AT_FLAGS),
        .layers = get16(h + AT_LAYERS),
        .first_layer = get16(h + AT_FIRST_LAYER),
        .model_layers = get16(h + AT_MODEL_LAYERS),
        .experts = get16(h + AT_EXPERTS),
        .top_k = get16(h + AT_TOP_K),
        .sequences = get32(h + AT_SEQUENCES),
        .steps = get32(h + AT_STEPS),
        .records = get64(h + AT_RECORDS),
        .expert_bytes = get64(h + AT_EXPERT_BYTES),
        .trunk_bytes = get64(h + AT_TRUNK_BYTES),
        .model_hash = get64(h + AT_MODEL_HASH),
        .created_us = get64(h + AT_CREATED),
    };
    if (i->flags & ~TRACE_KNOWN_FLAGS)
        return fail(t, TRACE_FLAGS, i->flags & ~TRACE_KNOWN_FLAGS, 0);
    uint32_t scores = get32(h + AT_SCORE_FORMAT);
    if (i->flags & TRACE_SCORES && scores != SCORES_U16 &&
        scores != SCORES_F32)
        return fail(t, TRACE_FLAGS, TRACE_SCORES, 0);
    uint32_t head = get32(h + AT_RECORD_HEAD);
    t->header_bytes = get32(h + AT_HEADER_BYTES);
    t->meta_bytes = get32(h + AT_META_BYTES);
    if (!i->layers || !i->experts || !i->top_k || i->top_k > i->experts ||
        get16(h + AT_ID_BYTES) != 2 || head < TRACE_RECORD_HEAD || head % 4 ||
        head > TRACE_HEADER_MAX || t->header_bytes < TRACE_HEADER_BYTES ||
        t->header_bytes % 8 || t->header_bytes > TRACE_HEADER_MAX ||
        t->meta_bytes > t->header_bytes - TRACE_HEADER_BYTES ||
        !trace_lay_out(&t->layout, i, head,
                       i->flags & TRACE_SCORES ? scores : SCORES_NONE))
        return fail(t, TRACE_SHAPE, 0, 0);
    if (scores == SCORES_F32)
        t->layout.scores = 0; /* skipped: trace_record has no such column */
    return 0;
}

/* Count the records in the file, and those missing. */
static int count_records(struct trace *t, uint64_t file_bytes, bool repair)
{
    uint64_t body = file_bytes - t->header_bytes;
    uint64_t said = t->info.records;
    t->records = body / t->layout.record_bytes;
    t->tail_bytes = body % t->layout.record_bytes;
    t->unfinished = said == 0;
    if (said > t->records && !repair)
        return fail(t, TRACE_TRUNCATED, t->records, said);
    if (said > t->records) {
        t->missing = said - t->records;
    } else if (said > 0) {
        t->tail_bytes = body - said * t->layout.record_bytes;
        t->records = said;
    }
    return 0;
}

static int allocate(struct trace *t)
{
    uint32_t bytes = t->layout.record_bytes;
    t->window_records = bytes < TRACE_WINDOW ? TRACE_WINDOW / bytes : 1;
    t->window = malloc((size_t)t->window_records * bytes);
    t->record = malloc(bytes);
    t->seen = calloc(t->info.experts, sizeof *t->seen);
    if (!t->window || !t->record || !t->seen)
        return -ENOMEM;
    if (!t->layout.times)
        return 0;
    t->times = malloc((size_t)t->info.layers * TRACE_TIME_COLUMNS *
                      sizeof *t->times);
    return t->times ? 0 : -ENOMEM;
}

static int read_header(struct trace *t, const char *path, bool repair)
{
    uint8_t header[TRACE_HEADER_BYTES];
    struct stat st;
    size_t got;
    t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (t->fd < 0 || fstat(t->fd, &st))
        return -errno;
    if (!S_ISREG(st.st_mode)) /* its length must be known */
        return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
    int error = read_at(t->fd, header, sizeof header, 0, &got);
    if (error)
        return error;
    if (got < sizeof header && (got < 8 || memcmp(header, "MOETRACE", 8)))
        return fail(t, TRACE_MAGIC, 0, 0);
    if (got < sizeof header)
        return fail(t, TRACE_NO_HEADER, got, sizeof header);
    error = check_header(t, header);
    if (error)
        return error;
    if ((uint64_t)st.st_size < t->header_bytes)
        return fail(t, TRACE_NO_HEADER, (uint64_t)st.st_size, t->header_bytes);
    t->meta = malloc(t->meta_bytes + 1);
    if (!t->meta)
        return -ENOMEM;
    error = read_at(t->fd, t->meta, t->meta_bytes, TRACE_HEADER_BYTES, &got);
    if (error)
        return error;
    if (got < t->meta_bytes)
        return fail(t, TRACE_NO_HEADER, got, t->meta_bytes);
    error = count_records(t, (uint64_t)st.st_size, repair);
    return error ? error : allocate(t);
}

int trace_open(struct trace **out, const char *path, bool repair,
               struct trace_fault *fault)
{
    *out = NULL;
    *fault = (struct trace_fault){ 0 };
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    trace_crc_init(&t->crc);
    int error = read_header(t, path, repair);
    if (error) {
        *fault = t->fault;
        trace_close(t);
        return error;
    }
    *out = t;
    return 0;
}

void trace_close(struct trace *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    free(t->meta);
    free(t->record);
    free(t->window);
    free(t->times);
    free(t->seen);
    free(t);
}

const struct trace_info *trace_info(const struct trace *t)
{
    return &t->info;
}

const char *trace_meta(const struct trace *t, uint32_t *bytes)
{
    *bytes = t->meta_bytes;
    return t->meta;
}

void trace_rewind(struct trace *t)
{
    t->next = 0;
    t->step = 0;
    t->fault = (struct trace_fault){ 0 };
}

const struct trace_fault *trace_fault(const struct trace *t)
{
    return &t->fault;
}

static int check_ids(struct trace *t, const uint16_t *ids)
{
    for (uint32_t m = 0; m < t->info.layers; m++) {
        uint64_t cell = ++t->cells;
        for (uint32_t k = 0; k < t->info.top_k; k++) {
            uint16_t id = *ids++;
            if (id >= t->info.experts)
                return fail(t, TRACE_ID, id, t->info.experts);
            if (t->seen[id] == cell)
                return fail(t, TRACE_ID_TWICE, id, 0);
            t->seen[id] = cell;
        }
    }
    return 0;
}

static int check_record(struct trace *t, const uint8_t *r)
{
    uint32_t bytes = t->layout.record_bytes;
    if (get32(r + AT_BYTES) != bytes)
        return fail(t, TRACE_RECORD_SIZE, get32(r + AT_BYTES), bytes);
    if (t->layout.crc) {
        uint32_t crc = trace_crc_of(&t->crc, r, t->layout.crc);
        if (crc != get32(r + t->layout.crc))
            return fail(t, TRACE_RECORD_CRC, crc, get32(r + t->layout.crc));
    }
    if (get16(r + AT_ROWS) != t->info.layers)
        return fail(t, TRACE_ROWS, get16(r + AT_ROWS), t->info.layers);
    if (r[AT_PHASE] > TRACE_DRAFT)
        return fail(t, TRACE_PHASE, r[AT_PHASE], TRACE_DRAFT);
    if (get32(r + AT_STEP) < t->step)
        return fail(t, TRACE_STEP, get32(r + AT_STEP), t->step);
    return check_ids(t, (const void *)(r + t->layout.ids));
}

/* Copy the next record out of the window, where it need not be aligned. */
static int fetch(struct trace *t)
{
    uint32_t bytes = t->layout.record_bytes;
    if (t->next < t->window_first ||
        t->next >= t->window_first + t->window_count) {
        uint64_t left = t->records - t->next;
        uint32_t want = left < t->window_records ? (uint32_t)left
                                                 : t->window_records;
        size_t got;
        int error = read_at(t->fd, t->window, (size_t)want * bytes,
                            t->header_bytes + t->next * bytes, &got);
        t->window_count = 0;
        if (error)
            return error;
        if (got < (size_t)want * bytes) /* truncated since it was opened */
            return fail(t, TRACE_TRUNCATED, t->next + got / bytes, t->records);
        t->window_first = t->next;
        t->window_count = want;
    }
    memcpy(t->record, t->window + (t->next - t->window_first) * bytes, bytes);
    return 0;
}

static int end(struct trace *t, uint64_t tail_bytes)
{
    if (tail_bytes > 0 || t->missing > 0)
        fail(t, TRACE_TAIL, tail_bytes, t->missing);
    return 0;
}

int trace_next(struct trace *t, struct trace_record *record)
{
    const struct trace_layout *l = &t->layout;
    const uint8_t *r = t->record;
    if (t->next == t->records)
        return end(t, t->tail_bytes);
    int error = fetch(t);
    if (!error)
        error = check_record(t, r);
    /* A crash may leave the last record with the right length and the wrong
     * bytes: the file grew before its data reached the disk. */
    if (error == -EBADMSG && t->unfinished && t->next + 1 == t->records)
        return end(t, l->record_bytes + t->tail_bytes);
    if (error)
        return error;
    t->step = get32(r + AT_STEP);
    t->next++;
    *record = (struct trace_record){
        .sequence = get32(r + AT_SEQUENCE),
        .position = get32(r + AT_POSITION),
        .token = get32(r + AT_TOKEN),
        .step = t->step,
        .phase = r[AT_PHASE],
        .flags = r[AT_ROW_FLAGS],
        .ids = (const void *)(r + l->ids),
        .scores = l->scores ? (const void *)(r + l->scores) : NULL,
        .hits = l->hits ? r + l->hits : NULL,
        .times = t->times,
    };
    if (t->times)
        memcpy(t->times, r + l->times,
               (size_t)t->info.layers * TRACE_TIME_COLUMNS * 4);
    return 1;
}
