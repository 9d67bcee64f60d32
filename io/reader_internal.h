/* reader_internal.h - what the files of one reader share. */
#ifndef IO_READER_INTERNAL_H
#define IO_READER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/file.h"
#include "io/method.h"
#include "io/reader.h"

#define READER_DEPTH 512u
#define LAYERS_MAX   3u
#define BUDGET_DEFAULT ((uint64_t)8 << 20)
#define PACED_MIN ((uint64_t)4 << 20)    /* in flight on a simulated drive */
#define PACED_AHEAD_NS 2000000           /* how late the owner may wake up */

/*  state   who may touch the pages   is in                   leaves by
 *  FREE    caller                    the free list           reader_start
 *  STAGED  kernel, soon              staged[]                reap
 *  FLYING  kernel                    the method              settle
 */
enum slot_state { SLOT_FREE, SLOT_STAGED, SLOT_FLYING };

struct slot {
    enum slot_state state;
    uint16_t generation; /* so that no result is taken for another read's */
    uint16_t next_free;
    struct read_req req;
    uint64_t begin_bytes;  /* of the envelope, in the file */
    char    *pages;        /* where the envelope lands */
    uint32_t need_bytes;   /* up to the end of the payload */
    uint32_t span_bytes;   /* up to the end of the envelope */
    uint32_t landed_bytes;
    uint32_t moved_bytes;  /* with repeats */
    uint32_t asked_bytes;  /* by the op in flight */
    uint32_t stalls;       /* ops in a row without progress */
    uint32_t errors;
    bool     plain;
    int64_t  queued_ns, issued_ns; /* of the read */
    int64_t  pushed_ns;            /* of the op in flight */
};

struct drive {
    dev_t    dev;
    uint64_t budget_bytes;
    uint64_t raw_bytes_per_s;
    /* the rest under reader.lock */
    uint32_t flying;
    uint64_t device_bytes;
    int64_t  busy_ns, busy_since_ns, last_done_ns;
    double   byte_ns; /* bytes times the time they were in flight */
};

struct reader {
    struct io_file *file;
    uint32_t *drive_of;
    uint32_t *copy_of;   /* [files], or NULL: every file is the only copy */
    uint32_t *next_copy; /* [files] the next file with the same bytes, a circle;
                          * or NULL */
    bool     *lost;      /* [files], or NULL: copies that are not used */
    char    **path;      /* [files], for notes; or NULL */
    uint32_t files, drives;
    uint32_t chunk_bytes;
    struct drive drive[DRIVES_MAX];
    struct paced_drive paced[DRIVES_MAX];
    int64_t  probe_begin_ns, probe_end_ns;
    bool     realtime; /* raise the owner's priority */
    uint32_t paced_count;
    struct fault_plan fault;
    struct arena *arena; /* or NULL */
    const struct io_method *layers[LAYERS_MAX + 1]; /* NULL after the last */
    void    *ctx;                                   /* of layers[0] */
    struct io_granted granted;

    pthread_t owner;
    bool     bound;
    int      owner_node; /* where to run, or -1 */
    enum reader_turn owner_turn;
    atomic_int woken, asleep;

    uint16_t free_head; /* READER_DEPTH: none */
    uint32_t staged_count;
    uint32_t in_use;
    uint16_t staged[READER_DEPTH];
    struct slot slot[READER_DEPTH];

    /* The rest, and the second half of a drive, is what other threads read
     * through reader_facts. The owner takes the lock once a batch, never while
     * it waits. */
    pthread_mutex_t lock;
    bool     direct;
    uint64_t reads, failed, payload_bytes, device_bytes, retries, short_reads;
    uint64_t in_flight_bytes, in_flight_peak_bytes;
    uint32_t notes;
    char     note[READER_NOTES_MAX][READER_NOTE_BYTES];
};

/* Add a line to the facts; those beyond the last are dropped. Under the lock,
 * once the reader is bound. */
void reader_note(struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Does this method move bytes here? Opens it once for itself, reads the start
 * of a file and compares with pread. *fixed_works: so do registered buffers. */
int probe_check(struct reader *r, const struct io_method *method,
                bool *fixed_works);

/* Fill budget_bytes and raw_bytes_per_s of every drive, by reading ranges of
 * the real files for at most about a second in all. A drive with less than
 * 1 GiB of them gets a default, and is read once at most. */
int probe_measure(struct reader *r, const struct io_method *method,
                  uint64_t in_flight_bytes);

#endif
