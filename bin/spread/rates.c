#include "bin/spread/rates.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/reader.h"
#include "model/parts/part.h"

enum { PROBE_BYTES = 128 << 20, PIECE = 1 << 20, STEPS = 20 };

bool rates_of_parts(struct cuts *out, const char *const *dir, uint32_t parts,
                    const struct config *c)
{
    bool found = false;
    for (uint32_t r = 0; r < parts && !found; r++) {
        DIR *d = dir[r] ? opendir(dir[r]) : NULL;
        struct dirent *e;
        while (d && !found && (e = readdir(d))) {
            size_t n = strlen(e->d_name);
            char path[4096];
            struct part *p;
            snprintf(path, sizeof path, "%s/%s", dir[r], e->d_name);
            if (e->d_name[0] == '.' || n < 6 ||
                strcmp(e->d_name + n - 5, ".part") ||
                part_open(&p, path, c, NULL))
                continue;
            *out = part_cuts(p->head);
            found = out->parts == parts && p->head->part == r;
            part_close(p);
        }
        if (d)
            closedir(d);
    }
    return found;
}

/* Bytes that no drive finds alike. */
static int fill(int fd)
{
    uint64_t *piece = malloc(PIECE), x = 88172645463325252ull;
    int err = piece ? 0 : -ENOMEM;
    for (size_t done = 0; done < PROBE_BYTES && !err; done += PIECE) {
        for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            piece[i] = x;
        }
        ssize_t n = write(fd, piece, PIECE);
        if (n != PIECE)
            err = n < 0 ? -errno : -ENOSPC;
    }
    free(piece);
    return err ? err : fdatasync(fd) ? -errno : 0;
}

static int make_probe(char **path, const char *dir, struct error *error)
{
    if (mkdir(dir, 0777) && errno != EEXIST)
        return error_set(error, -errno, "%s: %s", dir, strerror(errno));
    if (asprintf(path, "%s/.probe.part.sluice-XXXXXX", dir) < 0) {
        *path = NULL;
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    }
    int fd = mkostemp(*path, O_CLOEXEC);
    int err = fd < 0 ? -errno : fill(fd);
    if (fd >= 0)
        close(fd);
    return err ? error_set(error, err, "%s: %s", *path, strerror(-err)) : 0;
}

static int read_probes(double *rate, const char *const *path, uint32_t parts,
                       struct error *error)
{
    struct reader_options o = { .method = "auto", .paths = path,
                                .files = parts };
    struct reader *reader;
    struct reader_facts facts;
    uint32_t bad;
    double largest = 1;
    int err = reader_open(&reader, &o, &bad);
    if (err)
        return error_set(error, err, "%s: %s", bad < parts ? path[bad]
                                                           : "the reader",
                         strerror(-err));
    reader_facts(reader, &facts);
    for (uint32_t r = 0; r < parts; r++) {
        uint32_t drive = reader_drive_of(reader, r);
        rate[r] = (double)facts.drive[drive].raw_bytes_per_s;
        largest = rate[r] > largest ? rate[r] : largest;
    }
    for (uint32_t r = 0; r < parts; r++) {
        rate[r] = round(rate[r] / largest * STEPS);
        rate[r] = rate[r] < 1 ? 1 : rate[r];
    }
    reader_close(reader);
    return 0;
}

int rates_measure(double *rate, const char *const *dir, uint32_t parts,
                  struct error *error)
{
    char *path[CUTS_PARTS_MAX] = { NULL };
    int err = 0;
    for (uint32_t r = 0; r < parts && !err; r++)
        err = make_probe(&path[r], dir[r], error);
    if (!err)
        err = read_probes(rate, (const char *const *)path, parts, error);
    for (uint32_t r = 0; r < parts; r++) {
        if (path[r])
            unlink(path[r]);
        free(path[r]);
    }
    return err;
}
