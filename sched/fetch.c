#include "sched/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An item's life: QUEUED without a frame, POSTED with one, LENT to compute,
 * OVER. A hit is POSTED from the start and its bytes are there. */
enum item_state { ITEM_QUEUED, ITEM_POSTED, ITEM_LENT, ITEM_OVER };

struct item {
    uint32_t frame; /* physical */
    uint8_t  state, how;
    bool     resident, staged;
    bool     again; /* was a guess that failed; read a second time */
};

/* What a staging frame holds while it is a guess. */
struct guess {
    uint32_t layer, expert, frame;
    bool     doomed; /* cancelled; its frame comes back when its reads are in */
};

struct fetch {
    struct fetch_options o;
    struct load  *load;      /* one a physical frame */
    uint32_t     *frame_of;  /* cache frame -> physical frame */
    uint32_t     *free;      /* staging frames nobody uses */
    uint32_t      free_count;
    struct guess *guess;
    uint32_t      guess_count;
    struct item  *item;
    struct cache_verdict *verdict;
    const struct cache_use *uses;
    uint32_t      layer, count, next_queued, over;
    struct fetch_counts counts;
};

int fetch_open(struct fetch **out, const struct fetch_options *options)
{
    *out = NULL;
    assert(options->staging_frames >= 1);
    struct fetch *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->o = *options;
    uint32_t frames = options->cache_frames + options->staging_frames;
    f->load = calloc(frames, sizeof *f->load);
    f->frame_of = calloc(options->cache_frames + 1, sizeof *f->frame_of);
    f->free = calloc(options->staging_frames, sizeof *f->free);
    f->guess = calloc(options->staging_frames, sizeof *f->guess);
    f->item = calloc(options->experts, sizeof *f->item);
    f->verdict = calloc(options->experts, sizeof *f->verdict);
    if (!f->load || !f->frame_of || !f->free || !f->guess || !f->item ||
        !f->verdict) {
        fetch_close(f);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < frames; i++)
        f->load[i].frame = options->frames + i * options->frame_bytes;
    for (uint32_t i = 0; i < options->cache_frames; i++)
        f->frame_of[i] = i;
    for (uint32_t i = 0; i < options->staging_frames; i++)
        f->free[f->free_count++] = frames - 1 - i;
    *out = f;
    return 0;
}

void fetch_close(struct fetch *f)
{
    if (!f)
        return;
    free(f->load);
    free(f->frame_of);
    free(f->free);
    free(f->guess);
    free(f->item);
    free(f->verdict);
    free(f);
}

static uint32_t load_state(const struct fetch *f, uint32_t frame)
{
    return atomic_load_explicit(&f->load[frame].state, memory_order_acquire);
}

static void post(struct fetch *f, uint32_t layer, uint32_t expert,
                 uint32_t frame, enum read_class class)
{
    struct load *load = &f->load[frame];
    f->o.place(f->o.place_arg, layer, expert, load);
    atomic_store(&load->urgency, class);
    stream_post(f->o.stream, load);
}

static void remove_guess(struct fetch *f, uint32_t index)
{
    f->guess[index] = f->guess[--f->guess_count];
}

/* Frames of doomed guesses whose reads have come in are staging again. */
static void reclaim(struct fetch *f)
{
    for (uint32_t i = 0; i < f->guess_count;) {
        struct guess *g = &f->guess[i];
        if (!g->doomed || load_state(f, g->frame) == LOAD_WAITING) {
            i++;
            continue;
        }
        f->counts.wasted_bytes += f->load[g->frame].landed_bytes;
        f->free[f->free_count++] = g->frame;
        remove_guess(f, i);
    }
}

static bool find_guess(const struct fetch *f, uint32_t layer, uint32_t expert,
                       uint32_t *index)
{
    for (uint32_t i = 0; i < f->guess_count; i++)
        if (!f->guess[i].doomed && f->guess[i].layer == layer &&
            f->guess[i].expert == expert) {
            *index = i;
            return true;
        }
    return false;
}

/* A guess that came true: its frame becomes the item's. */
static bool adopt_guess(struct fetch *f, struct item *it, uint32_t expert,
                        const struct cache_verdict *v)
{
    uint32_t index;
    if (!find_guess(f, f->layer, expert, &index))
        return false;
    uint32_t frame = f->guess[index].frame;
    remove_guess(f, index);
    uint32_t state = load_state(f, frame);
    if (state == LOAD_FAILED) { /* the demand read will say so, if it lasts */
        f->counts.wasted_bytes += f->load[frame].landed_bytes;
        f->free[f->free_count++] = frame;
        return false;
    }
    if (state == LOAD_WAITING) {
        atomic_store(&f->load[frame].urgency, READ_DEMAND);
        stream_poke(f->o.stream);
        it->how = FETCH_LATE;
        f->counts.late++;
    } else {
        it->how = FETCH_GUESSED;
        f->counts.guess_hits++;
    }
    it->frame = frame;
    it->staged = v->what == CACHE_BYPASS;
    if (v->what == CACHE_ADMIT) {
        f->free[f->free_count++] = f->frame_of[v->frame];
        f->frame_of[v->frame] = frame;
    }
    it->state = ITEM_POSTED;
    f->counts.guess_bytes += f->o.payload_bytes;
    return true;
}

/* A guess that failed after it had been adopted: what was guessed does not fail
 * a layer, what is demanded may. False when it cannot be read again. */
static bool read_again(struct fetch *f, struct item *it, uint32_t expert)
{
    if (it->how != FETCH_LATE || it->again ||
        stream_failure(f->o.stream).error)
        return false;
    it->again = true;
    f->counts.wasted_bytes += f->load[it->frame].landed_bytes;
    f->counts.guess_bytes -= f->o.payload_bytes;
    f->counts.demand_bytes += f->o.payload_bytes;
    post(f, f->layer, expert, it->frame, READ_DEMAND);
    return true;
}

