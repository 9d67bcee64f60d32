#include "bin/report/profile_time.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_MAX = 4096,
    TRACK_DRIVE = 100,  /* of drive 0; older versions had a track a drive */
    PARTS = 64,         /* that a drive's last busy time has */
};

struct event {
    json_t     *all, *args;
    const char *name, *phase, *category;
    double      from_us, to_us;
    uint32_t    track;
};

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

/* Numbers beyond this are no run's: 31 years in microseconds, a petabyte. */
#define NUMBER_MAX 1e15

static double number_of(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* The same from 0 to NUMBER_MAX, which may be cast. */
static double amount_of(const json_t *o, const char *name)
{
    double value = number_of(o, name);
    return value > 0 ? value < NUMBER_MAX ? value : NUMBER_MAX : 0;
}

/* 1: *e is the next event, whose e->all the caller decrefs; 0: no more; or an
 * error. */
static int next(struct times *t, struct event *e, struct error *error)
{
    char line[LINE_MAX];
    while (fgets(line, sizeof line, t->file)) {
        size_t n = strcspn(line, "\r\n");
        if (n && line[n - 1] == ',')
            n--;
        if (n < 2) /* the brackets of the array */
            continue;
        e->all = json_loadb(line, n, 0, NULL);
        if (!json_is_object(e->all)) {
            json_decref(e->all);
            if (feof(t->file) || fgetc(t->file) == EOF)
                return 0; /* the last line of a crashed run */
            return error_set(error, -EBADMSG,
                             "%s: not a timeline of sluice run", t->path);
        }
        e->args = json_object_get(e->all, "args");
        e->name = text_of(e->all, "name");
        e->phase = text_of(e->all, "ph");
        e->category = text_of(e->all, "cat");
        double from = number_of(e->all, "ts"), dur = number_of(e->all, "dur");
        double track = number_of(e->all, "tid");
        if (!(from > -NUMBER_MAX && from < NUMBER_MAX) ||
            !(dur >= 0 && dur < NUMBER_MAX) || !(track >= 0 && track < 1e6)) {
            json_decref(e->all);
            return error_set(error, -EBADMSG, "%s: an event at %g us, %g us "
                             "long, on track %g, is of no run", t->path, from,
                             dur, track);
        }
        e->from_us = from;
        e->to_us = from + dur;
        e->track = (uint32_t)track;
        return 1;
    }
    return ferror(t->file)
               ? error_set(error, -EIO, "%s: read error", t->path)
               : 0;
}

/* The drive of a read, or DRIVES_MAX: it is no read. */
static uint32_t drive_of(const struct event *e)
{
    const json_t *o = json_object_get(e->args, "drive");
    if (e->track < TRACK_DRIVE || strcmp(e->phase, "X"))
        return DRIVES_MAX;
    double d = o ? json_number_value(o) : (double)(e->track - TRACK_DRIVE);
    return d >= 0 && d < DRIVES_MAX ? (uint32_t)d : DRIVES_MAX;
}

static int add_pass(struct times *t, const struct event *e, struct error *error)
{
    if (t->passes == t->pass_room) {
        uint32_t room = t->pass_room ? 2 * t->pass_room : 64;
        struct times_pass *p = realloc(t->pass, room * sizeof *p);
        if (!p)
            return error_set(error, -ENOMEM, "%s: no memory for its passes",
                             t->path);
        t->pass = p;
        t->pass_room = room;
    }
    t->pass[t->passes++] = (struct times_pass){
        e->from_us, e->to_us, strstr(e->name, "decode") != NULL };
    return 0;
}

static int learn(struct times *t, const struct event *e, struct error *error)
{
    if (!strcmp(e->category, "pass"))
        return add_pass(t, e, error);
    if (!strcmp(e->category, "lost"))
        t->lost += (uint64_t)amount_of(e->args, "lost");
    if (!strncmp(e->name, "sluice ", 7))
        t->ring_bytes = amount_of(e->args, "ring_bytes");
    if (!strncmp(e->name, "sluice ", 7))
        snprintf(t->run, sizeof t->run, "%s", text_of(e->args, "run"));
    if (!strcmp(e->category, "opening"))
        t->opened_us = e->to_us;
    if (!strcmp(e->category, "probe"))
        t->probe_us = e->to_us - e->from_us;
    double rated = amount_of(e->args, "drive");
    if (!strcmp(e->category, "drive") && rated < DRIVES_MAX)
        t->rate[(uint32_t)rated] = amount_of(e->args, "bytes_per_s");
    uint32_t drive = drive_of(e);
    t->reads += drive < DRIVES_MAX;
    if (drive < DRIVES_MAX && drive >= t->drives)
        t->drives = drive + 1;
    return 0;
}

int times_open(struct times **out, const char *path, struct error *error)
{
    struct event e;
    *out = NULL;
    struct times *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(error, -ENOMEM, "no memory for a timeline");
    t->path = path;
    t->file = fopen(path, "re");
    int err = 0, got = 0;
    if (!t->file)
        err = error_set(error, -errno, "%s: %s", path, strerror(errno));
    else if (fseek(t->file, 0, SEEK_SET))
        err = error_set(error, -ESPIPE, "%s: a timeline is read more than "
                        "once: it must be a file", path);
    while (!err && (got = next(t, &e, error)) > 0) {
        err = learn(t, &e, error);
        json_decref(e.all);
    }
    if (!err)
        err = got;
    if (!err && !t->passes)
        err = error_set(error, -EBADMSG, "%s: it has no pass", path);
    if (err) {
        times_close(t);
        return err;
    }
    *out = t;
    return 0;
}

void times_close(struct times *t)
{
    if (!t)
        return;
    if (t->file)
        fclose(t->file);
    free(t->pass);
    free(t);
}

/* Spread `amount` over the bins that the time touches. */
static void spread(double bins[TIMES_BINS], const struct times_window *w,
                   double from_us, double to_us, double amount)
{
    double bin = (w->to_us - w->from_us) / TIMES_BINS;
    double from = (from_us - w->from_us) / bin;
    double to = (to_us - w->from_us) / bin, span = to - from;
    if (!(to >= 0 && from < TIMES_BINS))
        return;
    int first = from > 0 ? (int)from : 0;
    if (span < 1e-9) {
        bins[first] += amount;
        return;
    }
    for (int i = first; i < TIMES_BINS && i < to; i++) {
        double a = from > i ? from : i, b = to < i + 1 ? to : i + 1;
        bins[i] += amount * (b - a) / span;
    }
}

/* ---- what the drives did ---- */

/* Bytes that a drive moved evenly, without a pause. */
struct part {
    double from_us, to_us, bytes[READ_CLASSES];
};

/* The latest parts of a drive's work; older ones are in the bins. */
struct work {
    struct part part[PARTS];
    uint32_t count;
};

/* Is that more than the drive can do? `rate` in bytes a second, 0: unknown. */
static bool too_fast(const struct part *p, double rate)
{
    double bytes = p->bytes[READ_DEMAND] + p->bytes[READ_TRUNK] +
                   p->bytes[READ_PREFETCH];
    double us = p->to_us - p->from_us;
    return us <= 0 || (rate > 0 && bytes > rate * 1e-6 * us);
}

static void flush(struct work *k, struct times_window *w, uint32_t drive,
                  uint32_t keep)
{
    double bin_s = (w->to_us - w->from_us) / TIMES_BINS / 1e6;
    uint32_t gone = k->count > keep ? k->count - keep : 0;
    for (uint32_t i = 0; i < gone; i++)
        for (int c = 0; c < READ_CLASSES; c++)
            spread(w->read[drive][c], w, k->part[i].from_us, k->part[i].to_us,
                   k->part[i].bytes[c] / bin_s);
    k->count -= gone;
    memmove(k->part, k->part + gone, k->count * sizeof *k->part);
}

static void add_read(struct work *k, struct times_window *w, uint32_t drive,
                     double rate, const struct event *e, int class)
{
    struct part p = { .from_us = e->from_us, .to_us = e->to_us };
    p.bytes[class] = amount_of(e->args, "bytes");
    if (k->count && k->part[k->count - 1].to_us > p.from_us)
        p.from_us = k->part[k->count - 1].to_us;
    if (p.to_us < p.from_us)
        p.to_us = p.from_us;
    while (k->count && too_fast(&p, rate)) {
        const struct part *last = &k->part[k->count - 1];
        if (last->to_us < p.from_us)
            break; /* the drive was idle between them */
        p.from_us = last->from_us;
        for (int c = 0; c < READ_CLASSES; c++)
            p.bytes[c] += last->bytes[c];
        k->count--;
    }
    if (k->count == PARTS)
        flush(k, w, drive, PARTS / 2);
    k->part[k->count++] = p;
}

static void take(const struct times *t, struct times_window *w,
                 struct work *work, const struct event *e)
{
    double bin = (w->to_us - w->from_us) / TIMES_BINS;
    if (!strcmp(e->phase, "C") && !strcmp(e->name, "ring")) {
        double at = (e->from_us - w->from_us) / bin;
        at = at > 0 ? at : 0; /* before: as it was at the start */
        if (at < TIMES_BINS)
            w->ring[(int)at] = t->ring_bytes > 0
                                   ? amount_of(e->args, "bytes") /
                                         t->ring_bytes
                                   : 0;
        return;
    }
    if (strcmp(e->phase, "X"))
        return;
    if (e->track >= TRACK_DRIVE) {
        const char *class = text_of(e->args, "class");
        bool prefetch = !strcmp(class, "prefetch") ||
                        !strcmp(class, "guess"); /* of older versions */
        int c = !strcmp(class, "trunk") ? READ_TRUNK
                : prefetch              ? READ_PREFETCH
                                        : READ_DEMAND;
        uint32_t d = drive_of(e);
        if (d < DRIVES_MAX)
            add_read(&work[d], w, d, t->rate[d], e, c);
        return;
    }
    double *to = !strcmp(e->category, "wait trunk")    ? w->wait_trunk
                 : !strcmp(e->category, "wait expert") ? w->wait_expert
                 : !strcmp(e->category, "wait embedding") ? w->wait_embed
                 : !strcmp(e->category, "pass")        ? w->work
                                                       : NULL;
    if (to)
        spread(to, w, e->from_us, e->to_us, (e->to_us - e->from_us) / bin);
}

int times_fill(struct times *t, struct times_window *w, double from_us,
               double to_us, struct error *error)
{
    struct event e;
    int got;
    struct work *work = calloc(DRIVES_MAX, sizeof *work);
    if (!work)
        return error_set(error, -ENOMEM, "no memory for a timeline");
    memset(w, 0, sizeof *w);
    for (int i = 0; i < TIMES_BINS; i++)
        w->ring[i] = -1;
    w->from_us = from_us;
    w->to_us = to_us > from_us ? to_us : from_us + 1;
    rewind(t->file);
    while ((got = next(t, &e, error)) > 0) {
        take(t, w, work, &e);
        json_decref(e.all);
    }
    for (uint32_t d = 0; d < DRIVES_MAX; d++)
        flush(&work[d], w, d, 0);
    free(work);
    double last = 0;
    for (int i = 0; i < TIMES_BINS; i++) {
        /* Compute works whenever a pass runs and it does not wait. */
        w->work[i] -= w->wait_trunk[i] + w->wait_expert[i] + w->wait_embed[i];
        w->work[i] = w->work[i] > 0 ? w->work[i] : 0;
        last = w->ring[i] >= 0 ? w->ring[i] : last;
        w->ring[i] = last;
    }
    return got;
}
