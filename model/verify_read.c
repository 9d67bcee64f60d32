/* verify_read.c - every tensor through the engine's reader: the caller's thread
 * keeps the drives busy, the others look at what has come. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/arena.h"
#include "io/reader.h"
#include "model/safetensors.h"
#include "model/verify_internal.h"

enum {
    CHUNK = READER_CHUNK,
    SLOT_BYTES = CHUNK + 2 * READER_PAGE,
    SLOTS_LEAST = 16,
    SLOTS_MOST = 248,         /* below 256 MiB of buffers */
    ZERO_RUN = 256 << 10,     /* expert weights are never that empty */
    ZERO_TENSOR = 64 << 10,   /* nor are whole tensors of this size */
};

/* What was seen of a tensor so far. */
struct tally {
    uint64_t bad, first_bad; /* values */
    uint64_t zero_bytes;     /* in runs that count */
    uint64_t lost_bytes;     /* could not be read */
    bool     nonzero;
};

/* A file some of whose chunks are on their way. */
struct open_file {
    struct open_file  *next, *last; /* in looker.open */
    const char        *path;
    struct safetensors header;
    struct tally      *tally; /* [header.count] */
    uint32_t           out;   /* chunks asked for and not yet looked at */
    bool               asked; /* all of it has been asked for */
};

struct chunk {
    uint8_t          *base; /* of the slot: a page boundary */
    struct open_file *file;
    uint32_t          first;        /* tensor that it begins in */
    uint32_t          length_bytes;
    uint64_t          offset_bytes; /* in the file */
    int               error;
};

/* Where a drive is in its files. */
struct cursor {
    uint32_t          next;   /* file to open after this one */
    struct open_file *file;   /* or NULL */
    uint32_t          tensor;
    uint64_t          offset_bytes;
    uint64_t          flying_bytes;
};

struct looker {
    struct verify   *v;
    struct reader   *r;
    struct cursor    cursor[READER_DRIVES_MAX];
    struct chunk     chunk[SLOTS_MOST];
    uint32_t         slots;
    pthread_mutex_t  lock;
    pthread_cond_t   work, space;
    uint32_t         ready[SLOTS_MOST], ready_begin, ready_count; /* a ring */
    uint32_t         free_slot[SLOTS_MOST], free_count;
    struct open_file *open; /* a list */
    bool             closing;
    uint32_t         flying; /* reads; the caller's alone */
};

static enum scan_kind kind_of(const struct safetensors_entry *e)
{
    static const char scale[] = ".weight_scale";
    size_t n = strlen(e->name), m = sizeof scale - 1;
    if (e->dtype == DTYPE_BF16)
        return SCAN_BF16;
    if (e->dtype == DTYPE_F32)
        return SCAN_F32;
    return n > m && !strcmp(e->name + n - m, scale) ? SCAN_SCALE : SCAN_BYTES;
}

/* ---- what was found ---- */

static void tell_tensor(struct verify *v, const char *path,
                        const struct safetensors_entry *e,
                        const struct tally *t)
{
    if (t->lost_bytes)
        verify_problem(v, path, e->name, "%" PRIu64 " of its bytes could not "
                       "be read", t->lost_bytes);
    if (t->bad && kind_of(e) == SCAN_SCALE)
        verify_problem(v, path, e->name, "%" PRIu64 " scale bytes are 255, "
                       "the first at %" PRIu64, t->bad, t->first_bad);
    else if (t->bad)
        verify_problem(v, path, e->name, "%" PRIu64 " values are not finite, "
                       "the first at %" PRIu64, t->bad, t->first_bad);
}

/* Nothing but zeros, or long runs of them in an expert. */
static bool is_empty(const struct safetensors_entry *e, const struct tally *t)
{
    return t->zero_bytes || (!t->nonzero && !t->lost_bytes &&
                             e->length_bytes >= ZERO_TENSOR);
}

