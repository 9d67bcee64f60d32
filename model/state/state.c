#include "model/state/state.h"

#include <string.h>

enum { ALIGN = 4096 };

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

void state_shape(struct state_shape *s, const struct config *c,
                 uint32_t context)
{
    state_shape_of(s, c, context, (struct row_range){ 0, c->kda_heads });
}

void state_shape_of(struct state_shape *s, const struct config *c,
                    uint32_t context, struct row_range heads)
{
    memset(s, 0, sizeof *s);
    for (uint32_t l = 0; l < c->layers; l++)
        *(config_is_mla(c, l) ? &s->mla_layers : &s->kda_layers) += 1;
    s->context = context;
    s->first = heads.begin * c->kda_dim;
    s->width = (heads.end - heads.begin) * c->kda_dim;
    s->conv_history = c->conv_kernel - 1;
    s->kda_bytes = (uint64_t)s->width * c->kda_dim * sizeof(float);
    s->conv_bytes = 3ull * s->conv_history * s->width * sizeof(float);
    s->mla_bytes = (uint64_t)context * (c->kv_rank + c->rope) * sizeof(float);
    s->kda_offset = round_up(sizeof(struct state_header));
    s->conv_offset =
        round_up(s->kda_offset + s->kda_bytes * s->kda_layers);
    s->mla_offset =
        round_up(s->conv_offset + s->conv_bytes * s->kda_layers);
    s->bytes = round_up(s->mla_offset + s->mla_bytes * s->mla_layers);
}

void state_reset(uint8_t *block, const struct state_shape *s)
{
    memset(block, 0, s->mla_offset);
    struct state_header *h = state_header(block);
    memcpy(h->magic, "SLUICEST", sizeof h->magic);
    h->version = STATE_VERSION;
    h->bytes = s->bytes;
    h->context = s->context;
    h->kda_layers = s->kda_layers;
    h->mla_layers = s->mla_layers;
}
