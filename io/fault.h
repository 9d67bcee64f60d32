/* fault.h - what shall go wrong, and when: a seeded plan for method_fault.
 *
 * Reads are numbered from 0 in the order in which they reach the method,
 * retries included. Read n is broken if n >= first and (n - first) is 0 or a
 * multiple of `every`; and beyond that, any read with a chance of
 * `chance_permille`. With `only`, the reads of one file alone are numbered and
 * broken. The kind is drawn from `kinds`. The same plan and the same
 * reads break the same way.
 */
#ifndef IO_FAULT_H
#define IO_FAULT_H

#include <stdint.h>

enum fault_kind {
    FAULT_SHORT = 1 << 0,   /* moves short_bytes less, but at least one */
    FAULT_EIO = 1 << 1,
    FAULT_EINTR = 1 << 2,
    FAULT_EAGAIN = 1 << 3,
    FAULT_EINVAL = 1 << 4,  /* direct reads only, as file systems do it */
    FAULT_END = 1 << 5,     /* the file ended before this read */
    FAULT_LATE = 1 << 6,    /* the result is held back for late_ns */
    FAULT_REORDER = 1 << 7, /* held back until others have overtaken it */
    FAULT_NO_FIXED = 1 << 8, /* -EOPNOTSUPP unless the read is plain */
    FAULT_TWICE = 1 << 9,    /* told once more, when its slot may be reused */
};

#define FAULT_NEVER UINT32_MAX

struct fault_plan {
    uint64_t seed;
    uint32_t kinds;  /* enum fault_kind, or-ed */
    uint32_t first;  /* FAULT_NEVER: only by chance */
    uint32_t every;  /* 0: `first` only; 1: from there on, for ever */
    uint32_t chance_permille;
    uint32_t only; /* 1 + the file; 0: all files */
    uint32_t short_bytes;
    int64_t  late_ns;
    /* The open of the method with this name ("io_uring", "pread") is refused
     * with this negative errno, or none if NULL. */
    const char *refused_method;
    int         refused_error;
};

#endif
