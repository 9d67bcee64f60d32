/* threads.h - the default number of compute threads.
 *
 * One a physical core that this process may use, but no more than the CPU quota
 * of its cgroups allows (io/host.h): at a barrier all wait for a thread that
 * the quota has stopped.
 *
 * Threads  any.
 * Errors   none.
 */
#ifndef MODEL_K3_THREADS_H
#define MODEL_K3_THREADS_H

#include <stdint.h>

/* `threads`, or if it is 0 the default, at least 1. */
uint32_t k3_threads_or_default(uint32_t threads);

#endif
