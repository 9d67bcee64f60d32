#include "bin/report/watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "bin/report/recorder.h"
#include "bin/report/timeline.h"
#include "io/clock.h"

static int on_planned(void *arg, const struct k3 *k, struct error *error)
{
    struct watch_files *w = arg;
    int err = 0;
    if (w->recorder)
        err = recorder_planned(w->recorder, k, error);
    if (!err && w->timeline)
        err = timeline_planned(w->timeline, k, error);
    return err;
}

/* A random name. Without random numbers, the time is one. */
static void name_run(char run[WATCH_RUN_BYTES])
{
    uint8_t byte[WATCH_RUN_BYTES / 2];
    int64_t now = clock_ns();
    if (getrandom(byte, sizeof byte, GRND_NONBLOCK) != sizeof byte) {
        memset(byte, 0, sizeof byte);
        memcpy(byte, &now, sizeof now);
    }
    for (size_t i = 0; i < sizeof byte; i++)
        snprintf(run + 2 * i, 3, "%02x", byte[i]);
}

int watch_open(struct watch_files *w, const char *timeline, const char *trace,
               const char *model, struct k3_options *o, struct error *error)
{
    int err = 0;
    *w = (struct watch_files){ 0 };
    name_run(w->run);
    o->planned = on_planned;
    o->planned_arg = w;
    if (timeline)
        err = timeline_open(&w->timeline, timeline, w->run, o, error);
    if (!err && trace)
        err = recorder_open(&w->recorder, trace, model, o, error);
    return err;
}

int watch_begun(struct watch_files *w, struct k3 *k, struct error *error)
{
    struct k3_facts f;
    k3_facts(k, &f);
    int err = timeline_begun(w->timeline, &f.reader, error);
    return err ? err : recorder_begun(w->recorder, error);
}

int watch_close(struct watch_files *w, struct error *error)
{
    struct error second = { 0 };
    int err = timeline_close(w->timeline, error);
    int other = recorder_close(w->recorder, err ? &second : error);
    *w = (struct watch_files){ 0 };
    return err ? err : other;
}
