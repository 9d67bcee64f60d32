/* prefix_cache.h - saved sequences in a folder, found by the ids they begin
 * with, so that no prompt is read twice.
 *
 *     prefix_cache_open -> { prefix_cache_find, prefix_cache_load,
 *                            prefix_cache_save } -> prefix_cache_close
 *
 * An entry is a saved sequence (state/state_file.h) whose name is its key: a
 * hash of the model, the options that change logits, and the ids. KDA state
 * cannot be rewound, so an entry serves exactly the prompts that begin with all
 * of its ids; the caller saves where prompts part: after the system prompt,
 * after a message, at the ends of chunks.
 *
 * Who leaves  when the folder is full: the entry with the least
 *          clock + uses x seconds saved / bytes; the clock is the value of the
 *          last that left (Greedy-Dual-Size-Frequency). So an entry that saves
 *          much for its bytes stays, and one that nobody asks for ages.
 * Bytes    never more than `max_bytes` of entries in the folder.
 * Threads  one caller an object. Several processes may share a folder: changes
 *          are made under a lock, entries appear and go whole.
 * Crashes  an entry is written aside and renamed; the index is only statistics
 *          and is rebuilt from the entries.
 * Errors   of the folder, at open. After that a cache that cannot read or write
 *          is a cache that misses: `error` has the sentence, for a note.
 */
#ifndef MODEL_DECODE_PREFIX_CACHE_H
#define MODEL_DECODE_PREFIX_CACHE_H

#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/state/state_file.h"

struct prefix_cache;

struct prefix_cache_counts {
    uint64_t hits, misses;  /* calls of prefix_cache_load */
    uint64_t positions;     /* that loads gave: rows nobody computed */
    uint64_t saved, evicted, damaged; /* entries */
};

/* The folder is made if it is missing (its parent is not). Other files in it
 * are left alone. */
int  prefix_cache_open(struct prefix_cache **out, const char *dir,
                       uint64_t max_bytes, const struct state_owner *owner,
                       struct error *error);
void prefix_cache_close(struct prefix_cache *p);

/* Positions of the longest entry that ids[0..n-1] begin with; 0: none. */
uint32_t prefix_cache_find(struct prefix_cache *p, const uint32_t *ids,
                           uint32_t n);
/* Load the longest such entry into an empty sequence's block and return its
 * positions; 0: none, the block is an empty sequence. Damaged entries are
 * removed, and the next longest is tried. */
uint32_t prefix_cache_load(struct prefix_cache *p, uint8_t *block,
                           const struct state_shape *shape,
                           const uint32_t *ids, uint32_t n,
                           struct error *error);
/* Keep the state after ids[0..n-1]; `seconds` is what computing it took. 0: it
 * is kept, or was there already, or is larger than the whole cache. */
int prefix_cache_save(struct prefix_cache *p, const uint8_t *block,
                      const struct state_shape *shape, const uint32_t *ids,
                      uint32_t n, double seconds, struct error *error);

struct prefix_cache_counts prefix_cache_counts(const struct prefix_cache *p);
/* Bytes and entries in the folder now. */
void prefix_cache_usage(struct prefix_cache *p, uint64_t *bytes,
                        uint32_t *entries);

#endif
