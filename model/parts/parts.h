/* parts.h - a model in N parts: where the rows of its tensors are.
 *
 * Each part is a folder with a file for every shard (part.h). The folders may
 * be on any drives and are given in any order. One process holds all parts; of
 * several that share a model each holds some that follow each other
 * (ckpt/owned.h). A file has a number: that of its shard times the parts held,
 * and that of its part among those.
 *
 *     parts_open -> { parts_matrix, parts_small, parts_expert }
 *     -> parts_close
 *
 * Memory   the tables: 56 bytes an expert and part, 16 a block.
 * Threads  read-only after open.
 * Errors   -ENOENT: a part, or a file of one, is missing; -EBADMSG: a file is
 *          damaged, or they do not belong together; errnos of the files;
 *          -ENOMEM. The sentence names the file or folder.
 */
#ifndef MODEL_PARTS_PARTS_H
#define MODEL_PARTS_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "model/ckpt/owned.h"
#include "model/parts/part.h"
#include "model/parts/slice.h"

struct part_place {
    uint32_t file;
    const struct part_matrix *matrix; /* NULL: it has no rows */
};

struct part_small_place {
    uint32_t file;
    const struct part_small *small; /* NULL: there is none */
};

struct part_file {
    struct part *part;
    struct stat  was; /* when it was opened */
};

struct parts {
    struct cuts cuts;
    struct identity model;
    const struct config *c; /* the caller's */
    uint32_t first, held;   /* parts held: [first, first + held) */
    struct cuts held_cuts;  /* their weights */
    uint32_t shards, files; /* files = shards * held */
    struct part_file *file; /* [files] */
    struct slice_shape slice[CUTS_PARTS_MAX];
    uint64_t object_max[CUTS_PARTS_MAX]; /* bytes of any object of a part */
    struct part_place *matrix;      /* [layers + 1][T_COUNT][cuts.parts] */
    struct part_small_place *small; /* [layers + 1][T_COUNT] */
    /* [moe layers * experts]: shard, and place in its files' tables */
    uint32_t (*expert)[2];
};

/* Open the folders dir[0 .. n). Instead of a folder may stand a text file with
 * a folder a line, relative to its own. The config stays the caller's and must
 * outlive *out.
 *
 * `share` NULL: all parts. Else the parts of process share->part of
 * share->cuts.parts are held: the model has that many parts or a multiple, and
 * each process has as many. Folders of other parts, and those that are not on
 * this machine, are passed over. */
int  parts_open(struct parts **out, const char *const *dir, uint32_t n,
                const struct owned *share, const struct config *c,
                struct error *error);
void parts_close(struct parts *p);

const char *parts_path(const struct parts *p, uint32_t file);
static inline uint32_t parts_part_of(const struct parts *p, uint32_t file)
{
    return p->first + file % p->held;
}
/* The first file, if any, with rows of a tensor, for sentences. */
uint32_t parts_file_of(const struct parts *p, int layer,
                       enum tensor_role role);
/* As ckpt_changed. */
int  parts_changed(const struct parts *p, struct error *error);

/* What each of the processes owns that hold parts as `share` says. */
struct cuts parts_cuts_of(const struct parts *p, const struct owned *share);

/* The rows of a matrix that a part has, which is held; NULL: none. *file is
 * set. */
const struct part_matrix *parts_matrix(const struct parts *p, int layer,
                                       enum tensor_role role, uint32_t part,
                                       uint32_t *file);
/* The copy of a small tensor that is read; NULL: there is none such. */
const struct part_small *parts_small(const struct parts *p, int layer,
                                     enum tensor_role role, uint32_t *file);
/* A part's slice of an expert (layer is a MoE layer); NULL: it has no rows. */
const struct part_expert *parts_expert(const struct parts *p, uint32_t layer,
                                       uint32_t expert, uint32_t part,
                                       uint32_t *file);
struct kern;

/* Read a part's file back from its drive and compare every checksum, `jobs`
 * threads at a time (1..1024). `found` is called for each thing that is wrong,
 * from one thread at a time; NULL: the first is an error, -EBADMSG. */
typedef void part_found_fn(void *arg, const char *text);
int part_prove(const struct part *p, const struct config *c,
               const struct kern *kern, uint32_t jobs, part_found_fn *found,
               void *arg, struct error *error);

/* Bytes of the tables in memory. */
uint64_t parts_memory_bytes(const struct parts *p);

#endif
