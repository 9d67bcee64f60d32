#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <time.h>

#include "io/clock.h"
#include "model/ckpt/cuts.h"
#include "model/machines/machines.h"

enum {
    RANKS = CUTS_PARTS_MAX,
    HOST_BYTES = 64,
    TRIES = 64,               /* then the processor is given away */
    YIELD_NS = 200 * 1000,    /* then it sleeps */
    SLEEP_NS = 50 * 1000,     /* at first; */
    SLEEP_MOST_NS = 1000 * 1000,
    LOOK_NS = 100 * 1000 * 1000, /* between looks for lost ranks */
    TAG = 19,
};
static const int64_t patience_ns = 5000000000; /* after a signal */

struct member {
    char host[HOST_BYTES];
    int64_t pid;
};

/* What a rank says when it meets the others. */
struct word {
    uint64_t number; /* of the meeting */
    uint64_t value;
    int64_t  err;
};

struct machines {
    struct machines_options o;
    struct peers  peers;
    struct peers_facts facts;
    MPI_Comm      comm;
    struct member member[RANKS];
    bool          here[RANKS]; /* on this host, in sight */
    uint64_t      meetings;
    volatile sig_atomic_t waits;
    uint32_t      lost;
    int           broken; /* the error of a lost rank, or of MPI */
    char          text[400];
};

static int broken(struct machines *m, struct error *error)
{
    return error_set(error, m->broken, "%s", m->text);
}

static int break_off(struct machines *m, uint32_t rank, const char *what,
                     struct error *error)
{
    const struct member *who = &m->member[rank];
    if (!m->broken) {
        m->broken = -ECONNABORTED;
        m->lost = rank;
        snprintf(m->text, sizeof m->text, "rank %u (%s) %.300s", rank,
                 who->host, what);
    }
    return broken(m, error);
}

static int check(struct machines *m, int code, struct error *error)
{
    char why[MPI_MAX_ERROR_STRING] = "?", what[256];
    int n;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, why, &n);
    snprintf(what, sizeof what, "cannot reach the others: %.200s", why);
    return break_off(m, m->peers.rank, what, error);
}

/* ---- waiting ---- */

/* Has the process ended? It may still wait for its parent. */
static bool has_ended(int64_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *state = strrchr(text, ')');
    return got <= 0 || (state && (state[2] == 'Z' || state[2] == 'X'));
}

/* `missing`: ranks whose word is awaited, or NULL: any. */
static int look(struct machines *m, const bool *missing, int64_t stopped_ns,
                struct error *error)
{
    for (uint32_t r = 0; r < m->peers.count; r++)
        if (m->here[r] && has_ended(m->member[r].pid))
            return break_off(m, r, "is gone: its process has ended", error);
    if (!stopped_ns || clock_ns() - stopped_ns < patience_ns)
        return 0;
    for (uint32_t r = 0; r < m->peers.count; r++)
        if (r != m->peers.rank && (!missing || missing[r]))
            return break_off(m, r, "has not answered for 5 s after the signal "
                                   "to stop", error);
    return 0;
}

static void rest(int64_t since_ns)
{
    int64_t waited = clock_ns() - since_ns;
    if (waited < YIELD_NS) {
        sched_yield();
        return;
    }
    int64_t ns = SLEEP_NS + waited / 64;
    struct timespec t = { 0, ns < SLEEP_MOST_NS ? ns : SLEEP_MOST_NS };
    nanosleep(&t, NULL);
}

static int wait_for(struct machines *m, MPI_Request *request, int n,
                    const uint32_t *who, struct error *error);

/* Until all requests are done; request i is of rank who[i], if `who`. */
static int wait_all(struct machines *m, MPI_Request *request, int n,
                    const uint32_t *who, struct error *error)
{
    m->waits = 1;
    int err = wait_for(m, request, n, who, error);
    m->waits = 0;
    return err;
}

