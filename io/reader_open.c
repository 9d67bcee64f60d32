#include "io/clock.h"
#include "io/reader_internal.h"

#include <errno.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/numa.h"

void reader_note(struct reader *r, const char *format, ...)
{
    if (r->notes == READER_NOTES_MAX)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(r->note[r->notes++], READER_NOTE_BYTES, format, args);
    va_end(args);
}

/* The index of the drive that a device is, made if it is new. Drives beyond
 * the most share the last one: they are read, only not kept apart. */
static uint32_t drive_index(struct reader *r, dev_t dev)
{
    for (uint32_t i = 0; i < r->drives; i++)
        if (r->drive[i].dev == dev)
            return i;
    if (r->drives == DRIVES_MAX)
        return DRIVES_MAX - 1;
    r->drive[r->drives].dev = dev;
    return r->drives++;
}

static int open_files(struct reader *r, const struct reader_options *o,
                      uint32_t *bad_file)
{
    uint32_t buffered = 0;
    int refused = 0;
    file_raise_limit();
    r->drives = o->paced_count;
    for (uint32_t i = 0; i < r->files; i++) {
        struct io_file *f = &r->file[i];
        int err = file_open(f, o->paths[i]);
        if (err < 0 && o->copy_of && o->copy_of[i] != i) {
            r->lost[i] = true;
            reader_note(r, READER_LOST "%s: %s: its bytes are read from "
                           "another copy", o->paths[i], strerrordesc_np(-err));
            continue;
        }
        if (err < 0) {
            *bad_file = i;
            return err;
        }
        r->drive_of[i] =
            o->paced_count > 0
                ? (o->place ? o->place[i] : i) % o->paced_count
                : drive_index(r, f->dev);
        buffered += !f->direct;
        refused = f->direct ? refused : f->refused;
    }
    r->direct = buffered == 0;
    if (buffered > 0)
        reader_note(r, "O_DIRECT refused for %u of %u files (%s): buffered "
                       "reads, dropped from the cache behind; a file system "
                       "like ext4 or XFS reads faster", buffered, r->files,
                    strerrordesc_np(-refused));
    return 0;
}

/* Files with the same bytes form a circle. */
static int link_copies(struct reader *r, const struct reader_options *o)
{
    if (!o->copy_of)
        return 0;
    r->copy_of = calloc(r->files, sizeof *r->copy_of);
    r->next_copy = calloc(r->files, sizeof *r->next_copy);
    r->lost = calloc(r->files, sizeof *r->lost);
    r->path = calloc(r->files, sizeof *r->path);
    if (!r->copy_of || !r->next_copy || !r->lost || !r->path)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->files; i++) {
        uint32_t first = o->copy_of[i];
        r->copy_of[i] = first;
        r->next_copy[i] = i;
        r->path[i] = strdup(o->paths[i]);
        if (!r->path[i])
            return -ENOMEM;
        if (first == i)
            continue;
        r->next_copy[i] = r->next_copy[first];
        r->next_copy[first] = i;
    }
    return 0;
}

/* The node that all real drives are near, or -1. */
static int common_node(const struct reader *r)
{
    if (numa_count(numa_memory_nodes()) < 2)
        return -1;
    int node = -1;
    for (uint32_t i = 0; i < r->files; i++) {
        int near = numa_of_device(r->file[i].dev);
        if (near < 0 || (node >= 0 && near != node))
            return -1;
        node = near;
    }
    return node;
}

static int check_options(const struct reader_options *o)
{
    if (!o->method || !o->paths || o->files == 0 ||
        o->chunk_bytes > READER_CHUNK_MAX ||
        o->paced_count > DRIVES_MAX || (o->paced_count && !o->paced))
        return -EINVAL;
    if (strcmp(o->method, "auto") && strcmp(o->method, "uring") &&
        strcmp(o->method, "pread"))
        return -EINVAL;
    for (uint32_t i = 0; i < o->paced_count; i++)
        if (o->paced[i].bytes_per_s == 0 || o->paced[i].latency_ns < 0)
            return -EINVAL;
    return 0;
}

/* Pacing is outermost: what a fault holds back or breaks still took its time
 * on the drive. */
static int open_method(struct reader *r, const struct io_method *method,
                       const struct reader_options *o, bool register_arena)
{
    uint32_t n = 0;
    if (r->paced_count > 0)
        r->layers[n++] = &method_paced;
    if (o->fault)
        r->layers[n++] = &method_fault;
    r->layers[n++] = method;
    r->layers[n] = NULL;
    int *fds = calloc(r->files, sizeof *fds);
    if (!fds)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->files; i++)
        fds[i] = r->file[i].fd;
    struct io_setup setup = {
        .layers = r->layers,
        .depth = READER_DEPTH,
        .fds = fds,
        .files = r->files,
        .drives = r->drives,
        .arena_base = register_arena ? arena_base(o->arena) : NULL,
        .arena_bytes = register_arena ? arena_bytes(o->arena) : 0,
        .paced = r->paced,
        .fault = &r->fault,
        .granted = &r->granted,
    };
    int err = r->layers[0]->open(&r->ctx, &setup);
    free(fds);
    if (err < 0)
        r->ctx = NULL;
    return err;
}

