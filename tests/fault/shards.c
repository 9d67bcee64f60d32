#include "tests/fault/shards.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE   4096u
#define CANARY 0xc7
#define FEW    24u /* that many reads or less share their slots */

uint64_t shards_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void write_file(const char *path, const uint8_t *bytes, uint64_t size)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0644);
    assert_true(fd >= 0);
    for (uint64_t at = 0; at < size;) {
        ssize_t n = write(fd, bytes + at, size - at);
        assert_true(n > 0);
        at += (uint64_t)n;
    }
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

void shards_make(struct shards *s, const uint64_t *sizes, uint32_t files)
{
    uint64_t state = 7;
    memset(s, 0, sizeof *s);
    strcpy(s->dir, "/tmp/sluice-shards.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->files = files;
    for (uint32_t i = 0; i < files; i++) {
        s->size[i] = sizes[i];
        s->truth[i] = malloc(sizes[i] + 8);
        assert_non_null(s->truth[i]);
        for (uint64_t at = 0; at < sizes[i]; at += 8) {
            uint64_t word = shards_random(&state);
            memcpy(s->truth[i] + at, &word, 8);
        }
        assert_true(asprintf(&s->path[i], "%s/shard%u", s->dir, i) > 0);
        write_file(s->path[i], s->truth[i], sizes[i]);
    }
}

void shards_drop(struct shards *s)
{
    for (uint32_t i = 0; i < s->files; i++) {
        unlink(s->path[i]);
        free(s->path[i]);
        free(s->truth[i]);
    }
    rmdir(s->dir);
}

struct reader_options shards_options(const struct shards *s, const char *method)
{
    return (struct reader_options){
        .method = method,
        .paths = (const char *const *)s->path,
        .files = s->files,
    };
}

void shards_pick(const struct shards *s, struct shards_read *reads, uint32_t n,
                 uint32_t longest, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        struct shards_read *rd = &reads[i];
        memset(rd, 0, sizeof *rd);
        do
            rd->file = (uint32_t)(shards_random(&seed) % s->files);
        while (s->size[rd->file] == 0);
        uint64_t size = s->size[rd->file];
        uint64_t at = shards_random(&seed) % size;
        uint64_t len = 1 + shards_random(&seed) % longest;
        switch (shards_random(&seed) % 6) {
        case 0:
            at &= ~(uint64_t)7;
            break;
        case 1:
            at &= ~(uint64_t)(PAGE - 1);
            break;
        case 2:
            len = 1;
            break;
        case 3: /* up to the very end */
            at = size - (len < size ? len : size);
            break;
        default:
            break;
        }
        rd->offset_bytes = at;
        rd->length_bytes = (uint32_t)(len < size - at ? len : size - at);
    }
}

struct place {
    uint8_t *pages; /* the whole pages of the read */
    size_t   bytes;
};

/* Where the reads go: each has a page before and after it that stays as it is,
 * inaccessible ones unless the pages are of an arena. */
static void lay_out(struct place *place, const struct shards_read *reads,
                    uint32_t n, uint8_t *base, bool guarded)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t skip = reads[i].offset_bytes % PAGE;
        size_t bytes = (skip + reads[i].length_bytes + PAGE - 1) / PAGE * PAGE;
        if (guarded)
            assert_int_equal(mprotect(base, PAGE, PROT_NONE), 0);
        place[i] = (struct place){ base + PAGE, bytes };
        base += PAGE + bytes;
    }
    if (guarded)
        assert_int_equal(mprotect(base, PAGE, PROT_NONE), 0);
}

static size_t room_for(const struct shards_read *reads, uint32_t n)
{
    size_t sum = PAGE;
    for (uint32_t i = 0; i < n; i++)
        sum += reads[i].length_bytes + 3 * PAGE;
    return sum / PAGE * PAGE;
}

static void check_canaries(const struct place *place, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < PAGE; k++) {
            assert_int_equal(place[i].pages[-(ptrdiff_t)k - 1], CANARY);
            assert_int_equal(place[i].pages[place[i].bytes + k], CANARY);
        }
}

static uint32_t drive_all(const struct shards *s, struct reader *r,
                          struct shards_read *reads, uint32_t n,
                          const struct place *place)
{
    uint32_t started = 0, ended = 0, failed = 0;
    bool seen[SHARDS_READS_MAX] = { false };
    while (ended < n) {
        while (started < n && (n > FEW || started - ended < FEW / 2)) {
            const struct shards_read *rd = &reads[started];
            uint8_t *target = place[started].pages + rd->offset_bytes % PAGE;
            struct read_req req = { rd->file, rd->length_bytes,
                                    rd->offset_bytes, target, started,
                                    (uint8_t)(started % 5) };
            int err = reader_start(r, &req);
            if (err == -EAGAIN)
                break;
            assert_int_equal(err, 0);
            started++;
        }
        struct read_done done[7];
        int got = reader_reap(r, done, 7, INT64_MAX);
        assert_true(got >= 0);
        for (int i = 0; i < got; i++, ended++) {
            uint64_t tag = done[i].tag;
            assert_true(tag < started && !seen[tag]);
            assert_int_equal(done[i].class, tag % 5);
            seen[tag] = true;
            struct shards_read *rd = &reads[tag];
            rd->done = done[i];
            failed += done[i].error != 0;
            if (done[i].error)
                continue;
            assert_int_equal(done[i].bytes, rd->length_bytes);
            assert_memory_equal(place[tag].pages + rd->offset_bytes % PAGE,
                                s->truth[rd->file] + rd->offset_bytes,
                                rd->length_bytes);
        }
    }
    /* And what is read stays, whatever came after it. */
    for (uint32_t i = 0; i < n; i++)
        if (reads[i].done.error == 0)
            assert_memory_equal(place[i].pages + reads[i].offset_bytes % PAGE,
                                s->truth[reads[i].file] + reads[i].offset_bytes,
                                reads[i].length_bytes);
    return failed;
}

uint32_t shards_run(const struct shards *s, struct reader *r,
                    struct shards_read *reads, uint32_t n, struct arena *area)
{
    struct place place[SHARDS_READS_MAX];
    assert_true(n <= SHARDS_READS_MAX);
    size_t room = room_for(reads, n);
    uint8_t *base = area ? arena_base(area)
                         : mmap(NULL, room, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_true(!area || arena_bytes(area) >= room);
    if (area)
        memset(base, CANARY, room);
    lay_out(place, reads, n, base, !area);
    uint32_t failed = drive_all(s, r, reads, n, place);
    if (area)
        check_canaries(place, n);
    else
        munmap(base, room);
    return failed;
}
