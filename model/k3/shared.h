/* shared.h - one model in several processes: those that follow rank 0, and what
 * each has done.
 *
 * Rank 0 uses the engine (k3.h) as if it were alone. The others call k3_follow,
 * which opens the same engine over its own rows of weights and does what rank 0
 * says until it says no more.
 *
 * Threads  one caller, that of the passes.
 * Errors   a negative errno and a sentence: the same in every rank.
 */
#ifndef MODEL_K3_SHARED_H
#define MODEL_K3_SHARED_H

#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/k3/k3.h"

/* ---- the other processes, as the engine sees them ----
 *
 * In a pass all ranks walk the same steps, each over the rows that it owns
 * (ckpt/owned.h), and meet at every gather. What is behind the calls is the
 * caller's: model/machines has MPI. Every call is made by every rank, in the
 * same order, from the thread of the pass. The first call that does not return
 * 0 because a rank is lost makes all later ones fail at once. */

struct peers_facts {
    int64_t  wait_ns;   /* in meet: until the slowest was there */
    int64_t  gather_ns; /* in gather */
    uint64_t gathers, sent_bytes, received_bytes; /* of gathers */
};

struct peers {
    uint32_t rank, count;
    uint64_t program; /* of the executable; the same where it is */
    /* From rank 0 to all. */
    int (*tell)(void *arg, void *bytes, uint64_t n, struct error *error);
    /* Wait until all are here, each with how it goes: 0, or an error with its
     * sentence in `error`, and a value. Returns 0; the first rank's error, with
     * its sentence; or -EBADE if a value differs from rank 0's, saying that
     * there is another `what`. */
    int (*meet)(void *arg, int err, uint64_t value, const char *what,
                struct error *error);
    /* `bytes` has the blocks of all ranks, one after the other; that of rank r
     * ends at end[r]. Each fills its own and gets those of the others. */
    int (*gather)(void *arg, void *bytes, const uint64_t *end,
                  struct error *error);
    void (*facts)(void *arg, struct peers_facts *out);
    /* Of a rank; a constant. */
    const char *(*host)(void *arg, uint32_t rank);
    void *arg;
};

/* ---- following ---- */

enum { K3_SAYINGS = 4096 }; /* at one time */

/* What rank 0 says: so many sayings, then the rows of a pass. */
struct said_head {
    uint32_t count, rows;
};
struct saying {
    uint64_t op; /* enum said_op */
    uint64_t a, b;
};

/* Follow rank 0 until k3_dismiss. `local` has what is this process's own: the
 * budget, threads, drives, `owned` and `peers`; the rest is rank 0's. Returns
 * what the last engine ended with, 0 if that was well; a rank that is lost ends
 * it with that error. */
int k3_follow(const char *dir, const struct k3_options *local,
              struct error *error);
/* As k3_follow, but no engine can be opened here, for this reason. */
int k3_refuse(const struct peers *peers, int why, const char *sentence,
              struct error *error);
/* Rank 0: the others return from k3_follow. */
int k3_dismiss(const struct peers *peers, struct error *error);

/* Totals of the passes of one rank, as of k3_quiesce. */
struct k3_machine {
    char     host[64];
    uint64_t passes, rows;
    int64_t  pass_ns, wait_drive_ns; /* waits for reads, of pass_ns */
    int64_t  wait_ns, gather_ns;     /* as in struct peers_facts */
    uint64_t gathers, sent_bytes, received_bytes;
    uint64_t trunk_bytes, expert_bytes, read_bytes; /* in passes, payload */
    uint64_t resident_bytes; /* read at open, payload */
    uint64_t budget_bytes, planned_bytes;
    double   bytes_per_s; /* of its drives */
};
/* [*count], of rank 0; NULL and 1 without other processes. */
const struct k3_machine *k3_machines(const struct k3 *k, uint32_t *count);

#endif
