/* drives.c - where the shards lie, whether direct reads work there, and how
 * fast they are in the engine's pattern. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bin/doctor/doctor.h"
#include "io/arena.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/reader.h"
#include "model/ckpt/figure.h"
#include "model/ckpt/slurp.h"
#include "model/sim/machine.h"

enum { CHUNK = 1 << 20, SAMPLES = 96, SLOTS = 32 };

#define ARENA_BYTES   ((uint64_t)SLOTS * (CHUNK + 2 * READER_PAGE))
#define TELLING_BYTES (1ull << 30) /* of shards: fewer may all be cached */
#define CACHE_RATIO   1.6     /* rate of the second read to that of the first */
#define LIKELY_MAX 15e9       /* bytes a second of a drive: PCIe 5.0 x4 */
#define MOUNTS_BYTES  (1u << 20)

static const struct {
    const char *type, *text, *fix;
} unfit[] = {
    { "tmpfs", "is memory: it takes memory from the engine, and no drive "
      "is measured", "copy the folder to an NVMe drive" },
    { "ramfs", "is memory", "copy the folder to an NVMe drive" },
    { "overlay", "is a container's layer over another file system",
      "docker run -v /models:/models ... (a volume on an NVMe drive)" },
    { "btrfs", "verifies checksums on reading: 36 to 73 ms of CPU a GB",
      "cp -r to a folder on ext4 or XFS" },
    { "zfs", "has its own cache and may refuse direct reads",
      "cp -r to a folder on ext4 or XFS" },
    { "nfs", "is on the network", "cp -r to a drive of this machine" },
    { "nfs4", "is on the network", "cp -r to a drive of this machine" },
    { "cifs", "is on the network", "cp -r to a drive of this machine" },
    { "9p", "is shared by the host",
      "give the machine a drive for the folder" },
    { "virtiofs", "is shared by the host",
      "give the machine a drive for the folder" },
};
enum { UNFIT = sizeof unfit / sizeof *unfit };

/* The loop device behind a source, or NULL. */
static const char *loop_of(const struct mount_point *m)
{
    return strncmp(m->source, "/dev/loop", 9) ? NULL : m->source + 5;
}

static void check_loop(struct doctor *d, const struct mount_point *m,
                       const char *place)
{
    char path[320], file[256], direct[16], fix[320];
    snprintf(path, sizeof path, "/sys/block/%.32s/loop/dio", loop_of(m));
    doctor_read(direct, sizeof direct, path);
    snprintf(path, sizeof path, "/sys/block/%.32s/loop/backing_file",
             loop_of(m));
    doctor_read(file, sizeof file, path);
    snprintf(fix, sizeof fix, "sudo losetup --direct-io=on %.64s", m->source);
    doctor_add(d, DOCTOR_WARN, "file system", direct[0] == '1' ? NULL : fix,
               "%s is on %s on the loop device %s over %s, %s", place, m->type,
               m->source, file[0] ? file : "a file",
               direct[0] == '1' ? "with direct reads"
                                : "whose reads go through memory");
}

static void check_file_system(struct doctor *d, const char *mounts,
                              const char *file)
{
    struct mount_point m = { .type = "" };
    char *real = realpath(file, NULL), place[160];
    if (!real || mount_find(&m, mounts, real)) {
        free(real);
        return;
    }
    char *slash = strrchr(real, '/');
    snprintf(place, sizeof place, "%.*s",
             slash > real ? (int)(slash - real) : 1, real);
    free(real);
    for (int i = 0; i < UNFIT; i++)
        if (!strcmp(m.type, unfit[i].type) &&
            !(loop_of(&m) && !strcmp(m.type, "btrfs"))) {
            doctor_add(d, DOCTOR_WARN, "file system", unfit[i].fix,
                       "%s is on %s, which %s", place, m.type, unfit[i].text);
            return;
        }
    if (loop_of(&m))
        check_loop(d, &m, place);
    else if (!strncmp(m.type, "fuse", 4))
        doctor_add(d, DOCTOR_WARN, "file system",
                   "cp -r to a folder on ext4 or XFS",
                   "%s is on %s: every read goes through another program",
                   place,
                   m.type);
    else
        doctor_add(d, DOCTOR_OK, "file system", NULL, "%s is on %s, %s",
                   place, m.type, m.source);
}