/* A file that was never written has thousands of empty tensors: one line. */
static void tell_empty(struct verify *v, const struct open_file *f)
{
    uint32_t count = 0, first = 0;
    for (uint32_t i = f->header.count; i-- > 0;)
        if (is_empty(&f->header.entry[i], &f->tally[i])) {
            count++;
            first = i;
        }
    if (!count)
        return;
    const struct safetensors_entry *e = &f->header.entry[first];
    uint64_t zeros = f->tally[first].nonzero ? f->tally[first].zero_bytes
                                             : e->length_bytes;
    char more[64] = "";
    if (count > 1)
        snprintf(more, sizeof more, "; so are %" PRIu32 " more tensors",
                 count - 1);
    verify_problem(v, f->path, e->name, "%" PRIu64 " of its %" PRIu64
                   " bytes are zero in long runs%s: were they ever written?",
                   zeros, e->length_bytes, more);
}

static void free_file(struct open_file *f)
{
    safetensors_close(&f->header);
    free(f->tally);
    free(f);
}

static void close_file(struct looker *l, struct open_file *f)
{
    for (uint32_t i = 0; i < f->header.count; i++)
        tell_tensor(l->v, f->path, &f->header.entry[i], &f->tally[i]);
    tell_empty(l->v, f);
    pthread_mutex_lock(&l->lock);
    *(f->last ? &f->last->next : &l->open) = f->next;
    if (f->next)
        f->next->last = f->last;
    pthread_mutex_unlock(&l->lock);
    free_file(f);
}

/* Add to a tensor's tally what a slice of it showed. */
static void add(struct tally *t, const struct scan *s,
                const struct safetensors_entry *e, enum scan_kind kind,
                uint64_t offset_bytes, uint64_t length_bytes)
{
    uint64_t value = (offset_bytes - e->offset_bytes) / scan_width(kind);
    if (s->bad && (!t->bad || value + s->first < t->first_bad))
        t->first_bad = value + s->first;
    t->bad += s->bad;
    t->nonzero |= !s->zero;
    if (s->zero && e->dtype == DTYPE_U8 && length_bytes >= ZERO_RUN)
        t->zero_bytes += length_bytes;
}

/* Look at all parts of tensors in a chunk. */
static void look_at(struct looker *l, const struct chunk *c)
{
    struct open_file *f = c->file;
    uint64_t at = c->offset_bytes, end = at + c->length_bytes;
    const uint8_t *bytes = c->base + c->offset_bytes % READER_PAGE;
    for (uint32_t i = c->first; i < f->header.count && at < end; i++) {
        const struct safetensors_entry *e = &f->header.entry[i];
        struct scan s = { .bad = 0 };
        uint64_t last = e->offset_bytes + e->length_bytes;
        last = last < end ? last : end;
        at = at > e->offset_bytes ? at : e->offset_bytes; /* over a gap */
        if (at >= last)
            continue;
        enum scan_kind kind = kind_of(e);
        if (!c->error)
            scan_bytes(&s, kind, bytes + (at - c->offset_bytes),
                       (size_t)(last - at));
        pthread_mutex_lock(&l->lock);
        if (c->error)
            f->tally[i].lost_bytes += last - at;
        else
            add(&f->tally[i], &s, e, kind, at, last - at);
        pthread_mutex_unlock(&l->lock);
        at = last;
    }
}

static void *look(void *arg)
{
    struct looker *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->ready_count && !l->closing)
            pthread_cond_wait(&l->work, &l->lock);
        if (!l->ready_count)
            break;
        uint32_t slot = l->ready[l->ready_begin];
        l->ready_begin = (l->ready_begin + 1) % l->slots;
        l->ready_count--;
        pthread_mutex_unlock(&l->lock);
        look_at(l, &l->chunk[slot]);
        pthread_mutex_lock(&l->lock);
        struct open_file *f = l->chunk[slot].file;
        bool over = --f->out == 0 && f->asked;
        l->free_slot[l->free_count++] = slot;
        pthread_cond_signal(&l->space);
        pthread_mutex_unlock(&l->lock);
        reader_wake(l->r);
        if (over)
            close_file(l, f);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- reading ---- */

