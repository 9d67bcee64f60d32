/* pack_internal.h - one shard of a pack. */
#ifndef MODEL_PACK_PACK_INTERNAL_H
#define MODEL_PACK_PACK_INTERNAL_H

#include "model/pack/pack.h"

/* Where the work on all shards stands; shared by its threads. */
struct pack_progress {
    const struct pack_options *o;
    uint64_t done_bytes, all_bytes;
};

/* Make `path` from the shard. On failure nothing is left. */
int pack_make(const struct pack_options *o, const struct pack_shard *s,
              const char *shard, const char *path, struct pack_progress *p,
              struct error *error);
/* What is read of a shard, and the room that its sidecar will hardly exceed. */
uint64_t pack_read_bytes(const struct pack_shard *s, uint32_t what);
uint64_t pack_room_bytes(const struct pack_shard *s, uint32_t what);

#endif
