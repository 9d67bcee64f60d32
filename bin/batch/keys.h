/* keys.h - a set of ids that may be very many: 32 bytes each, whatever
 * their length. An id is known by a hash of 128 bits: the chance that two of a
 * billion ids share one is 1e-21.
 *
 *     all zero -> { batch_keys_at ... } -> batch_keys_free
 *
 * Bytes    32 to 96 an id: the table doubles when two thirds are used.
 * Threads  one.
 * Errors   NULL: no memory.
 */
#ifndef BIN_BATCH_KEYS_H
#define BIN_BATCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct batch_key {
    uint64_t hash[2]; /* both 0: free */
    uint64_t value;   /* the caller's; 0 at first */
    uint64_t asked;   /* the same */
};

struct batch_keys {
    struct batch_key *slot;
    size_t count, capacity; /* a power of two, or 0 */
    size_t limit; /* of the count; 0: none */
};

/* The hash of an id; its first half is never 0. */
void batch_keys_hash(const void *id, size_t bytes, uint64_t out[2]);
/* The entry of an id, added if it is new; good until the next call. NULL: no
 * memory, or the limit. */
struct batch_key *batch_keys_at(struct batch_keys *s, const void *id,
                                size_t bytes);
void batch_keys_free(struct batch_keys *s);

#endif