static int open_next(struct looker *l, uint32_t drive)
{
    struct cursor *c = &l->cursor[drive];
    struct verify *v = l->v;
    while (c->next < v->paths && reader_drive_of(l->r, c->next) != drive)
        c->next++;
    if (c->next == v->paths)
        return 0;
    struct why why = { 0 };
    struct open_file *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->path = v->path[c->next++];
    int err = safetensors_open(&f->header, f->path, SAFETENSORS_HEADER_MAX,
                               &why);
    if (!err && !(f->tally = calloc(f->header.count + 1, sizeof *f->tally))) {
        safetensors_close(&f->header);
        err = -ENOMEM;
    }
    if (err) { /* it could be read a moment ago */
        free(f);
        if (err != -ENOMEM)
            verify_problem(v, NULL, NULL, "%s", why.text);
        return err == -ENOMEM ? err : 0;
    }
    pthread_mutex_lock(&l->lock);
    f->next = l->open;
    if (f->next)
        f->next->last = f;
    l->open = f;
    pthread_mutex_unlock(&l->lock);
    *c = (struct cursor){ .next = c->next, .file = f,
                          .offset_bytes = f->header.header_bytes,
                          .flying_bytes = c->flying_bytes };
    return 0;
}

/* The next bytes of a file, a chunk at most, that do not end inside a value.
 * Returns 0 at the end of the file. */
static uint32_t next_range(struct cursor *c)
{
    const struct safetensors *h = &c->file->header;
    for (;; c->tensor++) {
        if (c->tensor == h->count)
            return 0;
        const struct safetensors_entry *e = &h->entry[c->tensor];
        if (c->offset_bytes < e->offset_bytes + e->length_bytes)
            break;
    }
    uint64_t end = c->offset_bytes + CHUNK;
    if (end >= h->end_bytes)
        return (uint32_t)(h->end_bytes - c->offset_bytes);
    for (uint32_t i = c->tensor; i < h->count; i++) {
        const struct safetensors_entry *e = &h->entry[i];
        if (end <= e->offset_bytes || end >= e->offset_bytes + e->length_bytes)
            continue;
        end -= (end - e->offset_bytes) % tensor_dtype_bytes(e->dtype);
        break;
    }
    return (uint32_t)(end - c->offset_bytes);
}

static void leave_file(struct looker *l, struct cursor *c)
{
    struct open_file *f = c->file;
    c->file = NULL;
    pthread_mutex_lock(&l->lock);
    f->asked = true;
    bool over = f->out == 0;
    pthread_mutex_unlock(&l->lock);
    if (over)
        close_file(l, f);
}

/* A free slot, or -1. */
static int take_slot(struct looker *l)
{
    pthread_mutex_lock(&l->lock);
    int slot = l->free_count ? (int)l->free_slot[--l->free_count] : -1;
    pthread_mutex_unlock(&l->lock);
    return slot;
}

static int ask(struct looker *l, uint32_t drive, uint32_t length, int slot)
{
    struct cursor *c = &l->cursor[drive];
    struct chunk *k = &l->chunk[slot];
    k->file = c->file;
    k->first = c->tensor;
    k->length_bytes = length;
    k->offset_bytes = c->offset_bytes;
    struct read_req q = {
        .file = c->next - 1, .length_bytes = length,
        .offset_bytes = c->offset_bytes,
        .target = k->base + c->offset_bytes % READER_PAGE,
        .tag = (uint64_t)slot,
    };
    int err = reader_start(l->r, &q);
    pthread_mutex_lock(&l->lock);
    if (err)
        l->free_slot[l->free_count++] = (uint32_t)slot;
    else
        k->file->out++;
    pthread_mutex_unlock(&l->lock);
    if (err)
        return err;
    c->offset_bytes += length;
    c->flying_bytes += length;
    l->flying++;
    return 0;
}

/* Ask a drive for as much as keeps it busy and finds a place. Sets *more while
 * there is something left to ask it. */
static int feed(struct looker *l, uint32_t drive, bool *more)
{
    struct cursor *c = &l->cursor[drive];
    uint64_t most = reader_in_flight_budget(l->r, drive);
    uint64_t share = (uint64_t)l->slots * CHUNK * 3 / 4 /
                     reader_drives(l->r);
    most = most < share ? most : share;
    while (c->flying_bytes < most || !c->flying_bytes) {
        uint32_t length;
        if (!c->file) {
            int err = open_next(l, drive);
            if (err)
                return err;
            if (!c->file && c->next == l->v->paths)
                return 0;
            continue;
        }
        length = next_range(c);
        if (!length) {
            leave_file(l, c);
            continue;
        }
        int slot = take_slot(l);
        if (slot < 0)
            break;
        int err = ask(l, drive, length, slot);
        if (err == -EAGAIN)
            break;
        if (err)
            return err;
    }
    *more = true;
    return 0;
}