static void check_direct(struct doctor *d, const char *path)
{
    struct io_file f;
    int err = file_open(&f, path);
    if (err)
        doctor_add(d, DOCTOR_FAIL, "direct reads",
                   err == -EMFILE   ? "ulimit -n 4096"
                   : err == -EACCES ? "ls -l; chmod u+r"
                                    : "dmesg | tail; smartctl -a",
                   "%s: %s", path, strerror(-err));
    else if (f.direct)
        doctor_add(d, DOCTOR_OK, "direct reads", NULL,
                   "O_DIRECT reads, aligned to %u bytes", f.align_bytes);
    else
        doctor_add(d, DOCTOR_WARN, "direct reads",
                   "cp -r to a folder on ext4 or XFS",
                   "O_DIRECT is refused (%s): reads go through the page "
                   "cache, which takes much more CPU", strerror(-f.refused));
    file_close(&f);
}

/* ---- rates ---- */

struct sample {
    uint32_t file;
    uint64_t offset_bytes;
};

struct rates {
    struct reader *r;
    uint32_t holes; /* files with holes */
    uint8_t *slot[SLOTS];
    struct sample sample[SAMPLES];
    uint32_t samples;
    double   first, second; /* bytes a second, of the same bytes twice */
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Choose random places, so that an earlier doctor has not read them. */
static void choose(struct rates *t, const struct doctor *d)
{
    uint64_t chunks = 0, state = (uint64_t)clock_ns() | 1;
    for (uint32_t f = 0; f < d->paths; f++)
        chunks += reader_file_size(t->r, f) / CHUNK;
    for (; chunks && t->samples < SAMPLES; t->samples++) {
        uint64_t at = random_next(&state) % chunks;
        uint32_t f = 0;
        while (at >= reader_file_size(t->r, f) / CHUNK)
            at -= reader_file_size(t->r, f++) / CHUNK;
        t->sample[t->samples] = (struct sample){ f, at * CHUNK };
    }
}

/* Read every sample once, with as much in flight as the engine has. */
static int read_samples(struct rates *t, double *rate)
{
    struct read_done done[SLOTS];
    uint32_t next = 0, flying = 0, max = 0, free_slots = SLOTS;
    uint8_t *free_slot[SLOTS];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < reader_drives(t->r); i++)
        max += (uint32_t)(reader_in_flight_budget(t->r, i) / CHUNK);
    max = max < 1 ? 1 : max > SLOTS ? SLOTS : max;
    memcpy(free_slot, t->slot, sizeof free_slot);
    int64_t begin = clock_ns();
    while (next < t->samples || flying) {
        for (; next < t->samples && flying < max; next++, flying++) {
            struct read_req q = {
                .file = t->sample[next].file, .length_bytes = CHUNK,
                .offset_bytes = t->sample[next].offset_bytes,
                .target = free_slot[--free_slots],
            };
            q.tag = (uint64_t)(uintptr_t)q.target;
            int err = reader_start(t->r, &q);
            if (err)
                return err;
        }
        int n = reader_reap(t->r, done, SLOTS, INT64_MAX);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++, flying--) {
            if (done[i].error)
                return done[i].error;
            free_slot[free_slots++] = (uint8_t *)(uintptr_t)done[i].tag;
            bytes += done[i].bytes;
        }
    }
    *rate = (double)bytes * 1e9 / (double)(clock_ns() - begin + 1);
    return 0;
}

static bool has_hole(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    bool yes = hole >= 0 && !fstat(fd, &st) && hole < st.st_size;
    close(fd);
    return yes;
}

/* Whether a cache serves the reads. Not known with holes, which are no
 * reads. */
static bool cached(const struct rates *t, uint64_t bytes)
{
    return !t->holes && bytes >= TELLING_BYTES &&
           t->second > CACHE_RATIO * t->first;
}

static void check_cache(struct doctor *d, const struct rates *t,
                        const struct reader_facts *f)
{
    uint64_t bytes = 0;
    double max = 0;
    for (uint32_t i = 0; i < d->paths; i++)
        bytes += reader_file_size(t->r, i);
    d->drives = machine_of_reader(d->drive, f);
    for (uint32_t i = 0; cached(t, bytes) && i < d->drives; i++)
        d->drive[i].bytes_per_s = (uint64_t)(
            (double)d->drive[i].bytes_per_s * t->first / t->second + 1);
    for (uint32_t i = 0; i < f->drives; i++)
        if ((double)f->drive[i].raw_bytes_per_s > max)
            max = (double)f->drive[i].raw_bytes_per_s;
    if (t->holes)
        doctor_add(d, DOCTOR_WARN, "cache?", NULL,
                   "%u of %u shards have holes, which are not read from the "
                   "drive: the rate above is not the drive's",
                   t->holes, d->paths);
    if (max > LIKELY_MAX)
        doctor_add(d, DOCTOR_WARN, "cache?", NULL,
                   "%s GB/s is more than one drive can give (15): this is an "
                   "array, or a cache below the file system",
                   figure(max / 1e9).text);
    if (cached(t, bytes))
        doctor_add(d, DOCTOR_WARN, "cache?", NULL,
                   "the same bytes were read at %s GB/s, and then at %s: "
                   "there is a cache below the file system; expect the first "
                   "rate", figure(t->first / 1e9).text,
                   figure(t->second / 1e9).text);
    else if (bytes < TELLING_BYTES && !t->holes)
        doctor_add(d, DOCTOR_OK, "cache?", NULL,
                   "not known: %s GB of shards may all be in a cache",
                   figure((double)bytes / 1e9).text);
}

