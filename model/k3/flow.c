/* flow.c - the walk along the steps. */
#include "model/k3/flow.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "model/k3/prefetch.h"

/* A place in the table: a step, and the next of its pieces (tiles_use). */
struct place {
    uint32_t step, use;
};

static const struct step *step_at(const struct flow *f, uint32_t step)
{
    return &f->tiles->steps.step[step];
}

/* Pieces of the step that are to be done; none of a matrix of which no row is
 * ours. */
static bool pieces_left(const struct flow *f, const struct place *at)
{
    return at->use < f->tiles->first_use[at->step + 1];
}

/* ---- pieces ---- */

int flow_hold(void *arg, struct flow *f, uint32_t tile, const uint8_t **frame)
{
    (void)arg;
    int err = stream_hold(f->stream, tile, frame);
    if (!err && !f->resident[tile])
        f->trunk_bytes += f->tiles->tile[tile].payload_bytes;
    return err;
}

/* Hold all tiles up to this one. */
static int hold_to(struct flow *f, const struct step *s, uint32_t tile)
{
    while (f->held <= tile) {
        int err = f->ops->hold(f->arg, f, f->held, &f->frame[f->held]);
        if (err)
            return f->ops->failed(f->arg, err, s,
                                  tiles_first_piece(f->tiles, f->held));
        f->held++;
    }
    return 0;
}

static void release_used(struct flow *f, uint32_t use)
{
    while (f->released < f->held && f->tiles->last_use[f->released] <= use)
        stream_release(f->stream, f->released++);
}

static int do_piece(struct flow *f, struct place *at)
{
    const struct step *s = step_at(f, at->step);
    const struct tile_piece *piece = tiles_use(f->tiles, at->use);
    int err = hold_to(f, s, piece->tile);
    if (err)
        return err;
    int64_t begin = stream_now_ns(f->stream);
    err = f->ops->piece(f->arg, s, piece, f->frame[piece->tile]);
    release_used(f, at->use);
    flow_watch_kernel(f, s->kernel, s->layer, begin);
    at->use++;
    return err;
}

/* ---- the embedding ---- */

/* The row whose load has this row's embedding: the first with the same id. Ids
 * outside the vocabulary, as the simulator has, are all different. */
static uint32_t embed_of(const struct flow *f, uint32_t row)
{
    uint32_t id = f->row[row].id;
    for (uint32_t r = 0; r < row && id < f->c->vocab; r++)
        if (f->row[r].id == id)
            return r;
    return row;
}

static int wait_embedding(struct flow *f, const struct step *s,
                          const struct load *load)
{
    for (;;) {
        uint32_t seen = stream_events(f->stream);
        uint32_t state = atomic_load(&load->state);
        if (state == LOAD_READY)
            return 0;
        int err = state == LOAD_FAILED ? load->error
                                       : stream_failure(f->stream).error;
        if (!err)
            err = flow_wait(f, seen, EVENT_EMBEDDING);
        if (err)
            return f->ops->failed(f->arg, err, s, NULL);
    }
}

struct segment flow_embedding_row(const struct flow *f, uint32_t id)
{
    const struct tiles_slice *s = f->embedding;
    uint64_t bytes = 2ull * f->c->hidden;
    while (id - s->row >= s->rows && s < f->embedding + f->embedding_slices - 1)
        s++;
    return (struct segment){
        .file = s->at.file, .length_bytes = bytes,
        .offset_bytes = s->at.offset_bytes + (id - s->row) * bytes };
}

/* Read each distinct row of the table once, if it is ours. */
static int embed(struct flow *f, const struct step *s)
{
    for (uint32_t r = 0; r < f->rows; r++) {
        struct load *load = &f->embed_load[r];
        uint32_t id = f->row[r].id < f->c->vocab ? f->row[r].id : 0;
        if (embed_of(f, r) != r || id < s->own.begin || id >= s->own.end)
            continue;
        load->segment[0] = flow_embedding_row(f, id);
        block_place(&load->segment[0], 0);
        load->segment_count = 1;
        load->object = EVENT_EMBEDDING;
        load->frame = f->embed_frame + r * f->embed_frame_stride;
        atomic_store(&load->urgency, READ_DEMAND);
        stream_post(f->stream, load);
        f->embed_bytes += load->segment[0].length_bytes;
    }
    for (uint32_t r = 0; r < f->rows; r++) {
        const struct load *load = &f->embed_load[embed_of(f, r)];
        uint32_t id = f->row[r].id < f->c->vocab ? f->row[r].id : 0;
        if (id < s->own.begin || id >= s->own.end)
            continue;
        int err = wait_embedding(f, s, load);
        if (!err)
            err = f->ops->embedded(f->arg, r,
                                   load->frame + load->segment[0].at);
        if (err)
            return err;
    }
    return 0;
}