static void hand_over(struct looker *l, const struct read_done *d)
{
    struct chunk *k = &l->chunk[d->tag];
    l->flying--;
    l->cursor[d->drive].flying_bytes -= k->length_bytes;
    l->v->facts->bytes += k->length_bytes;
    k->error = d->error;
    pthread_mutex_lock(&l->lock);
    uint32_t end = (l->ready_begin + l->ready_count++) % l->slots;
    l->ready[end] = (uint32_t)d->tag;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

static int read_all(struct looker *l)
{
    struct read_done done[64];
    struct verify *v = l->v;
    for (;;) {
        bool more = false;
        for (uint32_t d = 0; d < reader_drives(l->r); d++) {
            int err = feed(l, d, &more);
            if (err)
                return err;
        }
        if (!more && !l->flying)
            return 0;
        if (!l->flying) { /* everything is being looked at */
            pthread_mutex_lock(&l->lock);
            while (!l->free_count)
                pthread_cond_wait(&l->space, &l->lock);
            pthread_mutex_unlock(&l->lock);
            continue;
        }
        int n = reader_reap(l->r, done, 64, INT64_MAX);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++)
            hand_over(l, &done[i]);
        if (v->o->progress)
            v->o->progress(v->o->arg, v->facts->bytes, v->data_bytes);
    }
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* With the threads running. After a failure the reads in flight are waited for
 * by reader_close, and nobody looks at them. */
static int run_threads(struct looker *l)
{
    uint32_t threads = l->v->o->threads, running = 0;
    pthread_t *thread = calloc(threads, sizeof *thread);
    if (!thread)
        return -ENOMEM;
    while (running < threads &&
           !pthread_create(&thread[running], NULL, look, l))
        running++;
    int64_t begin = now_ns();
    int err = running ? read_all(l) : -EAGAIN;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < running; i++)
        pthread_join(thread[i], NULL);
    l->v->facts->seconds = (double)(now_ns() - begin) / 1e9;
    free(thread);
    return err;
}

static int open_reader(struct looker *l, struct arena *arena, struct why *why)
{
    struct verify *v = l->v;
    uint32_t bad = UINT32_MAX;
    struct reader_facts f;
    struct reader_options o = {
        .method = v->o->io ? v->o->io : "auto",
        .paths = (const char *const *)v->path, .files = v->paths,
        .chunk_bytes = CHUNK, .arena = arena, .fault = v->o->fault,
    };
    int err = reader_open(&l->r, &o, &bad);
    if (err)
        return why_set(why, err, "%s: cannot be opened for reading: %s",
                       bad < v->paths ? v->path[bad] : v->o->dir,
                       strerror(-err));
    reader_facts(l->r, &f);
    v->facts->method = f.method;
    return 0;
}

int verify_read(struct verify *v, struct why *why)
{
    struct arena *arena = NULL;
    struct looker *l = calloc(1, sizeof *l);
    if (!l)
        return why_set(why, -ENOMEM, "no memory for reading");
    l->v = v;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->space, NULL);
    uint64_t slots = v->data_bytes / CHUNK + SLOTS_LEAST;
    l->slots = (uint32_t)(slots < SLOTS_MOST ? slots : SLOTS_MOST);
    int err = arena_open(&arena, (uint64_t)l->slots * SLOT_BYTES);
    if (err)
        err = why_set(why, err, "no memory for reading: %s", strerror(-err));
    for (uint32_t i = 0; !err && i < l->slots; i++) {
        l->chunk[i].base = arena_take(arena, SLOT_BYTES, READER_PAGE);
        assert(l->chunk[i].base);
        l->free_slot[l->free_count++] = i;
    }
    if (!err)
        err = open_reader(l, arena, why);
    if (!err) {
        err = run_threads(l);
        if (err)
            why_set(why, err, "%s: reading stopped: %s", v->o->dir,
                    strerror(-err));
    }
    reader_close(l->r);
    while (l->open) { /* only after a failure */
        struct open_file *f = l->open;
        l->open = f->next;
        free_file(f);
    }
    arena_close(arena);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->space);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return err;
}
