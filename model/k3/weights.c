#include "model/k3/weights.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "compute/crc32c.h"
#include "model/ckpt/layout.h"
#include "model/k3/coded.h"
#include "model/k3/k3_internal.h"

struct weights weights_of(const struct k3_options *o, const struct config *c,
                          const struct ckpt *ckpt, const struct layout *layout)
{
    return (struct weights){ .c = c, .ckpt = o->parts ? NULL : ckpt,
                             .layout = layout, .parts = o->parts,
                             .owned = o->owned,
                             .sidecars = o->sidecars,
                             .trunk = coded_trunk(o),
                             .scales = coded_scales(o) };
}

/* ---- files ---- */

uint32_t weights_files(const struct weights *w)
{
    if (w->parts)
        return w->parts->files;
    return (w->ckpt ? ckpt_files(w->ckpt) : layout_files(w->layout)) +
           coded_files(w->sidecars);
}

const char *weights_path(const struct weights *w, uint32_t file)
{
    if (w->parts)
        return parts_path(w->parts, file);
    return file < ckpt_files(w->ckpt) ? ckpt_path(w->ckpt, file)
                                      : coded_path(w->sidecars, file);
}

uint32_t weights_place(const struct weights *w, uint32_t file)
{
    return w->parts ? file % w->parts->held : file;
}

const char *weights_path_of(const struct weights *w, int layer,
                            enum tensor_role role)
{
    struct extent e;
    if (w->parts)
        return parts_path(w->parts, parts_file_of(w->parts, layer, role));
    return w->ckpt && !ckpt_tensor(w->ckpt, layer, role, &e)
               ? ckpt_path(w->ckpt, e.file)
               : "checkpoint";
}

int weights_changed(const struct weights *w, struct error *error)
{
    if (w->parts)
        return parts_changed(w->parts, error);
    return w->ckpt ? ckpt_changed(w->ckpt, error) : 0;
}

int weights_identity(struct identity *out, const struct weights *w,
                     struct error *error)
{
    if (!w->parts)
        return identity_of(out, w->ckpt, w->c, error);
    *out = w->parts->model;
    return 0;
}

uint64_t weights_bytes(const struct weights *w)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; w->parts && f < w->parts->files; f++)
        sum += (uint64_t)w->parts->file[f].was.st_size;
    for (uint32_t f = 0; w->ckpt && f < ckpt_files(w->ckpt); f++)
        sum += ckpt_file_size(w->ckpt, f);
    return sum;
}

/* ---- the trunk ---- */

static int from_ckpt(const void *arg, int layer, enum tensor_role role,
                     struct extent *out)
{
    return ckpt_tensor(((const struct weights *)arg)->ckpt, layer, role, out);
}

static int from_layout(const void *arg, int layer, enum tensor_role role,
                       struct extent *out)
{
    return layout_tensor(((const struct weights *)arg)->layout, layer, role,
                         out);
}

/* The small tensors. */
static int from_parts(const void *arg, int layer, enum tensor_role role,
                      struct extent *out)
{
    const struct weights *w = arg;
    uint32_t file;
    const struct part_small *s = parts_small(w->parts, layer, role, &file);
    if (!s)
        return -ENOENT;
    *out = (struct extent){ .file = file, .offset_bytes = s->ref.at,
                            .length_bytes = s->ref.bytes };
    return 0;
}

static uint32_t slices_of_parts(const void *arg, int layer,
                                enum tensor_role role,
                                struct tiles_slice out[TILES_SLICES_MAX])
{
    const struct parts *p = ((const struct weights *)arg)->parts;
    uint32_t n = 0;
    _Static_assert((int)TILES_SLICES_MAX >= (int)CUTS_PARTS_MAX, "one a part");
    for (uint32_t r = p->first; r < p->first + p->held; r++) {
        uint32_t file;
        const struct part_matrix *m = parts_matrix(p, layer, role, r, &file);
        if (!m)
            continue;
        out[n] = (struct tiles_slice){
            .row = m->row, .rows = m->rows,
            .at = { .file = file, .offset_bytes = m->at,
                    .length_bytes = m->bytes } };
        if (m->coded)
            out[n].coded = (struct tiles_coded){
                .file = file, .block_rows = m->block_rows,
                .blocks = m->block_count,
                .block = p->file[file].part->block + m->first_block };
        n++;
    }
    return n;
}

