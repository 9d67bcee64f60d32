/* machines_alone.c - the plain build: one process. */
#include <stdio.h>
#include <stdlib.h>

#include "bin/cli/machines.h"

/* As mpirun and srun say it. Each of several processes would write the same
 * output. */
int machines_begin(const char *name)
{
    static const char *const said[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE" };
    (void)name;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const char *value = getenv(said[i]);
        if (value && strtol(value, NULL, 10) > 1) {
            fprintf(stderr, "sluice: started as one of %s processes, but built "
                    "without MPI: make MPI=1 builds build/mpi/sluice\n",
                    value);
            return 1;
        }
    }
    return -1;
}

int machines_end(int status)
{
    return status;
}

const char *machines_options(struct k3_options *o)
{
    (void)o;
    return NULL;
}

uint32_t machines_ranks_here(void)
{
    return 1;
}

bool machines_follow(const char *model, const struct session_args *a)
{
    (void)model;
    (void)a;
    return false;
}

const char *machines_weights(void *arg, const char *value)
{
    (void)arg;
    (void)value;
    return "is for build/mpi/sluice, started by mpirun (make MPI=1)";
}
