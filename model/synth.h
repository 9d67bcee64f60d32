/* synth.h - random checkpoints in the official layout, for tests and benches.
 *
 * One layer a shard, then the model level; F32, BF16, U8, each by name; experts
 * in the string order of their numbers; config.json, tiktoken.model,
 * tokenizer_config.json, generation_config.json and the index beside them. The
 * weights are scaled so that nothing vanishes or saturates over depth, router
 * biases reorder the choice and norm gains are not 1.
 *
 *     synth_write (once)
 *
 * Bytes    The same seed and config give the same bytes on any machine: each
 *          8 bytes of a tensor are a function of seed, name and position.
 *          Files appear under their names when they are whole; until then they
 *          end in .part. config.json comes first and marks the folder as one
 *          that may be overwritten, the index comes last.
 * Threads  two fill and write.
 * Errors   -EEXIST: the folder has something else in it; -ENOSPC; what
 *          config.h says for a config that is not served; errnos of the files;
 *          -ENOMEM. The .part files of a run that was killed are removed by the
 *          next one.
 * Cost     the drive: filling is several GB a second a thread.
 */
#ifndef MODEL_SYNTH_H
#define MODEL_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/why.h"

enum { SYNTH_VOCAB_MIN = 512, SYNTH_SPECIALS = 256 };

/* One field of config.json, as text: "256", "1e-5", "true", "4,8,12". */
struct synth_setting {
    const char *field;
    const char *value;
};

struct synth_options {
    const char *dir;
    const char *preset;     /* see synth_presets */
    bool        sparse;     /* headers and small vectors; holes for the rest */
    uint64_t    size_bytes; /* choose num_experts for it; 0: do not */
    uint64_t    seed;
    uint32_t    echo;       /* greedy output is a cycle of so many ids; 0: no */
    const struct synth_setting *setting; /* [settings] */
    size_t      settings;
    /* Called after each piece, from one thread at a time; may be NULL. */
    void      (*progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);
    void       *progress_arg;
};

struct synth_facts {
    uint32_t shards;
    uint32_t experts;    /* a layer */
    uint64_t bytes;      /* of all shards */
    bool     above_size; /* the fewest experts are more than size_bytes */
};

/* What would be written, without writing: the config is made and checked and
 * the sizes are summed. */
int synth_plan(const struct synth_options *o, struct synth_facts *facts,
               struct why *why);
int synth_write(const struct synth_options *o, struct synth_facts *facts,
                struct why *why);

/* "tiny|small|bench|k3". */
const char *synth_presets(void);
bool synth_is_preset(const char *name);

/* The settable fields, in order; NULL at `i` past the last. */
const char *synth_field(size_t i);
/* What a value of field `i` looks like: "N", "REAL", "true|false", "N,N,...".
 */
const char *synth_field_metavar(size_t i);
/* NULL, or what is wrong with the text as a value of field `i`. */
const char *synth_field_wrong(size_t i, const char *value);

#endif
