/* bench_state.c - a state of Kimi K3 saved and loaded, against the drive's time
 * for the same bytes.
 *
 *     bench_state FOLDER [POSITIONS]
 *
 * The payload is random numbers, as much as a state has. The drive: the same
 * bytes written in blocks of 8 MiB to a file and synced; and read after the
 * page cache let go of them. Best of three, in turn.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "model/state/state_file.h"

enum { ROUNDS = 3, BLOCK = 8 << 20, LAYERS = 93, MLA_EVERY = 4 };

static bool is_mla[LAYERS];
static const struct state_owner owner = { { { 1 } }, 1e-6f };

static double seconds(int64_t begin)
{
    return (double)(clock_ns() - begin) / 1e9;
}

static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static double plain(const char *path, uint8_t *bytes, uint64_t n, bool out)
{
    int fd = open(path, out ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC
                            : O_RDONLY | O_CLOEXEC, 0666);
    int64_t begin = clock_ns();
    for (uint64_t at = 0; fd >= 0 && at < n;) {
        size_t part = n - at < BLOCK ? (size_t)(n - at) : BLOCK;
        ssize_t got = out ? write(fd, bytes + at, part)
                          : read(fd, bytes + at, part);
        if (got <= 0)
            exit(1);
        at += (uint64_t)got;
    }
    if (out)
        fsync(fd);
    double s = seconds(begin);
    close(fd);
    return s;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

int main(int argc, char **argv)
{
    uint32_t positions = argc > 2 ? (uint32_t)atoi(argv[2]) : 4096;
    struct config c = { .layers = LAYERS, .kda_heads = 96, .kda_dim = 128,
                        .conv_kernel = 4, .kv_rank = 512, .rope = 64,
                        .is_mla = is_mla };
    struct error e = { 0 };
    struct state_shape shape;
    char path[4096], other[4096];
    if (argc < 2 || !positions)
        return 2;
    for (int l = MLA_EVERY - 1; l < LAYERS; l += MLA_EVERY)
        is_mla[l] = true;
    is_mla[LAYERS - 1] = true;
    state_shape(&shape, &c, positions);
    uint8_t *block = malloc(shape.bytes);
    uint32_t *ids = calloc(positions, sizeof *ids);
    if (!block || !ids)
        return 1;
    uint64_t seed = 1;
    state_reset(block, &shape);
    for (uint64_t i = shape.kda_offset / 8; i < shape.bytes / 8; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        memcpy(block + 8 * i, &seed, 8);
    }
    state_header(block)->positions = positions;
    snprintf(path, sizeof path, "%s/state.bench", argv[1]);
    snprintf(other, sizeof other, "%s/plain.bench", argv[1]);
    uint64_t n = state_file_bytes(&shape, positions);
    if (n > shape.bytes)
        n = shape.bytes;
    double save = 1e9, load = 1e9, put = 1e9, get = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin = clock_ns();
        if (state_save(path, block, &shape, ids, NULL, &owner, true, &e))
            break;
        save = least(save, seconds(begin));
        put = least(put, plain(other, block, n, true));
        forget(path);
        begin = clock_ns();
        if (state_load(block, path, &shape, &owner, &e))
            break;
        load = least(load, seconds(begin));
        forget(other);
        get = least(get, plain(other, block, n, false));
        state_reset(block, &shape);
        state_header(block)->positions = positions;
    }
    unlink(path);
    unlink(other);
    if (e.code) {
        fprintf(stderr, "bench_state: %s\n", e.text);
        return 1;
    }
    printf("%u positions: %llu bytes; save %.3f s, the drive %.3f; load %.3f "
           "s, the drive %.3f; ratio of both %.2f\n", positions,
           (unsigned long long)state_file_bytes(&shape, positions), save, put,
           load, get, (save + load) / (put + get));
    return 0;
}