/* ---- experts ---- */

static int choose(struct flow *f, const struct step *s)
{
    uint32_t n;
    int err = f->ops->step(f->arg, s);
    if (err)
        return err;
    f->uses = cache_uses(f->cache, &n);
    f->items = n;
    k3_prefetch_compare(f, s->layer);
    fetch_begin(f->fetch, (uint32_t)f->passes,
                (uint32_t)s->layer - f->c->first_dense, f->uses, n);
    f->ops->requested(f->arg, s);
    return 0;
}

int flow_next(void *arg, struct flow *f, uint32_t *item,
              const struct load **load)
{
    (void)arg;
    return fetch_next(f->fetch, item, load);
}

int flow_wait(struct flow *f, uint32_t seen, uint32_t layer)
{
    struct event e = { .begin_ns = stream_now_ns(f->stream), .object = layer,
                       .kind = EVENT_WAIT_EXPERT };
    if (atomic_load(&f->cancel))
        return -ECANCELED;
    stream_sleep(f->stream, seen);
    e.end_ns = stream_now_ns(f->stream);
    f->wait_expert_ns += e.end_ns - e.begin_ns;
    if (layer == EVENT_EMBEDDING)
        f->wait_embed_ns += e.end_ns - e.begin_ns;
    event_ring_add(f->o->event_ring, EVENT_TRACK_COMPUTE, &e);
    return 0;
}

/* An expert whose rows did not all fit in the last batch: rows from `from` on
 * are left. */
struct rest {
    uint32_t item, from, rows;
    const struct load *load;
};

/* Take rows of experts that have arrived until the batch is full or no expert
 * is left. Returns 0, -ENOENT when all experts of the layer were taken, or an
 * error. */
static int fill_batch(struct flow *f, struct expert_batch *b, struct rest *rest)
{
    b->parts = b->rows = 0;
    while (b->rows < K3_EXPERT_ROWS) {
        if (rest->from == rest->rows) {
            int got = f->ops->next(f->arg, f, &rest->item, &rest->load);
            if (got == 0 || (got == -ENOENT && b->rows))
                return 0;
            if (got < 0)
                return got;
            rest->from = 0;
            rest->rows = f->uses[rest->item].uses;
        }
        uint32_t room = K3_EXPERT_ROWS - b->rows;
        uint32_t rows = rest->rows - rest->from;
        rows = rows < room ? rows : room;
        b->part[b->parts++] = (struct expert_part){
            .item = rest->item, .from = rest->from, .row = b->rows,
            .rows = rows, .last = rest->from + rows == rest->rows,
            .load = rest->load };
        rest->from += rows;
        b->rows += rows;
    }
    return 0;
}

static int do_batch(struct flow *f, const struct step *s,
                    const struct expert_batch *b)
{
    int64_t begin = stream_now_ns(f->stream);
    int err = f->ops->experts(f->arg, s, b);
    flow_watch_kernel(f, s->kernel, s->layer, begin);
    for (uint32_t i = 0; i < b->parts; i++)
        if (b->part[i].last) {
            fetch_done(f->fetch, b->part[i].item);
            f->expert_items++;
        }
    return err;
}

static int do_unit(struct flow *f, struct place *at);

/* Can the step at `at` run now, without waiting, beside the experts? */
static bool goes_beside(const struct flow *f, const struct place *at)
{
    const struct step *s = step_at(f, at->step);
    if (!(s->flags & STEP_BESIDE))
        return false;
    if (!pieces_left(f, at))
        return true;
    uint32_t tile = tiles_use(f->tiles, at->use)->tile;
    return tile < f->held || stream_ready(f->stream, tile);
}

