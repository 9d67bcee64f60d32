/* open.c - from a folder and a budget to a session, and back. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/kern.h"
#include "io/host.h"
#include "model/k3/k3_internal.h"
#include "model/k3/threads.h"
#include "model/k3/limits.h"
#include "model/k3/prefetch.h"
#include "model/k3/rates.h"
#include "model/k3/shape.h"

enum {
    RATE_UNKNOWN = 1000000000, /* bytes a second, when none was measured */
    MEASURE_IN_FLIGHT = 32 << 20,
    TIMING_SHARE = 4,          /* of the budget, to time decoding in */
    TIMING_BYTES = 192 << 20,  /* at most: more than a cache holds */
};

const char *k3_file_path(const struct k3 *k, uint32_t file)
{
    return file < weights_files(&k->weights) ? weights_path(&k->weights, file)
                                             : k->o.guest->path;
}

static uint32_t files_of(const struct k3 *k)
{
    return weights_files(&k->weights) + (k->o.guest != NULL);
}

/* These, then the copies of shards; NULL: no memory. */
static const char **list_files(const struct k3 *k)
{
    uint32_t own = files_of(k), files = own + k->mirrors.count;
    const char **path = calloc(files, sizeof *path);
    for (uint32_t f = 0; path && f < files; f++)
        path[f] = f < own ? k3_file_path(k, f) : k->mirrors.path[f - own];
    return path;
}

/* [2][files]: what each is a copy of, and the number of its drive: with mirrors
 * that of its folder, 0 for the model's own; NULL: no memory. */
static uint32_t *list_copies(const struct k3 *k, uint32_t files)
{
    uint32_t own = files - k->mirrors.count;
    uint32_t *of = calloc(2 * (size_t)files, sizeof *of);
    for (uint32_t f = 0; of && f < files; f++) {
        uint32_t *place = of + files;
        of[f] = f < own ? f : k->mirrors.of[f - own];
        if (f >= own)
            place[f] = k->mirrors.copy[f - own];
        else if (!k->mirrors.count)
            place[f] = f < weights_files(&k->weights)
                           ? weights_place(&k->weights, f)
                           : f;
    }
    return of;
}

static int open_reader(struct k3 *k, struct error *error)
{
    uint32_t bad = 0, files = files_of(k) + k->mirrors.count;
    const char **path = list_files(k);
    uint32_t *copy_of = list_copies(k, files);
    if (!path || !copy_of) {
        free(path);
        free(copy_of);
        return error_set(error, -ENOMEM, "no memory for the list of shards");
    }
    struct reader_options ro = {
        .method = k->o.io, .paths = path, .files = files,
        .chunk_bytes = K3_CHUNK_BYTES, .arena = k->arena, .paced = k->o.paced,
        .paced_count = k->o.paced_count, .place = copy_of + files,
        .copy_of = k->mirrors.count ? copy_of : NULL, .fault = k->o.fault,
        .in_flight_bytes = k->o.in_flight_bytes,
        .realtime = k->o.realtime,
    };
    int err = reader_open(&k->reader, &ro, &bad);
    if (err)
        error_set(error, err, "%s %s: %s",
                  bad < files ? path[bad] : "the reader",
                  bad < files ? "cannot be opened for reading" : "cannot start",
                  strerror(-err));
    free(path);
    free(copy_of);
    return err;
}

/* Allocate the arena and take states and scratch from it. */
static int take_arena(struct k3 *k, struct error *error)
{
    const struct plan *p = &k->flow.plan;
    struct tiles *t = k->flow.tiles;
    uint64_t bytes = p->total_bytes - p->program_bytes;
    int err = arena_open(&k->arena, bytes);
    if (err)
        return error_set(error, err,
                         "%" PRIu64 " bytes of memory could not be "
                         "had: %s",
                         bytes, strerror(-err));
    k->state = arena_take(k->arena, p->state_bytes, BLOCK_PAGE);
    uint8_t *scratch = arena_take(k->arena, p->scratch_bytes, BLOCK_PAGE);
    if (p->guest_bytes)
        k->guest = arena_take(k->arena, p->guest_bytes, BLOCK_PAGE);
    assert(k->state && scratch && (k->guest || !p->guest_bytes));
    k3_scratch_cut(&k->s, scratch, &k->c, &k->o, team_threads(k->team),
                   p->rows);
    k->vectors.buffer = scratch + p->scratch_bytes - 2 * k3_vectors_bytes(t);
    k->model_vectors.buffer = k->vectors.buffer + k3_vectors_bytes(t);
    return 0;
}

