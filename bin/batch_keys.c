#include "bin/batch_keys.h"

#include <stdlib.h>

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static struct batch_key hash(const void *id, size_t bytes)
{
    const unsigned char *at = id;
    struct batch_key k = { { 0x9e3779b97f4a7c15ull, bytes }, 0 };
    for (size_t i = 0; i < bytes; i++) {
        k.hash[0] = mix(k.hash[0] + at[i]);
        k.hash[1] = (k.hash[1] ^ at[i]) * 0x100000001b3ull;
        k.hash[1] ^= k.hash[1] >> 29;
    }
    k.hash[0] = mix(k.hash[0]) | 1; /* never that of a free slot */
    k.hash[1] = mix(k.hash[1]);
    return k;
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
                                 .count = s->count };
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
    struct batch_key k = hash(id, bytes);
    if (s->count + s->count / 2 >= s->capacity && grow(s))
        return NULL;
    struct batch_key *at = find(s, &k);
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