static bool find_coded(const void *arg, const struct extent *e, uint32_t rows,
                       uint32_t cols, struct tiles_coded *out)
{
    return coded_find(((const struct weights *)arg)->trunk, e, rows, cols,
                      out);
}

struct tiles_source weights_source(const struct weights *w)
{
    if (w->parts)
        return (struct tiles_source){ .tensor = from_parts, .arg = w,
                                      .slices = slices_of_parts,
                                      .owned = w->owned };
    return (struct tiles_source){ .tensor = w->ckpt ? from_ckpt : from_layout,
                                  .arg = w, .coded = find_coded,
                                  .coded_arg = w, .owned = w->owned };
}

uint32_t weights_slices(const struct weights *w, int layer,
                        enum tensor_role role,
                        struct tiles_slice out[TILES_SLICES_MAX])
{
    struct tiles_source from = weights_source(w);
    uint32_t cols;
    if (from.slices)
        return from.slices(w, layer, role, out);
    out[0] = (struct tiles_slice){ 0 };
    tensor_shape(role, w->c, layer, &out[0].rows, &cols);
    return from.tensor(w, layer, role, &out[0].at) ? 0 : 1;
}

/* ---- experts ---- */

void weights_form(struct expert_form *f, const struct weights *w)
{
    const struct parts *p = w->parts;
    *f = (struct expert_form){ 0 };
    if (!p || !config_moe_layers(p->c))
        return;
    f->slices = p->held;
    for (uint32_t r = 0; r < f->slices; r++) {
        const struct slice_shape *s = &p->slice[p->first + r];
        f->slot_at[r] = (uint32_t)f->frame_bytes;
        for (uint32_t m = 0; m < SIDECAR_PLANES; m++) {
            uint32_t before = p->slice[p->first].row[m].begin;
            f->row[m][r] = (struct row_range){ s->row[m].begin - before,
                                               s->row[m].end - before };
            f->at[m][r] = f->slot_at[r] + s->weights_at[m];
        }
        f->frame_bytes += block_pages(s->weights_bytes +
                                      p->object_max[p->first + r]);
    }
    for (uint32_t m = 0; m < SIDECAR_PLANES; m++) {
        uint32_t rows, cols;
        expert_shape(2 * m + 1, p->c, &rows, &cols);
        f->plane_at[m] = (uint32_t)f->frame_bytes;
        f->frame_bytes += (uint64_t)f->row[m][f->slices - 1].end * cols;
    }
    f->frame_bytes = block_pages(f->frame_bytes);
    assert(f->frame_bytes <= UINT32_MAX); /* an expert is below 2 GiB */
}

static void place_slices(const struct parts *p, const struct expert_form *form,
                         uint32_t layer, uint32_t expert, struct load *load)
{
    load->segment_count = 0;
    for (uint32_t r = 0; r < form->slices; r++) {
        uint32_t file;
        const struct part_expert *e =
            parts_expert(p, layer, expert, p->first + r, &file);
        if (!e)
            continue;
        struct box_ref ref = slice_ref(e, &p->slice[p->first + r]);
        load->segment[load->segment_count++] = (struct segment){
            .file = file, .at = form->slot_at[r], .offset_bytes = ref.at,
            .length_bytes = ref.bytes };
    }
}

uint64_t weights_place_expert(const struct weights *w,
                              const struct expert_form *form, uint32_t layer,
                              uint32_t expert, struct load *load)
{
    struct extent e[EXPERT_TENSORS];
    _Static_assert((int)BLOCK_SEGMENTS_MAX >= (int)CUTS_PARTS_MAX, "a part");
    if (w->parts) {
        place_slices(w->parts, form, layer, expert, load);
        return form->frame_bytes;
    }
    if (w->ckpt)
        ckpt_expert(w->ckpt, layer, expert, e);
    else
        layout_expert(w->layout, layer, expert, e);
    owned_expert(w->owned, w->c, e);
    return coded_place_expert(w->scales, e, load);
}

