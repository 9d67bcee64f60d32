/* machines.h - the processes that mpirun started, as peers of an engine
 * (k3/shared.h). Built with `make MPI=1` alone.
 *
 *     machines_open -> { peers } -> machines_close
 *
 * Each wait gives the processor away and looks for ranks that are lost: one on
 * this host whose process has ended, and, once `stopped` says that a signal
 * came (mpirun sends one to all when a rank has died), one that does not answer
 * for some seconds. Then every rank leaves with the sentence.
 *
 * Threads  MPI_THREAD_FUNNELED: machines_open and all calls of the peers come
 *          from one thread, which is the process's first; or, with `serialized`
 *          (MPI_THREAD_SERIALIZED), from any, one at a time.
 * Errors   a negative errno and a sentence; -ECONNABORTED: a rank is lost.
 */
#ifndef MODEL_MACHINES_MACHINES_H
#define MODEL_MACHINES_MACHINES_H

#include <stdbool.h>

#include "model/k3/shared.h"

struct machines;

struct machines_options {
    uint64_t program;   /* peers.program */
    bool serialized;
    bool (*stopped)(void); /* a signal came */
};

int  machines_open(struct machines **out, const struct machines_options *o,
                   struct error *error);
const struct peers *machines_peers(const struct machines *m);
/* Ranks on this host. */
uint32_t machines_here(const struct machines *m);
/* One of the peers' calls waits now; for a signal handler. */
bool machines_waits(const struct machines *m);
/* The rank that is lost, or UINT32_MAX. */
uint32_t machines_lost(const struct machines *m);
/* Wait for all and leave MPI; if a rank is lost, leave it as it is: the process
 * has to end. */
void machines_close(struct machines *m);

#endif
