#include "io/clock.h"
#include "io/reader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROBE_DEPTH   64u
#define BUFFER_BYTES  ((size_t)12 << 20) /* more than a cache takes in flight */
#define HUGE_BYTES    ((size_t)2 << 20)
#define CHECK_BYTES   8192u
#define CHECK_BUFFER_BYTES ((size_t)64 << 10)
#define LEVELS        5u /* 4, 8, 16, 32, 64 MiB in flight */
#define LEVEL_BYTES   ((uint64_t)4 << 20)
#define TOP           3u /* levels whose mean is the plateau */
#define PASSES        4u
#define WINDOW_NS     35000000  /* one level, once, if there is one drive */
#define SINGLE_NS     150000000 /* the only level, when depth is given */
#define PLATEAU       0.95
#define MIN_BYTES ((uint64_t)1 << 30) /* of files: finding the level reads more
                                         * than that */
#define CHECK_WAIT_NS 10000000000

/* One instance of a method for measuring, with a buffer of its own. It is not
 * the reader's: a ring belongs to the thread that uses it, and the reader's
 * owner is not here yet. */
struct probe {
    struct reader *r;
    const struct io_method *method;
    void    *ctx;
    struct io_granted granted;
    char    *map, *buffer; /* the second is 2 MiB aligned in the first */
    size_t   map_bytes;
    size_t   at_bytes;       /* where the next read lands in it */
    uint64_t random;
};

static void probe_close(struct probe *p)
{
    if (p->ctx)
        p->method->close(p->ctx);
    if (p->map)
        munmap(p->map, p->map_bytes);
}

/* `fixed`: the buffer is registered, which makes all of it resident. */
static int probe_open(struct probe *p, struct reader *r,
                      const struct io_method *method, size_t buffer_bytes,
                      bool fixed)
{
    *p = (struct probe){ .r = r, .method = method, .random = 1,
                         .map_bytes = buffer_bytes + HUGE_BYTES };
    char *map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    p->map = map;
    p->buffer = map + (-(uintptr_t)map & (HUGE_BYTES - 1));
    madvise(p->buffer, buffer_bytes, MADV_HUGEPAGE);
    int *fds = calloc(r->files, sizeof *fds);
    for (uint32_t i = 0; fds && i < r->files; i++)
        fds[i] = r->file[i].fd;
    const struct io_method *layers[] = { method, NULL };
    struct io_setup setup = {
        .layers = layers,
        .depth = PROBE_DEPTH,
        .fds = fds,
        .files = r->files,
        .drives = r->drives,
        .arena_base = fixed ? p->buffer : NULL,
        .arena_bytes = fixed ? buffer_bytes : 0,
        .granted = &p->granted,
    };
    int err = fds ? method->open(&p->ctx, &setup) : -ENOMEM;
    free(fds);
    if (err < 0) {
        p->ctx = NULL;
        probe_close(p);
    }
    return err;
}

/* Read one range, waiting for it: bytes or a negative errno. */
static int32_t read_one(struct probe *p, struct io_op *op)
{
    struct io_result res;
    int64_t until_ns = clock_ns() + CHECK_WAIT_NS;
    int n;
    op->issued_ns = clock_ns();
    p->method->push(p->ctx, op);
    do
        n = p->method->reap(p->ctx, &res, 1, until_ns);
    while (n == 0 && clock_ns() < until_ns);
    return n < 0 ? n : n == 0 ? -ETIMEDOUT : res.res;
}

/* What the method reads at 4096 bytes into a buffer against what pread reads.
 * Kernel 6.5 had registered buffers that were wrong just there. */
