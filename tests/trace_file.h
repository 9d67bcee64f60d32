/* trace_file.h - a file in memory, and chance, for tests of traces. The seed is
 * printed; given as argv[1] it replays a failure. */
#ifndef TESTS_TRACE_FILE_H
#define TESTS_TRACE_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long long seed;
static char path[32]; /* of a file in memory */
static int memory_file = -1;

static void begin_seed(int argc, char **argv, unsigned long long usual)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : usual;
    printf("# seed %llu\n", seed);
}

static uint32_t rnd(uint32_t below)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (uint32_t)((seed * 2685821657736338717ull >> 33) % below);
}

/* cmocka's set-up and tear-down of a group. */
static int make_file(void **state)
{
    (void)state;
    memory_file = memfd_create("trace", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory_file);
    return memory_file < 0 ? -1 : 0;
}

static int close_file(void **state)
{
    (void)state;
    return close(memory_file);
}

#endif
