/* memory.h - how much memory this process may take. */
#ifndef BIN_MEMORY_H
#define BIN_MEMORY_H

#include <stdint.h>

/* What the machine, or the cgroup if that is less, has free, less a reserve for
 * everybody else: a sixteenth of it, at least 256 MiB. */
uint64_t memory_default(void);
/* What the cgroups of this process allow it to add; UINT64_MAX: no limit. */
uint64_t memory_cgroup_free(void);
/* MemAvailable of /proc/meminfo, or UINT64_MAX when that cannot be read. */
uint64_t memory_machine_free(void);
/* Most bytes of this process that were resident so far. */
uint64_t memory_peak_rss(void);

#endif
