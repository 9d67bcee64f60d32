#include "model/sim/token_cost.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/shape.h"

static uint32_t drive_of(const struct token_cost *t, uint32_t file)
{
    return t->drives ? file % t->drives : 0;
}

static void count_trunk(struct token_cost *t, const struct k3_shape *s)
{
    for (uint32_t i = 0; i < s->tiles->count; i++) {
        const struct plan_tile *tile = &s->plan_tile[i];
        if (s->resident[i])
            continue;
        t->decoded_bytes += tiles_decoded_bytes(s->tiles, i);
        t->trunk_bytes += tile->payload_bytes;
        t->drive_bytes[tile->drive] += tile->payload_bytes;
    }
}

/* Layer l is file l, the model level is the file after the last layer. */
static void count_rest(struct token_cost *t, const struct k3_shape *s,
                       const struct config *c, bool parts)
{
    uint64_t layer_bytes = c->top_k * s->expert_read_bytes;
    bool coded = parts || s->expert_read_bytes != expert_bytes(c);
    for (uint32_t l = c->first_dense; l < c->layers; l++) {
        t->expert_bytes += layer_bytes;
        t->decoded_bytes += c->top_k * expert_bytes(c);
        if (!coded)
            t->drive_bytes[drive_of(t, l)] += layer_bytes;
    }
    for (uint32_t d = 0; coded && d < s->input.drives; d++)
        t->drive_bytes[d] += (uint64_t)(s->input.expert_bytes[d] + 0.5);
    t->embed_bytes = 2ull * c->hidden; /* a row of bf16 */
    t->decoded_bytes += t->embed_bytes;
    t->trunk_stored_bytes = s->tiles->payload_bytes;
    t->trunk_decoded_bytes = s->tiles->decoded_bytes;
    t->drive_bytes[drive_of(t, c->layers)] += t->embed_bytes;
}

/* All that is read comes from all drives. */
static void spread(struct token_cost *t, const struct k3_options *o)
{
    double all = 0, bytes = (double)t->read_bytes;
    for (uint32_t d = 0; d < o->paced_count; d++)
        all += (double)o->paced[d].bytes_per_s;
    for (uint32_t d = 0; d < o->paced_count; d++)
        t->drive_bytes[d] =
            (uint64_t)(bytes * (double)o->paced[d].bytes_per_s / all);
}

int token_cost(struct token_cost *out, const struct config *c,
               const struct k3_options *o, struct error *error)
{
    struct k3_options all = *o;
    struct k3_shape shape;
    struct error first = { 0 };
    memset(out, 0, sizeof *out);
    k3_option_defaults(&all);
    uint32_t threads = all.threads ? all.threads : 1;
    int err = k3_shape_of(&shape, NULL, c, &all, threads, &first);
    if (err == -ENOBUFS && !o->memory_bytes) {
        all.memory_bytes = shape.plan.floor_bytes;
        err = k3_shape_of(&shape, NULL, c, &all, threads, &first);
    }
    out->plan = shape.plan;
    if (err)
        return error_set(error, err, "%s", first.text);
    out->drives = o->paced_count;
    out->packed_skip = shape.packed_skip;
    count_trunk(out, &shape);
    count_rest(out, &shape, c, o->parts != NULL);
    out->read_bytes =
        out->trunk_bytes + out->expert_bytes + out->embed_bytes;
    if (o->layout != K3_SHARDS)
        spread(out, o);
    out->whole_bytes = shape.tiles->payload_bytes + out->expert_bytes +
                       out->embed_bytes;
    out->io_s = token_io_s(out, o->paced);
    k3_shape_free(&shape);
    return 0;
}

double token_io_s(const struct token_cost *t, const struct paced_drive *drive)
{
    double max = 0;
    for (uint32_t d = 0; d < t->drives; d++) {
        double s = (double)t->drive_bytes[d] / (double)drive[d].bytes_per_s;
        max = s > max ? s : max;
    }
    return max;
}

uint64_t token_weight_bytes(const struct config *c)
{
    uint64_t bytes = config_moe_layers(c) * c->top_k * expert_bytes(c);
    for (int layer = TENSOR_MODEL_LEVEL; layer < (int)c->layers; layer++)
        for (int r = 0; r < T_COUNT; r++) {
            enum tensor_role role = (enum tensor_role)r;
            uint32_t rows, cols;
            if (role == T_EMBED || !tensor_in_layer(role, c, layer))
                continue;
            tensor_shape(role, c, layer, &rows, &cols);
            bytes += (uint64_t)rows * cols *
                     tensor_dtype_bytes(tensor_dtype(role));
        }
    return bytes;
}

double token_compute_s(const struct config *c)
{
    return (double)token_weight_bytes(c) / TOKEN_MEMORY_BYTES;
}
