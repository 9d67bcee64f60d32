#include "bin/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bin/cmd.h"
#include "model/tiles.h"
#include "sched/journal.h"
#include "sched/stream.h"

enum {
    DRAIN_NS = 10 * 1000 * 1000,
    TAKE = 256,          /* events taken at a time */
    FILE_BUFFER = 256 << 10,
    STACK_BYTES = 128 << 10,
    BATCH = 64,          /* reads of a drive that ended at one time */
    NICE = 5,
    TRACK_COMPUTE = 1,
    TRACK_DRIVE = 100,   /* and the drives after it */
};

/* Reads of one drive with the same end: the kernel told of them together. The
 * time since the end before theirs is shared out over them. */
struct batch {
    struct journal_event read[BATCH];
    uint32_t count;
    int64_t  busy_to_ns; /* end of the last slice of the track */
};

struct tile_label {
    int32_t  layer;
    uint32_t name; /* in names */
};

struct timeline {
    const char     *path;
    FILE           *file;
    char           *buffer;
    struct journal *journal;
    int64_t         base_ns;
    int             error; /* of the file, the first */
    bool            first; /* no event yet: no comma */
    /* Known once the session is planned. */
    uint32_t layers, first_dense, experts, drives, tiles;
    struct tile_label *tile;
    char   (*names)[K3_NAME_BYTES];
    uint32_t name_count;
    struct batch *batch; /* [drives] */
    uint64_t dropped[JOURNAL_LANES]; /* told of so far */
    int64_t  last_ns;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    bool            running, stop;
};

enum { NAMES_MOST = 128 };

static const char *const class_name[READ_CLASSES] = { "demand", "trunk",
                                                      "guess" };

/* ---- one event a line ---- */

static double us(const struct timeline *t, int64_t ns)
{
    return (double)(ns - t->base_ns) / 1e3;
}

static void begin(struct timeline *t)
{
    if (!t->first)
        fputs(",\n", t->file);
    t->first = false;
}

static void say_name(struct timeline *t, const char *what, uint32_t track,
                     const char *name)
{
    begin(t);
    fprintf(t->file, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32
            ",\"args\":{\"name\":\"%s\"}}", what, track, name);
    begin(t);
    fprintf(t->file, "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,"
            "\"tid\":%" PRIu32 ",\"args\":{\"sort_index\":%" PRIu32 "}}",
            track, track);
}

static void say_counter(struct timeline *t, const struct journal_event *e)
{
    begin(t);
    if (e->kind == JOURNAL_RING)
        fputs("{\"name\":\"ring\"", t->file);
    else
        fprintf(t->file, "{\"name\":\"in flight, drive %u\"", e->drive);
    fprintf(t->file, ",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":"
            "{\"bytes\":%" PRIu64 "}}", us(t, e->begin_ns), e->bytes);
}

static void say_slice(struct timeline *t, const char *name, int32_t layer,
                      const char *category, uint32_t track, int64_t from_ns,
                      int64_t to_ns)
{
    begin(t);
    if (layer >= 0)
        fprintf(t->file, "{\"name\":\"L%" PRId32 " %s\"", layer, name);
    else
        fprintf(t->file, "{\"name\":\"%s\"", name);
    fprintf(t->file, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32
            ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"layer\":%" PRId32, category,
            track, us(t, from_ns), (double)(to_ns - from_ns) / 1e3, layer);
}

/* What an object is called, and the layer it is of, or -1. */
static int32_t object_name(const struct timeline *t, uint32_t object,
                           char name[K3_NAME_BYTES])
{
    if (object == UINT32_MAX) {
        snprintf(name, K3_NAME_BYTES, "embedding");
        return -1;
    }
    if (object >> 31) {
        uint32_t block = object & 0x7fffffff;
        snprintf(name, K3_NAME_BYTES, "expert %" PRIu32, block % t->experts);
        return (int32_t)(block / t->experts + t->first_dense);
    }
    if (object >= t->tiles) {
        snprintf(name, K3_NAME_BYTES, "tile %" PRIu32, object);
        return -1;
    }
    snprintf(name, K3_NAME_BYTES, "%s", t->names[t->tile[object].name]);
    return t->tile[object].layer;
}

static void say_read(struct timeline *t, const struct journal_event *e,
                     int64_t from_ns, int64_t to_ns)
{
    char name[K3_NAME_BYTES];
    int32_t layer = object_name(t, e->object, name);
    say_slice(t, name, layer, class_name[e->class], TRACK_DRIVE + e->drive,
              from_ns, to_ns);
    fprintf(t->file, ",\"class\":\"%s\",\"bytes\":%" PRIu64
            ",\"queue_us\":%.1f,\"device_us\":%.1f}}", class_name[e->class],
            e->bytes, (double)(e->issued_ns - e->begin_ns) / 1e3,
            (double)(e->end_ns - e->issued_ns) / 1e3);
}