static uint64_t bytes_per_s(const struct k3 *k)
{
    struct reader_facts f;
    reader_facts(k->reader, &f);
    uint64_t rate = f.paced_bytes_per_s ? f.paced_bytes_per_s
                                        : f.raw_bytes_per_s;
    return rate ? rate : RATE_UNKNOWN;
}

static void place_expert(void *arg, uint32_t layer, uint32_t expert,
                         struct load *load)
{
    struct k3 *k = arg;
    weights_place_expert(&k->weights, &k->form, layer + k->c.first_dense,
                         expert, load);
    load->object = EVENT_EXPERT | (layer * k->c.experts + expert);
}

static int open_flow(struct k3 *k, uint64_t frame_bytes, struct error *error)
{
    const struct plan *p = &k->flow.plan;
    struct tiles *t = k->flow.tiles;
    uint64_t frames = (uint64_t)p->expert_frames + p->staging_frames;
    struct tiles_slice embedding[TILES_SLICES_MAX];
    struct flow_options fo = {
        .reader = k->reader, .bytes_per_s = (double)bytes_per_s(k),
        .expert_frame_bytes = frame_bytes, .embed_frame = k->s.embed,
        .embed_frame_stride = k->s.embed_frame_bytes, .ids = k->s.ids,
        .place = place_expert, .place_arg = k,
        .landed = k->coded ? coded_landed : NULL, .embedding = embedding,
    };
    fo.embedding_slices = weights_slices(&k->weights, TENSOR_MODEL_LEVEL,
                                         T_EMBED, embedding);
    assert(fo.embedding_slices);
    if (p->ring_bytes)
        fo.ring = arena_take(k->arena, p->ring_bytes, BLOCK_PAGE);
    for (uint32_t i = 0; i < t->count; i++)
        if (k->flow.resident[i]) {
            t->tile[i].home =
                arena_take(k->arena, t->tile[i].frame_bytes, BLOCK_PAGE);
            assert(t->tile[i].home);
        }
    if (frames)
        fo.expert_frames =
            arena_take(k->arena, frames * frame_bytes, BLOCK_PAGE);
    assert((fo.ring || !p->ring_bytes) && (fo.expert_frames || !frames));
    k->error = error;
    int err = flow_open(&k->flow, &fo, error);
    if (!err)
        err = coded_decode_resident(k);
    return err ? err : k3_gate_open(&k->gate, k, error);
}

static int open_tables(struct k3 *k, struct error *error)
{
    uint32_t count[2] = { 0, 0 };
    k->index_in_kind = calloc(k->c.layers, sizeof *k->index_in_kind);
    if (!k->index_in_kind)
        return error_set(error, -ENOMEM, "no memory for the table of layers");
    for (uint32_t l = 0; l < k->c.layers; l++)
        k->index_in_kind[l] = count[config_is_mla(&k->c, l)]++;
    return 0;
}

static void note_coded(void *arg, const char *text)
{
    struct k3 *k = arg;
    const uint32_t room = sizeof k->coded_note / sizeof *k->coded_note;
    if (k->coded_notes < room)
        snprintf(k->coded_note[k->coded_notes++], sizeof *k->coded_note, "%s",
                 text);
}

static void note_skipped(struct k3 *k, uint32_t skip)
{
    struct error text = { 0 };
    k->o.packed_skip = skip;
    if (!skip)
        return;
    error_set(&text, -ENOTSUP, "%s: coded %s are on a drive so slow that the "
              "shards are read faster: they are not used", k->sidecars.dir,
              skip == SIDECAR_SCALES  ? "scales"
              : skip == SIDECAR_TRUNK ? "weights of the trunk"
                                      : "weights");
    note_coded(k, text.text);
}

