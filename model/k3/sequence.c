#include "model/k3/sequence.h"

#include <assert.h>
#include <string.h>

#include "model/k3/k3_internal.h"
#include "model/k3/prefetch.h"

uint8_t *k3_state(struct k3 *k, uint32_t sequence)
{
    assert(sequence < k->o.sequences);
    return k->state + sequence * k->shape.bytes;
}

const struct state_shape *k3_state_shape(const struct k3 *k)
{
    return &k->shape;
}

uint32_t k3_positions(const struct k3 *k, uint32_t sequence)
{
    assert(sequence < k->o.sequences);
    return state_header(k->state + sequence * k->shape.bytes)->positions;
}

void k3_copy(struct k3 *k, uint32_t to, uint32_t from)
{
    const struct state_shape *s = &k->shape;
    uint8_t *target = k3_state(k, to), *source = k3_state(k, from);
    uint64_t row = s->context ? s->mla_bytes / s->context : 0;
    assert(to != from);
    k3_say(k, SAID_COPY, to, from, NULL);
    state_reset(target, s);
    k3_prefetch_forget(&k->flow, to);
    memcpy(target, source, s->mla_offset);
    for (uint32_t i = 0; i < s->mla_layers; i++)
        memcpy(state_mla(target, s, i), state_mla(source, s, i),
               row * k3_positions(k, from));
}

int k3_state_owner(struct state_owner *out, const struct k3 *k,
                   struct error *error)
{
    *out = (struct state_owner){ .mla_latent_eps = k->c.mla_latent_eps };
    return weights_identity(&out->model, &k->weights, error);
}
