/* synth_internal.h - the parts of synth.h: config, layout, bytes, files. */
#ifndef MODEL_SYNTH_INTERNAL_H
#define MODEL_SYNTH_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>

#include "model/config.h"
#include "model/synth.h"
#include "model/tensors.h"

/* ---- synth_config.c ---- */

/* Preset and settings as the root of a config.json, and checked. On success
 * the caller owns both: json_decref and config_free. `experts` replaces
 * num_experts unless it is 0. */
int synth_config(json_t **root, struct config *c, const struct synth_options *o,
                 uint32_t experts, struct why *why);
/* The fewest experts that a size may lead to. */
uint32_t synth_experts_min(const struct synth_options *o,
                           const struct config *c);
bool synth_has_setting(const struct synth_options *o, const char *field);
/* How config.json says that the folder was made here, in _name_or_path. */
#define SYNTH_MARK "sluice-synth/"

/* ---- synth_layout.c ---- */

struct synth_tensor {
    char               name[TENSOR_NAME_BYTES];
    enum tensor_role   role; /* T_COUNT: of an expert, or vision */
    int64_t            layer;
    uint32_t           which; /* tensor of an expert; EXPERT_TENSORS: vision */
    enum tensor_dtype  dtype;
    struct tensor_dims dims;
    uint64_t           offset_bytes; /* in the data */
    uint64_t           length_bytes;
};

struct synth_shard {
    uint32_t             count;
    struct synth_tensor *tensor; /* [count], in the order of the file */
    uint64_t             data_bytes;
    uint64_t             header_bytes; /* with the 8 of the length */
};

/* Shards 0..layers-1 are the layers, then the model level; with vision two
 * more: projector and tower. */
uint32_t synth_shard_count(const struct config *c, bool vision);
int synth_shard_init(struct synth_shard *s, const struct config *c,
                     uint32_t shard);
void synth_shard_free(struct synth_shard *s);
/* header_bytes of them, malloc'ed, or NULL. */
char *synth_shard_header(const struct synth_shard *s);

/* ---- synth_fill.c ---- */

struct synth_fill {
    const struct config *config;
    uint64_t             seed;
    uint32_t             echo;
};

/* Bytes [begin, begin + length) of the tensor into `out`. */
void synth_fill(uint8_t *out, const struct synth_fill *f,
                const struct synth_tensor *t, uint64_t begin, size_t length);
/* Is the tensor written, not left a hole, in a sparse checkpoint? */
bool synth_fill_sparse(const struct synth_tensor *t);

/* ---- synth_out.c ---- */

/* A file on its way: NAME.part until it is whole. Either text goes through a
 * buffer, or bytes to offsets, from any thread. The first failure stays in
 * `error` and the rest does nothing. */
struct synth_out {
    int         fd;
    atomic_int  error;
    char       *path, *part;
    char       *buffer;
    size_t      used;
    struct why *why;
};

int synth_out_open(struct synth_out *o, const char *dir, const char *name,
                   struct why *why);
void synth_out_text(struct synth_out *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void synth_out_at(struct synth_out *o, const void *bytes, size_t length,
                  uint64_t offset);
/* Flush, close and rename, or remove the .part. Returns the first failure. */
int synth_out_close(struct synth_out *o, bool sync);

/* ---- synth_tok.c ---- */

/* tiktoken.model, tokenizer_config.json and generation_config.json. */
int synth_tokenizer(const char *dir, const struct config *c, uint64_t seed,
                    struct why *why);

/* A number from a counter: splitmix64. */
static inline uint64_t synth_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
