/* mask.h - which ids of a vocabulary may come next in a match.
 *
 *     vocabulary_open -> { mask_fill } -> vocabulary_close
 *
 * The vocabulary is a tree of bytes, made once and shared. A mask walks it and
 * leaves a branch at the first byte that the match does not take. Tokens of
 * plain characters need no walk where a string takes any character. Masks of
 * states that come again are kept.
 *
 * Bytes    of 163,840 ids: 12 MB for the tree, 20 KB for a mask that is kept.
 * Threads  a vocabulary is read-only; a cache of masks belongs to one caller.
 * Errors   -ENOMEM.
 * Cost     below 1 ms for 163,840 ids in most places (`make bench-mask`).
 */
#ifndef MODEL_GRAMMAR_MASK_H
#define MODEL_GRAMMAR_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/grammar/match.h"

struct vocabulary;

/* The bytes of an id, not terminated; 0 bytes: an id that is no text, which a
 * mask never allows. */
typedef const char *vocabulary_bytes_fn(void *arg, uint32_t id, size_t *bytes);

int  vocabulary_open(struct vocabulary **out, uint32_t ids,
                     vocabulary_bytes_fn *bytes, void *arg);
void vocabulary_close(struct vocabulary *v);

struct mask_cache;

/* A cache of at most `masks` masks of one grammar. */
int  mask_cache_open(struct mask_cache **out, const struct vocabulary *v,
                     uint32_t masks);
void mask_cache_close(struct mask_cache *c);

/* The ids whose bytes may follow: bit i % 64 of word i / 64, [(ids + 63) / 64]
 * words, good until the next call. *count, if not NULL, is how many. -ENOMEM:
 * NULL is returned. At least one id is allowed unless the match is complete and
 * takes nothing more, given a vocabulary with every byte. */
const uint64_t *mask_fill(struct mask_cache *c, struct match *m,
                          uint32_t *count);

#endif