static int wait_for(struct machines *m, MPI_Request *request, int n,
                    const uint32_t *who, struct error *error)
{
    int64_t begin = clock_ns(), looked = begin, stopped_ns = 0;
    for (uint64_t round = 0;; round++) {
        MPI_Status status[2 * RANKS];
        int done;
        int err = check(m, MPI_Testall(n, request, &done, status), error);
        if (err || done)
            return err;
        if (round < TRIES)
            continue;
        rest(begin);
        int64_t now = clock_ns();
        if (now - looked < LOOK_NS)
            continue;
        looked = now;
        if (!stopped_ns && m->o.stopped && m->o.stopped())
            stopped_ns = now;
        bool missing[RANKS] = { false };
        for (int i = 0; who && i < n; i++) {
            int there = 1;
            if (request[i] != MPI_REQUEST_NULL)
                MPI_Request_get_status(request[i], &there, MPI_STATUS_IGNORE);
            missing[who[i]] |= !there;
        }
        err = look(m, who ? missing : NULL, stopped_ns, error);
        if (err)
            return err;
    }
}

/* ---- the calls ---- */

static int tell(void *arg, void *bytes, uint64_t n, struct error *error)
{
    struct machines *m = arg;
    MPI_Request request;
    if (m->broken)
        return broken(m, error);
    int err = check(m, MPI_Ibcast(bytes, (int)n, MPI_BYTE, 0, m->comm,
                                  &request), error);
    return err ? err : wait_all(m, &request, 1, NULL, error);
}

/* The sentence of a rank that has failed, to all. */
static int share_sentence(struct machines *m, uint32_t rank, int err,
                          struct error *error)
{
    char text[300] = "an error";
    MPI_Request request;
    struct error own = { 0 };
    if (rank == m->peers.rank && error && error->code)
        snprintf(text, sizeof text, "%.299s", error->text);
    int bad = check(m, MPI_Ibcast(text, sizeof text, MPI_BYTE, (int)rank,
                                  m->comm, &request), &own);
    if (!bad)
        bad = wait_all(m, &request, 1, NULL, &own);
    text[sizeof text - 1] = 0;
    if (error)
        *error = (struct error){ 0 };
    if (bad)
        return error_set(error, bad, "%s", own.text);
    if (err == -ECANCELED)
        return error_set(error, err, "%s", text);
    return error_set(error, err, "rank %u (%s): %s", rank,
                     m->member[rank].host, text);
}

static int meet(void *arg, int err, uint64_t value, const char *what,
                struct error *error)
{
    struct machines *m = arg;
    uint32_t count = m->peers.count, rank = m->peers.rank;
    struct word mine = { m->meetings++, value, err }, word[RANKS];
    MPI_Request request[2 * RANKS];
    uint32_t who[2 * RANKS] = { 0 };
    int n = 0, bad = 0;
    int64_t begin = clock_ns();
    if (m->broken)
        return err ? err : broken(m, error);
    word[rank] = mine;
    for (uint32_t r = 0; r < count && !bad; r++) {
        if (r == rank)
            continue;
        who[n] = who[n + 1] = r;
        bad = check(m, MPI_Irecv(&word[r], sizeof mine, MPI_BYTE, (int)r, TAG,
                                 m->comm, &request[n]), error);
        if (!bad)
            bad = check(m, MPI_Isend(&mine, sizeof mine, MPI_BYTE, (int)r, TAG,
                                     m->comm, &request[n + 1]), error);
        n += 2;
    }
    if (!bad)
        bad = wait_all(m, request, n, who, error);
    m->facts.wait_ns += clock_ns() - begin;
    if (bad)
        return bad;
    for (uint32_t r = 0; r < count; r++)
        if (word[r].err)
            return share_sentence(m, r, (int)word[r].err, error);
    for (uint32_t r = 0; r < count; r++)
        if (word[r].value != word[0].value || word[r].number != mine.number)
            return error_set(error, -EBADE,
                             "rank %u (%s) has another %s than rank 0 (%s)", r,
                             m->member[r].host, what ? what : "step",
                             m->member[0].host);
    return 0;
}

