/* parts_internal.h - what the files of this folder share. */
#ifndef MODEL_PARTS_PARTS_INTERNAL_H
#define MODEL_PARTS_PARTS_INTERNAL_H

#include "model/ckpt/ckpt.h"
#include "model/pack/source.h"
#include "model/parts/parts.h"
#include "model/parts/spread.h"

/* ---- parts.c ---- */

/* Build the tables of the whole from p->file, which are all there, and check
 * that nothing is missing. */
int parts_index(struct parts *p, struct error *error);

/* ---- read_back.c: things of a part's file, read again and decoded ---- */

struct read_back {
    const struct part *p;
    const struct slice_shape *slice;
    const struct kern *kern;
    bool     drive; /* from there even where the kernel has it */
    struct source source;
    uint64_t read_max, raw_max; /* bytes of a thing, as it is and decoded */
};
/* Keeps the pointers. */
int  read_back_open(struct read_back *b, const struct part *p,
                    const struct slice_shape *slice, const struct kern *kern,
                    bool drive, struct error *error);
void read_back_close(struct read_back *b);

/* What one thread reads and decodes into, for a crew (pack/work.h). */
struct back_bench {
    uint8_t *read, *decoded;
};
int  back_bench_open(void **out, uint64_t read_max, uint64_t raw_max);
void back_bench_close(void *bench);

/* *wrong says what is wrong with the thing, NULL: nothing. What is handed out
 * lies in the bench until its next use. Errors: those of reading. */
int read_back_bytes(const struct read_back *b, struct back_bench *bench,
                    const struct box_ref *ref, const uint8_t **at,
                    const char **wrong, struct error *why);
/* Block i of a matrix: its rows in bf16. */
int read_back_block(const struct read_back *b, struct back_bench *bench,
                    const struct part_matrix *m, uint32_t i,
                    const uint8_t **rows, const char **wrong,
                    struct error *why);
/* An expert's slice: its weights, and its scales as planes. */
int read_back_slice(const struct read_back *b, struct back_bench *bench,
                    const struct part_expert *e, const uint8_t **weights,
                    uint8_t *plane[SIDECAR_PLANES], const char **wrong,
                    struct error *why);
/* -EBADMSG, with a sentence. */
int part_damaged(const struct part *p, uint64_t at, struct error *why);

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
