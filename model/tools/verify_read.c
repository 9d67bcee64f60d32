/* verify_read.c - read every byte with the engine's reader. The caller's thread
 * keeps the drives busy with several files at a time, each of the others checks
 * what has landed of one file. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/arena.h"
#include "io/clock.h"
#include "model/tools/verify_internal.h"

enum {
    CHUNK = VERIFY_CHUNK,
    SLOT_BYTES = CHUNK + 2 * READER_PAGE,
    SLOTS_A_LANE = 8,   /* enough to look at one while others come */
    SLOTS_LEAST = 4,
    SLOTS_MAX = 1024,
    LANES_MAX = 64,     /* files that are open at a time */
    HEADER_COST = 8,    /* bytes of memory a byte of a header, parsed */
};

/* Where a file is being asked for. */
struct lane {
    struct verify_file *file; /* or NULL */
    uint32_t drive, index;    /* of the file, for the reader */
    uint32_t tensor;
    uint64_t offset_bytes;
};

struct drive {
    uint32_t next; /* file to open after those that are */
    uint64_t flying_bytes;
};

struct looker {
    struct verify   *v;
    struct reader   *r;
    struct drive     drive[DRIVES_MAX];
    struct lane      lane[LANES_MAX];
    uint32_t         lanes; /* and no more files are open than these */
    uint32_t         turn;  /* the lane that is asked first */
    struct verify_chunk chunk[SLOTS_MAX];
    uint32_t         slots;
    uint32_t         flying; /* reads; the caller's alone */
    pthread_mutex_t  lock;
    pthread_cond_t   work, space;
    /* Files with something to look at, each once: a ring. */
    struct verify_file *ready[LANES_MAX];
    uint32_t ready_begin, ready_count;
    int      free_slot[SLOTS_MAX];
    uint32_t free_count;
    struct verify_file *open[LANES_MAX]; /* files that are not over */
    uint32_t open_count;
    uint64_t freed; /* slots and files so far */
    bool     closing;
};

/* ---- checking ---- */

/* Take the chunk that comes next in the file, if it has come. */
static int take_next(struct looker *l, struct verify_file *f)
{
    for (int *at = &f->came; *at != VERIFY_NO_SLOT; at = &l->chunk[*at].next)
        if (l->chunk[*at].offset_bytes == f->seen_bytes) {
            int slot = *at;
            *at = l->chunk[slot].next;
            return slot;
        }
    return VERIFY_NO_SLOT;
}

static void tell_freed(struct looker *l)
{
    l->freed++;
    pthread_cond_signal(&l->space);
    reader_wake(l->r);
}

