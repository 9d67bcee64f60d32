#include "model/k3/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ckpt/ckpt.h"
#include "model/ckpt/figure.h"
#include "model/ckpt/layout.h"
#include "model/k3/k3_internal.h"
#include "model/k3/limits.h"
#include "model/k3/prefetch.h"
#include "model/k3/rates.h"
#include "model/k3/weights.h"

enum {
    PROGRAM_BYTES = 24 << 20, /* code, libraries, stacks, rings, small heap */
    PEERS_BYTES = 32 << 20,   /* the library that reaches other processes */
    /* Bytes of heap: */
    EXPERT_HEAP = 128,        /* an expert: tables of checkpoint and cache */
    VOCAB_HEAP = 160,         /* an id: the tokenizer */
    TILE_HEAP = 512,          /* a tile */
    FRAME_HEAP = 640,         /* a frame: tables of fetch, stream and cache */
    THREAD_HEAP = 256 << 10,  /* a thread */
    /* Memory for drafts is at most 1/16 of what is above the floor, and what
     * makes a pass read at most 1/100 more, or is left over. */
    DRAFT_SHARE = 16,
    DRAFT_READS = 100,
    GATE_SHARE = 16, /* of the expert frames, that prefetching may cost */
    /* The same where a guest makes drafts: they come true more often. */
    GUEST_SHARE = 2,
    GUEST_READS = 10,
};

/* Resident tiles are kept decoded where coded ones take so many times as long.
 * Decoded, they are half as large again, and the memory would have kept
 * experts. */
static const double decoded_gain = 1.2;
/* Coded weights are left unused where that takes so much of the time. */
static const double skip_gain = 0.97;

_Static_assert(sizeof(struct load) + 64 <= FRAME_HEAP,
               "a load, its places in queues, the cache's entry");

void k3_option_defaults(struct k3_options *o)
{
    if (!o->context)
        o->context = 4096;
    if (!o->sequences)
        o->sequences = 1;
    if (!o->rows)
        o->rows = 1;
    if (o->rows > K3_ROWS_MAX)
        o->rows = K3_ROWS_MAX;
    if (!o->io)
        o->io = "auto";
    if (!o->policy)
        o->policy = cache_policy_name(0, NULL, NULL);
    if (!o->prefetch)
        o->prefetch = "auto";
}

/* ---- sizes ---- */

uint64_t k3_vectors_bytes(const struct tiles *t)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        int32_t layer = tiles_first_piece(t, i)->layer;
        if (!tiles_hold_vectors(t, i))
            continue;
        uint64_t bytes = 0; /* a layer may have one such tile a file */
        for (uint32_t j = i;
             j < t->count && tiles_first_piece(t, j)->layer == layer; j++)
            if (tiles_hold_vectors(t, j))
                bytes += t->tile[j].payload_bytes + T_COUNT * 64ull;
        max = bytes > max ? bytes : max;
    }
    return block_pages(max);
}

static uint64_t frame_of_experts(const struct weights *w,
                                 const struct expert_form *form)
{
    const struct config *c = w->c;
    uint64_t max = 0;
    if (w->layout && !coded_files(w->scales) && !w->owned)
        return layout_expert_frame_bytes(w->layout);
    if (w->parts)
        return form->frame_bytes;
    for (uint32_t l = c->first_dense; l < c->layers; l++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct load load;
            uint64_t bytes = weights_place_expert(w, form, l, e, &load);
            max = bytes > max ? bytes : max;
        }
    return max;
}

/* The drive of each file, numbered as the reader does: files with one st_dev
 * are on one drive. */