static const char *refusal_hint(int err)
{
    switch (err) {
    case -EPERM:
        return "see 'sysctl kernel.io_uring_disabled' and the seccomp profile "
               "of the container";
    case -ENOSYS:
        return "the kernel is older than 5.1 or built without it";
    case -ENOMEM:
        return "try a higher 'ulimit -l'";
    case -EMFILE:
        return "try a higher 'ulimit -n'";
    default:
        return "see 'dmesg'";
    }
}

static void note_granted(struct reader *r, const struct reader_options *o,
                         bool fixed_works)
{
    const struct io_granted *g = &r->granted;
    struct arena_facts arena = { .note = NULL };
    if (o->arena)
        arena_facts(o->arena, &arena);
    if (g->setup_error)
        reader_note(r, "io_uring without SINGLE_ISSUER and DEFER_TASKRUN: "
                       "completions interrupt; a kernel from 6.1 has both");
    if (g->files_error)
        reader_note(r, "registering files refused (%s): a little more CPU",
                    strerrordesc_np(-g->files_error));
    if (g->buffers_error)
        reader_note(r, "registering buffers refused (%s): a little more CPU; "
                       "try 'ulimit -l unlimited'",
                    strerrordesc_np(-g->buffers_error));
    if (!fixed_works && o->arena)
        reader_note(r, "registered buffers give wrong bytes on this kernel: "
                       "not used; kernel 6.5.6 repaired it");
    if (arena.note)
        reader_note(r, "%s", arena.note);
}

/* io_uring if it really reads, else threads. */
static int choose_method(struct reader *r, const struct reader_options *o)
{
    const struct io_method *method = &method_uring;
    bool fixed_works = true;
    int err = -ENOSYS;
    if (strcmp(o->method, "pread")) {
        err = probe_check(r, method, &fixed_works);
        if (err == 0)
            err = open_method(r, method, o, o->arena && fixed_works);
        if (err < 0 && !strcmp(o->method, "uring"))
            return err;
        if (err < 0)
            reader_note(r, "io_uring refused (%s): reading with threads "
                           "instead; %s", strerrordesc_np(-err),
                        refusal_hint(err));
    }
    if (err < 0) {
        method = &method_pread;
        fixed_works = true;
        r->granted.setup_flags = 0;
        r->granted.setup_error = 0;
        err = open_method(r, method, o, false);
    }
    if (err < 0)
        return err;
    note_granted(r, o, fixed_works);
    /* A plan of faults shall be all that happens, and always the same. */
    r->probe_begin_ns = clock_ns();
    err = o->fault ? 0 : probe_measure(r, method, o->in_flight_bytes);
    r->probe_end_ns = clock_ns();
    return err;
}

uint64_t reader_paced_budget(const struct paced_drive *p)
{
    uint64_t bytes = (uint64_t)((double)p->bytes_per_s * 1e-9 *
                                (double)(p->latency_ns + PACED_AHEAD_NS));
    return bytes < PACED_MIN ? PACED_MIN : bytes;
}

static void set_budgets(struct reader *r, const struct reader_options *o)
{
    for (uint32_t i = 0; i < r->drives; i++) {
        struct drive *d = &r->drive[i];
        uint64_t paced = 0;
        if (i < r->paced_count)
            paced = reader_paced_budget(&r->paced[i]);
        if (o->in_flight_bytes > 0)
            d->budget_bytes = o->in_flight_bytes;
        else if (paced > 0)
            d->budget_bytes = paced;
        else if (d->budget_bytes == 0)
            d->budget_bytes = BUDGET_DEFAULT;
    }
}

int reader_open(struct reader **out, const struct reader_options *o,
                uint32_t *bad_file)
{
    *out = NULL;
    *bad_file = UINT32_MAX;
    int err = check_options(o);
    if (err < 0)
        return err;
    struct reader *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_mutex_init(&r->lock, NULL);
    r->files = o->files;
    r->chunk_bytes = o->chunk_bytes ? o->chunk_bytes : READER_CHUNK;
    r->paced_count = o->paced_count;
    r->realtime = o->realtime;
    r->arena = o->arena;
    for (uint32_t i = 0; i < o->paced_count; i++)
        r->paced[i] = o->paced[i];
    if (o->fault)
        r->fault = *o->fault;
    for (uint16_t i = 0; i < READER_DEPTH; i++)
        r->slot[i].next_free = (uint16_t)(i + 1);
    r->file = calloc(o->files, sizeof *r->file);
    r->drive_of = calloc(o->files, sizeof *r->drive_of);
    err = r->file && r->drive_of ? 0 : -ENOMEM;
    for (uint32_t i = 0; r->file && i < o->files; i++)
        r->file[i].fd = -1;
    if (err == 0)
        err = link_copies(r, o);
    if (err == 0)
        err = open_files(r, o, bad_file);
    if (err == 0)
        err = choose_method(r, o);
    if (err < 0) {
        reader_close(r);
        return err;
    }
    set_budgets(r, o);
    r->owner_node = common_node(r);
    *out = r;
    return 0;
}

