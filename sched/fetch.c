#include "sched/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An item is one distinct expert of the group. Its life: QUEUED without a
 * frame, POSTED with one, LENT to compute, DONE. A hit is POSTED from the start
 * and its bytes are there. */
enum item_state { ITEM_QUEUED, ITEM_POSTED, ITEM_LENT, ITEM_DONE };

struct item {
    uint32_t frame; /* physical: index in fetch_options.frames */
    uint8_t  state, source; /* enum item_state, enum fetch_source */
    bool     resident; /* a hit */
    bool     staged; /* in a staging frame, which is free after it */
    bool     again; /* its prefetch failed; it is read a second time */
};

/* A prefetch, in a staging frame. */
struct prefetch {
    uint32_t layer, expert, frame;
    bool     cancelled; /* its frame is free when its reads have ended */
};

struct fetch {
    struct fetch_options o;
    struct load  *load;      /* one a physical frame */
    uint32_t     *frame_of;  /* cache frame -> physical frame */
    uint32_t     *free;      /* staging frames nobody uses */
    uint32_t      free_count;
    struct prefetch *prefetch;
    uint32_t prefetch_count;
    struct item  *item;
    struct cache_verdict *verdict;
    const struct cache_use *uses;
    uint32_t      layer, count, next_queued, done;
    struct fetch_counts counts;
};

int fetch_open(struct fetch **out, const struct fetch_options *options)
{
    *out = NULL;
    assert(options->staging_frames >= 1 &&
           options->reserve < options->staging_frames + 1);
    assert(options->frame_bytes % BLOCK_PAGE == 0);
    struct fetch *f = calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    f->o = *options;
    assert(options->cache_frames < UINT32_MAX - options->staging_frames);
    uint32_t frames = options->cache_frames + options->staging_frames;
    f->load = calloc(frames, sizeof *f->load);
    f->frame_of = calloc(options->cache_frames + 1, sizeof *f->frame_of);
    f->free = calloc(options->staging_frames, sizeof *f->free);
    f->prefetch = calloc(options->staging_frames, sizeof *f->prefetch);
    f->item = calloc(options->experts, sizeof *f->item);
    f->verdict = calloc(options->experts, sizeof *f->verdict);
    if (!f->load || !f->frame_of || !f->free || !f->prefetch || !f->item ||
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
    free(f->prefetch);
    free(f->item);
    free(f->verdict);
    free(f);
}

static uint32_t load_state(const struct fetch *f, uint32_t frame)
{
    return atomic_load_explicit(&f->load[frame].state, memory_order_acquire);
}

/* Bytes that a load asks for. */
static uint64_t payload_of(const struct load *load)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < load->segment_count; i++)
        bytes += load->segment[i].length_bytes;
    return bytes;
}

static void post(struct fetch *f, uint32_t layer, uint32_t expert,
                 uint32_t frame, enum read_class class)
{
    struct load *load = &f->load[frame];
    f->o.place(f->o.place_arg, layer, expert, load);
    if (class == READ_DEMAND)
        f->counts.demand_bytes += payload_of(load);
    atomic_store(&load->urgency, class);
    stream_post(f->o.stream, load);
}

static void remove_prefetch(struct fetch *f, uint32_t index)
{
    f->prefetch[index] = f->prefetch[--f->prefetch_count];
}

/* Free the frames of cancelled prefetches whose reads have ended. */
static void reclaim(struct fetch *f)
{
    for (uint32_t i = 0; i < f->prefetch_count;) {
        struct prefetch *p = &f->prefetch[i];
        if (!p->cancelled || load_state(f, p->frame) == LOAD_WAITING) {
            i++;
            continue;
        }
        f->counts.wasted_bytes += f->load[p->frame].landed_bytes;
        f->free[f->free_count++] = p->frame;
        remove_prefetch(f, i);
    }
}

static bool find_prefetch(const struct fetch *f, uint32_t layer,
                          uint32_t expert, uint32_t *index)
{
    for (uint32_t i = 0; i < f->prefetch_count; i++)
        if (!f->prefetch[i].cancelled && f->prefetch[i].layer == layer &&
            f->prefetch[i].expert == expert) {
            *index = i;
            return true;
        }
    return false;
}

/* A prefetched expert was chosen: its frame becomes the item's. */
static bool adopt_prefetch(struct fetch *f, struct item *it, uint32_t expert,
                           const struct cache_verdict *v)
{
    uint32_t index;
    if (!find_prefetch(f, f->layer, expert, &index))
        return false;
    uint32_t frame = f->prefetch[index].frame;
    remove_prefetch(f, index);
    uint32_t state = load_state(f, frame);
    if (state == LOAD_FAILED) { /* the demand read will say so, if it lasts */
        f->counts.wasted_bytes += f->load[frame].landed_bytes;
        f->free[f->free_count++] = frame;
        return false;
    }
    if (state == LOAD_WAITING) {
        atomic_store(&f->load[frame].urgency, READ_DEMAND);
        stream_notify(f->o.stream);
        it->source = FETCH_LATE;
        f->counts.late++;
    } else {
        it->source = FETCH_PREFETCHED;
        f->counts.prefetch_hits++;
    }
    it->frame = frame;
    it->staged = v->answer == CACHE_BYPASS;
    if (v->answer == CACHE_ADMIT) {
        f->free[f->free_count++] = f->frame_of[v->frame];
        f->frame_of[v->frame] = frame;
    }
    it->state = ITEM_POSTED;
    f->counts.prefetch_bytes += payload_of(&f->load[frame]);
    return true;
}

