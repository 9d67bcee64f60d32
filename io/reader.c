#include "io/clock.h"
#include "io/reader_internal.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "io/numa.h"

#define BATCH_MAX  64u
#define OWNER_NICE -10
#define ERRORS_MAX 3u    /* failures that are tried again, per read */
#define STALLS_MAX 1024u /* interruptions in a row without a byte */

/* The owner sleeps nearly always, and what it does when it wakes up is short:
 * let it go first, or compute threads that spin make it late by milliseconds.
 * Its children are not raised. On a paced drive it shall not be 50 us late for
 * saving power either. */
static void raise_owner(struct reader *r)
{
    struct sched_param first = { .sched_priority = 1 };
    if (!r->realtime)
        r->owner_turn = READER_TURN_EQUAL;
    else if (!sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first))
        r->owner_turn = READER_TURN_REALTIME;
    else if (setpriority(PRIO_PROCESS, 0, OWNER_NICE) == 0)
        r->owner_turn = READER_TURN_NICE;
    if (r->owner_node >= 0 && numa_run_on(r->owner_node) < 0)
        r->owner_node = -1;
    if (r->paced_count > 0)
        prctl(PR_SET_TIMERSLACK, 1);
}

static void bind_owner(struct reader *r)
{
    if (!r->bound) {
        r->owner = pthread_self();
        r->bound = true;
        pthread_mutex_lock(&r->lock);
        raise_owner(r);
        pthread_mutex_unlock(&r->lock);
    }
    assert(pthread_equal(r->owner, pthread_self()));
}

static void stage(struct reader *r, uint32_t index)
{
    assert(r->staged_count < READER_DEPTH);
    r->slot[index].state = SLOT_STAGED;
    r->staged[r->staged_count++] = (uint16_t)index;
}

int reader_start(struct reader *r, const struct read_req *req)
{
    bind_owner(r);
    if (req->file >= r->files || req->length_bytes == 0 ||
        req->length_bytes > r->chunk_bytes ||
        ((uintptr_t)req->target - req->offset_bytes) % READER_PAGE != 0)
        return -EINVAL;
    uint64_t size = r->file[req->file].size_bytes;
    if (req->offset_bytes > size ||
        req->length_bytes > size - req->offset_bytes)
        return -ENODATA;
    if (r->free_head == READER_DEPTH)
        return -EAGAIN;

    uint16_t index = r->free_head;
    struct slot *s = &r->slot[index];
    assert(s->state == SLOT_FREE);
    r->free_head = s->next_free;
    r->in_use++;
    uint32_t skip = (uint32_t)(req->offset_bytes % READER_PAGE);
    uint32_t need = skip + req->length_bytes;
    *s = (struct slot){
        .generation = (uint16_t)(s->generation + 1),
        .req = *req,
        .begin_bytes = req->offset_bytes - skip,
        .pages = (char *)req->target - skip,
        .need_bytes = need,
        .span_bytes = (need + READER_PAGE - 1) & ~(READER_PAGE - 1),
        .queued_ns = clock_ns(),
    };
    stage(r, index);
    return 0;
}

/* Under the lock. */
static void push(struct reader *r, uint32_t index, int64_t now)
{
    struct slot *s = &r->slot[index];
    const struct io_file *f = &r->file[s->req.file];
    struct drive *d = &r->drive[r->drive_of[s->req.file]];
    s->state = SLOT_FLYING;
    s->asked_bytes = s->span_bytes - s->landed_bytes;
    s->pushed_ns = now;
    s->issued_ns = s->issued_ns ? s->issued_ns : now;
    if (d->flying++ == 0)
        d->busy_since_ns = now > d->last_done_ns ? now : d->last_done_ns;
    r->in_flight_bytes += s->asked_bytes;
    if (r->in_flight_bytes > r->in_flight_peak_bytes)
        r->in_flight_peak_bytes = r->in_flight_bytes;
    r->layers[0]->push(r->ctx, &(struct io_op){
        .id = index | (uint32_t)s->generation << 16,
        .file = s->req.file,
        .drive = r->drive_of[s->req.file],
        .fd = f->fd,
        .length_bytes = s->asked_bytes,
        .offset_bytes = s->begin_bytes + s->landed_bytes,
        .target = s->pages + s->landed_bytes,
        .issued_ns = now,
        .direct = f->direct,
        .plain = s->plain,
    });
}

