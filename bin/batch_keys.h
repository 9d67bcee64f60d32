/* batch_keys.h - a set of ids that may be very many: 24 bytes each, whatever
 * their length. An id is known by a hash of 128 bits; that two of a billion ids
 * share one has a chance of 1e-21.
 *
 *     all zero -> { batch_keys_at ... } -> batch_keys_free
 */
#ifndef BIN_BATCH_KEYS_H
#define BIN_BATCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct batch_key {
    uint64_t hash[2]; /* both 0: free */
    uint64_t value;   /* the caller's; 0 at first */
};

struct batch_keys {
    struct batch_key *slot;
    size_t count, capacity; /* a power of two, or 0 */
};

/* The hash alone; the first half is never 0. */
void batch_keys_hash(const void *id, size_t bytes, uint64_t out[2]);
/* The entry of an id, made if need be; good until the next call. NULL: no
 * memory. */
struct batch_key *batch_keys_at(struct batch_keys *s, const void *id,
                                size_t bytes);
void batch_keys_free(struct batch_keys *s);

#endif
