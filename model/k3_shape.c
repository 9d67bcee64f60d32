#include "model/k3_shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ckpt.h"
#include "model/k3_guess.h"
#include "model/k3_internal.h"
#include "model/k3_limits.h"
#include "model/layout.h"

enum {
    PROGRAM_BYTES = 24 << 20, /* code, libraries, stacks, rings, small heap */
    EXPERT_HEAP = 128,        /* of checkpoint and cache tables, an expert */
    VOCAB_HEAP = 160,         /* of the tokenizer, an id */
    TILE_HEAP = 512,
    FRAME_HEAP = 320,         /* of loads and cache, a frame */
    THREAD_HEAP = 256 << 10,
    DRAFT_SHARE = 16,  /* drafts may take so much of what is above the floor */
    DRAFT_READS = 100, /* ... and make a pass read so much more */
};

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
    if (!o->kernel_repeat)
        o->kernel_repeat = 1;
}

/* ---- where tensors are, with or without a checkpoint ---- */

static int from_ckpt(const void *arg, int layer, enum tensor_role role,
                     struct extent *out)
{
    return ckpt_tensor(arg, layer, role, out);
}

/* ---- sizes ---- */

uint64_t k3_smalls_bytes(const struct tiles *t)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct tile_piece *p = &t->piece[t->first_piece[i]];
        if (!tiles_small((enum tensor_role)p->role))
            continue;
        uint64_t bytes = 0; /* a layer may have one small tile a file */
        for (uint32_t j = i; j < t->count &&
             t->piece[t->first_piece[j]].layer == p->layer; j++)
            if (tiles_small((enum tensor_role)
                                t->piece[t->first_piece[j]].role))
                bytes += t->tile[j].payload_bytes + T_COUNT * 64ull;
        most = bytes > most ? bytes : most;
    }
    return (most + BLOCK_PAGE - 1) / BLOCK_PAGE * BLOCK_PAGE;
}

