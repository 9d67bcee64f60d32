/* synth_internal.h - the parts of synth.h: config, tensor bytes, files.
 *
 * Errors and threads as in synth.h.
 */
#ifndef MODEL_TOOLS_SYNTH_INTERNAL_H
#define MODEL_TOOLS_SYNTH_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>

#include "io/replace.h"
#include "model/ckpt/config.h"
#include "model/ckpt/published.h"
#include "model/ckpt/tensors.h"
#include "model/tools/synth.h"

/* ---- synth_config.c ---- */

/* Make a config.json of preset and settings, and check it. On success the
 * caller owns *root (json_decref) and *c (config_free). `experts` replaces
 * num_experts unless it is 0. */
int synth_config(json_t **root, struct config *c, const struct synth_options *o,
                 uint32_t experts, struct error *error);
/* The fewest experts that size_bytes may lead to. */
uint32_t synth_experts_min(const struct synth_options *o,
                           const struct config *c);
bool synth_has_setting(const struct synth_options *o, const char *field);
/* The start of _name_or_path in config.json: the folder was made by synth. */
#define SYNTH_MARK "sluice-synth/"

/* ---- synth_fill.c ---- */

/* Points and row scales of weights that are spread as trained ones are. */
struct synth_llm {
    float point[4096], level[32];
};

void synth_fill_llm(struct synth_llm *llm);

struct synth_fill {
    const struct config    *config;
    uint64_t                seed;
    uint32_t                echo;
    const struct synth_llm *llm; /* NULL: uniform weights */
};

/* Fill out [length] with the bytes of the tensor from `begin` on. */
void synth_fill(uint8_t *out, const struct synth_fill *f,
                const struct published_tensor *t, uint64_t begin,
                size_t length);
/* Whether a sparse checkpoint has this tensor, and not a hole. */
bool synth_fill_sparse(const struct published_tensor *t);

/* ---- synth_out.c ---- */

/* A file that has its name when it is whole (io/replace.h). Either text is
 * appended through a buffer, or bytes are written at offsets, from any thread.
 * After the first failure, which `error` keeps, nothing more is written. */
struct synth_out {
    struct replace r;
    atomic_int code;         /* of the first failure, a negative errno */
    char       *path;
    char       *buffer;
    size_t      used;        /* bytes of the buffer */
    struct error *error;
};

int synth_out_open(struct synth_out *o, const char *dir, const char *name,
                   struct error *error);
void synth_out_text(struct synth_out *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void synth_out_at(struct synth_out *o, const void *bytes, size_t length,
                  uint64_t offset);
/* Flush and give it its name, or leave nothing of it. Returns the first
 * failure. */
int synth_out_close(struct synth_out *o, bool sync);

/* ---- synth_tok.c ---- */

/* tiktoken.model, tokenizer_config.json and generation_config.json. */
int synth_tokenizer(const char *dir, const struct config *c, uint64_t seed,
                    struct error *error);

/* splitmix64: a random number from a counter. */
static inline uint64_t synth_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
