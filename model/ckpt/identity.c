#include "model/ckpt/identity.h"

/* The plain functions: the newer interface takes megabytes to begin, and a run
 * at its floor has none. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/slurp.h"

enum { SAMPLE_BYTES = 512, PAGE = 4096, PIECE_BYTES = 1 << 20 };

static void add_number(SHA256_CTX *hash, uint64_t n)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(n >> 8 * i);
    SHA256_Update(hash, bytes, sizeof bytes);
}

static void add_real(SHA256_CTX *hash, float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    add_number(hash, bits);
}

/* Everything in the config that a logit depends on. */
static void add_config(SHA256_CTX *hash, const struct config *c)
{
    const uint32_t numbers[] = {
        c->hidden,      c->layers,         c->vocab,     c->dense_inter,
        c->heads,       c->attn_res_block, c->q_rank,    c->kv_rank,
        c->nope,        c->rope,           c->v_dim,     c->kda_heads,
        c->kda_dim,     c->conv_kernel,    c->experts,   c->top_k,
        c->moe_inter,   c->shared_experts, c->latent,    c->first_dense,
        c->renormalize, c->latent_norm,
    };
    const float reals[] = { c->rms_eps, c->situ_b1, c->situ_b2,
                            c->gate_lower_bound, c->routed_scaling };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add_number(hash, numbers[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        add_real(hash, reals[i]);
    for (uint32_t l = 0; l < c->layers; l++)
        add_number(hash, config_is_mla(c, l));
}

static int add_bytes(SHA256_CTX *hash, int fd, uint8_t *buffer, uint64_t at,
                     uint64_t bytes, const char *path, struct error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        int err = slurp_at(fd, buffer, n, at + done, path, error);
        if (err)
            return err;
        SHA256_Update(hash, buffer, n);
        done += n;
    }
    return 0;
}

/* The size of a shard and its header. */
static int add_shard(SHA256_CTX *hash, uint8_t *buffer, const char *path,
                     struct error *error)
{
    uint64_t size, header = 0;
    uint8_t raw[8];
    int fd = slurp_open(path, &size, error);
    if (fd < 0)
        return fd;
    (void)!posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no more than this */
    int err = slurp_at(fd, raw, sizeof raw, 0, path, error);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | raw[i];
    if (!err && (size < sizeof raw || header > size - sizeof raw))
        err = error_set(error, -ENODATA, "%s: truncated since it was opened",
                        path);
    add_number(hash, size);
    if (!err)
        err = add_bytes(hash, fd, buffer, 0, header + sizeof raw, path, error);
    close(fd);
    return err;
}

/* The middle of a tensor. `fd` is open on file `open_file`, or -1; past the
 * page cache where the file system allows it. */
struct sampler {
    SHA256_CTX *hash;
    uint8_t    *buffer; /* on a page */
    const struct ckpt *k;
    int         fd;
    uint32_t    open_file;
};

static int open_for_samples(struct sampler *s, uint32_t file,
                            struct error *error)
{
    const char *path = ckpt_path(s->k, file);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (s->fd < 0)
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    s->open_file = file;
    return 0;
}

static int add_sample(struct sampler *s, const struct extent *e,
                      struct error *error)
{
    int err = s->fd >= 0 && s->open_file == e->file
                  ? 0
                  : open_for_samples(s, e->file, error);
    if (err)
        return err;
    uint64_t n = e->length_bytes < SAMPLE_BYTES ? e->length_bytes
                                                : SAMPLE_BYTES;
    uint64_t at = e->offset_bytes + (e->length_bytes - n) / 2;
    uint64_t page = at / PAGE * PAGE, done = 0;
    while (!err && done < at + n - page) { /* both pages, or to the end */
        ssize_t got = pread(s->fd, s->buffer + done, 2 * PAGE - done,
                            (off_t)(page + done));
        if (got > 0)
            done += (uint64_t)got;
        else if (!got || (errno != EINTR && errno != EAGAIN))
            err = error_set(error, got ? -errno : -ENODATA,
                            "%s: reading at offset %llu: %s",
                            ckpt_path(s->k, e->file), (unsigned long long)page,
                            got ? strerror(errno) : "the file ends");
    }
    if (!err)
        SHA256_Update(s->hash, s->buffer + (at - page), n);
    return err;
}

/* Of every tensor of the trunk, and of the first and the last expert of a
 * layer. */
static int add_samples(struct sampler *s, const struct config *c,
                       struct error *error)
{
    int err = 0;
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++) {
        for (int role = 0; role < T_COUNT && !err; role++) {
            struct extent e;
            if (!ckpt_tensor(s->k, layer, (enum tensor_role)role, &e))
                err = add_sample(s, &e, error);
        }
        if (layer < 0 || config_is_dense(c, (uint32_t)layer))
            continue;
        for (uint32_t last = 0; last < 2; last++) {
            struct extent e[EXPERT_TENSORS];
            ckpt_expert(s->k, (uint32_t)layer, last ? c->experts - 1 : 0, e);
            for (int i = 0; i < EXPERT_TENSORS && !err; i++)
                err = add_sample(s, &e[i], error);
        }
    }
    if (s->fd >= 0)
        close(s->fd);
    return err;
}

int identity_of(struct identity *out, const struct ckpt *k,
                const struct config *c, struct error *error)
{
    SHA256_CTX state, *hash = &state;
    uint8_t *buffer = aligned_alloc(PAGE, PIECE_BYTES);
    int err = 0;
    *out = (struct identity){ 0 };
    if (!buffer || !SHA256_Init(hash))
        err = error_set(error, -ENOMEM, "no memory to identify the model");
    if (!err) {
        static const char kind[] = "sluice model 1";
        SHA256_Update(hash, kind, sizeof kind);
        add_config(hash, c);
    }
    for (uint32_t f = 0; !err && f < ckpt_files(k); f++)
        err = add_shard(hash, buffer, ckpt_path(k, f), error);
    struct sampler s = { hash, buffer, k, -1, 0 };
    if (!err)
        err = add_samples(&s, c, error);
    if (!err)
        SHA256_Final(out->byte, hash);
    free(buffer);
    return err;
}

void identity_text(char out[IDENTITY_TEXT_BYTES], const struct identity *id)
{
    for (size_t i = 0; i < IDENTITY_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", id->byte[i]);
}
