#include "model/sim/passes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/sim/trace_error.h"

#define NONE UINT32_MAX

struct sequence {
    uint32_t id;
    uint32_t first, last; /* number of its first and last pass */
    uint32_t slot;        /* NONE: it does not live */
    uint32_t pass, age;   /* pass seen last, its rows there so far */
};

struct passes {
    struct trace *trace;
    const char *path;
    struct passes_facts facts;
    size_t row_ids; /* ids of a row: layers * top_k */

    struct sequence *sequence; /* [sequences] in order of appearance */
    uint32_t sequences, sequence_room;
    uint32_t *bucket; /* [buckets] index into sequence, or NONE */
    uint32_t buckets; /* a power of two, at least 2 * sequences */
    uint32_t *idle;   /* [slots] slots without a sequence, a stack */
    uint32_t idle_count;

    struct trace_pass pass;
    struct pass_row *row; /* [row_room], as are the next two */
    uint32_t *row_sequence; /* index into sequence */
    uint16_t *ids;
    uint32_t row_room;
    bool begun;   /* a record was read, but not yet taken into a pass */
    bool scanned; /* slots are known */
    struct trace_record record; /* that one */
};

static int no_memory(struct error *error)
{
    return error_set(error, -ENOMEM, "no memory to replay a trace");
}

static uint32_t *find_bucket(const struct passes *p, uint32_t id)
{
    uint32_t at = id * 2654435761u;
    for (;; at++) {
        uint32_t *b = &p->bucket[at & (p->buckets - 1)];
        if (*b == NONE || p->sequence[*b].id == id)
            return b;
    }
}

static int grow_sequences(struct passes *p)
{
    uint32_t room = p->sequence_room ? 2 * p->sequence_room : 64;
    struct sequence *s = realloc(p->sequence, room * sizeof *s);
    if (!s)
        return -ENOMEM;
    p->sequence = s;
    uint32_t *bucket = malloc(2 * (size_t)room * sizeof *bucket);
    if (!bucket)
        return -ENOMEM;
    free(p->bucket);
    p->bucket = bucket;
    p->buckets = 2 * room;
    p->sequence_room = room;
    memset(bucket, 0xff, 2 * (size_t)room * sizeof *bucket);
    for (uint32_t i = 0; i < p->sequences; i++)
        *find_bucket(p, s[i].id) = i;
    return 0;
}

/* The index of the sequence, which may be new. NONE: no memory. */
static uint32_t sequence_of(struct passes *p, uint32_t id)
{
    if (p->sequences == p->sequence_room && grow_sequences(p))
        return NONE;
    uint32_t *b = find_bucket(p, id);
    if (*b == NONE) {
        *b = p->sequences++;
        p->sequence[*b] = (struct sequence){
            .id = id, .first = p->pass.number, .slot = NONE, .pass = NONE,
        };
    }
    return *b;
}

static int grow_rows(struct passes *p)
{
    uint32_t room = p->row_room ? 2 * p->row_room : 8;
    struct pass_row *row = realloc(p->row, room * sizeof *row);
    p->row = row ? row : p->row;
    uint32_t *of = realloc(p->row_sequence, room * sizeof *of);
    p->row_sequence = of ? of : p->row_sequence;
    uint16_t *ids = realloc(p->ids, room * p->row_ids * sizeof *ids);
    p->ids = ids ? ids : p->ids;
    if (!row || !of || !ids)
        return -ENOMEM;
    p->row_room = room;
    return 0;
}

static int take_record(struct passes *p, const struct trace_record *r)
{
    uint32_t n = p->pass.rows;
    if (n == p->row_room && grow_rows(p))
        return -ENOMEM;
    uint32_t s = sequence_of(p, r->sequence);
    if (s == NONE)
        return -ENOMEM;
    p->row[n] = (struct pass_row){ .token = r->token, .phase = r->phase,
                                   .flags = r->flags };
    p->row_sequence[n] = s;
    memcpy(p->ids + n * p->row_ids, r->ids, p->row_ids * sizeof *p->ids);
    p->pass.decode |= r->phase != TRACE_PREFILL;
    p->pass.tokens += r->phase != TRACE_PREFILL &&
                      !(r->flags & TRACE_REJECTED);
    p->pass.rows++;
    return 0;
}

/* Slots of the sequences whose last pass is over. */
static void release_slots(struct passes *p)
{
    for (uint32_t i = 0; i < p->pass.rows; i++) {
        struct sequence *s = &p->sequence[p->row_sequence[i]];
        if (s->last != p->pass.number || s->slot == NONE)
            continue;
        p->idle[p->idle_count++] = s->slot;
        s->slot = NONE;
    }
}