static int compare(struct probe *p, uint32_t file, bool plain)
{
    const struct io_file *f = &p->r->file[file];
    char *mine = p->buffer + READER_PAGE;
    char *truth = p->buffer + CHECK_BUFFER_BYTES - CHECK_BYTES;
    struct io_op op = {
        .file = file,
        .drive = p->r->drive_of[file],
        .fd = f->fd,
        .length_bytes = CHECK_BYTES,
        .target = mine,
        .direct = f->direct,
        .plain = plain,
    };
    ssize_t want = pread(f->fd, truth, CHECK_BYTES, 0);
    if (want < 0)
        return 0; /* a bad first page says nothing about the method */
    int32_t got = read_one(p, &op);
    if (got < 0)
        return got;
    return got == want && !memcmp(mine, truth, (size_t)want) ? 0 : -EBADMSG;
}

int probe_check(struct reader *r, const struct io_method *method,
                bool *fixed_works)
{
    struct probe p;
    uint32_t file = 0;
    int err = probe_open(&p, r, method, CHECK_BUFFER_BYTES, true);
    if (err < 0)
        return err;
    while (file + 1 < r->files && r->file[file].size_bytes == 0)
        file++;
    *fixed_works = true;
    err = compare(&p, file, false);
    if (err < 0 && p.granted.registered_buffers) {
        *fixed_works = false;
        err = compare(&p, file, true);
    }
    probe_close(&p);
    return err;
}

/* A chunk somewhere on the drive; every chunk of its files is as likely. Its
 * target moves on with every read, or few reads in flight would seem fast for
 * landing in a cache of the processor. */
static void pick(struct probe *p, uint32_t drive, uint64_t chunks,
                 uint32_t chunk_bytes, struct io_op *op)
{
    if (p->at_bytes + chunk_bytes > BUFFER_BYTES)
        p->at_bytes = 0;
    op->target = p->buffer + p->at_bytes;
    p->at_bytes += chunk_bytes;
    p->random = p->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    uint64_t at = (p->random >> 20) % chunks;
    for (uint32_t i = 0; i < p->r->files; i++) {
        const struct io_file *f = &p->r->file[i];
        uint64_t here = f->size_bytes / chunk_bytes;
        if (p->r->drive_of[i] != drive)
            continue;
        if (at < here) {
            op->file = i;
            op->fd = f->fd;
            op->direct = f->direct;
            op->offset_bytes = at * chunk_bytes;
            return;
        }
        at -= here;
    }
}

struct level {
    uint64_t bytes;  /* in flight */
    int64_t  window_ns;
    uint64_t limit_bytes; /* read no more than this */
    uint64_t rate;   /* out: bytes a second */
};

/* Keep `bytes` in flight for a while, and count all of it, the end too, when
 * less is in flight: to submit may itself have to wait for the drive, so that
 * the first completion says nothing about when the work began. */
static int measure(struct probe *p, uint32_t drive, uint64_t chunks,
                   uint32_t chunk_bytes, struct level *l)
{
    uint32_t depth = (uint32_t)((l->bytes + chunk_bytes - 1) / chunk_bytes);
    if (depth > PROBE_DEPTH)
        depth = PROBE_DEPTH;
    uint32_t flying = 0;
    uint64_t pushed = 0, moved = 0;
    int64_t begin = clock_ns(), now = begin;
    struct io_op op[PROBE_DEPTH];
    struct io_result res[PROBE_DEPTH];
    for (uint32_t i = 0; i < depth; i++)
        op[i] = (struct io_op){
            .id = i,
            .drive = drive,
            .length_bytes = chunk_bytes,
        };
    for (uint32_t i = 0; i < depth; i++, flying++, pushed += chunk_bytes) {
        pick(p, drive, chunks, chunk_bytes, &op[i]);
        p->method->push(p->ctx, &op[i]);
    }
    while (flying > 0) {
        int n = p->method->reap(p->ctx, res, depth, IO_NO_DEADLINE);
        if (n < 0)
            return n;
        now = clock_ns();
        for (int i = 0; i < n; i++, flying--) {
            struct io_op *o = &op[res[i].id];
            moved += res[i].res > 0 ? (uint64_t)res[i].res : 0;
            if (!o->direct)
                file_drop(&p->r->file[o->file], o->offset_bytes, chunk_bytes);
            if (pushed < l->limit_bytes && now - begin < l->window_ns) {
                pick(p, drive, chunks, chunk_bytes, o);
                p->method->push(p->ctx, o);
                pushed += chunk_bytes;
                flying++;
            }
        }
    }
    l->rate = (uint64_t)((double)moved * 1e9 / (double)(now - begin + 1));
    return 0;
}