/* No expert has arrived since `seen`: a step beside them, or wait for one. */
static int pass_time(struct flow *f, const struct step *s, struct place *at,
                     uint32_t seen)
{
    if (goes_beside(f, at))
        return do_unit(f, at);
    int err = flow_wait(f, seen, (uint32_t)s->layer);
    if (err)
        f->ops->failed(f->arg, err, s, NULL);
    return err;
}

/* Compute experts as they arrive, several at once. While none has arrived, run
 * steps with STEP_BESIDE, a piece at a time. Every expert writes to memory of
 * its own, so the order of arrival does not change a result. `at` is the step
 * after STEP_EXPERTS. */
static int do_experts(struct flow *f, const struct step *s, struct place *at)
{
    struct expert_batch b;
    struct rest rest = { 0 };
    for (;;) {
        uint32_t seen = stream_events(f->stream);
        int err = fill_batch(f, &b, &rest);
        if (err == -ENOENT)
            break;
        if (err)
            return f->ops->failed(f->arg, err, s, NULL);
        err = b.rows ? do_batch(f, s, &b) : pass_time(f, s, at, seen);
        if (err)
            return err;
    }
    fetch_end(f->fetch);
    return 0;
}

/* The next wave: so many experts, in the order of `uses`, as are sure to have
 * frames at one time, and as many of their rows as there is room for. The same
 * in every process. False: all were taken. */
static bool next_wave(const struct flow *f, struct expert_batch *w,
                      uint32_t *item, uint32_t *from)
{
    w->parts = w->rows = 0;
    while (*item < f->items && w->parts < f->c->top_k &&
           w->rows < K3_EXPERT_ROWS) {
        uint32_t room = K3_EXPERT_ROWS - w->rows;
        uint32_t left = f->uses[*item].uses - *from;
        uint32_t rows = left < room ? left : room;
        w->part[w->parts++] = (struct expert_part){
            .item = *item, .from = *from, .row = w->rows, .rows = rows,
            .last = rows == left };
        w->rows += rows;
        *from = rows == left ? 0 : *from + rows;
        *item += rows == left;
    }
    return w->parts;
}

/* Parts of a wave that have arrived and were not computed; part.load tells
 * which were. 0, or the error of a read. */
static int take_arrived(struct flow *f, struct expert_batch *w,
                        struct expert_batch *b)
{
    const struct load *load;
    uint32_t item;
    int got;
    while ((got = f->ops->next(f->arg, f, &item, &load)) == 1)
        f->lent[item] = load;
    if (got < 0 && got != -ENOENT)
        return got;
    b->parts = 0;
    b->rows = w->rows;
    for (uint32_t i = 0; i < w->parts; i++) {
        struct expert_part *p = &w->part[i];
        if (p->load || !f->lent[p->item])
            continue;
        p->load = f->lent[p->item];
        b->part[b->parts++] = *p;
    }
    return 0;
}

/* The experts of a wave as they arrive, as far as our rows go. Steps with
 * STEP_BESIDE run while none has arrived. */
static int do_arrived(struct flow *f, const struct step *s, struct place *at,
                      struct expert_batch *w)
{
    struct expert_batch b;
    for (uint32_t left = w->parts; left;) {
        uint32_t seen = stream_events(f->stream);
        int err = take_arrived(f, w, &b);
        if (err)
            return f->ops->failed(f->arg, err, s, NULL);
        if (b.parts) {
            int64_t begin = stream_now_ns(f->stream);
            err = f->ops->experts(f->arg, s, &b);
            flow_watch_kernel(f, s->kernel, s->layer, begin);
            left -= b.parts;
        } else {
            err = pass_time(f, s, at, seen);
        }
        if (err)
            return err;
    }
    return 0;
}

/* As do_experts, with owned rows: the second product of an expert needs what
 * all processes found in the first, so they go through the experts in waves,
 * and meet once a wave. */