static void report_rates(struct doctor *d, const struct rates *t,
                         const struct reader_facts *f)
{
    for (uint32_t i = 0; i < f->drives; i++) {
        if (!f->drive[i].raw_bytes_per_s) {
            doctor_add(d, DOCTOR_OK, "drive rate", NULL,
                       "not measured: every shard is shorter than 1 MiB");
            continue;
        }
        doctor_add(d, DOCTOR_OK, "drive rate", NULL,
                   "%s GB/s of random 1 MiB reads, %" PRIu64 " MiB in "
                   "flight, by %s%s",
                   figure((double)f->drive[i].raw_bytes_per_s / 1e9).text,
                   reader_in_flight_budget(t->r, i) >> 20, f->method,
                   f->direct ? "" : ", buffered");
    }
}

static void check_rates(struct doctor *d)
{
    struct rates t = { .samples = 0 };
    struct arena *arena = NULL;
    struct reader_facts f;
    uint32_t bad = UINT32_MAX;
    int err = arena_open(&arena, ARENA_BYTES);
    struct reader_options o = {
        .method = "auto", .paths = (const char *const *)d->path,
        .files = d->paths, .arena = arena, .realtime = true,
    };
    for (uint32_t i = 0; !err && i < SLOTS; i++)
        t.slot[i] = arena_take(arena, CHUNK + READER_PAGE, READER_PAGE);
    if (!err)
        err = reader_open(&t.r, &o, &bad);
    if (!err) {
        reader_facts(t.r, &f);
        choose(&t, d);
        err = read_samples(&t, &t.first);
    }
    if (!err)
        err = read_samples(&t, &t.second);
    if (err) {
        doctor_add(d, DOCTOR_FAIL, "drive rate",
                   err == -EMFILE   ? "ulimit -n 4096"
                   : err == -EACCES ? "ls -l; chmod u+r"
                                    : "dmesg | tail; smartctl -a",
                   "%s: %s", bad < d->paths ? d->path[bad] : d->model,
                   strerror(-err));
    } else {
        for (uint32_t i = 0; i < d->paths; i++)
            t.holes += has_hole(d->path[i]);
        report_rates(d, &t, &f);
        check_cache(d, &t, &f);
    }
    reader_close(t.r);
    arena_close(arena);
}

/* Check the file system of each drive that has a shard; print a line for the
 * first few. */
static void check_places(struct doctor *d, const char *mounts,
                         const char *config)
{
    dev_t seen[DRIVES_MAX];
    uint32_t drives = 0;
    struct stat st;
    for (uint32_t i = 0; i < d->paths || !i; i++) {
        const char *path = d->paths ? d->path[i] : config;
        bool known = stat(path, &st) != 0;
        for (uint32_t k = 0; k < drives; k++)
            known |= seen[k] == st.st_dev;
        if (known)
            continue;
        if (drives == DRIVES_MAX) {
            doctor_add(d, DOCTOR_FAIL, "file system",
                       "put several shards on each",
                       "the shards are on more than %u file systems, which is "
                       "not supported", DRIVES_MAX);
            return;
        }
        seen[drives++] = st.st_dev;
        if (drives > DOCTOR_DRIVES_MAX)
            continue;
        check_file_system(d, mounts, path);
        check_direct(d, path);
    }
    if (!drives)
        check_file_system(d, mounts, d->model);
}

/* The text of /proc/self/mountinfo, for free(). */
static char *read_mounts(void)
{
    char *text = calloc(1, MOUNTS_BYTES);
    FILE *f = fopen("/proc/self/mountinfo", "r");
    if (text && f)
        text[fread(text, 1, MOUNTS_BYTES - 1, f)] = 0;
    if (f)
        fclose(f);
    return text;
}

void doctor_drives(struct doctor *d)
{
    char config[4096];
    char *mounts = read_mounts();
    snprintf(config, sizeof config, "%s/config.json", d->model);
    if (mounts)
        check_places(d, mounts, config);
    free(mounts);
    if (d->paths)
        check_rates(d);
}