/* The mean of the best few: one lucky window shall not set the mark. */
static double plateau(const uint64_t *rate)
{
    uint64_t sorted[LEVELS] = { 0 };
    double sum = 0;
    for (uint32_t i = 0; i < LEVELS; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] < rate[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = rate[i];
    }
    for (uint32_t i = 0; i < TOP; i++)
        sum += (double)sorted[i];
    return sum / TOP;
}

/* Up and down, the best of each: a machine has other things to do. Below
 * the first level there would be too little in flight to cover the time in
 * which the owner wakes up and starts the next read. */
static int find_level(struct probe *p, uint32_t drive, uint64_t chunks,
                      uint32_t chunk_bytes)
{
    struct drive *d = &p->r->drive[drive];
    uint64_t rate[LEVELS] = { 0 }, sum[LEVELS] = { 0 };
    for (uint32_t i = 0; i < PASSES * LEVELS; i++) {
        uint32_t at = i % LEVELS;
        if (i / LEVELS % 2)
            at = LEVELS - 1 - at;
        struct level l = {
            .bytes = LEVEL_BYTES << at,
            .window_ns = WINDOW_NS / p->r->drives,
            .limit_bytes = UINT64_MAX,
        };
        int err = measure(p, drive, chunks, chunk_bytes, &l);
        if (err < 0)
            return err;
        sum[at] += l.rate;
        if (l.rate > rate[at])
            rate[at] = l.rate;
    }
    double best = plateau(rate);
    for (uint32_t at = LEVELS; at-- > 0;) {
        if ((double)rate[at] >= PLATEAU * best)
            d->budget_bytes = LEVEL_BYTES << at;
        if (sum[at] / PASSES > d->raw_bytes_per_s)
            d->raw_bytes_per_s = sum[at] / PASSES;
    }
    return 0;
}

static int measure_drive(struct probe *p, uint32_t drive, bool only_rate)
{
    struct reader *r = p->r;
    uint64_t bytes = 0, chunks = 0;
    uint32_t chunk = (r->chunk_bytes + READER_PAGE - 1) & ~(READER_PAGE - 1);
    if (chunk > BUFFER_BYTES)
        chunk = BUFFER_BYTES;
    for (uint32_t i = 0; i < r->files; i++) {
        bytes += r->drive_of[i] == drive ? r->file[i].size_bytes : 0;
        if (r->drive_of[i] == drive)
            chunks += r->file[i].size_bytes / chunk;
    }
    if (chunks == 0)
        return 0;
    if (bytes >= MIN_BYTES && !only_rate)
        return find_level(p, drive, chunks, chunk);
    struct level l = {
        .bytes = BUDGET_DEFAULT,
        .window_ns = SINGLE_NS / r->drives,
        .limit_bytes = bytes,
    };
    int err = measure(p, drive, chunks, chunk, &l);
    r->drive[drive].raw_bytes_per_s = l.rate;
    return err;
}

int probe_measure(struct reader *r, const struct io_method *method,
                  uint64_t in_flight_bytes)
{
    struct probe p;
    int err = probe_open(&p, r, method, BUFFER_BYTES, false);
    if (err < 0)
        return err;
    memset(p.buffer, 0, BUFFER_BYTES);
    bool only_rate = in_flight_bytes > 0 || r->paced_count > 0;
    for (uint32_t i = 0; err == 0 && i < r->drives; i++)
        err = measure_drive(&p, i, only_rate);
    probe_close(&p);
    return err;
}
