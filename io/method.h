/* method.h - how bytes move: one table per way, as small as it can be.
 *
 * method_uring is the product, method_pread does the same work with a few
 * threads where io_uring is refused. method_fault and method_paced wrap any
 * other: they are layers, opened top first from one list, and each opens the
 * next one below itself.
 *
 *     method_open -> { push ... reap } -> method_close
 *
 * Bytes    The target of an op is the method's from push until reap returns
 *          its result.
 * Threads  push and reap belong to one thread, the one that calls either
 *          first; wake is for any thread.
 * Errors   A failed read is a result with a negative `res`. A negative return
 *          of reap means that the method itself is broken.
 */
#ifndef IO_METHOD_H
#define IO_METHOD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define IO_DEPTH_MAX    4096u
#define IO_SLOT(id)     ((id) & 0xffffu) /* the rest of an id is a generation */
#define IO_NO_DEADLINE  INT64_MAX

struct io_op {
    uint32_t id; /* comes back in io_result; IO_SLOT(id) < depth, free now */
    uint32_t file;
    uint32_t drive;
    int      fd;
    uint32_t length_bytes;
    uint64_t offset_bytes;
    void    *target;
    int64_t  issued_ns; /* CLOCK_MONOTONIC, not before that of the last op */
    bool     direct;    /* the file is read without the page cache */
    bool     plain;     /* do not use a registered buffer */
};

struct io_result {
    uint32_t id;
    int32_t  res;     /* bytes moved, or a negative errno: a cqe, in short */
    int64_t  done_ns; /* when it was over, as far as the method can tell */
};

/* What the method got of what it asked for: filled by open. It outlives the
 * method, which counts in it. */
struct io_granted {
    unsigned setup_flags; /* IORING_SETUP_*, 0 for pread */
    uint32_t threads;     /* of the method's own */
    bool     registered_files, registered_buffers;
    int      files_error, buffers_error; /* 0, or why not */
    int      setup_error; /* why the better setup flags were refused, or 0 */
    _Atomic uint64_t faults; /* made by a plan */
};

struct io_setup {
    const struct io_method *const *layers; /* this one, then those below */
    uint32_t   depth; /* most ops outstanding, 1..IO_DEPTH_MAX */
    const int *fds;   /* of all files, in order; read during open only */
    uint32_t   files;
    uint32_t   drives;
    void      *arena_base; /* to register; NULL: nothing */
    uint64_t   arena_bytes;
    const struct paced_drive *paced; /* one per drive; for method_paced */
    const struct fault_plan  *fault; /* for method_fault */
    struct io_granted *granted;
};

struct io_method {
    const char *name;
    int (*open)(void **ctx, const struct io_setup *setup);
    /* Nothing may be outstanding. */
    void (*close)(void *ctx);
    /* Never fails and never blocks while at most `depth` are outstanding. */
    void (*push)(void *ctx, const struct io_op *op);
    /* Submit what was pushed, then wait until a result is there, a wake comes,
     * or the deadline (CLOCK_MONOTONIC; 0: do not wait; IO_NO_DEADLINE) is
     * over. Returns how many results were stored, at most `max`; it may be 0
     * early, for instance after a signal. `max` 0: submit only. */
    int (*reap)(void *ctx, struct io_result *out, uint32_t max,
                int64_t deadline_ns);
    void (*wake)(void *ctx);
};

extern const struct io_method method_uring;
extern const struct io_method method_pread;
extern const struct io_method method_fault;
extern const struct io_method method_paced;

static inline struct timespec io_timespec(int64_t ns)
{
    return (struct timespec){ .tv_sec = ns / 1000000000,
                              .tv_nsec = ns % 1000000000 };
}

#endif
