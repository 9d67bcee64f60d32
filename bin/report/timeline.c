#include "bin/report/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bin/cli/outputs.h"
#include "io/clock.h"
#include "io/file.h"
#include "model/k3/tiles.h"
#include "model/sluice.h"
#include "sched/event_ring.h"
#include "sched/stream.h"

enum {
    DRAIN_NS = 10 * 1000 * 1000,
    TAKE = 256,          /* events taken at a time */
    FILE_BUFFER = 256 << 10,
    EVENT_BYTES = 512,   /* no event is longer */
    STACK_BYTES = 128 << 10,
    NICE = 5,
    TRACK_COMPUTE = 1,
    TRACK_DRIVE = 1000,  /* of drive 0, and so many more for each after it */
    LANES = 512,         /* tracks of a drive; READER_DEPTH are enough */
};

/* The reads of one drive overlap, the slices of a track must not: each read
 * goes to a track that is free from its submission on. */
struct lanes {
    int64_t  busy_to_ns[LANES]; /* end of the last slice of the track */
    uint32_t count;
};

struct tile_label {
    int32_t  layer;
    uint32_t name; /* in names */
};

struct timeline {
    struct output   file;
    const char     *run;
    char           *out; /* [FILE_BUFFER] text not yet written */
    size_t          used;
    struct event_ring *event_ring;
    int64_t         base_ns;
    int code;              /* first error of the file */
    bool            first; /* no event yet: no comma */
    /* Known once the session is planned. */
    uint32_t layers, first_dense, experts, drives, tiles;
    struct tile_label *tile;
    char   (*names)[K3_NAME_BYTES]; /* of what tiles hold */
    uint32_t name_count;
    char   (*expert_names)[20];     /* [experts] */
    char   (*kernel_names)[K3_NAME_BYTES]; /* [256] */
    struct lanes *lanes; /* [drives] */
    bool     decoding; /* the mark of the first decode pass is written */
    uint64_t dropped[EVENT_TRACKS]; /* written to the file so far */
    int64_t  last_ns;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    bool            running, stop;
};

enum { NAMES_MAX = 128 };

static const char *const class_name[READ_CLASSES] = { "demand", "trunk",
                                                      "prefetch" };

/* ---- text; printf would be too slow ---- */

