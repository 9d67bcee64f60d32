/* weights.h - where the weights of a model are: shards, with or without coded
 * weights beside them; parts on several drives; or a layout that follows from
 * the config, for plans.
 *
 * Files    are numbered as the reader has them: the shards, then the sidecars
 *          that are used; or the files of the parts.
 * Threads  any. Errors: none, but where it says so.
 */
#ifndef MODEL_K3_WEIGHTS_H
#define MODEL_K3_WEIGHTS_H

#include "model/ckpt/identity.h"
#include "model/ckpt/owned.h"
#include "model/k3/tiles.h"
#include "model/pack/sidecars.h"
#include "model/parts/parts.h"
#include "sched/stream.h"

struct k3_options;
struct layout;

/* One of ckpt, layout, parts. */
struct weights {
    const struct config   *c;
    const struct ckpt     *ckpt;
    const struct layout   *layout;
    const struct sidecars *sidecars; /* or NULL; with ckpt or layout */
    const struct sidecars *trunk, *scales; /* of these, what is used */
    const struct parts    *parts;
    const struct owned    *owned; /* these rows; NULL: all */
};

/* The frame of an expert that lies in slices: each lands with its weights
 * first, then the coded scales; the scales are decoded into whole planes behind
 * all. */
struct expert_form {
    uint32_t slices; /* 0: the tensors are at load.part_at */
    uint32_t slot_at[CUTS_PARTS_MAX]; /* byte of the frame, of a slice */
    /* By matrix, w1 w2 w3: the rows of a slice, counted from the first that is
     * owned, and where the first of the slice is. */
    struct row_range row[SIDECAR_PLANES][CUTS_PARTS_MAX];
    uint32_t at[SIDECAR_PLANES][CUTS_PARTS_MAX];
    uint32_t plane_at[SIDECAR_PLANES];
    uint64_t frame_bytes;
};

/* As options say. */
struct weights weights_of(const struct k3_options *o, const struct config *c,
                          const struct ckpt *ckpt,
                          const struct layout *layout);

uint32_t weights_files(const struct weights *w);
const char *weights_path(const struct weights *w, uint32_t file);
/* The number that simulated drives know a file by (reader_options.place): of a
 * part's file the part. */
uint32_t weights_place(const struct weights *w, uint32_t file);
/* The path of a file with rows of a tensor. */
const char *weights_path_of(const struct weights *w, int layer,
                            enum tensor_role role);
/* As ckpt_changed; of a plan 0. */
int  weights_changed(const struct weights *w, struct error *error);
int  weights_identity(struct identity *out, const struct weights *w,
                      struct error *error);
/* Bytes of all files, without sidecars. */
uint64_t weights_bytes(const struct weights *w);

/* The source of tiles. */
struct tiles_source weights_source(const struct weights *w);
/* The slices of a matrix, for any weights. */
uint32_t weights_slices(const struct weights *w, int layer,
                        enum tensor_role role,
                        struct tiles_slice out[TILES_SLICES_MAX]);

void weights_form(struct expert_form *out, const struct weights *w);
/* Fill segments and part_at of a load; returns the frame's bytes. The form is
 * that of weights_form. */
uint64_t weights_place_expert(const struct weights *w,
                              const struct expert_form *form, uint32_t layer,
                              uint32_t expert, struct load *load);
/* Are any coded? And the memory that this takes in a session. */
bool weights_coded(const struct weights *w);
uint64_t weights_memory_bytes(const struct weights *w, uint64_t experts);

#endif