static int find_drives(uint32_t *drive, uint32_t *drives,
                       const struct weights *w, struct error *error)
{
    dev_t seen[DRIVES_MAX];
    struct stat st;
    for (uint32_t f = 0; f < weights_files(w); f++) {
        const char *path = weights_path(w, f);
        if (stat(path, &st))
            return error_set(error, -errno, "%s: %s", path, strerror(errno));
        uint32_t d = 0;
        while (d < *drives && seen[d] != st.st_dev)
            d++;
        if (d == DRIVES_MAX)
            return error_set(error, -ENOTSUP,
                             "%s: the shards are on more than the "
                             "%u file systems that are supported",
                             path, DRIVES_MAX);
        if (d == *drives)
            seen[(*drives)++] = st.st_dev;
        drive[f] = d;
    }
    return 0;
}

/* Of simulated drives, and of a plan's. */
static void place_drives(uint32_t *drive, uint32_t drives,
                         const struct weights *w)
{
    for (uint32_t f = 0; f < weights_files(w); f++)
        drive[f] = weights_place(w, f) % drives;
}

/* Bytes of experts that a row reads from each drive, if all experts are chosen
 * equally often. */
static void expect_experts(struct k3_shape *s, const struct weights *w,
                           const uint32_t *drive)
{
    const struct config *c = w->c;
    struct plan_input *in = &s->input;
    double share = (double)c->top_k / (double)c->experts, all = 0;
    memset(in->expert_bytes, 0, sizeof in->expert_bytes);
    for (uint32_t l = c->first_dense; l < c->layers; l++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct load load;
            weights_place_expert(w, &s->form, l, e, &load);
            for (uint32_t i = 0; i < load.segment_count; i++) {
                const struct segment *x = &load.segment[i];
                in->expert_bytes[drive[x->file]] +=
                    share * (double)x->length_bytes;
                all += (double)x->length_bytes;
            }
        }
    uint64_t experts = (uint64_t)config_moe_layers(c) * c->experts;
    s->expert_read_bytes =
        experts ? (uint64_t)(all / (double)experts + 0.5) : 0;
}

static int plan_tiles(struct k3_shape *s, const struct weights *w,
                      const struct k3_options *o, struct error *error)
{
    struct plan_input *in = &s->input;
    uint32_t *drive = calloc(weights_files(w), sizeof *drive);
    if (!drive)
        return error_set(error, -ENOMEM, "no memory for a plan");
    in->drives = o->paced_count;
    if (o->layout != K3_SHARDS)
        in->drives = 1; /* all work as one */
    if (!in->drives && (w->ckpt || w->parts)) {
        int err = find_drives(drive, &in->drives, w, error);
        if (err) {
            free(drive);
            return err;
        }
    } else {
        in->drives = in->drives ? in->drives : 1;
        place_drives(drive, in->drives, w);
    }
    for (uint32_t t = 0; t < s->tiles->count; t++) {
        const struct stream_tile *tile = &s->tiles->tile[t];
        const struct tile_piece *piece = tiles_first_piece(s->tiles, t);
        uint32_t file = s->tiles->segment[tile->first_segment].file;
        s->plan_tile[t] = (struct plan_tile){
            .frame_bytes = tile->frame_bytes,
            .payload_bytes = tile->payload_bytes,
            .drive = drive[file],
            .always = piece->layer < 0 && tiles_hold_vectors(s->tiles, t),
        };
    }
    expect_experts(s, w, drive);
    free(drive);
    in->tiles = s->plan_tile;
    in->tile_count = s->tiles->count;
    for (uint32_t d = 0; d < in->drives && d < o->paced_count; d++)
        in->rate[d] = (double)o->paced[d].bytes_per_s;
    for (uint32_t d = 0; o->drive_rate && d < in->drives; d++)
        in->rate[d] = o->drive_rate[d];
    return 0;
}

/* Would a resident tile be kept decoded, if there is memory? */
static bool wants_decoded(const struct tiles *t, uint32_t tile,
                          const struct k3_options *o)
{
    const struct tile_piece *p = tiles_first_piece(t, tile);
    if (!p->block || o->resident != K3_RESIDENT_AUTO || !o->decode)
        return p->block && o->resident == K3_RESIDENT_DECODED;
    bool first = step_decodes_first(&t->steps.step[p->step]);
    return decode_time_of(o->decode, first, 1) > decoded_gain;
}

