/* shards.h - files with known bytes, and reads of them that are checked.
 *
 *     shards_make -> { shards_run ... } -> shards_drop
 */
#ifndef TESTS_FAULT_SHARDS_H
#define TESTS_FAULT_SHARDS_H

#include "io/reader.h"

#define SHARDS_MAX  8u
#define SHARDS_READS_MAX 512u

struct shards {
    char dir[64];
    uint32_t files;
    uint64_t size[SHARDS_MAX];
    uint8_t *truth[SHARDS_MAX];
    char *path[SHARDS_MAX];
};

/* One read of a run: where from, and what became of it. */
struct shards_read {
    uint32_t file;
    uint32_t length_bytes;
    uint64_t offset_bytes;
    struct read_done done;
};

void shards_make(struct shards *s, const uint64_t *sizes, uint32_t files);
void shards_drop(struct shards *s);

/* Options for all files of s: `method`, everything else default. */
struct reader_options shards_options(const struct shards *s,
                                     const char *method);

uint64_t shards_random(uint64_t *state);

/* n reads inside the files: odd and 8-aligned starts, single bytes, page
 * borders, the very end. */
void shards_pick(const struct shards *s, struct shards_read *reads, uint32_t n,
                 uint32_t longest, uint64_t seed);

/* Make all reads through r, as many at once as it takes (a dozen at a time if
 * there are few, so that slots are used again), into pages of `area`
 * (NULL: into pages of its own with inaccessible ones on both sides). Asserts
 * that each ends once, that a good one has all its bytes, and that no byte
 * outside of the pages of a read was touched. Returns how many failed. */
uint32_t shards_run(const struct shards *s, struct reader *r,
                    struct shards_read *reads, uint32_t n, struct arena *area);

#endif