uint32_t reader_drives(const struct reader *r)
{
    return r->drives;
}

uint32_t reader_drive_of(const struct reader *r, uint32_t file)
{
    return r->drive_of[file];
}

bool reader_has_copies(const struct reader *r)
{
    return r->copy_of;
}

uint32_t reader_copy_on(const struct reader *r, uint32_t file, uint32_t drive)
{
    uint32_t at = file;
    do {
        if (r->drive_of[at] == drive && !(r->lost && r->lost[at]))
            return at;
        at = r->next_copy ? r->next_copy[at] : at;
    } while (at != file);
    return READER_NO_FILE;
}

uint32_t reader_original(const struct reader *r, uint32_t file)
{
    return r->copy_of ? r->copy_of[file] : file;
}

bool reader_lose(struct reader *r, uint32_t file, int error)
{
    bool others = false;
    if (!r->next_copy)
        return false;
    for (uint32_t at = r->next_copy[file]; at != file; at = r->next_copy[at])
        others |= !r->lost[at];
    if (others && !r->lost[file]) {
        pthread_mutex_lock(&r->lock);
        reader_note(r, READER_LOST "%s: %s: its bytes are read from another "
                       "copy", r->path[file], strerrordesc_np(-error));
        pthread_mutex_unlock(&r->lock);
        r->lost[file] = true;
    }
    return others;
}

uint64_t reader_rate(const struct reader *r, uint32_t drive)
{
    return drive < r->paced_count ? r->paced[drive].bytes_per_s
                                  : r->drive[drive].raw_bytes_per_s;
}

uint64_t reader_file_size(const struct reader *r, uint32_t file)
{
    return r->file[file].size_bytes;
}

uint64_t reader_in_flight_budget(const struct reader *r, uint32_t drive)
{
    return r->drive[drive].budget_bytes;
}

static void drive_facts(const struct reader *r, uint32_t i, int64_t now,
                        struct reader_drive_facts *out)
{
    const struct drive *d = &r->drive[i];
    out->raw_bytes_per_s = d->raw_bytes_per_s;
    if (i < r->paced_count)
        out->paced_bytes_per_s = r->paced[i].bytes_per_s;
    out->device_bytes = d->device_bytes;
    out->busy_ns = d->busy_ns;
    if (d->flying > 0 && now > d->busy_since_ns)
        out->busy_ns += now - d->busy_since_ns;
    if (out->busy_ns > 0)
        out->in_flight_mean_bytes = d->byte_ns / (double)out->busy_ns;
}

static const char *setup_text(const struct reader *r, const char *method)
{
    unsigned flags = r->granted.setup_flags;
    if (!strcmp(method, method_pread.name))
        return "threads";
    if (flags & IORING_SETUP_COOP_TASKRUN)
        return "COOP_TASKRUN";
    return flags ? "SINGLE_ISSUER|DEFER_TASKRUN" : "plain";
}

void reader_facts(const struct reader *r, struct reader_facts *out)
{
    uint32_t last = 0;
    while (r->layers[last + 1])
        last++;
    memset(out, 0, sizeof *out);
    out->method = r->layers[last]->name;
    out->setup = setup_text(r, out->method);
    out->threads = r->granted.threads;
    out->registered_files = r->granted.registered_files;
    out->registered_buffers = r->granted.registered_buffers;
    out->faults = atomic_load(&r->granted.faults);
    out->drives = r->drives;
    out->probe_begin_ns = r->probe_begin_ns;
    out->probe_end_ns = r->probe_end_ns;
    int64_t now = clock_ns();
    pthread_mutex_t *lock = (pthread_mutex_t *)&r->lock;
    pthread_mutex_lock(lock);
    out->owner_node = r->owner_node;
    out->owner_turn = r->owner_turn;
    out->direct = r->direct;
    out->reads = r->reads;
    out->failed = r->failed;
    out->payload_bytes = r->payload_bytes;
    out->device_bytes = r->device_bytes;
    out->retries = r->retries;
    out->short_reads = r->short_reads;
    out->in_flight_peak_bytes = r->in_flight_peak_bytes;
    for (uint32_t i = 0; i < r->drives; i++) {
        struct reader_drive_facts *d = &out->drive[i];
        drive_facts(r, i, now, d);
        out->raw_bytes_per_s += d->raw_bytes_per_s;
        out->paced_bytes_per_s += d->paced_bytes_per_s;
        out->in_flight_mean_bytes += d->in_flight_mean_bytes;
    }
    out->notes = r->notes;
    memcpy(out->note, r->note, sizeof r->note);
    pthread_mutex_unlock(lock);
}

uint64_t reader_retries(const struct reader *r)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&r->lock;
    pthread_mutex_lock(lock);
    uint64_t retries = r->retries;
    pthread_mutex_unlock(lock);
    return retries;
}
