#include "bin/profile_time.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 4096, TRACK_DRIVE = 100 };

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

static double number_of(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

/* 1: *e is the next event, to be given back; 0: no more; or a sentence. */
static int next(struct times *t, struct event *e, struct why *why)
{
    char line[LINE_MOST];
    while (fgets(line, sizeof line, t->file)) {
        size_t n = strcspn(line, "\r\n");
        if (n && line[n - 1] == ',')
            n--;
        if (n < 2) /* the brackets around all */
            continue;
        e->all = json_loadb(line, n, 0, NULL);
        if (!json_is_object(e->all)) {
            json_decref(e->all);
            if (feof(t->file) || fgetc(t->file) == EOF)
                return 0; /* a run that was cut short cuts its last line */
            return why_set(why, -EBADMSG, "%s: not a timeline of sluice run",
                           t->path);
        }
        e->args = json_object_get(e->all, "args");
        e->name = text_of(e->all, "name");
        e->phase = text_of(e->all, "ph");
        e->category = text_of(e->all, "cat");
        e->from_us = number_of(e->all, "ts");
        e->to_us = e->from_us + number_of(e->all, "dur");
        e->track = (uint32_t)number_of(e->all, "tid");
        return 1;
    }
    return ferror(t->file)
               ? why_set(why, -EIO, "%s: it cannot be read", t->path)
               : 0;
}

static int add_pass(struct times *t, const struct event *e, struct why *why)
{
    if (t->passes == t->pass_room) {
        uint32_t room = t->pass_room ? 2 * t->pass_room : 64;
        struct times_pass *p = realloc(t->pass, room * sizeof *p);
        if (!p)
            return why_set(why, -ENOMEM, "%s: no memory for its passes",
                           t->path);
        t->pass = p;
        t->pass_room = room;
    }
    t->pass[t->passes++] = (struct times_pass){
        e->from_us, e->to_us, strstr(e->name, "decode") != NULL };
    return 0;
}

static int learn(struct times *t, const struct event *e, struct why *why)
{
    if (!strcmp(e->category, "pass"))
        return add_pass(t, e, why);
    if (!strcmp(e->category, "lost"))
        t->lost += (uint64_t)number_of(e->args, "lost");
    if (!strncmp(e->name, "sluice ", 7))
        t->ring_bytes = number_of(e->args, "ring_bytes");
    if (e->track >= TRACK_DRIVE && !strcmp(e->phase, "X")) {
        uint32_t drive = e->track - TRACK_DRIVE;
        t->reads++;
        if (drive < TIMES_DRIVES_MAX && drive >= t->drives)
            t->drives = drive + 1;
    }
    return 0;
}

int times_open(struct times **out, const char *path, struct why *why)
{
    struct event e;
    *out = NULL;
    struct times *t = calloc(1, sizeof *t);
    if (!t)
        return why_set(why, -ENOMEM, "no memory for a timeline");
    t->path = path;
    t->file = fopen(path, "re");
    int err = 0, got = 0;
    if (!t->file)
        err = why_set(why, -errno, "%s: %s", path, strerror(errno));
    while (!err && (got = next(t, &e, why)) > 0) {
        err = learn(t, &e, why);
        json_decref(e.all);
    }
    if (!err)
        err = got;
    if (!err && !t->passes)
        err = why_set(why, -EBADMSG, "%s: no pass is in it", path);
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

/* Spread `amount` over the bins that the event touches. */
static void spread(double bins[TIMES_BINS], const struct times_window *w,
                   const struct event *e, double amount)
{
    double bin = (w->to_us - w->from_us) / TIMES_BINS;
    double from = (e->from_us - w->from_us) / bin;
    double to = (e->to_us - w->from_us) / bin, span = to - from;
    int first = from > 0 ? (int)from : 0;
    if (to < 0 || from >= TIMES_BINS)
        return;
    if (span < 1e-9) {
        bins[first] += amount;
        return;
    }
    for (int i = first; i < TIMES_BINS && i < to; i++) {
        double a = from > i ? from : i, b = to < i + 1 ? to : i + 1;
        bins[i] += amount * (b - a) / span;
    }
}

static void take(const struct times *t, struct times_window *w,
                 const struct event *e)
{
    double bin = (w->to_us - w->from_us) / TIMES_BINS;
    if (!strcmp(e->phase, "C") && !strcmp(e->name, "ring")) {
        int at = (int)((e->from_us - w->from_us) / bin);
        double fill = t->ring_bytes > 0
                          ? number_of(e->args, "bytes") / t->ring_bytes
                          : 0;
        at = e->from_us >= w->from_us ? at : 0; /* as it was at the start */
        if (at < TIMES_BINS)
            w->ring[at] = fill;
        return;
    }
    if (strcmp(e->phase, "X"))
        return;
    if (e->track >= TRACK_DRIVE) {
        const char *class = text_of(e->args, "class");
        int c = !strcmp(class, "trunk")   ? READ_TRUNK
                : !strcmp(class, "guess") ? READ_GUESS
                                          : READ_DEMAND;
        if (e->track - TRACK_DRIVE < TIMES_DRIVES_MAX)
            spread(w->read[e->track - TRACK_DRIVE][c], w, e,
                   number_of(e->args, "bytes") / (bin / 1e6));
        return;
    }
    double *to = !strcmp(e->category, "wait trunk")    ? w->wait_trunk
                 : !strcmp(e->category, "wait expert") ? w->wait_expert
                 : !strcmp(e->category, "pass")        ? w->work
                                                       : NULL;
    if (to)
        spread(to, w, e, (e->to_us - e->from_us) / bin);
}

int times_fill(struct times *t, struct times_window *w, double from_us,
               double to_us, struct why *why)
{
    struct event e;
    int got;
    memset(w, 0, sizeof *w);
    for (int i = 0; i < TIMES_BINS; i++)
        w->ring[i] = -1;
    w->from_us = from_us;
    w->to_us = to_us > from_us ? to_us : from_us + 1;
    rewind(t->file);
    while ((got = next(t, &e, why)) > 0) {
        take(t, w, &e);
        json_decref(e.all);
    }
    double last = 0;
    for (int i = 0; i < TIMES_BINS; i++) {
        /* Compute works whenever a pass runs and it does not wait. */
        w->work[i] -= w->wait_trunk[i] + w->wait_expert[i];
        w->work[i] = w->work[i] > 0 ? w->work[i] : 0;
        last = w->ring[i] >= 0 ? w->ring[i] : last;
        w->ring[i] = last;
    }
    return got;
}