static int gather(void *arg, void *bytes, const uint64_t *end,
                  struct error *error)
{
    struct machines *m = arg;
    uint32_t count = m->peers.count, rank = m->peers.rank;
    int counts[RANKS], at[RANKS];
    MPI_Request request;
    int64_t begin = clock_ns();
    if (m->broken)
        return broken(m, error);
    for (uint32_t r = 0; r < count; r++) {
        at[r] = r ? (int)end[r - 1] : 0;
        counts[r] = (int)end[r] - at[r];
    }
    int err = check(m, MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, bytes,
                                       counts, at, MPI_BYTE, m->comm,
                                       &request), error);
    if (!err)
        err = wait_all(m, &request, 1, NULL, error);
    m->facts.gather_ns += clock_ns() - begin;
    m->facts.gathers++;
    m->facts.sent_bytes += (uint64_t)counts[rank] * (count - 1);
    m->facts.received_bytes += end[count - 1] - (uint64_t)counts[rank];
    return err;
}

static void facts(void *arg, struct peers_facts *out)
{
    const struct machines *m = arg;
    *out = m->facts;
}

static const char *host(void *arg, uint32_t rank)
{
    const struct machines *m = arg;
    return m->member[rank].host;
}

/* ---- open and close ---- */

static int get_to_know(struct machines *m, struct error *error)
{
    struct member me = { .pid = getpid() };
    char name[MPI_MAX_PROCESSOR_NAME] = "?";
    int n, count = (int)m->peers.count;
    MPI_Get_processor_name(name, &n);
    snprintf(me.host, sizeof me.host, "%.63s", name);
    int err = check(m, MPI_Allgather(&me, sizeof me, MPI_BYTE, m->member,
                                     sizeof me, MPI_BYTE, m->comm), error);
    for (int r = 0; r < count && !err; r++)
        m->here[r] = r != (int)m->peers.rank &&
                     !strcmp(m->member[r].host, me.host) &&
                     !kill((pid_t)m->member[r].pid, 0);
    return err;
}

int machines_open(struct machines **out, const struct machines_options *o,
                  struct error *error)
{
    int got, want = o->serialized ? MPI_THREAD_SERIALIZED
                                  : MPI_THREAD_FUNNELED;
    int rank, count;
    *out = NULL;
    if (MPI_Init_thread(NULL, NULL, want, &got) != MPI_SUCCESS)
        return error_set(error, -EPROTO, "MPI could not be started");
    struct machines *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(error, -ENOMEM, "no memory for the other ranks");
    MPI_Comm_dup(MPI_COMM_WORLD, &m->comm);
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->comm, &rank);
    MPI_Comm_size(m->comm, &count);
    m->o = *o;
    m->lost = UINT32_MAX;
    m->peers = (struct peers){
        .rank = (uint32_t)rank, .count = (uint32_t)count,
        .program = o->program, .tell = tell, .meet = meet, .gather = gather,
        .facts = facts, .host = host, .arg = m };
    *out = m;
    if (got < want)
        return error_set(error, -ENOTSUP, "this MPI has no threads");
    if (count > RANKS)
        return error_set(error, -ENOTSUP, "%d processes: at most %d share a "
                         "model", count, RANKS);
    return get_to_know(m, error);
}

const struct peers *machines_peers(const struct machines *m)
{
    return &m->peers;
}

uint32_t machines_here(const struct machines *m)
{
    uint32_t n = 1;
    for (uint32_t r = 0; r < m->peers.count; r++)
        n += m->here[r];
    return n;
}

bool machines_waits(const struct machines *m)
{
    return m->waits;
}

uint32_t machines_lost(const struct machines *m)
{
    return m->broken ? m->lost : UINT32_MAX;
}

void machines_close(struct machines *m)
{
    if (!m)
        return;
    if (!m->broken) {
        MPI_Comm_free(&m->comm);
        MPI_Finalize();
    }
    free(m);
}
