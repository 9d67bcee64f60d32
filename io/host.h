/* host.h - what the machine, and the control groups that this process is in,
 * let it take: memory, processors, threads.
 *
 *     host_read -> { host_budget, host_threads, the fields }
 *
 * A group is bounded by its own limits and by those of every group above it, so
 * each level is looked at, in version 1 and 2 of cgroups, wherever they are
 * mounted. Page cache and slabs that the kernel gives back are not counted as
 * taken. The kernel charges a group for more than a process's resident pages:
 * page tables, rings, stacks, what is being written; a margin for these is
 * subtracted, so that a process that stays below what is left is not killed.
 *
 * Threads  any.
 * Errors   none: what cannot be read sets no limit.
 * Cost     some tens of small files of /proc and /sys.
 */
#ifndef IO_HOST_H
#define IO_HOST_H

#include <stdint.h>

enum { HOST_FILE_BYTES = 512 };

struct host {
    /* Bytes of the machine that a process can have: free, or in caches that
     * the kernel empties first, ZFS's too. UINT64_MAX: not known. */
    uint64_t machine_bytes;
    uint64_t zfs_bytes; /* of these, in ZFS's cache */
    /* Bytes that the tightest group lets it add, margin subtracted, and the
     * file that says so. UINT64_MAX and "": no limit. */
    uint64_t group_bytes;
    char     group_file[HOST_FILE_BYTES];
    double   cpus; /* that the tightest quota is worth; 0: no quota */
    char     cpus_file[HOST_FILE_BYTES];
    uint64_t tasks; /* threads that may be added; UINT64_MAX: no limit */
    char     tasks_file[HOST_FILE_BYTES];
};

/* `root` stands before /proc and /sys: "" for this machine, or a folder with
 * copies of them. */
void host_read(struct host *out, const char *root);

/* A memory budget for a process that was told none, never 0: the lesser of
 * what the machine has, less a sixteenth and at least 256 MiB for everybody
 * else but never more than half, and fifteen sixteenths of what the groups
 * leave. */
uint64_t host_budget(const struct host *l);

/* `threads` or, if that is less, as many as the quota keeps running and the
 * groups let be started; at least 1. */
uint32_t host_threads(const struct host *l, uint32_t threads);

#endif
