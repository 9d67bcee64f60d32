#include "bin/watch.h"

#include "bin/recorder.h"
#include "bin/session.h"
#include "bin/timeline.h"

static int on_planned(void *arg, const struct k3 *k, struct why *why)
{
    struct watch_files *w = arg;
    int err = session_fits(k3_plan_of(k), why);
    if (!err && w->recorder)
        err = recorder_planned(w->recorder, k, why);
    if (!err && w->timeline)
        err = timeline_planned(w->timeline, k, why);
    return err;
}

int watch_open(struct watch_files *w, const char *timeline, const char *trace,
               const char *model, struct k3_options *o, struct why *why)
{
    int err = 0;
    *w = (struct watch_files){ 0 };
    o->planned = on_planned;
    o->planned_arg = w;
    if (timeline)
        err = timeline_open(&w->timeline, timeline, o, why);
    if (!err && trace)
        err = recorder_open(&w->recorder, trace, model, o, why);
    return err;
}

int watch_close(struct watch_files *w, struct why *why)
{
    struct why second = { 0 };
    int err = timeline_close(w->timeline, why);
    int other = recorder_close(w->recorder, err ? &second : why);
    *w = (struct watch_files){ 0 };
    return err ? err : other;
}
