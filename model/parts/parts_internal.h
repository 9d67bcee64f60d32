/* parts_internal.h - what the files of this folder share. */
#ifndef MODEL_PARTS_PARTS_INTERNAL_H
#define MODEL_PARTS_PARTS_INTERNAL_H

#include "model/ckpt/ckpt.h"
#include "model/parts/parts.h"
#include "model/parts/spread.h"

/* ---- parts.c ---- */

/* Build the tables of the whole from p->file, which are all there, and check
 * that nothing is missing. */
int parts_index(struct parts *p, struct error *error);

/* ---- spread_make.c: the files of one shard ---- */

struct spread_shard {
    const struct spread_options *o;
    const struct config *c;
    const struct ckpt *k;
    uint32_t file;     /* the shard's number in k */
    struct identity model;
    const char *path[CUTS_PARTS_MAX]; /* of files to make; NULL: none */
    void (*done)(void *arg, uint64_t bytes); /* bytes of the shard */
    void *arg;
};
int spread_make(const struct spread_shard *s, struct error *error);
/* Bytes of the shard that are read for these parts, and room that their files
 * take at most, by part. */
int spread_needs(const struct spread_shard *s, uint64_t *read_bytes,
                 uint64_t room[CUTS_PARTS_MAX], struct error *error);

/* ---- skeleton.c ---- */

/* A folder of shards for ckpt_open, some of which are not there: links to those
 * that are in `model` (NULL: none), and the headers of the others at the
 * length of the whole file, from part 0's files first[0 .. n), which may be
 * NULL. */
int  skeleton_make(const char *dir, const char *model,
                   struct part *const *first, uint32_t n,
                   struct error *error);
void skeleton_remove(const char *dir);
/* "DIR/X.safetensors" for X.part; malloc'ed, or NULL. */
char *skeleton_shard(const char *dir, const char *part);

#endif
