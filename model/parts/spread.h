/* spread.h - write the parts of a model, a shard at a time; and back.
 *
 * Bytes    A file of a part is a function of its shard, the config and the
 *          cuts: the same from any number of threads, in one go or in several,
 *          alone or with the other parts. Each appears whole or not at all
 *          (io/replace.h), on the drive with its name before the next begins;
 *          one that is there and is of this shard and these cuts is kept.
 *          Every coded block is decoded and compared before it is written.
 * Moving   With `move` a shard is removed when the files of all its parts were
 *          read back from their drives and every checksum matched. A spread
 *          that was interrupted then goes on with the shards that are left.
 * Threads  `jobs` read, code and write.
 * Errors   -ENOSPC before anything is written, where it can be foreseen;
 *          -EBUSY: another spread works on a folder; -ESTALE: a shard changed
 *          while it was read; -ENOTSUP: an expert that lies in two shards;
 *          -EIO: pack/object.h; what ckpt.h and the files say. Files finished
 *          by then stay.
 */
#ifndef MODEL_PARTS_SPREAD_H
#define MODEL_PARTS_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ckpt/cuts.h"
#include "model/ckpt/error.h"
#include "model/pack/work.h"

struct kern;
struct parts;

struct spread_options {
    const char *model; /* folder */
    struct cuts cuts;
    const char *dir[CUTS_PARTS_MAX]; /* folder of each part, made if it is not
                                      * there; NULL: this part is not written */
    uint32_t jobs;  /* 1..WORK_JOBS_MAX */
    bool     raw;   /* code nothing */
    bool     move;  /* remove each shard; every part has a folder */
    const struct kern *kern;
    /* Called from one thread at a time; may be NULL. Bytes of the shards. */
    void   (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void    *arg;
};

struct spread_facts {
    uint32_t shards, made, kept; /* made, kept: files of parts */
    uint32_t removed;            /* shards */
    uint64_t read_bytes, file_bytes; /* of shards; of all files of the parts */
    uint64_t part_bytes[CUTS_PARTS_MAX];
    double   seconds;
};

int spread_run(struct spread_facts *facts, const struct spread_options *o,
               const struct config *c, struct error *error);

/* Write the shards of the model in these parts into `dir`, which is made if it
 * is not there; a shard that is there and is whole stays. The same rules. */
int spread_join(struct spread_facts *facts, const struct parts *p,
                const char *dir, const struct spread_options *o,
                struct error *error);

#endif