/* A prefetch failed after its expert was chosen. A failed prefetch does not
 * fail the layer, so read it once more, on demand. False when that is not
 * possible. */
static bool read_again(struct fetch *f, struct item *it, uint32_t expert)
{
    if (it->source != FETCH_LATE || it->again ||
        stream_failure(f->o.stream).error)
        return false;
    it->again = true;
    f->counts.wasted_bytes += f->load[it->frame].landed_bytes;
    f->counts.prefetch_bytes -= payload_of(&f->load[it->frame]);
    post(f, f->layer, expert, it->frame, READ_DEMAND);
    return true;
}

/* Cancel the prefetches for this layer that were not chosen. */
static void cancel_others(struct fetch *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->prefetch_count; i++) {
        struct prefetch *p = &f->prefetch[i];
        if (p->cancelled || p->layer != f->layer)
            continue;
        p->cancelled = any = true;
        atomic_store(&f->load[p->frame].cancelled, true);
    }
    if (any)
        stream_notify(f->o.stream);
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
    *it = (struct item){ .state = ITEM_QUEUED, .source = FETCH_MISS };
    f->counts.requests += f->uses[i].uses;
    if (v->answer == CACHE_HIT) {
        it->frame = f->frame_of[v->frame];
        it->resident = true;
        it->source = FETCH_RESIDENT;
        it->state = ITEM_POSTED;
        return;
    }
    f->counts.loads++;
    f->counts.bypassed += v->answer == CACHE_BYPASS;
    f->counts.evictions +=
        v->answer == CACHE_ADMIT && v->evicted_block != CACHE_NONE;
    if (adopt_prefetch(f, it, f->uses[i].expert, v))
        return;
    if (v->answer == CACHE_ADMIT) {
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
    assert(!f->uses && n >= 1 && n <= f->o.experts && layer < f->o.layers);
    f->uses = uses;
    f->layer = layer;
    f->count = n;
    f->next_queued = 0;
    f->done = 0;
    cache_group(f->o.cache, step, layer, uses, n, f->verdict);
    for (uint32_t i = 0; i < n; i++)
        begin_item(f, i);
    f->counts.hits = f->counts.requests - f->counts.loads;
    cancel_others(f);
    advance(f);
}

static void time_load(struct fetch *f, const struct load *load)
{
    int64_t took = load->done_ns - load->posted_ns;
    f->counts.timed++;
    f->counts.latency_ns += took;
    if (took > f->counts.latency_max_ns)
        f->counts.latency_max_ns = took;
}

int fetch_next(struct fetch *f, uint32_t *item, const struct load **load)
{
    bool left = false;
    advance(f);
    for (uint32_t i = 0; i < f->count; i++) {
        struct item *it = &f->item[i];
        if (it->state == ITEM_LENT || it->state == ITEM_DONE)
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
            if (it->source == FETCH_MISS)
                time_load(f, &f->load[it->frame]);
            int err = f->o.landed ? f->o.landed(f->o.place_arg, f->layer,
                                                f->uses[i].expert,
                                                &f->load[it->frame])
                                  : 0;
            if (err)
                return err;
        }
        it->state = ITEM_LENT;
        *item = i;
        *load = &f->load[it->frame];
        return 1;
    }
    if (left && stream_failure(f->o.stream).error)
        return stream_failure(f->o.stream).error;
    return left ? 0 : -ENOENT;
}

void fetch_done(struct fetch *f, uint32_t item)
{
    assert(item < f->count);
    struct item *it = &f->item[item];
    assert(it->state == ITEM_LENT);
    it->state = ITEM_DONE;
    f->done++;
    if (it->staged) {
        f->free[f->free_count++] = it->frame;
        advance(f);
    }
}

void fetch_end(struct fetch *f)
{
    assert(f->done == f->count);
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

enum fetch_source fetch_source(const struct fetch *f, uint32_t item)
{
    assert(item < f->count);
    return f->item[item].source;
}

bool fetch_has(const struct fetch *f, uint32_t layer, uint32_t expert)
{
    uint32_t index;
    return cache_resident(f->o.cache, layer, expert) ||
           find_prefetch(f, layer, expert, &index);
}

uint32_t fetch_prefetch(struct fetch *f, uint32_t layer,
                        const uint32_t *experts, uint32_t n)
{
    uint32_t issued = 0;
    reclaim(f);
    for (uint32_t i = 0; i < n; i++) {
        if (f->free_count <= f->o.reserve)
            break;
        if (fetch_has(f, layer, experts[i]))
            continue;
        uint32_t frame = f->free[--f->free_count];
        f->prefetch[f->prefetch_count++] = (struct prefetch){
            .layer = layer, .expert = experts[i], .frame = frame
        };
        post(f, layer, experts[i], frame, READ_PREFETCH);
        issued++;
    }
    f->counts.prefetched += issued;
    return issued;
}

struct fetch_counts fetch_counts(const struct fetch *f)
{
    return f->counts;
}
