/* synth.h - write a random checkpoint in the published layout, for tests and
 * benches.
 *
 * The shards are those of published.h; beside them are config.json, the index,
 * tiktoken.model, tokenizer_config.json and generation_config.json. The weights
 * are scaled so that values neither vanish nor saturate over the layers. Router
 * biases change the choice, and norm gains are not 1.
 *
 *     synth_plan, or synth_write
 *
 * Bytes    The same seed and config give the same bytes on any machine: each
 *          8 bytes of a tensor are a function of seed, name and position.
 *          A file has its name once it is whole.
 *          config.json comes first and marks the folder as one that may be
 *          overwritten; the index comes last.
 * Threads  two fill and write.
 * Errors   -EEXIST: the folder has other files; -ENOSPC; the errors of
 *          config.h; errnos of the files; -ENOMEM. The next run removes
 *          what a killed one left.
 * Cost     the drive's: a thread fills several GB a second.
 */
#ifndef MODEL_TOOLS_SYNTH_H
#define MODEL_TOOLS_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

/* Coded bytes of a matrix over its own, assumed for K3. */
#define SYNTH_PACKED_RATIO 0.683

enum { SYNTH_VOCAB_MIN = 512, SYNTH_SPECIALS = 256 };

/* One field of config.json, as text: "256", "1e-5", "true", "4,8,12". */
struct synth_setting {
    const char *field;
    const char *value;
};

struct synth_options {
    const char *dir;
    const char *preset;     /* a name of synth_presets */
    bool        sparse;     /* only headers and vectors; holes for the rest */
    /* Matrices spread as those of trained models are: normal, the scale of a
     * row exp(0.3 N), one column in twenty four times as wide; expert scales as
     * the released ones, 15, 84 and 1 %. Else uniform, which codes better. */
    bool        llm;
    /* With sparse: coded weights too, holes as the shards are, of an assumed
     * SYNTH_PACKED_RATIO; expert scales in mode 5. */
    bool        packed;
    uint64_t    size_bytes; /* take as many experts as fit; 0: as configured */
    uint64_t    seed;
    uint32_t    echo;       /* greedy output repeats this many ids; 0: no */
    const struct synth_setting *setting; /* [settings] */
    size_t      settings;
    /* Called after each write, from one thread at a time; may be NULL. */
    void      (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void       *progress_arg;
};

struct synth_facts {
    uint32_t shards;
    uint32_t experts;    /* in a layer */
    uint64_t bytes;      /* of all shards */
    bool     above_size; /* even the fewest experts exceed size_bytes */
};

/* Compute what synth_write would write: make and check the config, add up the
 * sizes. */
int synth_plan(const struct synth_options *o, struct synth_facts *facts,
               struct error *error);
/* Write the checkpoint. */
int synth_write(const struct synth_options *o, struct synth_facts *facts,
                struct error *error);

/* "tiny|small|bench|k3". */
const char *synth_presets(void);
bool synth_is_preset(const char *name);

/* The i-th field that can be set; NULL past the last. */
const char *synth_field(size_t i);
/* The form of its values: "N", "REAL", "true|false", "N,N,...". */
const char *synth_field_metavar(size_t i);
/* NULL, or what is wrong with `value` for field `i`. */
const char *synth_field_wrong(size_t i, const char *value);

#endif