/* With the lock held: look at all of a file that can be looked at now. */
static void serve(struct looker *l, struct verify_file *f)
{
    int slot;
    while ((slot = take_next(l, f)) != VERIFY_NO_SLOT) {
        pthread_mutex_unlock(&l->lock);
        verify_file_look(l->v, f, &l->chunk[slot]);
        pthread_mutex_lock(&l->lock);
        f->seen_bytes = l->chunk[slot].offset_bytes +
                        l->chunk[slot].length_bytes;
        f->out--;
        l->free_slot[l->free_count++] = slot;
        tell_freed(l);
    }
    f->busy = false;
    if (f->out || !f->asked)
        return;
    for (uint32_t i = 0; i < l->lanes; i++)
        if (l->open[i] == f)
            l->open[i] = NULL;
    pthread_mutex_unlock(&l->lock);
    verify_file_end(l->v, f);
    pthread_mutex_lock(&l->lock);
    l->open_count--;
    tell_freed(l);
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
        struct verify_file *f = l->ready[l->ready_begin];
        l->ready_begin = (l->ready_begin + 1) % LANES_MAX;
        l->ready_count--;
        serve(l, f);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* With the lock held: give a file to a thread, unless one has it. */
static void make_ready(struct looker *l, struct verify_file *f)
{
    if (f->busy)
        return;
    f->busy = true;
    assert(l->ready_count < LANES_MAX);
    l->ready[(l->ready_begin + l->ready_count++) % LANES_MAX] = f;
    pthread_cond_signal(&l->work);
}

/* ---- reading ---- */

/* The drive that has files left and the least to do, or NULL. */
static struct drive *idle_drive(struct looker *l, uint32_t *index)
{
    struct drive *found = NULL;
    for (uint32_t i = 0; i < reader_drives(l->r); i++) {
        struct drive *d = &l->drive[i];
        while (d->next < l->v->reads && reader_drive_of(l->r, d->next) != i)
            d->next++;
        if (d->next == l->v->reads ||
            (found && d->flying_bytes >= found->flying_bytes))
            continue;
        found = d;
        *index = i;
    }
    return found;
}

/* Give a lane the next file that can be opened. */
static int open_next(struct looker *l, struct lane *a)
{
    struct drive *d;
    uint32_t index;
    pthread_mutex_lock(&l->lock);
    bool room = l->open_count < l->lanes;
    pthread_mutex_unlock(&l->lock);
    while (room && (d = idle_drive(l, &index))) {
        struct verify_file *f;
        uint32_t file = d->next++;
        int err = verify_file_open(&f, l->v, l->v->path[file]);
        if (err == -ENOMEM)
            return err;
        if (err)
            continue;
        *a = (struct lane){ .file = f, .drive = index, .index = file };
        pthread_mutex_lock(&l->lock);
        for (uint32_t i = 0; i < l->lanes; i++)
            if (!l->open[i]) {
                l->open[i] = f;
                break;
            }
        l->open_count++;
        pthread_mutex_unlock(&l->lock);
        return 0;
    }
    return 0;
}

/* The length of the next chunk of a file, which does not end inside a value; 0
 * at the end of the file. */
static uint32_t next_range(struct lane *a)
{
    const struct safetensors *h = &a->file->header;
    uint64_t end = a->offset_bytes + CHUNK;
    if (end >= h->file_bytes)
        return (uint32_t)(h->file_bytes - a->offset_bytes);
    for (; a->tensor < h->count; a->tensor++) {
        const struct safetensors_entry *e = &h->entry[a->tensor];
        if (end <= e->offset_bytes)
            break;
        if (end >= e->offset_bytes + e->length_bytes)
            continue;
        end -= (end - e->offset_bytes) % tensor_dtype_bytes(e->dtype);
        break;
    }
    return (uint32_t)(end - a->offset_bytes);
}

static void leave_file(struct looker *l, struct lane *a)
{
    pthread_mutex_lock(&l->lock);
    a->file->asked = true;
    if (!a->file->out)
        make_ready(l, a->file);
    a->file = NULL;
    pthread_mutex_unlock(&l->lock);
}

/* A free slot for a file that has not its share yet, or NO_SLOT. */
static int take_slot(struct looker *l, const struct verify_file *f)
{
    int slot = VERIFY_NO_SLOT;
    pthread_mutex_lock(&l->lock);
    if (l->free_count && f->out < l->slots / l->lanes)
        slot = l->free_slot[--l->free_count];
    pthread_mutex_unlock(&l->lock);
    return slot;
}

static int ask(struct looker *l, struct lane *a, uint32_t length, int slot)
{
    struct verify_chunk *k = &l->chunk[slot];
    k->file = a->file;
    k->length_bytes = length;
    k->offset_bytes = a->offset_bytes;
    struct read_req q = {
        .file = a->index, .length_bytes = length,
        .offset_bytes = a->offset_bytes,
        .target = k->base + a->offset_bytes % READER_PAGE,
        .tag = (uint64_t)slot,
    };
    int err = reader_start(l->r, &q);
    if (err == -ENODATA) { /* cut off since it was opened */
        k->code = err;
        l->v->facts->bytes += length;
    }
    pthread_mutex_lock(&l->lock);
    if (err && err != -ENODATA) {
        l->free_slot[l->free_count++] = slot;
    } else {
        a->file->out++;
        a->offset_bytes += length;
    }
    if (err == -ENODATA) {
        k->next = a->file->came;
        a->file->came = slot;
        make_ready(l, a->file);
    }
    pthread_mutex_unlock(&l->lock);
    if (err)
        return err == -ENODATA ? 0 : err;
    l->drive[a->drive].flying_bytes += length;
    l->flying++;
    return 0;
}

/* Ask for one chunk of a lane's file. Returns 1, 0 when it has nothing to ask
 * or no place for it, or a negative errno. */
static int feed_lane(struct looker *l, struct lane *a)
{
    if (!a->file) {
        int err = open_next(l, a);
        if (err || !a->file)
            return err;
    }
    uint64_t flying = l->drive[a->drive].flying_bytes;
    if (flying && flying >= reader_in_flight_budget(l->r, a->drive))
        return 0;
    uint32_t length = next_range(a);
    if (!length) {
        leave_file(l, a);
        return 1;
    }
    int slot = take_slot(l, a->file);
    if (slot == VERIFY_NO_SLOT)
        return 0;
    int err = ask(l, a, length, slot);
    return err == -EAGAIN ? 0 : err ? err : 1;
}

/* Ask the drives for as much as keeps them busy and finds a place. */
static int feed(struct looker *l)
{
    bool more = true;
    while (more) {
        more = false;
        for (uint32_t i = 0; i < l->lanes; i++) {
            int n = feed_lane(l, &l->lane[(l->turn + i) % l->lanes]);
            if (n < 0)
                return n;
            more |= n > 0;
        }
        l->turn = (l->turn + 1) % l->lanes;
    }
    return 0;
}

static void hand_over(struct looker *l, const struct read_done *d)
{
    struct verify_chunk *k = &l->chunk[d->tag];
    l->flying--;
    l->drive[d->drive].flying_bytes -= k->length_bytes;
    l->v->facts->bytes += k->length_bytes;
    k->code = d->error;
    pthread_mutex_lock(&l->lock);
    k->next = k->file->came;
    k->file->came = (int)d->tag;
    if (k->offset_bytes == k->file->seen_bytes)
        make_ready(l, k->file);
    pthread_mutex_unlock(&l->lock);
}

static int read_all(struct looker *l)
{
    struct read_done done[64];
    struct verify *v = l->v;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        uint64_t freed = l->freed;
        pthread_mutex_unlock(&l->lock);
        int err = feed(l);
        if (err)
            return err;
        if (!l->flying) { /* everything is being looked at, or over */
            pthread_mutex_lock(&l->lock);
            while (l->open_count && l->freed == freed)
                pthread_cond_wait(&l->space, &l->lock);
            bool over = !l->open_count && l->freed == freed;
            pthread_mutex_unlock(&l->lock);
            if (over)
                return 0;
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

/* Read everything while the threads check. After a failure reader_close waits
 * for the reads in flight, and they are not checked. */
static int run_threads(struct looker *l)
{
    uint32_t threads = l->v->o->threads, running = 0;
    pthread_t *thread = calloc(threads, sizeof *thread);
    if (!thread)
        return -ENOMEM;
    while (running < threads &&
           !pthread_create(&thread[running], NULL, look, l))
        running++;
    int64_t begin = clock_ns();
    int err = running ? read_all(l) : -EAGAIN;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < running; i++)
        pthread_join(thread[i], NULL);
    l->v->facts->seconds = (double)(clock_ns() - begin) / 1e9;
    free(thread);
    return err;
}

static int open_reader(struct looker *l, struct arena *arena,
                       struct error *error)
{
    struct verify *v = l->v;
    uint32_t bad = UINT32_MAX;
    struct reader_facts f;
    struct reader_options o = {
        .method = v->o->io ? v->o->io : "auto",
        .paths = (const char *const *)v->path, .files = v->reads,
        .chunk_bytes = CHUNK, .arena = arena, .fault = v->o->fault,
        .realtime = true,
    };
    int err = reader_open(&l->r, &o, &bad);
    if (err)
        return error_set(error, err, "%s: cannot be opened for reading: %s",
                         bad < v->reads ? v->path[bad] : v->o->dir,
                         strerror(-err));
    reader_facts(l->r, &f);
    v->facts->method = f.method;
    return 0;
}

/* ---- memory ---- */

static uint64_t lane_bytes(const struct verify *v)
{
    return v->header_max_bytes * HEADER_COST + (256 << 10);
}

uint64_t verify_read_floor(const struct verify *v)
{
    return VERIFY_PROGRAM_BYTES + lane_bytes(v) + SLOTS_LEAST * SLOT_BYTES;
}

/* A lane for each thread, and slots for them, as the memory allows. */
static void choose(struct looker *l)
{
    const struct verify *v = l->v;
    uint64_t memory = v->memory_bytes - VERIFY_PROGRAM_BYTES;
    uint64_t lanes = v->o->threads < v->reads ? v->o->threads : v->reads;
    lanes = lanes < LANES_MAX ? lanes : LANES_MAX;
    while (lanes > 1 &&
           lanes * (lane_bytes(v) + SLOTS_A_LANE * SLOT_BYTES) > memory)
        lanes--;
    uint64_t slots = (memory - lanes * lane_bytes(v)) / SLOT_BYTES;
    uint64_t enough = v->data_bytes / CHUNK + v->reads + SLOTS_LEAST;
    slots = slots < SLOTS_MAX ? slots : SLOTS_MAX;
    l->slots = (uint32_t)(slots < enough ? slots : enough);
    l->lanes = (uint32_t)lanes;
}

int verify_read(struct verify *v, struct error *error)
{
    struct arena *arena = NULL;
    struct looker *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(error, -ENOMEM, "no memory for reading");
    l->v = v;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->space, NULL);
    choose(l);
    int err = arena_open(&arena, (uint64_t)l->slots * SLOT_BYTES);
    if (err)
        err =
            error_set(error, err, "no memory for reading: %s", strerror(-err));
    for (uint32_t i = 0; !err && i < l->slots; i++) {
        l->chunk[i].base = arena_take(arena, SLOT_BYTES, READER_PAGE);
        assert(l->chunk[i].base);
        l->free_slot[l->free_count++] = (int)i;
    }
    if (!err)
        err = open_reader(l, arena, error);
    if (!err) {
        err = run_threads(l);
        if (err)
            error_set(error, err, "%s: reading stopped: %s", v->o->dir,
                      strerror(-err));
    }
    reader_close(l->r);
    for (uint32_t i = 0; i < l->lanes; i++) /* only after a failure */
        verify_file_free(l->open[i]);
    arena_close(arena);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->space);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return err;
}
