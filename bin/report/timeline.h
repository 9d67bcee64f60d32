/* timeline.h - what a session did when, as trace-event JSON: a file that
 * Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 *     timeline_open -> k3_open { timeline_planned } -> timeline_begun
 *                   -> k3_close -> timeline_close
 *
 * Tracks   Compute: the opening and, in it, the measuring of the drives;
 *          passes; below them kernels by layer, and waits with what they wait
 *          for: trunk, experts or the embedding. A mark where decode begins.
 *          Drives: a slice is a read, from when the kernel had it until its
 *          bytes were there. As many tracks as a drive had reads in flight, so
 *          a time without a slice on any of them is an idle drive, and the
 *          bytes of a slice over its time are never above the drive's rate. A
 *          slice has the layer, drive, class (demand, trunk, prefetch) and
 *          bytes of the read, and its microseconds in the queue and on the
 *          device. Counters: bytes in the ring, bytes in flight on each drive.
 * Length   A thread of low priority writes the events of the event ring to the
 *          file during the run, so a run may be of any length. If the thread
 *          falls behind, events are lost; the file says where and how many.
 * Form     A JSON array, one event a line. A file without its end, as after a
 *          crash, can be opened too.
 * Bytes    TIMELINE_BYTES of memory and 8 a tile, counted in the plan.
 * Threads  the session's caller; its own writes the file.
 * Errors   the errno of the file; -ENOMEM.
 */
#ifndef BIN_REPORT_TIMELINE_H
#define BIN_REPORT_TIMELINE_H

#include "model/k3/k3.h"

enum {
    TIMELINE_EVENTS = 16384,  /* that the event ring holds */
    TIMELINE_BYTES = 2 << 20,
};

struct timeline;

/* Open the file, aside; set the event ring of `o` and add its memory. `run` is
 * the name of the run, kept by the caller. */
int timeline_open(struct timeline **out, const char *path, const char *run,
                  struct k3_options *o, struct error *error);
/* Call it from the planned callback of k3_open. Starts to write events. */
int timeline_planned(struct timeline *t, const struct k3 *k,
                     struct error *error);
/* The session is open: the file takes its place, and grows there; it says how
 * long opening took, and what the drives can do. NULL is fine. */
int timeline_begun(struct timeline *t, const struct reader_facts *r,
                   struct error *error);
/* Write the rest. Close the session first: the event ring is freed here. NULL
 * is fine. Returns the first error of the file. */
int timeline_close(struct timeline *t, struct error *error);

#endif