static void finish_pass(struct passes *p)
{
    for (uint32_t i = p->pass.rows; i-- > 0;) {
        struct sequence *s = &p->sequence[p->row_sequence[i]];
        s->age = s->pass == p->pass.number ? s->age + 1 : 0;
        s->pass = p->pass.number;
        p->row[i].age = s->age;
        if (!p->scanned)
            s->last = p->pass.number;
    }
    for (uint32_t i = 0; p->scanned && i < p->pass.rows; i++) {
        struct sequence *s = &p->sequence[p->row_sequence[i]];
        p->row[i].starts = s->slot == NONE;
        if (s->slot == NONE)
            s->slot = p->idle[--p->idle_count];
        p->row[i].slot = s->slot;
    }
    p->pass.row = p->row;
}

int passes_next(struct passes *p, const struct trace_pass **out,
                struct error *error)
{
    if (p->scanned)
        release_slots(p);
    uint32_t number = p->pass.rows ? p->pass.number + 1 : 0;
    p->pass = (struct trace_pass){ .number = number };
    if (!p->begun) {
        int got = trace_next(p->trace, &p->record);
        if (got < 0)
            return trace_error(error, got, p->path, trace_fault(p->trace));
        if (got == 0)
            return 0;
    }
    p->begun = false;
    p->pass.step = p->record.step;
    for (;;) {
        if (take_record(p, &p->record))
            return no_memory(error);
        int got = trace_next(p->trace, &p->record);
        if (got < 0)
            return trace_error(error, got, p->path, trace_fault(p->trace));
        if (got == 0)
            break;
        p->begun = p->record.step != p->pass.step;
        if (p->begun)
            break;
    }
    finish_pass(p);
    *out = &p->pass;
    return 1;
}

const uint16_t *passes_ids(const struct passes *p, uint32_t row,
                           uint32_t layer)
{
    assert(row < p->pass.rows);
    return p->ids + row * p->row_ids + layer * p->facts.info.top_k;
}

void passes_rewind(struct passes *p)
{
    trace_rewind(p->trace);
    p->begun = false;
    p->pass = (struct trace_pass){ 0 };
    p->idle_count = p->facts.slots;
    for (uint32_t i = 0; i < p->facts.slots; i++)
        p->idle[i] = p->facts.slots - 1 - i;
    for (uint32_t i = 0; i < p->sequences; i++)
        p->sequence[i].slot = p->sequence[i].pass = NONE;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* How many sequences live at once at most: starts and ends, merged. */
static int count_slots(struct passes *p)
{
    uint32_t n = p->sequences, live = 0, max = 0, ended = 0;
    uint32_t *first = malloc((2 * (size_t)n + 1) * sizeof *first);
    if (!first)
        return -ENOMEM;
    uint32_t *last = first + n;
    for (uint32_t i = 0; i < n; i++) {
        first[i] = p->sequence[i].first;
        last[i] = p->sequence[i].last;
    }
    qsort(first, n, sizeof *first, ascending);
    qsort(last, n, sizeof *last, ascending);
    for (uint32_t i = 0; i < n; i++) {
        for (; last[ended] < first[i]; ended++)
            live--;
        live++;
        max = live > max ? live : max;
    }
    free(first);
    p->facts.slots = max ? max : 1;
    p->idle = malloc(p->facts.slots * sizeof *p->idle);
    return p->idle ? 0 : -ENOMEM;
}

static int scan(struct passes *p, struct error *error)
{
    struct passes_facts *f = &p->facts;
    const struct trace_pass *pass;
    int got;
    while ((got = passes_next(p, &pass, error)) > 0) {
        f->records += pass->rows;
        f->requests += (uint64_t)pass->rows * p->row_ids;
        f->tokens += pass->tokens;
        f->passes++;
        f->decode_passes += pass->decode;
        if (pass->rows > f->rows_max)
            f->rows_max = pass->rows;
        if (f->passes == UINT32_MAX - 1)
            return error_set(error, -EOVERFLOW, "%s: too many passes", p->path);
    }
    if (got < 0)
        return got;
    if (trace_fault(p->trace)->problem == TRACE_TAIL) {
        f->tail_bytes = trace_fault(p->trace)->found;
        f->missing = trace_fault(p->trace)->expected;
    }
    if (count_slots(p))
        return no_memory(error);
    p->scanned = true;
    passes_rewind(p);
    return 0;
}

int passes_open(struct passes **out, const char *path, bool repair,
                struct error *error)
{
    struct trace_fault fault;
    *out = NULL;
    struct passes *p = calloc(1, sizeof *p);
    if (!p)
        return no_memory(error);
    p->path = path;
    int code = trace_open(&p->trace, path, repair, &fault);
    if (code) {
        trace_error(error, code, path, &fault);
    } else {
        p->facts.info = *trace_info(p->trace);
        p->row_ids = (size_t)p->facts.info.layers * p->facts.info.top_k;
        code = scan(p, error);
    }
    if (code) {
        passes_close(p);
        return code;
    }
    *out = p;
    return 0;
}

void passes_close(struct passes *p)
{
    if (!p)
        return;
    trace_close(p->trace);
    free(p->sequence);
    free(p->bucket);
    free(p->idle);
    free(p->row);
    free(p->row_sequence);
    free(p->ids);
    free(p);
}

const struct passes_facts *passes_facts(const struct passes *p)
{
    return &p->facts;
}