static void push_staged(struct reader *r)
{
    if (r->staged_count == 0)
        return;
    int64_t now = clock_ns();
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->staged_count; i++)
        push(r, r->staged[i], now);
    pthread_mutex_unlock(&r->lock);
    r->staged_count = 0;
}

enum verdict { READ_DONE, READ_FAILED, READ_MORE, READ_BUFFERED, READ_PLAIN };

/* What a result means for its read, which would go on at `landed`. Pure. */
static enum verdict classify(const struct slot *s, int32_t res, uint32_t landed,
                          bool direct, int *code)
{
    *code = 0;
    if (landed >= s->need_bytes)
        return READ_DONE; /* the tail of the last page may be missing: EOF */
    if (landed > s->landed_bytes)
        return READ_MORE;
    if (res > 0) {
        /* Less than a block, again and again, is no way to do direct reads;
         * through the page cache any byte is progress. */
        if (direct)
            return READ_BUFFERED;
        *code = -EIO;
        return READ_FAILED;
    }
    if (res == 0) {
        *code = -ENODATA; /* the file has shrunk */
        return READ_FAILED;
    }
    bool again = res == -EINTR || res == -EAGAIN;
    *code = again || res == -ENODATA ? -EIO : res; /* -ENODATA: bad medium */
    if (again)
        return s->stalls < STALLS_MAX ? READ_MORE : READ_FAILED;
    if (res == -EINVAL && direct)
        return READ_BUFFERED;
    if ((res == -EOPNOTSUPP || res == -EFAULT || res == -EINVAL) && !s->plain)
        return READ_PLAIN;
    return s->errors < ERRORS_MAX ? READ_MORE : READ_FAILED;
}

/* The file is read through the page cache from here on. 0, or why not. */
static int demote(struct reader *r, const struct slot *s, int32_t res)
{
    struct io_file *f = &r->file[s->req.file];
    if (!f->direct)
        return 0; /* by an earlier result of the same file */
    int err = file_demote(f, res < 0 ? res : -EIO);
    if (err < 0)
        return err;
    r->direct = false;
    reader_note(r, "direct read of file %u refused (error %d): buffered from "
                   "here on; reads cost more CPU", s->req.file, -f->refused);
    return 0;
}

static void finish(struct reader *r, uint32_t index, int code, int64_t done_ns,
                   struct read_done *out)
{
    struct slot *s = &r->slot[index];
    *out = (struct read_done){
        .tag = s->req.tag,
        .error = code,
        .bytes = code ? 0 : s->req.length_bytes,
        .device_bytes = s->moved_bytes,
        .drive = r->drive_of[s->req.file],
        .file = s->req.file,
        .offset_bytes = s->req.offset_bytes,
        .class = s->req.class,
        .queued_ns = s->queued_ns,
        .issued_ns = s->issued_ns,
        .done_ns = done_ns,
    };
    r->reads++;
    r->failed += code != 0;
    r->payload_bytes += out->bytes;
    s->state = SLOT_FREE;
    s->next_free = r->free_head;
    r->free_head = (uint16_t)index;
    r->in_use--;
}

/* The part of settling that is only counting. */
static void count(struct reader *r, struct slot *s, const struct io_result *res)
{
    struct drive *d = &r->drive[r->drive_of[s->req.file]];
    uint32_t moved = res->res > 0 ? (uint32_t)res->res : 0;
    r->in_flight_bytes -= s->asked_bytes;
    d->byte_ns +=
        (double)s->asked_bytes * (double)(res->done_ns - s->pushed_ns);
    d->device_bytes += moved;
    r->device_bytes += moved;
    s->moved_bytes += moved;
    if (res->done_ns > d->last_done_ns)
        d->last_done_ns = res->done_ns;
    if (--d->flying == 0)
        d->busy_ns += d->last_done_ns - d->busy_since_ns;
}

/* Take one result in: either the read is over, is stored in *out and true is
 * returned, or it has more to do and is staged again. Under the lock. */
static bool settle(struct reader *r, const struct io_result *res,
                   struct read_done *out)
{
    uint32_t index = IO_SLOT(res->id);
    assert(index < READER_DEPTH);
    struct slot *s = &r->slot[index];
    if (s->state != SLOT_FLYING || s->generation != res->id >> 16)
        return false; /* the read it belongs to is over */
    const struct io_file *f = &r->file[s->req.file];
    count(r, s, res);

