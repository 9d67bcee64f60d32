/* machines.h - the program as one of several processes that share a model.
 *
 * `make MPI=1` builds it with machines_mpi.c, the plain build has
 * machines_alone.c, which refuses to be one of several. Rank 0 runs the
 * command. The others parse the same words, for what is each one's own: the
 * model's folder, memory, threads, drives. Then they follow.
 *
 *     machines_begin -> { machines_peers | machines_follow } -> machines_end
 *
 * Threads  main's.
 * Errors   printed.
 */
#ifndef BIN_CLI_MACHINES_H
#define BIN_CLI_MACHINES_H

#include "bin/cli/session.h"

/* Before the command; `name` is its name, or NULL. -1, or the exit status: the
 * process has nothing to do. */
int machines_begin(const char *name);
/* After it; returns the exit status, given the command's. */
int machines_end(int status);

/* Set peers, owned rows and, unless it is set, the number of threads, if there
 * are other processes. NULL, or what is wrong. */
const char *machines_options(struct k3_options *o);
/* Ranks on this host, which share its memory: 1 without others. */
uint32_t machines_ranks_here(void);
/* True for a rank that follows: the command is over when it returns. Does what
 * rank 0 says, with the options of `a` that are this process's own. */
bool machines_follow(const char *model, const struct session_args *a);

#endif
