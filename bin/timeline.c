#include "bin/timeline.h"

#include <errno.h>
#include <fcntl.h>
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
    EVENT_BYTES = 512,   /* no event is longer */
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
    int             fd;
    char           *out; /* [FILE_BUFFER] text not yet written */
    size_t          used;
    struct journal *journal;
    int64_t         base_ns;
    int             error; /* of the file, the first */
    bool            first; /* no event yet: no comma */
    /* Known once the session is planned. */
    uint32_t layers, first_dense, experts, drives, tiles;
    struct tile_label *tile;
    char   (*names)[K3_NAME_BYTES]; /* of what tiles hold */
    uint32_t name_count;
    char   (*expert_names)[20];     /* [experts] */
    char   (*kernel_names)[K3_NAME_BYTES]; /* [256] */
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

/* ---- text: printf would cost more than the events are worth ---- */

static void flush(struct timeline *t)
{
    for (size_t at = 0; at < t->used && !t->error;) {
        ssize_t n = write(t->fd, t->out + at, t->used - at);
        if (n < 0 && errno != EINTR)
            t->error = -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    t->used = 0;
}

static void put(struct timeline *t, const char *text)
{
    while (*text)
        t->out[t->used++] = *text++;
}

static void put_uint(struct timeline *t, uint64_t value)
{
    char digit[20];
    int n = 0;
    do
        digit[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        t->out[t->used++] = digit[--n];
}

static void put_int(struct timeline *t, int64_t value)
{
    if (value < 0)
        put(t, "-");
    put_uint(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Nanoseconds as microseconds with three decimals. */
static void put_us(struct timeline *t, int64_t ns)
{
    uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    if (ns < 0)
        put(t, "-");
    put_uint(t, n / 1000);
    t->out[t->used++] = '.';
    t->out[t->used++] = (char)('0' + n / 100 % 10);
    t->out[t->used++] = (char)('0' + n / 10 % 10);
    t->out[t->used++] = (char)('0' + n % 10);
}

/* ---- one event a line ---- */

/* Room for one event is made here, so that nothing below has to look. */
static void begin(struct timeline *t)
{
    if (t->used + EVENT_BYTES > FILE_BUFFER)
        flush(t);
    if (!t->first)
        put(t, ",\n");
    t->first = false;
}

static void say_name(struct timeline *t, uint32_t track, const char *name)
{
    begin(t);
    put(t, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":");
    put_uint(t, track);
    put(t, ",\"args\":{\"name\":\"");
    put(t, name);
    put(t, "\"}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\","
        "\"pid\":1,\"tid\":");
    put_uint(t, track);
    put(t, ",\"args\":{\"sort_index\":");
    put_uint(t, track);
    put(t, "}}");
}

static void say_counter(struct timeline *t, const struct journal_event *e)
{
    begin(t);
    put(t, "{\"name\":\"");
    if (e->kind == JOURNAL_RING) {
        put(t, "ring");
    } else {
        put(t, "in flight, drive ");
        put_uint(t, e->drive);
    }
    put(t, "\",\"ph\":\"C\",\"pid\":1,\"ts\":");
    put_us(t, e->begin_ns - t->base_ns);
    put(t, ",\"args\":{\"bytes\":");
    put_uint(t, e->bytes);
    put(t, "}}");
}

/* An event with a length; its last brackets are the caller's. */
static void say_slice(struct timeline *t, const char *name, int32_t layer,
                      const char *category, uint32_t track, int64_t from_ns,
                      int64_t to_ns)
{
    begin(t);
    put(t, "{\"name\":\"");
    if (layer >= 0) {
        put(t, "L");
        put_int(t, layer);
        put(t, " ");
    }
    put(t, name);
    put(t, "\",\"cat\":\"");
    put(t, category);
    put(t, "\",\"ph\":\"X\",\"pid\":1,\"tid\":");
    put_uint(t, track);
    put(t, ",\"ts\":");
    put_us(t, from_ns - t->base_ns);
    put(t, ",\"dur\":");
    put_us(t, to_ns - from_ns);
    put(t, ",\"args\":{\"layer\":");
    put_int(t, layer);
}

/* What an object is called, and the layer it is of, or -1. */
static int32_t object_name(const struct timeline *t, uint32_t object,
                           const char **name)
{
    *name = "embedding";
    if (object == UINT32_MAX)
        return -1;
    if (object >> 31) {
        uint32_t block = object & 0x7fffffff, expert = block % t->experts;
        *name = t->expert_names[expert];
        return (int32_t)(block / t->experts + t->first_dense);
    }
    *name = "tile";
    if (object >= t->tiles)
        return -1;
    *name = t->names[t->tile[object].name];
    return t->tile[object].layer;
}

static void say_read(struct timeline *t, const struct journal_event *e,
                     int64_t from_ns, int64_t to_ns)
{
    const char *name;
    int32_t layer = object_name(t, e->object, &name);
    say_slice(t, name, layer, class_name[e->class], TRACK_DRIVE + e->drive,
              from_ns, to_ns);
    put(t, ",\"class\":\"");
    put(t, class_name[e->class]);
    put(t, "\",\"bytes\":");
    put_uint(t, e->bytes);
    put(t, ",\"queue_us\":");
    put_us(t, e->issued_ns - e->begin_ns);
    put(t, ",\"device_us\":");
    put_us(t, e->end_ns - e->issued_ns);
    put(t, "}}");
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
    char what[K3_NAME_BYTES + 16];
    const char *name = "experts";
    int32_t layer = (int32_t)e->object;
    bool trunk = e->kind == JOURNAL_WAIT_TRUNK;
    if (trunk || e->object == UINT32_MAX)
        layer = object_name(t, e->object, &name);
    snprintf(what, sizeof what, "wait for %s", name);
    say_slice(t, what, layer, trunk ? "wait trunk" : "wait expert",
              TRACK_COMPUTE, e->begin_ns, e->end_ns);
    put(t, "}}");
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
        say_slice(t, t->kernel_names[e->value],
                  e->object < t->layers ? (int32_t)e->object : -1, "kernel",
                  TRACK_COMPUTE, e->begin_ns, e->end_ns);
        put(t, "}}");
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
        put(t, ",\"rows\":");
        put_uint(t, e->bytes);
        put(t, "}}");
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
    put(t, "{\"name\":\"");
    put_uint(t, now - t->dropped[lane]);
    put(t, " events of ");
    put(t, lane_name[lane]);
    put(t, " lost here\",\"cat\":\"lost\",\"ph\":\"i\",\"s\":\"p\","
        "\"pid\":1,\"tid\":1,\"ts\":");
    put_us(t, t->last_ns - t->base_ns);
    put(t, ",\"args\":{\"lost\":");
    put_uint(t, now - t->dropped[lane]);
    put(t, "}}");
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
    t->expert_names = calloc(t->experts, sizeof *t->expert_names);
    t->kernel_names = calloc(UINT8_MAX + 1, sizeof *t->kernel_names);
    if (!t->tile || !t->names || !t->batch || !t->expert_names ||
        !t->kernel_names)
        return false;
    for (uint32_t i = 0; i < t->experts; i++)
        snprintf(t->expert_names[i], sizeof t->expert_names[i],
                 "expert %" PRIu32, i);
    for (uint32_t i = 0; i <= UINT8_MAX; i++)
        k3_kernel_name(t->kernel_names[i], i);
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
    put(t, "{\"name\":\"sluice " SLUICE_VERSION "\",\"ph\":\"i\","
        "\"s\":\"p\",\"pid\":1,\"tid\":1,\"ts\":0,\"args\":"
        "{\"layers\":");
    put_uint(t, t->layers);
    put(t, ",\"first_dense\":");
    put_uint(t, t->first_dense);
    put(t, ",\"ring_bytes\":");
    put_uint(t, k3_plan_of(k)->ring_bytes);
    put(t, "}}");
    say_name(t, TRACK_COMPUTE, "compute");
    start(t);
    return t->error ? failed(t, why) : 0;
}

static void free_all(struct timeline *t)
{
    if (t->fd >= 0)
        close(t->fd);
    journal_close(t->journal);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->out);
    free(t->tile);
    free(t->names);
    free(t->expert_names);
    free(t->kernel_names);
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
    t->out = malloc(FILE_BUFFER);
    t->error = t->out ? journal_open(&t->journal, TIMELINE_EVENTS) : -ENOMEM;
    t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!t->error && t->fd < 0)
        t->error = -errno;
    if (t->error) {
        int err = failed(t, why);
        free_all(t);
        return err;
    }
    put(t, "[\n");
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
        say_name(t, TRACK_DRIVE + d, name);
    }
    put(t, "\n]\n");
    flush(t);
    int err = t->error ? failed(t, why) : 0;
    free_all(t);
    return err;
}