static void flush(struct timeline *t)
{
    if (!t->code)
        t->code = file_append_all(t->file.r.fd, t->out, t->used);
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

/* Make room for one event, so that the functions below need not check. */
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

static void say_counter(struct timeline *t, const struct event *e)
{
    begin(t);
    put(t, "{\"name\":\"");
    if (e->kind == EVENT_RING) {
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

/* An event without. The caller adds arguments and closes it. */
static void say_mark(struct timeline *t, const char *name,
                     const char *category, int64_t ns)
{
    begin(t);
    put(t, "{\"name\":\"");
    put(t, name);
    put(t, "\",\"cat\":\"");
    put(t, category);
    put(t, "\",\"ph\":\"i\",\"s\":\"p\",\"pid\":1,\"tid\":1,\"ts\":");
    put_us(t, ns - t->base_ns);
    put(t, ",\"args\":{");
}

/* An event with a duration. The caller adds arguments and closes it. */
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

/* The object's name, and its layer or -1. */
static int32_t object_name(const struct timeline *t, uint32_t object,
                           const char **name)
{
    *name = "embedding";
    if (object == EVENT_EMBEDDING)
        return -1;
    *name = "drafter";
    if (object == EVENT_GUEST)
        return -1;
    if (object & EVENT_EXPERT) {
        uint32_t block = object & ~EVENT_EXPERT, expert = block % t->experts;
        *name = t->expert_names[expert];
        return (int32_t)(block / t->experts + t->first_dense);
    }
    *name = "tile";
    if (object >= t->tiles)
        return -1;
    *name = t->names[t->tile[object].name];
    return t->tile[object].layer;
}

/* A slice begins when the kernel has the read, and ends when its bytes are
 * there. */
static void take_read(struct timeline *t, const struct event *e)
{
    const char *name;
    int32_t layer = object_name(t, e->object, &name);
    struct lanes *l = &t->lanes[e->drive % t->drives];
    uint32_t lane = l->count < LANES ? l->count : LANES - 1;
    int64_t latest = -1;
    /* Reads come as they end: the track that was free for the shortest time
     * leaves the most room, so no more tracks are used than reads overlap. */
    for (uint32_t i = 0; i < l->count; i++)
        if (l->busy_to_ns[i] <= e->issued_ns && l->busy_to_ns[i] > latest) {
            latest = l->busy_to_ns[i];
            lane = i;
        }
    l->count = lane == l->count ? l->count + 1 : l->count;
    l->busy_to_ns[lane] = e->end_ns;
    say_slice(t, name, layer, class_name[e->class],
              TRACK_DRIVE * (1u + e->drive) + lane, e->issued_ns, e->end_ns);
    put(t, ",\"drive\":");
    put_uint(t, e->drive);
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

static void say_wait(struct timeline *t, const struct event *e)
{
    char text[K3_NAME_BYTES + 16];
    const char *name = "experts";
    int32_t layer = (int32_t)e->object;
    bool trunk = e->kind == EVENT_WAIT_TRUNK;
    if (trunk || e->object == EVENT_EMBEDDING)
        layer = object_name(t, e->object, &name);
    snprintf(text, sizeof text, "wait for %s", name);
    say_slice(t, text, layer,
              trunk                            ? "wait trunk"
              : e->object == EVENT_EMBEDDING ? "wait embedding"
                                             : "wait expert",
              TRACK_COMPUTE, e->begin_ns, e->end_ns);
    put(t, "}}");
}

static void say(struct timeline *t, const struct event *e)
{
    char name[K3_NAME_BYTES];
    t->last_ns = e->end_ns > t->last_ns ? e->end_ns : t->last_ns;
    switch ((enum event_kind)e->kind) {
    case EVENT_READ:
        take_read(t, e);
        break;
    case EVENT_KERNEL:
        say_slice(t, t->kernel_names[e->value],
                  e->object < t->layers ? (int32_t)e->object : -1, "kernel",
                  TRACK_COMPUTE, e->begin_ns, e->end_ns);
        put(t, "}}");
        break;
    case EVENT_WAIT_TRUNK:
    case EVENT_WAIT_EXPERT:
        say_wait(t, e);
        break;
    case EVENT_RING:
    case EVENT_FLIGHT:
        say_counter(t, e);
        break;
    case EVENT_PASS:
        if (e->value == K3_DECODE && !t->decoding) {
            say_mark(t, "decode begins", "decode", e->begin_ns);
            put(t, "}}");
            t->decoding = true;
        }
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

static void say_dropped(struct timeline *t, enum event_track track)
{
    static const char *const track_name[] = { "reads", "compute" };
    uint64_t now = event_ring_dropped(t->event_ring, track);
    if (now == t->dropped[track])
        return;
    begin(t);
    put(t, "{\"name\":\"");
    put_uint(t, now - t->dropped[track]);
    put(t, " events of ");
    put(t, track_name[track]);
    put(t, " lost here\",\"cat\":\"lost\",\"ph\":\"i\",\"s\":\"p\","
        "\"pid\":1,\"tid\":1,\"ts\":");
    put_us(t, t->last_ns - t->base_ns);
    put(t, ",\"args\":{\"lost\":");
    put_uint(t, now - t->dropped[track]);
    put(t, "}}");
    t->dropped[track] = now;
}

static void drain(struct timeline *t)
{
    struct event e[TAKE];
    for (int track = 0; track < EVENT_TRACKS; track++) {
        uint32_t n;
        do {
            n = event_ring_take(t->event_ring, (enum event_track)track, e,
                                TAKE);
            for (uint32_t i = 0; i < n && !t->code; i++)
                say(t, &e[i]);
        } while (n == TAKE);
        if (!t->code)
            say_dropped(t, (enum event_track)track);
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
    if (t->name_count == NAMES_MAX)
        return NAMES_MAX - 1;
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
    t->drives = DRIVES_MAX;
    t->tiles = tiles->count;
    t->tile = calloc(tiles->count + 1, sizeof *t->tile);
    t->names = calloc(NAMES_MAX, sizeof *t->names);
    t->lanes = calloc(t->drives, sizeof *t->lanes);
    t->expert_names = calloc(t->experts, sizeof *t->expert_names);
    t->kernel_names = calloc(UINT8_MAX + 1, sizeof *t->kernel_names);
    if (!t->tile || !t->names || !t->lanes || !t->expert_names ||
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
        t->code = -err;
}

static int failed(const struct timeline *t, struct error *error)
{
    return output_failed(&t->file, -t->code, error);
}

int timeline_planned(struct timeline *t, const struct k3 *k,
                     struct error *error)
{
    if (!learn(t, k))
        return error_set(error, -ENOMEM, "no memory for the timeline");
    say_mark(t, "sluice " SLUICE_VERSION, "sluice", t->base_ns);
    put(t, "\"run\":\"");
    put(t, t->run);
    put(t, "\",\"layers\":");
    put_uint(t, t->layers);
    put(t, ",\"first_dense\":");
    put_uint(t, t->first_dense);
    put(t, ",\"ring_bytes\":");
    put_uint(t, k3_plan_of(k)->ring_bytes);
    put(t, "}}");
    say_name(t, TRACK_COMPUTE, "compute");
    start(t);
    return t->code ? failed(t, error) : 0;
}

static void say_opening(struct timeline *t, const struct reader_facts *r)
{
    int64_t now = clock_ns();
    pthread_mutex_lock(&t->lock);
    say_slice(t, "opening", -1, "opening", TRACK_COMPUTE, t->base_ns, now);
    put(t, "}}");
    say_slice(t, "measure the drives", -1, "probe", TRACK_COMPUTE,
              r->probe_begin_ns, r->probe_end_ns);
    put(t, "}}");
    for (uint32_t d = 0; d < r->drives; d++) {
        const struct reader_drive_facts *f = &r->drive[d];
        say_mark(t, "rate of a drive", "drive", now);
        put(t, "\"drive\":");
        put_uint(t, d);
        put(t, ",\"bytes_per_s\":");
        put_uint(t, f->paced_bytes_per_s ? f->paced_bytes_per_s
                                         : f->raw_bytes_per_s);
        put(t, "}}");
    }
    pthread_mutex_unlock(&t->lock);
}

int timeline_begun(struct timeline *t, const struct reader_facts *r,
                   struct error *error)
{
    if (!t)
        return 0;
    say_opening(t, r);
    return output_publish(&t->file, error);
}

static void free_all(struct timeline *t)
{
    event_ring_close(t->event_ring);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->out);
    free(t->tile);
    free(t->names);
    free(t->expert_names);
    free(t->kernel_names);
    free(t->lanes);
    free(t);
}

int timeline_open(struct timeline **out, const char *path, const char *run,
                  struct k3_options *o, struct error *error)
{
    *out = NULL;
    struct timeline *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(error, -ENOMEM, "no memory for the timeline");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->run = run;
    t->first = true;
    t->base_ns = clock_ns();
    t->out = malloc(FILE_BUFFER);
    t->code =
        t->out ? event_ring_open(&t->event_ring, TIMELINE_EVENTS) : -ENOMEM;
    int err = t->code ? error_set(error, t->code, "no memory for the timeline")
                      : output_open(&t->file, path, "the timeline", error);
    if (err) {
        free_all(t);
        return err;
    }
    put(t, "[\n");
    o->event_ring = t->event_ring;
    o->heap_bytes += TIMELINE_BYTES;
    *out = t;
    return 0;
}

int timeline_close(struct timeline *t, struct error *error)
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
    for (uint32_t d = 0; t->lanes && d < t->drives; d++)
        for (uint32_t i = 0; i < t->lanes[d].count; i++) {
            char name[48];
            snprintf(name, sizeof name, i ? "drive %u, %u more in flight"
                                          : "drive %u", d, i);
            say_name(t, TRACK_DRIVE * (1 + d) + i, name);
        }
    put(t, "\n]\n");
    flush(t);
    int err = t->code ? failed(t, error) : 0;
    int other = output_close(&t->file, t->running && !err, error);
    free_all(t);
    return err ? err : other;
}