/* Bytes a second of the drives, where it matters for the plan: sidecars lie on
 * another one than the shards. As simulated ones they are known. */
static int measure_drives(struct k3 *k, struct error *error)
{
    struct reader_facts f;
    uint32_t bad = 0, files = weights_files(&k->weights);
    if (k->o.paced_count || k->parts || !coded_elsewhere(&k->sidecars, k->ckpt))
        return 0;
    const char **path = list_files(k);
    struct reader *r = NULL;
    struct reader_options ro = { .method = k->o.io, .paths = path,
                                 .files = files,
                                 .in_flight_bytes = MEASURE_IN_FLIGHT };
    int err = path ? reader_open(&r, &ro, &bad) : -ENOMEM;
    if (err) {
        error_set(error, err, "%s: %s",
                  path && bad < files ? path[bad] : "the reader",
                  strerror(-err));
    } else {
        reader_facts(r, &f);
        for (uint32_t d = 0; d < f.drives; d++)
            k->drive_rate[d] = (double)f.drive[d].raw_bytes_per_s;
        k->o.drive_rate = k->drive_rate;
    }
    reader_close(r);
    free(path);
    return err;
}

/* The plan again, with what decoding costs on this machine. */
static int time_decoding(struct k3 *k, struct k3_shape *shape)
{
    uint64_t bytes = shape->plan.budget_bytes / TIMING_SHARE;
    if (!weights_coded(&k->weights) || k->o.resident != K3_RESIDENT_AUTO)
        return 0;
    bytes = bytes < TIMING_BYTES ? bytes : TIMING_BYTES;
    if (bytes > shape->tiles->decoded_bytes)
        bytes = shape->tiles->decoded_bytes;
    int err = decode_time_measure(&k->decode, &k->kern, k->team, bytes);
    if (err) /* it is only a better plan */
        return 0;
    k->o.decode = &k->decode;
    return k3_shape_plan(shape, &k->c, &k->o, team_threads(k->team));
}

/* What several processes cannot do: each has rows of all. */
static int check_owned(const struct k3 *k, struct error *error)
{
    if (!strcmp(k->o.prefetch, "gate"))
        return error_set(error, -ENOTSUP, "--prefetch gate needs whole "
                         "routers: several processes have rows of them");
    if (k->o.guest)
        return error_set(error, -ENOTSUP, "--drafter needs the whole head: "
                         "several processes have rows of it");
    if (k->o.packed && strcmp(k->o.packed, "off") &&
        strcmp(k->o.packed, "auto"))
        return error_set(error, -ENOTSUP, "several processes read shards, or "
                         "parts, which are coded: --packed is auto or off");
    return 0;
}

/* The parts, or the shards and their coded weights. */
static int open_weights(struct k3 *k, const char *dir, struct error *error)
{
    int err = k->o.part_dirs
                  ? parts_open(&k->parts, k->o.part_dir, k->o.part_dirs,
                               k->o.owned, &k->c, error)
                  : ckpt_open(&k->ckpt, dir, &k->c, error);
    if (err)
        return err;
    k->o.sidecars = k->parts ? NULL : &k->sidecars;
    k->o.parts = k->parts;
    if (k->parts && k->o.owned) { /* they say whose the rows are */
        k->owned = *k->o.owned;
        k->owned.cuts = parts_cuts_of(k->parts, k->o.owned);
        k->o.owned = &k->owned;
    }
    if (k->o.owned)
        err = check_owned(k, error);
    else if (!k->parts)
        err = sidecars_open(&k->sidecars, k->o.packed ? k->o.packed : "off",
                            dir, &k->c, k->ckpt, note_coded, k, error);
    k->weights = weights_of(&k->o, &k->c, k->ckpt, NULL);
    weights_form(&k->form, &k->weights);
    return err;
}

/* Config, checkpoint, tiles and plan: no weight is read. */
static int open_model(struct k3 *k, const char *dir, struct error *error)
{
    int err = config_load(&k->c, dir, error);
    if (err)
        return err;
    if (k->o.mla_latent_eps > 0)
        k->c.mla_latent_eps = k->o.mla_latent_eps;
    return open_weights(k, dir, error);
}