static void plan_sizes(struct k3_shape *s, const struct config *c,
                       const struct k3_options *o, uint32_t threads)
{
    struct scratch_size scratch;
    struct plan_input *in = &s->input;
    uint64_t blocks = (uint64_t)config_moe_layers(c) * c->experts;
    k3_scratch_size(c, o, threads, &scratch);
    in->budget_bytes = o->memory_bytes;
    in->program_bytes = PROGRAM_BYTES + blocks * EXPERT_HEAP +
                        (uint64_t)c->vocab * VOCAB_HEAP +
                        (uint64_t)s->tiles->count * TILE_HEAP +
                        (uint64_t)threads * THREAD_HEAP + o->heap_bytes +
                        (o->owned ? PEERS_BYTES : 0) + s->weights_bytes +
                        k3_prefetch_bytes(s->prefetch, config_moe_layers(c),
                                          c->experts, c->hidden);
    in->state_bytes = s->state.bytes;
    in->sequences = o->sequences;
    in->scratch_bytes =
        scratch.fixed_bytes + 2 * k3_vectors_bytes(s->tiles);
    in->row_bytes = scratch.row_bytes;
    in->rows = o->rows;
    in->expert_frame_bytes = s->expert_frame_bytes;
    in->frame_heap_bytes = FRAME_HEAP;
    in->expert_blocks = (uint32_t)blocks;
    in->expert_layers = config_moe_layers(c);
    in->top_k = c->top_k;
    in->ring_min_bytes = o->ring_bytes;
    in->keeps_experts = strcmp(o->policy, "none") != 0;
    for (uint32_t t = 0; t < s->tiles->count; t++) {
        uint32_t step = tiles_first_piece(s->tiles, t)->step;
        s->plan_tile[t].decoded_bytes =
            wants_decoded(s->tiles, t, o) ? tiles_decoded_frame(s->tiles, t)
                                          : 0;
        s->plan_tile[t].first =
            s->tiles->steps.step[step].op == STEP_ROUTE &&
            !strcmp(s->prefetch, "gate");
        if (o->guest && tiles_first_piece(s->tiles, t)->role == T_HEAD)
            s->plan_tile[t].first = true; /* it reads the head once more */
    }
}

/* A byte of the trunk is needed in every pass, one of the guest only when it
 * works, and one of an expert frame less often still: in this order. */
static int plan_with(struct k3_shape *s, const char *prefetch,
                     const struct config *c, const struct k3_options *o,
                     uint32_t threads)
{
    s->prefetch = prefetch;
    plan_sizes(s, c, o, threads);
    s->guest_resident = false;
    if (!o->guest)
        return plan_make(&s->plan, s->resident, &s->input);
    s->input.guest_bytes = o->guest->bytes + o->guest->resident_bytes;
    s->guest_resident = !plan_make(&s->plan, s->resident, &s->input) &&
                        !s->plan.ring_bytes;
    s->plan.floor_bytes -= s->guest_resident ? o->guest->resident_bytes : 0;
    if (s->guest_resident)
        return 0;
    s->input.guest_bytes = o->guest->bytes;
    return plan_make(&s->plan, s->resident, &s->input);
}

/* Prefetches save time where the whole trunk is resident, since the drive then
 * idles until a router has run. `auto` plans with `gate` there, unless its
 * tables would take the place of many experts, as in a small model. */
static int plan_prefetches(struct k3_shape *s, const struct config *c,
                           const struct k3_options *o, uint32_t threads)
{
    bool choose = !strcmp(o->prefetch, "auto");
    int err = plan_with(s, choose ? "none" : o->prefetch, c, o, threads);
    if (!choose || err || s->plan.ring_bytes || o->owned)
        return err; /* a gate needs whole routers */
    uint32_t frames = s->plan.expert_frames;
    err = plan_with(s, "gate", c, o, threads);
    if (!err && !s->plan.ring_bytes &&
        s->plan.expert_frames + 1 + frames / GATE_SHARE >= frames)
        return 0;
    return plan_with(s, "none", c, o, threads);
}

