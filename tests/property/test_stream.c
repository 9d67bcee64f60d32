/* Goal    every byte of every tile and load is right, whatever the sizes, the
 *         ring, the drives, the order of completion and the faults.
 * Method  files whose bytes are a function of place; random tiles of random
 *         segments, random rings down to the smallest, random loads, prefetches
 *         raised and cancelled in between; each lent frame is compared byte for
 *         byte, several rounds of the circle, over methods and faults. A ring
 *         that is filled to its last byte is the case that once went wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/arena.h"
#include "io/fault.h"
#include "io/paced.h"
#include "io/reader.h"
#include "sched/stream.h"

enum {
    FILES = 3,
    FILE_BYTES = 3 << 20,
    TILES = 40,
    SEGMENTS_MAX = 3,
    LOADS = 6,
    ROUNDS = 4,
    ARENA_BYTES = 16 << 20,
};

static char paths[FILES][64];
static const char *path_list[FILES];

static uint64_t rnd(uint64_t *s)
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}

static uint8_t byte_at(uint32_t file, uint64_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16) +
                     file * 101);
}

static int make_files(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(FILE_BYTES);
    for (uint32_t f = 0; f < FILES; f++) {
        snprintf(paths[f], sizeof paths[f], "build/test-stream-%d-%u",
                 (int)getpid(), f);
        path_list[f] = paths[f];
        for (uint64_t i = 0; i < FILE_BYTES; i++)
            bytes[i] = byte_at(f, i);
        int fd = open(paths[f], O_CREAT | O_WRONLY | O_TRUNC, 0600);
        ssize_t n = write(fd, bytes, FILE_BYTES - f * 1000);
        close(fd);
        if (n < 0)
            return -1;
    }
    free(bytes);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < FILES; f++)
        unlink(paths[f]);
    return 0;
}

struct world {
    struct segment     segment[TILES * SEGMENTS_MAX];
    struct stream_tile tile[TILES];
    struct arena  *arena;
    struct reader *reader;
    struct stream *stream;
    struct load    load[LOADS];
    uint64_t       seed;
    uint32_t       checked; /* segments of loads */
};

static struct segment random_segment(struct world *w, uint32_t file,
                                     uint64_t max)
{
    struct segment s = { .file = file };
    s.length_bytes = 1 + rnd(&w->seed) % max;
    s.offset_bytes =
        rnd(&w->seed) % (FILE_BYTES - FILES * 1000 - s.length_bytes);
    return s;
}

static uint64_t make_tiles(struct world *w, bool whole_pages)
{
    uint64_t largest = 0;
    uint32_t used = 0;
    for (uint32_t t = 0; t < TILES; t++) {
        struct stream_tile *tile = &w->tile[t];
        uint32_t file = (uint32_t)(rnd(&w->seed) % FILES);
        *tile = (struct stream_tile){ .first_segment = used };
        tile->segment_count = 1 + (uint32_t)(rnd(&w->seed) % SEGMENTS_MAX);
        for (uint32_t i = 0; i < tile->segment_count; i++) {
            struct segment *s = &w->segment[used++];
            *s = random_segment(w, file, 60000);
            if (whole_pages) { /* frames that fill a ring exactly */
                s->offset_bytes &= ~4095ull;
                s->length_bytes = 8192;
            }
            tile->frame_bytes = block_place(s, tile->frame_bytes);
            tile->payload_bytes += s->length_bytes;
        }
        if (tile->frame_bytes > largest)
            largest = tile->frame_bytes;
    }
    return largest;
}