    /* A short direct read may end inside a block; it resumes on one. */
    uint32_t landed = s->landed_bytes;
    if (res->res > 0)
        landed += (uint32_t)res->res;
    if (landed < s->need_bytes && f->direct)
        landed -= landed % FILE_ALIGN;
    int code;
    enum verdict verdict = classify(s, res->res, landed, f->direct, &code);
    if (verdict == READ_BUFFERED) {
        code = demote(r, s, res->res);
        verdict = code ? READ_FAILED : READ_MORE;
    }
    if (!f->direct && (verdict == READ_DONE || verdict == READ_FAILED))
        file_drop(f, s->begin_bytes, s->span_bytes);
    if (verdict == READ_DONE || verdict == READ_FAILED) {
        finish(r, index, code, res->done_ns, out);
        return true;
    }
    if (res->res > 0)
        r->short_reads++;
    else
        r->retries++;
    s->stalls = landed > s->landed_bytes ? 0 : s->stalls + 1;
    s->errors += res->res < 0 && res->res != -EINTR && res->res != -EAGAIN;
    s->plain |= verdict == READ_PLAIN;
    s->landed_bytes = landed;
    stage(r, index);
    return false;
}

static int reap(struct reader *r, struct read_done *out, uint32_t max,
                int64_t deadline_ns)
{
    struct io_result results[BATCH_MAX];
    uint32_t n = 0;
    bool over = false;
    while (!over) {
        push_staged(r);
        /* Whoever wakes us sets `woken` and then looks at `asleep`; this
         * thread does the opposite. One of the two sees the other. */
        int64_t until_ns = deadline_ns;
        if (deadline_ns != 0) {
            atomic_store(&r->asleep, 1);
            if (atomic_load(&r->woken))
                until_ns = 0;
        }
        int got = r->layers[0]->reap(r->ctx, results,
                                     max < BATCH_MAX ? max : BATCH_MAX,
                                     until_ns);
        atomic_store(&r->asleep, 0);
        if (got < 0)
            return got;
        if (got > 0)
            pthread_mutex_lock(&r->lock);
        for (int i = 0; i < got; i++)
            n += settle(r, &results[i], &out[n]);
        if (got > 0)
            pthread_mutex_unlock(&r->lock);
        over = atomic_exchange(&r->woken, 0) || n > 0 || deadline_ns == 0 ||
               (deadline_ns != IO_NO_DEADLINE && clock_ns() >= deadline_ns);
    }
    if (r->staged_count > 0) { /* do not leave a retry to the next call */
        push_staged(r);
        int err = r->layers[0]->reap(r->ctx, NULL, 0, 0);
        if (err < 0 && n == 0)
            return err;
    }
    return (int)n;
}

int reader_reap(struct reader *r, struct read_done *out, uint32_t max,
                int64_t deadline_ns)
{
    assert(max > 0);
    bind_owner(r);
    return reap(r, out, max, deadline_ns);
}

void reader_wake(struct reader *r)
{
    if (atomic_exchange(&r->woken, 1) == 0 && atomic_load(&r->asleep))
        r->layers[0]->wake(r->ctx);
}

int reader_drain(struct reader *r)
{
    struct read_done ignored[BATCH_MAX];
    bind_owner(r);
    while (r->in_use > 0) {
        int n = reap(r, ignored, BATCH_MAX, IO_NO_DEADLINE);
        if (n < 0)
            return n;
    }
    return 0;
}

void reader_close(struct reader *r)
{
    if (!r)
        return;
    if (r->in_use > 0 && pthread_equal(r->owner, pthread_self()))
        reader_drain(r); /* fails if the ring broke, and its reads with it */
    if (r->in_use > 0 && r->arena)
        arena_keep(r->arena);
    if (r->ctx)
        r->layers[0]->close(r->ctx);
    for (uint32_t i = 0; r->file && i < r->files; i++)
        file_close(&r->file[i]);
    pthread_mutex_destroy(&r->lock);
    free(r->file);
    free(r->drive_of);
    free(r->copy_of);
    free(r->next_copy);
    free(r->lost);
    for (uint32_t i = 0; r->path && i < r->files; i++)
        free(r->path[i]);
    free(r->path);
    free(r);
}
