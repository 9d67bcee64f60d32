/* synth_drafter.h - write a random drafter (dspark/) for a model, in the layout
 * of one of the two that are published.
 *
 * For a model as wide as Kimi K3 all shapes are the published ones; else they
 * are as many times smaller, in whole heads.
 *
 * Bytes    the same seed and model give the same bytes on any machine.
 * Threads  one.
 * Errors   those of config_load for the model; -EEXIST: the folder has other
 *          files than a drafter's; errnos of the files; -ENOMEM.
 */
#ifndef MODEL_TOOLS_SYNTH_DRAFTER_H
#define MODEL_TOOLS_SYNTH_DRAFTER_H

#include "model/ckpt/error.h"
#include "model/dspark/config.h"

struct synth_drafter_options {
    const char *dir;
    const char *like; /* the model's folder; its config.json is enough */
    enum dspark_kind kind;
    bool     sparse;  /* only the header, and a hole for all values */
    uint64_t size_bytes; /* fewer layers, then taps, then a narrower MLP, until
                          * it fits; 0: as published */
    uint64_t seed;
};

int synth_drafter(const struct synth_drafter_options *o, uint64_t *bytes,
                  struct error *error);

#endif
