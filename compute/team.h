/* team.h - threads that split one kernel call after another.
 *
 * A team lives as long as the program computes. A pass enters it once; inside,
 * every tile is handed out in chunks of rows with team_for, which costs about a
 * microsecond while the workers are awake. A worker without work watches for a
 * few microseconds, then sleeps: a pass that waits for a drive burns no CPU.
 *
 *     team_open -> { team_run( fn: team_for ... team_for ) } -> team_close
 *
 * Bytes    team_for promises nothing about which thread runs which chunk, or in
 *          which order; bodies whose results depend on that are wrong.
 * Threads  One thread calls team_run at a time, and only fn's thread calls
 *          team_for. Bodies run on all threads at once and do not call either.
 *          What fn wrote before team_for is visible in the bodies, what they
 *          wrote is visible after it.
 * Errors   team_open alone can fail: -ENOMEM, -EAGAIN (no more threads).
 * Cost     A worker joins when it is awake; a chunk is never held for one that
 *          is not, so a descheduled worker delays only the chunk it has.
 */
#ifndef COMPUTE_TEAM_H
#define COMPUTE_TEAM_H

#include <stddef.h>

enum { TEAM_THREADS_MAX = 1024 };

struct team;

/* threads counts the caller; 0 takes one a physical core that the affinity mask
 * (and with it the cgroup's cpuset) allows. -EINVAL over TEAM_THREADS_MAX. */
int team_open(struct team **out, unsigned threads);
void team_close(struct team *team);
/* What 0 takes. */
unsigned team_cores(void);
unsigned team_threads(const struct team *team);

/* Call fn(arg) on this thread with the workers at its service. */
void team_run(struct team *team, void (*fn)(void *arg), void *arg);

/* Cover [0, count) with disjoint ranges, each begin a multiple of grain, and
 * return when body has run on all of them. worker is below team_threads and
 * unique among the bodies that run at one time; 0 is the caller. Outside
 * team_run, or with one thread, the caller runs the whole range in one call. */
void team_for(struct team *team, size_t count, size_t grain,
              void (*body)(void *arg, size_t begin, size_t end,
                           unsigned worker),
              void *arg);

#endif