static void doom_rest(struct fetch *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->guess_count; i++) {
        struct guess *g = &f->guess[i];
        if (g->doomed || g->layer != f->layer)
            continue;
        g->doomed = any = true;
        atomic_store(&f->load[g->frame].cancelled, true);
    }
    if (any)
        stream_poke(f->o.stream);
    reclaim(f);
}

/* Give queued items the staging frames that are free. */
static void advance(struct fetch *f)
{
    reclaim(f);
    for (; f->next_queued < f->count; f->next_queued++) {
        struct item *it = &f->item[f->next_queued];
        if (it->state != ITEM_QUEUED)
            continue;
        if (!f->free_count)
            return;
        it->frame = f->free[--f->free_count];
        it->state = ITEM_POSTED;
        post(f, f->layer, f->uses[f->next_queued].expert, it->frame,
             READ_DEMAND);
    }
}

static void begin_item(struct fetch *f, uint32_t i)
{
    struct item *it = &f->item[i];
    const struct cache_verdict *v = &f->verdict[i];
    *it = (struct item){ .state = ITEM_QUEUED, .how = FETCH_MISS };
    f->counts.requests += f->uses[i].uses;
    if (v->what == CACHE_HIT) {
        it->frame = f->frame_of[v->frame];
        it->resident = true;
        it->how = FETCH_RESIDENT;
        it->state = ITEM_POSTED;
        return;
    }
    f->counts.loads++;
    f->counts.bypassed += v->what == CACHE_BYPASS;
    f->counts.evictions +=
        v->what == CACHE_ADMIT && v->evicted_block != CACHE_NONE;
    if (adopt_guess(f, it, f->uses[i].expert, v))
        return;
    f->counts.demand_bytes += f->o.payload_bytes;
    if (v->what == CACHE_ADMIT) {
        it->frame = f->frame_of[v->frame];
        it->state = ITEM_POSTED;
        post(f, f->layer, f->uses[i].expert, it->frame, READ_DEMAND);
    } else {
        it->staged = true;
    }
}

void fetch_begin(struct fetch *f, uint32_t step, uint32_t layer,
                 const struct cache_use *uses, uint32_t n)
{
    assert(n <= f->o.experts);
    f->uses = uses;
    f->layer = layer;
    f->count = n;
    f->next_queued = 0;
    f->over = 0;
    cache_group(f->o.cache, step, layer, uses, n, f->verdict);
    for (uint32_t i = 0; i < n; i++)
        begin_item(f, i);
    f->counts.hits = f->counts.requests - f->counts.loads;
    doom_rest(f);
    advance(f);
}

static void time_load(struct fetch *f, const struct load *load)
{
    int64_t took = load->done_ns - load->posted_ns;
    f->counts.timed++;
    f->counts.latency_ns += took;
    if (took > f->counts.latency_most_ns)
        f->counts.latency_most_ns = took;
}

int fetch_next(struct fetch *f, uint32_t *item, const uint8_t **frame)
{
    bool left = false;
    advance(f);
    for (uint32_t i = 0; i < f->count; i++) {
        struct item *it = &f->item[i];
        if (it->state == ITEM_LENT || it->state == ITEM_OVER)
            continue;
        left = true;
        if (it->state == ITEM_QUEUED)
            continue;
        if (!it->resident) {
            uint32_t state = load_state(f, it->frame);
            if (state == LOAD_FAILED &&
                !read_again(f, it, f->uses[i].expert))
                return f->load[it->frame].error;
            if (state != LOAD_READY)
                continue;
            if (it->how == FETCH_MISS)
                time_load(f, &f->load[it->frame]);
        }
        it->state = ITEM_LENT;
        *item = i;
        *frame = f->load[it->frame].frame;
        return 1;
    }
    if (left && stream_failure(f->o.stream).error)
        return stream_failure(f->o.stream).error;
    return left ? 0 : -ENOENT;
}

void fetch_done(struct fetch *f, uint32_t item)
{
    struct item *it = &f->item[item];
    assert(it->state == ITEM_LENT);
    it->state = ITEM_OVER;
    f->over++;
    if (it->staged) {
        f->free[f->free_count++] = it->frame;
        advance(f);
    }
}

void fetch_end(struct fetch *f)
{
    assert(f->over == f->count);
    f->uses = NULL;
    f->count = 0;
}

uint32_t fetch_waiting(const struct fetch *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += f->item[i].state == ITEM_POSTED && !f->item[i].resident &&
             load_state(f, f->item[i].frame) == LOAD_WAITING;
    return n;
}

enum fetch_how fetch_how(const struct fetch *f, uint32_t item)
{
    return f->item[item].how;
}

bool fetch_has(const struct fetch *f, uint32_t layer, uint32_t expert)
{
    uint32_t index;
    return cache_resident(f->o.cache, layer, expert) ||
           find_guess(f, layer, expert, &index);
}

uint32_t fetch_guess(struct fetch *f, uint32_t layer, const uint32_t *experts,
                     uint32_t n)
{
    uint32_t issued = 0;
    reclaim(f);
    for (uint32_t i = 0; i < n; i++) {
        if (f->free_count <= f->o.reserve)
            break;
        if (fetch_has(f, layer, experts[i]))
            continue;
        uint32_t frame = f->free[--f->free_count];
        f->guess[f->guess_count++] =
            (struct guess){ .layer = layer, .expert = experts[i],
                            .frame = frame };
        post(f, layer, experts[i], frame, READ_GUESS);
        issued++;
    }
    f->counts.guessed += issued;
    return issued;
}

struct fetch_counts fetch_counts(const struct fetch *f)
{
    return f->counts;
}