/* ---- coding ---- */

bool weights_coded(const struct weights *w)
{
    return w->parts || coded_files(w->sidecars);
}

uint64_t weights_memory_bytes(const struct weights *w, uint64_t experts)
{
    if (!w->parts)
        return coded_memory_bytes(w->sidecars, experts);
    uint64_t bytes = parts_memory_bytes(w->parts) + experts;
    for (uint32_t f = 0; f < w->parts->files; f++)
        bytes += w->parts->file[f].part->head->blocks;
    return block_pages(bytes);
}

/* ---- an expert whose slices came from several drives ---- */

struct landing {
    struct k3 *k;
    const struct load *load;
    uint32_t layer, expert;
    bool check;
    const char *_Atomic wrong[CUTS_PARTS_MAX];
};

/* What is wrong with a slice, or NULL after its scales were decoded. */
static const char *open_slice(const struct landing *j, uint32_t r)
{
    const struct k3 *k = j->k;
    const struct slice_shape *s = &k->parts->slice[k->parts->first + r];
    uint32_t file;
    uint8_t *frame = j->load->frame;
    const struct part_expert *e = parts_expert(
        k->parts, j->layer, j->expert, k->parts->first + r, &file);
    const uint8_t *weights = frame + k->form.slot_at[r];
    const uint8_t *object = weights + s->weights_bytes;
    if (!e)
        return NULL;
    if (j->check && k->o.check_reads == K3_CHECK_ALWAYS &&
        crc32c(0, weights, s->weights_bytes) != e->weights_crc)
        return "the checksum of its weights does not match";
    const char *wrong =
        j->check ? slice_check(object, e, s, k->o.check_reads != K3_CHECK_OFF)
                 : NULL;
    if (wrong)
        return wrong;
    uint8_t *plane[SIDECAR_PLANES];
    for (uint32_t m = 0; m < SIDECAR_PLANES; m++)
        plane[m] = frame + k->form.plane_at[m] +
                   (size_t)k->form.row[m][r].begin * s->plane[m].cols;
    slice_expand(plane, object, e, s);
    return NULL;
}

static void open_some(void *arg, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct landing *j = arg;
    for (size_t r = begin; r < end; r++)
        j->wrong[r] = open_slice(j, (uint32_t)r);
}

static int mend(struct landing *j, uint32_t r)
{
    struct k3 *k = j->k;
    uint32_t file, part = k->parts->first + r;
    const struct part_expert *e = parts_expert(k->parts, j->layer, j->expert,
                                               part, &file);
    struct box_ref ref = slice_ref(e, &k->parts->slice[part]);
    const char *path = parts_path(k->parts, file);
    k->mended++;
    int err = coded_read_again(k, path, ref.at, ref.bytes,
                               j->load->frame + k->form.slot_at[r]);
    const char *wrong = err ? NULL : open_slice(j, r);
    if (wrong)
        return error_set(k->error, -EBADMSG, "%s: the slice at byte %" PRIu64
                         " (expert %" PRIu32 " of layer %" PRIu32 ") is "
                         "damaged: %s; sluice verify finds all, sluice spread "
                         "makes them anew", path, ref.at, j->expert, j->layer,
                         wrong);
    return err;
}

int slices_landed(struct k3 *k, uint32_t layer, uint32_t expert,
                  const struct load *load, bool *known)
{
    struct landing j = {
        .k = k, .load = load, .layer = layer, .expert = expert,
        .check = !*known || k->o.check_reads == K3_CHECK_ALWAYS };
    team_for(k->team, k->form.slices, 1, open_some, &j);
    for (uint32_t r = 0; r < k->form.slices; r++) {
        int err = j.wrong[r] ? mend(&j, r) : 0;
        if (err)
            return err;
    }
    *known = true;
    return 0;
}