static int open_plan(struct k3 *k, const char *dir, struct k3_shape *shape,
                     struct error *error)
{
    *shape = (struct k3_shape){ 0 };
    int err = open_model(k, dir, error);
    err = k3_agree_model(k, err, error);
    if (!err && k->o.mirrors && !k->ckpt)
        err = error_set(error, -EINVAL, "%s: has parts, and mirrors are copies "
                        "of shards", dir);
    if (!err)
        err = mirrors_find(&k->mirrors, k->ckpt, k->o.mirror, k->o.mirrors,
                           note_coded, k, error);
    k->o.layout = k->mirrors.count ? K3_MIRRORS : K3_SHARDS;
    if (!err)
        err = measure_drives(k, error);
    if (!err)
        err = k3_shape_of(shape, k->ckpt, &k->c, &k->o, team_threads(k->team),
                          error);
    if (!err)
        err = time_decoding(k, shape);
    err = k3_agree_plan(k, shape, err, error);
    if (err) {
        k3_shape_free(shape);
        return err;
    }
    k->shape = shape->state;
    k->expert_read_bytes = shape->expert_read_bytes;
    k->o.prefetch = shape->prefetch;
    note_skipped(k, shape->packed_skip);
    k->weights = weights_of(&k->o, &k->c, k->ckpt, NULL);
    k->o.drafts = shape->drafts;
    k->guest_resident = shape->guest_resident;
    err = flow_prepare(&k->flow, shape, &k->c, &k->o, shape->plan.rows, error);
    if (!err)
        err = coded_open(&k->coded, k, error);
    if (!err && k->o.planned)
        err = k->o.planned(k->o.planned_arg, k, error);
    return err;
}

uint32_t k3_threads_or_default(uint32_t threads)
{
    struct host host;
    if (threads)
        return threads;
    host_read(&host, "");
    return host_threads(&host, team_cores());
}

int k3_open(struct k3 **out, const char *dir, const struct k3_options *o,
            struct error *error)
{
    *out = NULL;
    struct k3 *k = calloc(1, sizeof *k);
    if (!k)
        return error_set(error, -ENOMEM, "no memory for a session");
    k->o = *o;
    k3_option_defaults(&k->o);
    k->flow.ops = &k3_ops;
    k->flow.arg = k;
    struct k3_shape shape;
    int err = team_open(&k->team, k3_threads_or_default(o->threads));
    if (err)
        error_set(error, err, "the threads could not be started: %s",
                  strerror(-err));
    kern_init(&k->kern, o->isa ? o->isa - 1 : ISA_COUNT - 1);
    if (!err)
        err = k3_announce(k, error);
    if (!err)
        err = open_plan(k, dir, &shape, error);
    if (!err)
        err = open_tables(k, error);
    if (!err)
        err = take_arena(k, error);
    if (!err)
        err = open_reader(k, error);
    if (!err)
        err = open_flow(k, shape.expert_frame_bytes, error);
    if (!err)
        err = k3_shared_open(k, error);
    k3_share_states(k);
    err = k3_meet(k, err, 0, NULL, error);
    if (err) {
        k3_close(k);
        return err;
    }
    for (uint32_t s = 0; s < k->o.sequences; s++)
        state_reset(k->state + s * k->shape.bytes, &k->shape);
    k->open = true;
    *out = k;
    return 0;
}

void k3_close(struct k3 *k)
{
    if (!k)
        return;
    k3_shared_close(k);
    k3_gate_close(k->gate);
    flow_close(&k->flow);
    reader_close(k->reader);
    arena_close(k->arena);
    team_close(k->team);
    coded_close(k->coded);
    sidecars_close(&k->sidecars);
    mirrors_free(&k->mirrors);
    ckpt_close(k->ckpt);
    parts_close(k->parts);
    config_free(&k->c);
    free(k->index_in_kind);
    free(k);
}

const struct config *k3_config(const struct k3 *k)
{
    return &k->c;
}