static void open_world(struct world *w, struct reader_options *ro,
                       uint64_t seed, bool whole_pages)
{
    uint32_t bad;
    memset(w, 0, sizeof *w);
    w->seed = seed * 977 + 1;
    assert_int_equal(arena_open(&w->arena, ARENA_BYTES), 0);
    uint64_t largest = make_tiles(w, whole_pages);
    for (uint32_t t = 0; t < TILES; t++)
        if (rnd(&w->seed) % 4 == 0)
            w->tile[t].home =
                arena_take(w->arena, w->tile[t].frame_bytes, BLOCK_PAGE);
    for (uint32_t l = 0; l < LOADS; l++)
        w->load[l].frame = arena_take(w->arena, 1 << 18, BLOCK_PAGE);
    ro->paths = path_list;
    ro->files = FILES;
    ro->chunk_bytes = 16384;
    ro->arena = w->arena;
    ro->in_flight_bytes = 65536;
    assert_int_equal(reader_open(&w->reader, ro, &bad), 0);
    uint64_t ring = largest * (1 + rnd(&w->seed) % 5);
    struct stream_options so = {
        .reader = w->reader, .segments = w->segment, .tiles = w->tile,
        .tile_count = TILES, .ring_bytes = ring,
        .ring = arena_take(w->arena, ring, BLOCK_PAGE),
        .chunk_bytes = 16384, .loads_max = LOADS,
    };
    assert_non_null(so.ring);
    assert_int_equal(stream_open(&w->stream, &so), 0);
}

static void close_world(struct world *w)
{
    stream_close(w->stream);
    reader_close(w->reader);
    arena_close(w->arena);
}

static void check_segment(const struct segment *s, const uint8_t *frame)
{
    for (uint64_t i = 0; i < s->length_bytes; i++)
        if (frame[s->at + i] != byte_at(s->file, s->offset_bytes + i))
            fail_msg("byte %llu of a segment at %llu is wrong",
                     (unsigned long long)i,
                     (unsigned long long)s->offset_bytes);
}

static void post_some(struct world *w)
{
    for (uint32_t l = 0; l < LOADS; l++) {
        struct load *load = &w->load[l];
        uint32_t state = atomic_load(&load->state);
        if (state == LOAD_WAITING) {
            uint64_t what = rnd(&w->seed) % 8;
            if (what == 0)
                atomic_store(&load->urgency, READ_DEMAND);
            else if (what == 1 && atomic_load(&load->urgency) == READ_PREFETCH)
                atomic_store(&load->cancelled, true);
            stream_notify(w->stream);
            continue;
        }
        if (state == LOAD_READY)
            for (uint32_t i = 0; i < load->segment_count; i++, w->checked++)
                check_segment(&load->segment[i], load->frame);
        if (rnd(&w->seed) % 2)
            continue;
        uint64_t used = 0;
        load->segment_count = 1 + (uint32_t)(rnd(&w->seed) % 3);
        for (uint32_t i = 0; i < load->segment_count; i++) {
            load->segment[i] = random_segment(
                w, (uint32_t)(rnd(&w->seed) % FILES), 40000);
            used = block_place(&load->segment[i], used);
        }
        atomic_store(&load->urgency,
                     rnd(&w->seed) % 2 ? READ_DEMAND : READ_PREFETCH);
        stream_post(w->stream, load);
    }
}

/* Walk the circle; returns 0 or the first error. */
static int walk(struct world *w)
{
    int err = stream_preload(w->stream);
    stream_set_readahead(w->stream, (uint64_t)ROUNDS * TILES);
    for (int round = 0; round < ROUNDS && !err; round++)
        for (uint32_t t = 0; t < TILES && !err; t++) {
            const uint8_t *frame;
            post_some(w);
            err = stream_hold(w->stream, t, &frame);
            for (uint32_t i = 0; i < w->tile[t].segment_count && !err; i++)
                check_segment(&w->segment[w->tile[t].first_segment + i],
                              frame);
            if (!err)
                stream_release(w->stream, t);
        }
    return err;
}

static void every_byte_is_right(void **state)
{
    (void)state;
    static const char *const methods[] = { "uring", "pread" };
    uint32_t checked = 0;
    printf("# seeds 0 to 35\n");
    for (uint64_t seed = 0; seed < 36; seed++) { /* every combination */
        struct world w;
        struct fault_plan late = {
            .seed = seed, .first = FAULT_NEVER, .chance_permille = 100,
            .kinds = FAULT_LATE | FAULT_REORDER | FAULT_SHORT | FAULT_EINTR |
                     FAULT_EAGAIN, .short_bytes = 4096, .late_ns = 100000 };
        struct paced_drive drives[3] = { { 2000000000, 0 },
                                         { 1000000000, 50000 },
                                         { 500000000, 10000 } };
        struct reader_options ro = {
            .method = methods[seed % 2],
            .fault = seed % 3 ? &late : NULL,
            .paced = seed / 6 % 3 == 2 ? drives : NULL,
            .paced_count = seed / 6 % 3 == 2 ? 3 : 0,
        };
        open_world(&w, &ro, seed, seed / 18 % 2);
        assert_int_equal(walk(&w), 0);
        checked += w.checked;
        close_world(&w);
    }
    assert_true(checked > 1000); /* loads, beside the tiles */
}

