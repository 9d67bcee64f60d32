/* reader.h - many reads in flight, from many files, on one or more drives.
 *
 * A reader opens all shards at once and owns a fixed number of slots. A request
 * is any byte range of a file; the reader widens it to whole pages, continues
 * it when it comes back short or interrupted, retries it when the device fails,
 * and reports it once. Which reads to make and when is the caller's affair:
 * what was started is queued, submitted by the next reap, and cannot be taken
 * back.
 *
 *     reader_open -> { reader_start ... reader_reap } -> reader_drain
 *                 -> reader_close
 *
 * Bytes    target % 4096 == offset % 4096, and the 4 KiB pages around
 *          [target, target + length) are the caller's: the pages as a whole are
 *          written. From start until the completion with the same tag they
 *          belong to the kernel, whatever happens in between.
 * Threads  reader_open anywhere; the first start or reap binds the reader to
 *          its thread, the owner, and with options.realtime raises that
 *          thread's priority where it may: it should do little else.
 *          reader_wake and reader_facts are for any thread at any time, and so
 *          are the functions that only tell what open has set (drives,
 *          file_size, in_flight_budget).
 * Errors   0, a count, or a negative errno. A failed read is not a failed call
 *          but a completion with `error` set, and the reader stays usable; a
 *          negative return of reap means that the ring itself broke.
 * Cost     2 to 10 ms of CPU a GB. After open nothing allocates.
 */
#ifndef IO_READER_H
#define IO_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "io/limits.h"

#include "io/arena.h"
#include "io/fault.h"
#include "io/paced.h"

struct reader;

#define READER_PAGE       4096u
#define READER_CHUNK      (1u << 20) /* bytes of a request, unless told */
#define READER_CHUNK_MAX  (128u << 20)
#define READER_NOTES_MAX  8u
#define READER_NO_FILE    UINT32_MAX
#define READER_LOST       "lost " /* notes on lost copies begin so */
#define READER_NOTE_BYTES 200u

struct reader_options {
    const char *method;       /* "auto", "uring", "pread" */
    const char *const *paths; /* the files; requests name them by index */
    uint32_t files;           /* > 0 */
    uint32_t chunk_bytes;     /* most payload of a request; 0: READER_CHUNK */
    struct arena *arena;      /* that is read into, registered with the ring;
                               * may be NULL */
    /* Simulated drives: file k is on drive place[k] mod paced_count, or k mod
     * paced_count if place is NULL. Without any, a drive is a file system. */
    const struct paced_drive *paced;
    uint32_t paced_count;
    const uint32_t *place; /* [files], or NULL */
    /* [files], or NULL: the file whose copy each is, or its own number. A copy
     * that cannot be opened is left out, with a note. */
    const uint32_t *copy_of;
    const struct fault_plan *fault; /* NULL: none; copied, like all here */
    /* What keeps one drive busy. 0: found by reading for up to a second. */
    uint64_t in_flight_bytes;
    /* Ask for SCHED_FIFO, or a lower nice value, for the owner's thread. The
     * whole process feels that, so a library does it only when told to. */
    bool     realtime;
};

struct read_req {
    uint32_t file;
    uint32_t length_bytes; /* 1..chunk_bytes */
    uint64_t offset_bytes;
    void    *target;       /* congruent to the offset, see Bytes above */
    uint64_t tag;          /* yours; comes back unchanged */
    uint8_t  class;        /* the same */
};

struct read_done {
    uint64_t tag;
    int      error;        /* 0: all bytes are there. -ENODATA: the file ends
                            * before them. -EIO and others: what the device
                            * said, three times. Then nothing is promised about
                            * the target. */
    uint32_t bytes;        /* payload: the request's length, 0 on error */
    uint32_t device_bytes; /* moved for it, envelope and repeats included */
    uint32_t drive, file;
    uint64_t offset_bytes;
    uint8_t  class;
    int64_t  queued_ns, issued_ns, done_ns; /* CLOCK_MONOTONIC; on a paced
                                             * drive done_ns is simulated */
};

/* Whether the owner goes before other threads when it wakes up: real time
 * (CAP_SYS_NICE or an rtprio limit), or at least nice. */
enum reader_turn { READER_TURN_EQUAL, READER_TURN_NICE, READER_TURN_REALTIME };