/* Bytes for draft rows, given a plan without them: see DRAFT_SHARE. */
static uint64_t draft_memory(const struct k3_shape *s, const struct config *c,
                             bool guest)
{
    const struct plan *p = &s->plan;
    uint64_t experts = (uint64_t)p->sequences * c->top_k;
    experts = experts < c->experts ? experts : c->experts;
    uint64_t pass_bytes =
        p->streamed_payload_bytes +
        experts * config_moe_layers(c) * s->expert_read_bytes;
    uint64_t left = p->budget_bytes - p->total_bytes;
    uint64_t max = (p->budget_bytes - p->floor_bytes) /
                   (guest ? GUEST_SHARE : DRAFT_SHARE);
    uint64_t bytes = pass_bytes / (guest ? GUEST_READS : DRAFT_READS);
    bytes = bytes > left ? bytes : left;
    return bytes < max ? bytes : max;
}

int k3_shape_plan(struct k3_shape *s, const struct config *c,
                  const struct k3_options *o, uint32_t threads)
{
    struct k3_options granted = *o;
    granted.drafts = 0;
    int err = plan_prefetches(s, c, &granted, threads);
    s->drafts = 0;
    if (err || !o->drafts)
        return err;
    uint64_t floor_bytes = s->plan.floor_bytes;
    struct scratch_size without, with;
    k3_scratch_size(c, &granted, threads, &without);
    k3_scratch_size(c, o, threads, &with);
    uint64_t each = (with.fixed_bytes - without.fixed_bytes) / o->drafts + 1;
    if (o->rows < 1 + o->drafts) /* they bring their rows */
        each += s->input.row_bytes;
    uint64_t room = draft_memory(s, c, o->guest != NULL) / each;
    granted.drafts = room < o->drafts ? (uint32_t)room : o->drafts;
    if (granted.rows < 1 + granted.drafts)
        granted.rows = 1 + granted.drafts;
    s->drafts = granted.drafts;
    err = plan_prefetches(s, c, &granted, threads);
    s->plan.floor_bytes = floor_bytes;
    return err;
}

static int shape_of(struct k3_shape *s, const struct ckpt *ckpt,
                    const struct config *c, const struct k3_options *o,
                    uint32_t threads, struct error *error)
{
    struct tiles_source source;
    struct layout *layout = NULL;
    memset(s, 0, sizeof *s);
    if (c->top_k > K3_TOP_K_MAX)
        return error_set(error, -ENOTSUP,
                         "num_experts_per_token is %" PRIu32
                         ", at most %d are supported",
                         c->top_k, K3_TOP_K_MAX);
    if (expert_bytes(c) > INT32_MAX)
        return error_set(error, -ENOTSUP,
                         "an expert of %" PRIu64 " bytes is above "
                         "the 2 GiB that are supported",
                         expert_bytes(c));
    state_shape_of(&s->state, c, o->context, owned_kda_heads(o->owned, c));
    if (s->state.bytes > INT64_MAX / 2 / o->sequences)
        return error_set(error, -ENOTSUP,
                         "the state of %" PRIu32 " sequences of %" PRIu32
                         " positions is too large",
                         o->sequences, o->context);
    if (!ckpt && !o->parts) {
        if (layout_open(&layout, c))
            return error_set(error, -ENOMEM, "no memory for a plan");
    }
    struct weights w = weights_of(o, c, ckpt, layout);
    source = weights_source(&w);
    weights_form(&s->form, &w);
    s->expert_frame_bytes = frame_of_experts(&w, &s->form);
    s->weights_bytes = weights_memory_bytes(
        &w, (uint64_t)config_moe_layers(c) * c->experts);
    int err = tiles_build(&s->tiles, &source, c, error);
    if (err) {
        layout_close(layout);
        return err;
    }
    s->plan_tile = calloc(s->tiles->count, sizeof *s->plan_tile);
    s->resident = calloc(s->tiles->count, sizeof *s->resident);
    if (!s->plan_tile || !s->resident) {
        err = error_set(error, -ENOMEM, "no memory for a plan");
    } else {
        err = plan_tiles(s, &w, o, error);
        if (!err)
            err = k3_shape_plan(s, c, o, threads);
        if (err == -ENOBUFS)
            error_set(error, err,
                      "a memory budget of %" PRIu64 " bytes is below "
                      "the floor of %" PRIu64
                      " bytes (%s GiB) for this model "
                      "and a context of %" PRIu32,
                      o->memory_bytes, s->plan.floor_bytes,
                      figure((double)s->plan.floor_bytes / 0x1p30).text,
                      o->context);
    }
    layout_close(layout);
    s->packed_skip = o->packed_skip;
    if (err)
        k3_shape_free(s);
    return err;
}