/* The drive worked on these from the later of their issue and the end before
 * theirs; each gets its part by its bytes. */
static void flush_batch(struct timeline *t, struct batch *b)
{
    uint64_t bytes = 0, passed = 0;
    if (!b->count)
        return;
    int64_t end = b->read[0].end_ns, from = b->read[0].issued_ns;
    for (uint32_t i = 0; i < b->count; i++) {
        bytes += b->read[i].bytes;
        from = b->read[i].issued_ns < from ? b->read[i].issued_ns : from;
    }
    from = from > b->busy_to_ns ? from : b->busy_to_ns;
    end = end > from ? end : from;
    for (uint32_t i = 0; i < b->count; i++) {
        double span = (double)(end - from), all = (double)(bytes + !bytes);
        int64_t at = from + (int64_t)(span * (double)passed / all);
        passed += b->read[i].bytes;
        say_read(t, &b->read[i], at,
                 from + (int64_t)(span * (double)passed / all));
    }
    b->busy_to_ns = end;
    b->count = 0;
}

static void take_read(struct timeline *t, const struct journal_event *e)
{
    struct batch *b = &t->batch[e->drive % t->drives];
    if (b->count == BATCH || (b->count && b->read[0].end_ns != e->end_ns))
        flush_batch(t, b);
    b->read[b->count++] = *e;
}

static void say_wait(struct timeline *t, const struct journal_event *e)
{
    char name[K3_NAME_BYTES], what[K3_NAME_BYTES + 16];
    int32_t layer = -1;
    if (e->kind == JOURNAL_WAIT_TRUNK) {
        layer = object_name(t, e->object, name);
    } else if (e->object == UINT32_MAX) {
        snprintf(name, sizeof name, "embedding");
    } else {
        snprintf(name, sizeof name, "experts");
        layer = (int32_t)e->object;
    }
    snprintf(what, sizeof what, "wait for %s", name);
    say_slice(t, what, layer,
              e->kind == JOURNAL_WAIT_TRUNK ? "wait trunk" : "wait expert",
              TRACK_COMPUTE, e->begin_ns, e->end_ns);
    fputs("}}", t->file);
}

static void say(struct timeline *t, const struct journal_event *e)
{
    char name[K3_NAME_BYTES];
    t->last_ns = e->end_ns > t->last_ns ? e->end_ns : t->last_ns;
    switch ((enum journal_kind)e->kind) {
    case JOURNAL_READ:
        take_read(t, e);
        break;
    case JOURNAL_KERNEL:
        k3_kernel_name(name, e->value);
        say_slice(t, name,
                  e->object < t->layers ? (int32_t)e->object : -1, "kernel",
                  TRACK_COMPUTE, e->begin_ns, e->end_ns);
        fputs("}}", t->file);
        break;
    case JOURNAL_WAIT_TRUNK:
    case JOURNAL_WAIT_EXPERT:
        say_wait(t, e);
        break;
    case JOURNAL_RING:
    case JOURNAL_FLIGHT:
        say_counter(t, e);
        break;
    case JOURNAL_PASS:
        snprintf(name, sizeof name, "pass %" PRIu32 " %s", e->object,
                 e->value == K3_DECODE ? "decode" : "prefill");
        say_slice(t, name, -1, "pass", TRACK_COMPUTE, e->begin_ns, e->end_ns);
        fprintf(t->file, ",\"rows\":%" PRIu64 "}}", e->bytes);
        break;
    }
}

/* ---- the thread ---- */

static void say_dropped(struct timeline *t, enum journal_lane lane)
{
    static const char *const lane_name[] = { "reads", "compute" };
    uint64_t now = journal_dropped(t->journal, lane);
    if (now == t->dropped[lane])
        return;
    begin(t);
    fprintf(t->file, "{\"name\":\"%" PRIu64 " events of %s lost here\","
            "\"cat\":\"lost\",\"ph\":\"i\",\"s\":\"p\",\"pid\":1,\"tid\":%d,"
            "\"ts\":%.3f,\"args\":{\"lost\":%" PRIu64 "}}",
            now - t->dropped[lane], lane_name[lane], TRACK_COMPUTE,
            us(t, t->last_ns), now - t->dropped[lane]);
    t->dropped[lane] = now;
}

static void drain(struct timeline *t)
{
    struct journal_event e[TAKE];
    for (int lane = 0; lane < JOURNAL_LANES; lane++) {
        uint32_t n;
        do {
            n = journal_take(t->journal, (enum journal_lane)lane, e, TAKE);
            for (uint32_t i = 0; i < n && !t->error; i++)
                say(t, &e[i]);
        } while (n == TAKE);
        if (!t->error)
            say_dropped(t, (enum journal_lane)lane);
    }
    if (!t->error && ferror(t->file))
        t->error = errno ? -errno : -EIO;
}