static int do_waves(struct flow *f, const struct step *s, struct place *at)
{
    struct expert_batch w;
    uint32_t item = 0, from = 0;
    memset(f->lent, 0, f->items * sizeof *f->lent);
    while (next_wave(f, &w, &item, &from)) {
        int err = do_arrived(f, s, at, &w);
        int64_t begin = stream_now_ns(f->stream);
        if (!err)
            err = f->ops->experts_down(f->arg, s, &w);
        flow_watch_kernel(f, s->kernel, s->layer, begin);
        if (err)
            return err;
        for (uint32_t i = 0; i < w.parts; i++)
            if (w.part[i].last) {
                fetch_done(f->fetch, w.part[i].item);
                f->expert_items++;
            }
    }
    fetch_end(f->fetch);
    return 0;
}

/* ---- the walk ---- */

static int do_step(struct flow *f, const struct step *s)
{
    if (s->op == STEP_EMBED)
        return embed(f, s);
    if (s->op == STEP_CHOOSE)
        return choose(f, s);
    if (s->op == STEP_PREFETCH)
        k3_prefetch_ahead(f, s->layer);
    int64_t begin = stream_now_ns(f->stream);
    int err = f->ops->step(f->arg, s);
    flow_watch_kernel(f, s->kernel, s->layer, begin);
    return err;
}

/* Do one piece, or one step without pieces, and move `at` past it. */
static int do_unit(struct flow *f, struct place *at)
{
    const struct step *s = step_at(f, at->step);
    int err = 0;
    if (s->flags & STEP_BEGINS_LAYER && f->o->progress &&
        at->use == f->tiles->first_use[at->step])
        f->o->progress(f->o->progress_arg, (uint32_t)s->layer, f->c->layers);
    if (step_has_pieces(s)) {
        if (pieces_left(f, at))
            err = do_piece(f, at);
        if (pieces_left(f, at))
            return err;
    } else if (s->op != STEP_EXPERTS) {
        err = do_step(f, s);
    }
    at->step++;
    if (s->op == STEP_EXPERTS)
        err = f->o->owned ? do_waves(f, s, at) : do_experts(f, s, at);
    if (s->flags & (STEP_ENDS_ATTENTION | STEP_ENDS_LAYER))
        flow_watch_part(f, s->layer, s->flags & STEP_ENDS_LAYER);
    return err;
}

int flow_walk(struct flow *f)
{
    struct place at = { 0 };
    f->held = f->released = 0;
    while (at.step < f->tiles->steps.count) {
        int err = do_unit(f, &at);
        if (err)
            return err;
    }
    assert(f->held == f->tiles->count && f->released == f->held);
    return 0;
}

/* ---- passes ---- */

void flow_set_readahead(struct flow *f, uint64_t passes)
{
    f->readahead_end = (f->passes + passes) * f->tiles->count;
    stream_set_readahead(f->stream, f->readahead_end);
}

static void find_runs(struct flow *f)
{
    f->runs = 0;
    f->drafts = 0;
    for (uint32_t r = 0; r < f->rows; r++) {
        const struct k3_row *row = &f->row[r];
        struct flow_run *last = f->runs ? &f->run[f->runs - 1] : NULL;
        if (!last || last->sequence != row->sequence) {
            last = &f->run[f->runs++];
            *last = (struct flow_run){ .sequence = row->sequence, .first = r,
                                       .draft = f->drafts };
        }
        last->count++;
        last->kept += !row->draft;
        f->drafts += row->draft;
    }
}

void flow_begin(struct flow *f, const struct k3_row *row, uint32_t rows,
                enum k3_phase phase)
{
    assert(rows >= 1 && !f->quiet);
    f->row = row;
    f->rows = rows;
    find_runs(f);
    f->before = flow_counters(f);
    flow_watch_pass(f, phase);
}

void flow_end(struct flow *f)
{
    struct flow_counters after = flow_counters(f);
    flow_account(f, f->watch.phase, f->rows, &f->before, &after);
    f->passes++;
    struct event e = { .begin_ns = f->before.ns,
                       .end_ns = after.ns,
                       .object = (uint32_t)f->passes,
                       .bytes = f->rows,
                       .kind = EVENT_PASS,
                       .value = (uint8_t)f->watch.phase };
    event_ring_add(f->o->event_ring, EVENT_TRACK_COMPUTE, &e);
}