static uint64_t frame_of_experts(const struct ckpt *ckpt,
                                 const struct config *c)
{
    uint64_t most = 0;
    for (uint32_t l = c->first_dense; l < c->layers; l++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct load load;
            uint32_t at[EXPERT_TENSORS];
            uint64_t bytes = k3_place_expert(ckpt, l, e, &load, at);
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* The drive of each file, numbered as the reader does: a drive is what has one
 * st_dev. Those beyond the most the reader takes for one, which no plan knows
 * of. */
static int find_drives(uint32_t *drive, uint32_t *drives,
                       const struct ckpt *ckpt, struct why *why)
{
    dev_t seen[PLAN_DRIVES_MAX];
    struct stat st;
    for (uint32_t f = 0; f < ckpt_files(ckpt); f++) {
        const char *path = ckpt_path(ckpt, f);
        if (stat(path, &st))
            return why_set(why, -errno, "%s: %s", path, strerror(errno));
        uint32_t d = 0;
        while (d < *drives && seen[d] != st.st_dev)
            d++;
        if (d == PLAN_DRIVES_MAX)
            return why_set(why, -ENOTSUP, "%s: the shards are on more than the "
                           "%d file systems that are served", path,
                           PLAN_DRIVES_MAX);
        if (d == *drives)
            seen[(*drives)++] = st.st_dev;
        drive[f] = d;
    }
    return 0;
}

/* What a row reads of experts from each drive, all chosen equally often. */
static void expect_experts(struct plan_input *in, const struct ckpt *ckpt,
                           const struct layout *layout, const struct config *c,
                           const uint32_t *drive)
{
    double share = (double)c->top_k / (double)c->experts;
    memset(in->expert_bytes, 0, sizeof in->expert_bytes);
    for (uint32_t l = c->first_dense; l < c->layers; l++)
        for (uint32_t e = 0; e < c->experts; e++) {
            struct extent at[EXPERT_TENSORS];
            if (ckpt)
                ckpt_expert(ckpt, l, e, at);
            else
                layout_expert(layout, l, e, at);
            uint32_t d = drive ? drive[at[0].file] : at[0].file % in->drives;
            in->expert_bytes[d] += share * (double)expert_bytes(c);
        }
}

static int plan_tiles(struct k3_shape *s, const struct ckpt *ckpt,
                      const struct layout *layout, const struct config *c,
                      const struct k3_options *o, struct why *why)
{
    struct plan_input *in = &s->input;
    uint32_t *drive = NULL; /* of a file; NULL: file mod drives */
    in->drives = o->paced_count ? o->paced_count : !ckpt;
    if (!in->drives) {
        drive = calloc(ckpt_files(ckpt), sizeof *drive);
        int err = drive ? find_drives(drive, &in->drives, ckpt, why)
                        : why_set(why, -ENOMEM, "no memory for a plan");
        if (err) {
            free(drive);
            return err;
        }
    }
    for (uint32_t t = 0; t < s->tiles->count; t++) {
        const struct stream_tile *tile = &s->tiles->tile[t];
        const struct tile_piece *piece =
            &s->tiles->piece[s->tiles->first_piece[t]];
        uint32_t file = s->tiles->segment[tile->first_segment].file;
        s->plan_tile[t] = (struct plan_tile){
            .frame_bytes = tile->frame_bytes,
            .payload_bytes = tile->payload_bytes,
            .drive = drive ? drive[file] : file % in->drives,
            .always = piece->layer < 0 &&
                      tiles_small((enum tensor_role)piece->role),
        };
    }
    expect_experts(in, ckpt, layout, c, drive);
    free(drive);
    in->tiles = s->plan_tile;
    in->tile_count = s->tiles->count;
    for (uint32_t d = 0; d < o->paced_count; d++)
        in->rate[d] = (double)o->paced[d].bytes_per_s;
    return 0;
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
                        (uint64_t)threads * THREAD_HEAP +
                        o->heap_bytes +
                        k3_guess_bytes(s->prefetch, config_moe_layers(c),
                                       c->experts, c->hidden);
    in->state_bytes = s->state.bytes;
    in->sequences = o->sequences;
    in->scratch_bytes =
        scratch.fixed_bytes + 2 * k3_smalls_bytes(s->tiles);
    in->row_bytes = scratch.row_bytes;
    in->rows = o->rows;
    in->expert_frame_bytes = s->expert_frame_bytes;
    in->expert_blocks = (uint32_t)blocks;
    in->expert_layers = config_moe_layers(c);
    in->top_k = c->top_k;
    in->ring_least_bytes = o->ring_bytes;
    in->keeps_experts = strcmp(o->policy, "none") != 0;
    for (uint32_t t = 0; t < s->tiles->count; t++) {
        const struct tile_piece *piece =
            &s->tiles->piece[s->tiles->first_piece[t]];
        s->plan_tile[t].first =
            piece->role == T_ROUTER && !strcmp(s->prefetch, "gate");
    }
}

/* Guesses pay where the trunk is resident and the drive waits for routers; with
 * `auto` the plan is made for them and, if the trunk does not fit, without. */
static int plan_guesses(struct k3_shape *s, const struct config *c,
                        const struct k3_options *o, uint32_t threads)
{
    bool choose = !strcmp(o->prefetch, "auto");
    s->prefetch = choose ? "gate" : o->prefetch;
    for (;;) {
        plan_sizes(s, c, o, threads);
        int err = plan_make(&s->plan, s->resident, &s->input);
        if (!choose || (!err && !s->plan.ring_bytes))
            return err;
        s->prefetch = "none";
        choose = false;
    }
}

/* Memory that draft rows may take, given a plan without them: none but what is
 * left over, or what makes a pass read hardly more. */
static uint64_t draft_memory(const struct k3_shape *s, const struct config *c)
{
    const struct plan *p = &s->plan;
    uint64_t experts = (uint64_t)p->sequences * c->top_k;
    experts = experts < c->experts ? experts : c->experts;
    uint64_t pass_bytes =
        p->streamed_payload_bytes +
        experts * config_moe_layers(c) * expert_bytes(c);
    uint64_t left = p->budget_bytes - p->total_bytes;
    uint64_t most = (p->budget_bytes - p->floor_bytes) / DRAFT_SHARE;
    uint64_t bytes = pass_bytes / DRAFT_READS;
    bytes = bytes > left ? bytes : left;
    return bytes < most ? bytes : most;
}

int k3_shape_plan(struct k3_shape *s, const struct config *c,
                  const struct k3_options *o, uint32_t threads)
{
    struct k3_options granted = *o;
    granted.drafts = 0;
    int err = plan_guesses(s, c, &granted, threads);
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
    uint64_t room = draft_memory(s, c) / each;
    granted.drafts = room < o->drafts ? (uint32_t)room : o->drafts;
    if (granted.rows < 1 + granted.drafts)
        granted.rows = 1 + granted.drafts;
    s->drafts = granted.drafts;
    err = plan_guesses(s, c, &granted, threads);
    s->plan.floor_bytes = floor_bytes;
    return err;
}

int k3_shape_of(struct k3_shape *s, const struct ckpt *ckpt,
                const struct config *c, const struct k3_options *o,
                uint32_t threads, struct why *why)
{
    struct tiles_source source = { .tensor = from_ckpt, .arg = ckpt };
    struct layout *layout = NULL;
    memset(s, 0, sizeof *s);
    if (c->top_k > K3_TOP_K_MAX)
        return why_set(why, -ENOTSUP, "num_experts_per_token is %" PRIu32
                       ", at most %d are served", c->top_k, K3_TOP_K_MAX);
    if (expert_bytes(c) > INT32_MAX)
        return why_set(why, -ENOTSUP, "an expert of %" PRIu64 " bytes is above "
                       "the 2 GiB that are served", expert_bytes(c));
    state_shape(&s->state, c, o->context);
    if (s->state.bytes > INT64_MAX / 2 / o->sequences)
        return why_set(why, -ENOTSUP, "the state of %" PRIu32 " sequences of %"
                       PRIu32 " positions is too large", o->sequences,
                       o->context);
    if (!ckpt) {
        if (layout_open(&layout, c))
            return why_set(why, -ENOMEM, "no memory for a plan");
        source = (struct tiles_source){ layout_tensor, layout };
    }
    s->expert_frame_bytes = ckpt ? frame_of_experts(ckpt, c)
                                 : layout_expert_frame_bytes(layout);
    int err = tiles_build(&s->tiles, &source, c, why);
    if (err) {
        layout_close(layout);
        return err;
    }
    s->plan_tile = calloc(s->tiles->count, sizeof *s->plan_tile);
    s->resident = calloc(s->tiles->count, sizeof *s->resident);
    if (!s->plan_tile || !s->resident) {
        err = why_set(why, -ENOMEM, "no memory for a plan");
    } else {
        err = plan_tiles(s, ckpt, layout, c, o, why);
        if (!err)
            err = k3_shape_plan(s, c, o, threads);
        if (err == -ENOBUFS)
            why_set(why, err, "a memory budget of %" PRIu64 " bytes is below "
                    "the floor of %" PRIu64 " bytes (%.2f GiB) for this model "
                    "and a context of %" PRIu32, o->memory_bytes,
                    s->plan.floor_bytes,
                    (double)s->plan.floor_bytes / 0x1p30, o->context);
    }
    layout_close(layout);
    if (err)
        k3_shape_free(s);
    return err;
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
            struct why *why)
{
    struct k3_options all = *o;
    struct config c;
    struct k3_shape s;
    k3_option_defaults(&all);
    memset(plan, 0, sizeof *plan);
    int err = config_load(&c, dir, why);
    if (err)
        return err;
    err = k3_shape_of(&s, NULL, &c, &all, all.threads ? all.threads : 1, why);
    *plan = s.plan;
    k3_shape_free(&s);
    config_free(&c);
    return err;
}
