/* machines_mpi.c - the build for several processes: make MPI=1. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bin/cli/machines.h"
#include "compute/crc32c.h"
#include "model/ckpt/owned.h"
#include "model/k3/shared.h"
#include "model/k3/threads.h"
#include "model/machines/machines.h"

static struct machines *all; /* NULL: there is one process */
static struct owned owned;
static double weight[CUTS_PARTS_MAX];
static uint32_t weights;
static int stderr_kept = -1;
static bool followed;
static volatile sig_atomic_t signalled;

static bool stopped(void)
{
    return signalled || session_signal();
}

/* mpirun sends it to all when a rank has died: then a wait ends with a sentence
 * that says which. */
static void on_signal(int number)
{
    signalled = 1;
    if (all && machines_waits(all))
        return;
    signal(number, SIG_DFL);
    raise(number);
}

static void note_signal(int number)
{
    (void)number;
    signalled = 1;
}

/* Of the executable's bytes. */
static uint64_t program_hash(void)
{
    static uint8_t part[1 << 16];
    uint32_t crc = 0;
    ssize_t got;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (got = read(fd, part, sizeof part)) > 0)
        crc = crc32c(crc, part, (size_t)got);
    if (fd >= 0)
        close(fd);
    return crc;
}

static bool shares(const char *name)
{
    static const char *const commands[] = { "run", "batch", "chat", "serve" };
    for (size_t i = 0; name && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(name, commands[i]))
            return true;
    return false;
}

/* What a rank that follows would print is rank 0's to print. */
static void be_quiet(void)
{
    int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    stderr_kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (none < 0)
        return;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(none, fd);
    close(none);
}

static void speak_again(void)
{
    if (stderr_kept >= 0)
        dup2(stderr_kept, STDERR_FILENO);
}

int machines_begin(const char *name)
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    struct error error = { 0 };
    struct machines_options o = { .program = program_hash(),
                                  .stopped = stopped,
                                  .serialized = name &&
                                                !strcmp(name, "serve") };
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* none outlives its launcher */
    int err = machines_open(&all, &o, &error);
    const struct peers *p = err ? NULL : machines_peers(all);
    if (err) {
        fprintf(stderr, "sluice: %s\n", error.text);
        return 1;
    }
    if (p->count == 1)
        return -1;
    owned = (struct owned){ .cuts.parts = p->count, .part = p->rank };
    for (uint32_t r = 0; r < p->count; r++)
        owned.cuts.weight[r] = 1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], p->rank ? note_signal : on_signal);
    if (!p->rank)
        return -1;
    be_quiet();
    return shares(name) ? -1 : 0;
}

/* The lowest rank that is left says which one is lost. */
static bool says(uint32_t lost)
{
    return machines_peers(all)->rank == (lost == 0);
}

static void say(const struct error *error)
{
    speak_again();
    fprintf(stderr, "sluice: %s\n", error->text);
}

int machines_end(int status)
{
    struct error error = { 0 };
    if (!all)
        return status;
    const struct peers *p = machines_peers(all);
    if (p->count > 1 && !p->rank)
        k3_dismiss(p, &error);
    else if (p->count > 1 && !followed && status)
        k3_refuse(p, -EINVAL, "its command line is not understood", &error);
    fflush(stdout);
    uint32_t lost = machines_lost(all);
    if (lost != UINT32_MAX && p->rank && !followed && says(lost))
        say(&error);
    if (p->rank)
        status = lost != UINT32_MAX;
    machines_close(all);
    all = NULL;
    return lost != UINT32_MAX && !status ? 1 : status;
}

const char *machines_options(struct k3_options *o)
{
    if (!all || machines_peers(all)->count == 1)
        return weights ? "--rank-weights is for several processes" : NULL;
    const struct peers *p = machines_peers(all);
    if (weights && weights != p->count)
        return "--rank-weights has another number than there are ranks";
    if (weights && o->part_dirs)
        return "--rank-weights does not go with --parts, which say whose the "
               "rows are";
    if (weights && !cuts_weigh(&owned.cuts, weights, weight))
        return "--rank-weights: a rank has too small a share";
    o->peers = p;
    o->owned = &owned;
    uint64_t here = machines_here(all);
    cpu_set_t cpus;
    bool bound = !sched_getaffinity(0, sizeof cpus, &cpus) &&
                 CPU_COUNT(&cpus) < sysconf(_SC_NPROCESSORS_ONLN);
    if (!o->threads && here > 1 && !bound) {
        uint32_t threads = k3_threads_or_default(0) / (uint32_t)here;
        o->threads = threads ? threads : 1;
    }
    return NULL;
}

uint32_t machines_ranks_here(void)
{
    return all ? machines_here(all) : 1;
}

bool machines_follow(const char *model, const struct session_args *a)
{
    struct k3_options local;
    struct error error = { 0 };
    if (!all || !machines_peers(all)->rank)
        return false;
    session_options(a, &local);
    speak_again();
    followed = true;
    k3_follow(model, &local, &error);
    uint32_t lost = machines_lost(all);
    if (lost != UINT32_MAX && says(lost))
        say(&error);
    return true;
}

const char *machines_weights(void *arg, const char *value)
{
    (void)arg;
    for (weights = 0; weights < CUTS_PARTS_MAX; value++) {
        char *end;
        weight[weights] = strtod(value, &end);
        if (end == value || !(weight[weights] > 0))
            break;
        weights++;
        value = end;
        if (!*value)
            return NULL;
        if (*value != ',')
            break;
    }
    return "is not a list of numbers, one for each rank: 2,1,1";
}
