/* timeline.h - what a session did when, as trace-event JSON: a file that
 * Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 *     timeline_open -> k3_open { timeline_planned } -> timeline_close
 *
 * Tracks   compute: passes, under them kernels by layer and waits with what
 *          they were for. One for each drive: a slice is the time in which the
 *          drive worked on a read, so a gap is an idle drive; its arguments
 *          have layer, class, bytes, and the times the read spent queued and
 *          with the device. Counters: bytes in the ring, in flight a drive.
 * Length   a thread of low priority moves events from the journal to the file
 *          all the time, so a run may be of any length. Only what comes while
 *          it cannot keep up is lost, and the file says where and how much.
 * Form     a JSON array, one event a line. A file whose end is missing, as
 *          after a crash, opens all the same.
 * Memory   TIMELINE_BYTES and 8 bytes a tile, counted in the plan.
 */
#ifndef BIN_TIMELINE_H
#define BIN_TIMELINE_H

#include "model/k3.h"

enum { TIMELINE_EVENTS = 16384, TIMELINE_BYTES = 2 << 20 };

struct timeline;

/* Create the file and give `o` the journal and the memory it takes. */
int timeline_open(struct timeline **out, const char *path,
                  struct k3_options *o, struct why *why);
/* From the planned callback of k3_open: from here on events are written. */
int timeline_planned(struct timeline *t, const struct k3 *k, struct why *why);
/* Write the rest; nothing may be added to the journal any more or again: close
 * the session first. NULL is fine. An error is that of the file, the first. */
int timeline_close(struct timeline *t, struct why *why);

#endif