/* How long the drives read for a row, at their rates; 0: one is not known. */
static double read_seconds(const struct k3_shape *s)
{
    const struct plan_input *in = &s->input;
    double worst = 0;
    for (uint32_t d = 0; d < in->drives; d++) {
        double bytes = in->expert_bytes[d];
        if (!(in->rate[d] > 0))
            return 0;
        for (uint32_t t = 0; t < in->tile_count; t++)
            if (in->tiles[t].drive == d && !s->resident[t])
                bytes += (double)in->tiles[t].payload_bytes;
        worst = bytes / in->rate[d] > worst ? bytes / in->rate[d] : worst;
    }
    return worst;
}

/* Sidecars may lie on a slow drive: then more bytes, from the shards, take less
 * time. The shape that reads fastest is kept. */
int k3_shape_of(struct k3_shape *s, const struct ckpt *ckpt,
                const struct config *c, const struct k3_options *o,
                uint32_t threads, struct error *error)
{
    static const uint32_t ways[] = { SIDECAR_SCALES, SIDECAR_TRUNK,
                                     SIDECAR_SCALES | SIDECAR_TRUNK };
    int err = shape_of(s, ckpt, c, o, threads, error);
    if (err || s->input.drives < 2 || !coded_files(o->sidecars) ||
        (o->packed && !strcmp(o->packed, "require")))
        return err;
    double best = read_seconds(s);
    for (uint32_t i = 0; i < sizeof ways / sizeof *ways && best > 0; i++) {
        struct k3_options other = *o;
        struct k3_shape shape;
        other.packed_skip |= ways[i];
        if (other.packed_skip == o->packed_skip ||
            shape_of(&shape, ckpt, c, &other, threads, NULL))
            continue;
        double seconds = read_seconds(&shape);
        if (seconds < skip_gain * best) {
            struct k3_shape worse = *s;
            *s = shape;
            shape = worse;
            best = seconds;
        }
        k3_shape_free(&shape);
    }
    return 0;
}

void k3_shape_free(struct k3_shape *s)
{
    tiles_free(s->tiles);
    free(s->plan_tile);
    free(s->resident);
    s->tiles = NULL;
    s->plan_tile = NULL;
    s->resident = NULL;
}

int k3_plan(struct plan *plan, const char *dir, const struct k3_options *o,
            struct error *error)
{
    struct k3_options all = *o;
    struct config c;
    struct k3_shape s;
    k3_option_defaults(&all);
    memset(plan, 0, sizeof *plan);
    int err = config_load(&c, dir, error);
    if (err)
        return err;
    err = k3_shape_of(&s, NULL, &c, &all, all.threads ? all.threads : 1, error);
    *plan = s.plan;
    k3_shape_free(&s);
    config_free(&c);
    return err;
}
