#include "bin/batch/keys.h"

#include <stdlib.h>

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

void batch_keys_hash(const void *id, size_t bytes, uint64_t out[2])
{
    const unsigned char *at = id;
    uint64_t a = 0x9e3779b97f4a7c15ull, b = bytes;
    for (size_t i = 0; i < bytes; i++) {
        a = mix(a + at[i]);
        b = (b ^ at[i]) * 0x100000001b3ull;
        b ^= b >> 29;
    }
    out[0] = mix(a) | 1; /* never that of a free slot */
    out[1] = mix(b);
}

static struct batch_key *find(const struct batch_keys *s,
                              const struct batch_key *k)
{
    size_t at = (size_t)k->hash[1] & (s->capacity - 1);
    while (s->slot[at].hash[0] && (s->slot[at].hash[0] != k->hash[0] ||
                                   s->slot[at].hash[1] != k->hash[1]))
        at = (at + 1) & (s->capacity - 1);
    return &s->slot[at];
}

static int grow(struct batch_keys *s)
{
    struct batch_keys larger = { .capacity = s->capacity ? s->capacity * 2
                                                         : 1024,
                                 .count = s->count, .limit = s->limit };
    larger.slot = calloc(larger.capacity, sizeof *larger.slot);
    if (!larger.slot)
        return -1;
    for (size_t i = 0; i < s->capacity; i++)
        if (s->slot[i].hash[0])
            *find(&larger, &s->slot[i]) = s->slot[i];
    free(s->slot);
    *s = larger;
    return 0;
}

struct batch_key *batch_keys_at(struct batch_keys *s, const void *id,
                                size_t bytes)
{
    struct batch_key k = { .value = 0 };
    batch_keys_hash(id, bytes, k.hash);
    if (s->count + s->count / 2 >= s->capacity && grow(s))
        return NULL;
    struct batch_key *at = find(s, &k);
    if (!at->hash[0] && s->limit && s->count >= s->limit)
        return NULL;
    if (!at->hash[0]) {
        *at = k;
        s->count++;
    }
    return at;
}

void batch_keys_free(struct batch_keys *s)
{
    free(s->slot);
    *s = (struct batch_keys){ 0 };
}