struct reader_drive_facts {
    uint64_t raw_bytes_per_s;   /* measured at open; 0: nothing was read */
    uint64_t paced_bytes_per_s; /* 0: not paced */
    uint64_t device_bytes;      /* so far */
    int64_t  busy_ns;           /* time with at least one read in flight */
    double   in_flight_mean_bytes; /* over that time */
};

struct reader_facts {
    const char *method;    /* "io_uring" or "pread" */
    const char *setup;     /* the flags that were granted, for people */
    uint32_t threads;      /* of the method */
    bool     direct;       /* all files, still */
    bool     registered_files, registered_buffers;
    int      owner_node;   /* NUMA node the owner was moved to, or -1 */
    enum reader_turn owner_turn;
    uint32_t drives;
    uint64_t raw_bytes_per_s, paced_bytes_per_s; /* sums over drives */
    uint64_t reads, payload_bytes, device_bytes, failed;
    uint64_t retries, short_reads, faults; /* faults: made by the plan */
    double   in_flight_mean_bytes;         /* sum over drives */
    uint64_t in_flight_peak_bytes;
    struct reader_drive_facts drive[DRIVES_MAX];
    int64_t  probe_begin_ns, probe_end_ns; /* CLOCK_MONOTONIC; while open
                                            * measured the drives */
    uint32_t notes; /* what was refused, and a hint: one line each */
    char     note[READER_NOTES_MAX][READER_NOTE_BYTES];
};

/* Opens every file, chooses the method with a real read, registers what the
 * limits allow and measures the drives. Sets *out, or leaves it NULL and
 * returns
 *   -EINVAL    an option is out of range
 *   -ENOMEM    no memory
 *   -EMFILE    more files than `ulimit -n` allows
 *   -ENOSYS, -EPERM  "uring" was asked for by name and is not there
 *   other      what the kernel said about a file
 * *bad_file is the index of the file that failed, or UINT32_MAX. */
int reader_open(struct reader **out, const struct reader_options *options,
                uint32_t *bad_file);

/* NULL is allowed. On the owner thread, where it drains first; or anywhere, if
 * the owner has drained: only that thread can wait for its reads, and its end
 * alone does not. If reads are still in flight (the ring broke), the arena of
 * the options stays mapped until the process ends. */
void reader_close(struct reader *r);

/* Queue one read. Never blocks, never enters the kernel.
 *   -EAGAIN   all slots are busy: reap first
 *   -EINVAL   no such file, a length of 0 or above chunk_bytes, a target that
 *             is not congruent to the offset
 *   -ENODATA  the file ends before the range does */
int reader_start(struct reader *r, const struct read_req *req);

/* Submit what is queued, wait until a read is done, a wake comes or the
 * deadline (absolute, CLOCK_MONOTONIC; 0: do not wait; INT64_MAX: none) is
 * over, and store up to `max` completions. Returns how many. */
int reader_reap(struct reader *r, struct read_done *out, uint32_t max,
                int64_t deadline_ns);

/* Wait until nothing is in flight any more, and drop the completions: after
 * that the pages are the caller's to unmap. */
int reader_drain(struct reader *r);

/* Make a reap that waits, or else the next one, return. Costs an exchange, and
 * a system call only if the owner sleeps. Not for signal handlers. */
void reader_wake(struct reader *r);

/* On the owner's thread: a copy of a file has failed and is not named any more.
 * Adds a note. False: it was the last. */
bool reader_lose(struct reader *r, uint32_t file, int error);

uint32_t reader_drives(const struct reader *r);
/* Some file has more than one copy. */
bool     reader_has_copies(const struct reader *r);
/* The copy of a file that is on a drive, or READER_NO_FILE. */
uint32_t reader_copy_on(const struct reader *r, uint32_t file, uint32_t drive);
/* The file that it is a copy of. */
uint32_t reader_original(const struct reader *r, uint32_t file);
/* Bytes a second, simulated or measured; 0: not known. */
uint64_t reader_rate(const struct reader *r, uint32_t drive);
uint32_t reader_drive_of(const struct reader *r, uint32_t file);
uint64_t reader_file_size(const struct reader *r, uint32_t file);
/* Bytes in flight that keep the drive saturated: more only adds latency. */
uint64_t reader_in_flight_budget(const struct reader *r, uint32_t drive);
/* The same for a simulated drive, unless options say otherwise. */
uint64_t reader_paced_budget(const struct paced_drive *drive);

void reader_facts(const struct reader *r, struct reader_facts *out);
/* facts.retries alone, as cheap as a lock that nobody holds. */
uint64_t reader_retries(const struct reader *r);

#endif
