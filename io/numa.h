/* numa.h - which memory and which processors are near which drive.
 *
 * Reads what Linux says under /sys and asks for it with raw system calls, so
 * that no library is needed. On a machine with one node every call is a
 * success that does nothing.
 *
 * Threads  any; no state.
 * Errors   0 or a negative errno. A failure here costs speed, never bits.
 */
#ifndef IO_NUMA_H
#define IO_NUMA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NUMA_NODES_MAX 64u /* bits of one mask */
#define NUMA_CPUS_MAX  1024u

/* Set the bits named by a list as the kernel writes them, "0-2,7\n": `bits`
 * bits in `mask`, 64 a word, cleared first. -EINVAL for any other text and for
 * a number beyond the mask. Pure. */
int numa_parse_list(uint64_t *mask, uint32_t bits, const char *text);

/* The nodes that have memory, as a mask. One node where nothing is known. */
uint64_t numa_memory_nodes(void);

/* How many bits are set. */
uint32_t numa_count(uint64_t nodes);

/* Spread the pages of a range that nothing has touched yet over `nodes`. */
int numa_interleave(void *base, size_t bytes, uint64_t nodes);

/* The node of the block device behind st_dev, or -1: unknown or indifferent
 * (a virtual disk, a file system without one device). */
int numa_of_device(dev_t dev);

/* Keep the calling thread on the processors of `node`. */
int numa_run_on(int node);

#endif