const struct weights *k3_weights(const struct k3 *k)
{
    return &k->weights;
}

const struct plan *k3_plan_of(const struct k3 *k)
{
    return &k->flow.plan;
}

const struct k3_options *k3_options_of(const struct k3 *k)
{
    return &k->o;
}

uint32_t k3_rows(const struct k3 *k)
{
    return k->flow.plan.rows;
}

uint32_t k3_drafts(const struct k3 *k)
{
    return k->o.drafts;
}

uint32_t k3_threads(const struct k3 *k)
{
    return team_threads(k->team);
}

struct flow *k3_flow(struct k3 *k)
{
    return &k->flow;
}

void k3_set_readahead(struct k3 *k, uint64_t passes)
{
    k3_say(k, SAID_READAHEAD, passes, 0, NULL);
    flow_set_readahead(&k->flow, passes);
}

const float *k3_logits(const struct k3 *k, uint32_t i)
{
    return k->s.logits + (size_t)i * k->c.vocab;
}

void k3_reset(struct k3 *k, uint32_t sequence)
{
    k3_say(k, SAID_RESET, sequence, 0, NULL);
    state_reset(k->state + sequence * k->shape.bytes, &k->shape);
    k3_prefetch_forget(&k->flow, sequence);
}

void k3_cancel(struct k3 *k)
{
    atomic_store(&k->flow.cancel, true);
}

struct stream *k3_stream(struct k3 *k)
{
    return k->flow.stream;
}

uint64_t k3_in_flight_budget(const struct k3 *k, uint32_t drive)
{
    return reader_in_flight_budget(k->reader, drive);
}

const struct tiles *k3_tiles(const struct k3 *k)
{
    return k->flow.tiles;
}

const struct k3_totals *k3_last(const struct k3 *k)
{
    return &k->flow.last;
}

static void count_kept(const struct flow *f, struct k3_facts *out)
{
    for (uint32_t i = 0; i < f->tiles->count; i++) {
        const struct tile_piece *p = tiles_first_piece(f->tiles, i);
        struct k3_kept *kept =
            step_decodes_first(&f->tiles->steps.step[p->step])
                ? &out->kept_rows
                : &out->kept_products;
        if (f->resident[i]) {
            kept->decoded += f->decoded[i];
            kept->coded += p->block != NULL;
        }
    }
}

void k3_facts(struct k3 *k, struct k3_facts *out)
{
    struct arena_facts arena;
    memset(out, 0, sizeof *out);
    memcpy(out->totals, k->flow.totals, sizeof out->totals);
    if (k->flow.fetch)
        out->experts = fetch_counts(k->flow.fetch);
    out->coded_files = k->sidecars.used;
    out->parts = k->parts ? k->parts->cuts.parts : 0;
    out->trunk_bytes = k->flow.tiles->payload_bytes;
    out->trunk_decoded_bytes = k->flow.tiles->decoded_bytes;
    out->expert_bytes = k->expert_read_bytes;
    out->expert_decoded_bytes =
        config_moe_layers(&k->c) ? owned_expert_bytes(k->o.owned, &k->c) : 0;
    out->packed_skip = k->o.packed_skip;
    out->mended = k->mended;
    count_kept(&k->flow, out);
    for (int p = 0; p < K3_PHASES; p++)
        out->decoded_bytes[p] = flow_decoded_bytes(&k->flow,
                                                   &k->flow.totals[p]);
    out->decode = k->o.decode;
    out->coded_notes = k->coded_notes;
    for (uint32_t i = 0; i < k->coded_notes; i++)
        out->coded_note[i] = k->coded_note[i];
    reader_facts(k->reader, &out->reader);
    arena_facts(k->arena, &arena);
    out->resident_read_bytes = k->flow.plan.resident_payload_bytes;
    out->huge_page_share = arena.huge_page_share;
    out->arena_note = arena.note;
    out->nodes = arena.nodes;
    out->threads = team_threads(k->team);
    out->drives = reader_drives(k->reader);
    out->isa = isa_name(k->kern.isa);
    out->policy = k->o.policy;
    out->prefetch = k->o.prefetch;
}
