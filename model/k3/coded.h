/* coded.h - weights that are read in coded form (model/pack) instead of from
 * their shard: where they are, their checks, and decoding.
 *
 * Files    The reader's files are the shards, then the sidecars that are used,
 *          in the order of their shards.
 * Checks   A block or object is checked at its first use, and again after the
 *          reader had to repeat any read. One that does not match is read once
 *          more, without the reader and the page cache.
 * Threads  that of the pass; its team does the work.
 * Errors   -EBADMSG and a sentence with file, offset and tensor if the second
 *          read does not match either; -ENOMEM.
 */
#ifndef MODEL_K3_CODED_H
#define MODEL_K3_CODED_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/ckpt.h"
#include "model/k3/tiles.h"
#include "model/pack/sidecars.h"
#include "sched/stream.h"

struct k3;
struct k3_options;

/* ---- where they are; also for plans. `set` NULL: nothing is coded ---- */

/* Those that are used for the trunk, and for scales; NULL: the shards are. */
const struct sidecars *coded_trunk(const struct k3_options *o);
const struct sidecars *coded_scales(const struct k3_options *o);
/* Does any of them lie on another file system than its shard? */
bool coded_elsewhere(const struct sidecars *set, const struct ckpt *ckpt);

/* The number of sidecars, and the path of a file of the reader that is one. */
uint32_t coded_files(const struct sidecars *set);
const char *coded_path(const struct sidecars *set, uint32_t file);
/* The coded form of the matrix at an extent. False: it has none. */
bool coded_find(const struct sidecars *set, const struct extent *e,
                uint32_t rows, uint32_t cols, struct tiles_coded *out);
/* Fill segments and part_at of a load for an expert whose tensors are at
 * e[EXPERT_TENSORS]. part_at of the six tensors is the same with and without
 * coded scales: with them, only the weights are read there, the object with the
 * coded scales lands at part_at[EXPERT_TENSORS], and coded_landed decodes it.
 * Without, part_at[EXPERT_TENSORS] is 0. Returns the frame's bytes. */
uint64_t coded_place_expert(const struct sidecars *set,
                            const struct extent *e, struct load *load);
/* Bytes of memory that coded weights take in a session. */
uint64_t coded_memory_bytes(const struct sidecars *set, uint64_t experts);

/* ---- in a session ---- */

struct coded;

int  coded_open(struct coded **out, struct k3 *k, struct error *error);
void coded_close(struct coded *c);
/* Check a piece, before its use. 0, or an error of the pass. */
int  coded_check(struct k3 *k, const struct tile_piece *piece,
                 const uint8_t *frame);
/* Decode the resident tiles that are kept decoded, which have been read. */
int  coded_decode_resident(struct k3 *k);
/* fetch_landed_fn of a session. */
int  coded_landed(void *k, uint32_t layer, uint32_t expert,
                  const struct load *load);
/* Read a range of a file again, past the kernel's memory of it. */
int  coded_read_again(struct k3 *k, const char *path, uint64_t at,
                      uint32_t bytes, uint8_t *to);
/* coded_landed for an expert in slices (slices.c). *known: was checked. */
int  slices_landed(struct k3 *k, uint32_t layer, uint32_t expert,
                   const struct load *load, bool *known);
/* Rows [begin, end) of a piece as bf16: in the frame, or, if coded, decoded to
 * `scratch`. */
const uint8_t *coded_rows(const struct k3 *k, const struct tile_piece *piece,
                          const uint8_t *frame, uint32_t begin, uint32_t end,
                          uint8_t *scratch);

#endif