static void a_lasting_error_ends_the_walk(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 40; first += 13) {
        struct world w;
        struct fault_plan broken = { .kinds = FAULT_EIO, .first = first,
                                     .every = 1 };
        struct reader_options ro = { .method = "pread", .fault = &broken };
        open_world(&w, &ro, 5, false);
        assert_int_equal(walk(&w), -EIO);
        assert_int_equal(stream_failure(w.stream).error, -EIO);
        close_world(&w);
    }
}

static void nothing_is_read_past_the_allowed_end(void **state)
{
    (void)state;
    struct world w;
    struct reader_options ro = { .method = "uring" };
    const uint8_t *frame;
    struct stream_stats stats;
    uint64_t expected = 0;
    open_world(&w, &ro, 9, false);
    assert_int_equal(stream_preload(w.stream), 0);
    stream_set_readahead(w.stream, 10);
    for (uint32_t t = 0; t < TILES; t++)
        if (w.tile[t].home || t < 10)
            expected += w.tile[t].payload_bytes;
    for (uint32_t t = 0; t < 10; t++) {
        assert_int_equal(stream_hold(w.stream, t, &frame), 0);
        stream_release(w.stream, t);
    }
    stream_quiesce(w.stream); /* what was begun lands, and is counted */
    stream_stats(w.stream, &stats);
    assert_int_equal(stats.payload_bytes[READ_TRUNK], expected);
    close_world(&w);
}

/* After a rest all that was begun is there, whole tiles and no more come; then
 * it goes on where it was. */
static void rest_leaves_nothing_on_its_way(void **state)
{
    (void)state;
    uint32_t ready = 0;
    for (uint32_t held = 0; held < 30; held++) {
        struct world w;
        static const struct paced_drive pace[2] = { { 1000000000, 1000000 },
                                                    { 500000000, 1000000 } };
        static const struct timespec longer = { .tv_nsec = 3000000 };
        struct reader_options ro = { .method = "uring", .paced = pace,
                                     .paced_count = held % 3 };
        struct stream_stats stats, later;
        struct reader_facts facts;
        const uint8_t *frame;
        uint64_t min = 0;
        open_world(&w, &ro, 9, false);
        assert_int_equal(stream_preload(w.stream), 0);
        stream_set_readahead(w.stream, 3 * TILES);
        for (uint32_t t = 0; t < held; t++) {
            assert_int_equal(stream_hold(w.stream, t, &frame), 0);
            stream_release(w.stream, t);
        }
        stream_quiesce(w.stream);
        stream_stats(w.stream, &stats);
        nanosleep(&longer, NULL); /* what was on its way would land */
        reader_facts(w.reader, &facts);
        assert_int_equal(stats.payload_bytes[READ_TRUNK],
                         facts.payload_bytes);
        for (uint32_t t = 0; t < TILES; t++)
            if (w.tile[t].home || t < held || stream_ready(w.stream, t))
                min += w.tile[t].payload_bytes;
        assert_true(stats.payload_bytes[READ_TRUNK] >= min);
        uint32_t t = held;
        for (; t < TILES && stream_ready(w.stream, t); t++) {
            assert_int_equal(stream_hold(w.stream, t, &frame), 0);
            stream_release(w.stream, t);
        }
        ready += t - held;
        stream_stats(w.stream, &later);
        assert_int_equal(later.payload_bytes[READ_TRUNK],
                         stats.payload_bytes[READ_TRUNK]);
        stream_set_readahead(w.stream, 3 * TILES);
        for (; t < TILES; t++) {
            assert_int_equal(stream_hold(w.stream, t, &frame), 0);
            stream_release(w.stream, t);
        }
        close_world(&w);
    }
    assert_true(ready > 0); /* some had been read ahead */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_right),
        cmocka_unit_test(a_lasting_error_ends_the_walk),
        cmocka_unit_test(nothing_is_read_past_the_allowed_end),
        cmocka_unit_test(rest_leaves_nothing_on_its_way),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