static void *drain_main(void *arg)
{
    struct timeline *t = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += DRAIN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&t->wake, &t->lock, &until);
        drain(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- open and close ---- */

static uint32_t name_of(struct timeline *t, const char *name)
{
    for (uint32_t i = 0; i < t->name_count; i++)
        if (!strcmp(t->names[i], name))
            return i;
    if (t->name_count == NAMES_MOST)
        return NAMES_MOST - 1;
    snprintf(t->names[t->name_count], K3_NAME_BYTES, "%s", name);
    return t->name_count++;
}

static bool learn(struct timeline *t, const struct k3 *k)
{
    const struct tiles *tiles = k3_tiles(k);
    const struct config *c = k3_config(k);
    t->layers = c->layers;
    t->first_dense = c->first_dense;
    t->experts = c->experts ? c->experts : 1;
    t->drives = READER_DRIVES_MAX;
    t->tiles = tiles->count;
    t->tile = calloc(tiles->count + 1, sizeof *t->tile);
    t->names = calloc(NAMES_MOST, sizeof *t->names);
    t->batch = calloc(t->drives, sizeof *t->batch);
    if (!t->tile || !t->names || !t->batch)
        return false;
    for (uint32_t i = 0; i < tiles->count; i++) {
        char name[K3_NAME_BYTES];
        t->tile[i].layer = k3_tile_name(name, tiles, i);
        t->tile[i].name = name_of(t, name);
    }
    return true;
}

static void start(struct timeline *t)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int err = pthread_create(&t->thread, &attr, drain_main, t);
    pthread_attr_destroy(&attr);
    t->running = !err;
    if (err)
        t->error = -err;
}

static int failed(const struct timeline *t, struct why *why)
{
    return why_set(why, t->error, "%s: the timeline could not be written: %s",
                   t->path, strerror(-t->error));
}

int timeline_planned(struct timeline *t, const struct k3 *k, struct why *why)
{
    if (!learn(t, k))
        return why_set(why, -ENOMEM, "no memory for the timeline");
    begin(t);
    fprintf(t->file, "{\"name\":\"sluice %s\",\"ph\":\"i\",\"s\":\"p\","
            "\"pid\":1,\"tid\":%d,\"ts\":0,\"args\":{\"layers\":%" PRIu32
            ",\"first_dense\":%" PRIu32 ",\"ring_bytes\":%" PRIu64 "}}",
            SLUICE_VERSION, TRACK_COMPUTE, t->layers, t->first_dense,
            k3_plan_of(k)->ring_bytes);
    say_name(t, "thread_name", TRACK_COMPUTE, "compute");
    start(t);
    return t->error ? failed(t, why) : 0;
}

static void free_all(struct timeline *t)
{
    if (t->file)
        fclose(t->file);
    journal_close(t->journal);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->buffer);
    free(t->tile);
    free(t->names);
    free(t->batch);
    free(t);
}

int timeline_open(struct timeline **out, const char *path,
                  struct k3_options *o, struct why *why)
{
    *out = NULL;
    struct timeline *t = calloc(1, sizeof *t);
    if (!t)
        return why_set(why, -ENOMEM, "no memory for the timeline");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->path = path;
    t->first = true;
    t->base_ns = stream_clock_ns();
    t->buffer = malloc(FILE_BUFFER);
    t->error = journal_open(&t->journal, TIMELINE_EVENTS);
    if (!t->error)
        t->file = fopen(path, "we");
    if (!t->error && (!t->file || !t->buffer))
        t->error = -errno;
    if (t->error) {
        int err = failed(t, why);
        free_all(t);
        return err;
    }
    setvbuf(t->file, t->buffer, _IOFBF, FILE_BUFFER);
    fputs("[\n", t->file);
    o->journal = t->journal;
    o->heap_bytes += TIMELINE_BYTES;
    *out = t;
    return 0;
}

int timeline_close(struct timeline *t, struct why *why)
{
    if (!t)
        return 0;
    if (t->running) {
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
        drain(t);
    }
    for (uint32_t d = 0; t->batch && d < t->drives; d++) {
        if (!t->batch[d].count && !t->batch[d].busy_to_ns)
            continue;
        char name[32];
        flush_batch(t, &t->batch[d]);
        snprintf(name, sizeof name, "drive %" PRIu32, d);
        say_name(t, "thread_name", TRACK_DRIVE + d, name);
    }
    fputs("\n]\n", t->file);
    if (fflush(t->file) && !t->error)
        t->error = -errno;
    int err = t->error ? failed(t, why) : 0;
    free_all(t);
    return err;
}
