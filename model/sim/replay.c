#include "model/sim/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/sim/trace_error.h"
#include "sched/cache/cache.h"
#include "sched/prefetch/governor.h"
#include "sched/prefetch/prefetcher.h"

#define NAMES_MAX 64 /* of a layer: enough to find some not resident */

/* A policy with a number of frames. */
struct lane {
    struct cache *cache;
    struct cache *single; /* looks up each request on its own, or NULL */
    struct governor **governor; /* [prefetches] NULL for none */
    uint32_t *step_loads; /* [passes] */
    uint64_t *step_hits;  /* [passes] */
    struct replay_result **result; /* [prefetches] */
};

/* What a prefetch says of the layer at hand. */
struct prefetch {
    struct prefetcher *prefetcher; /* NULL: none or perfect */
    bool perfect;
    uint32_t count;
    uint32_t ids[NAMES_MAX];
    float confidence[NAMES_MAX];
};

/* The next use of each use, for min. */
struct future {
    uint32_t *next; /* [uses] */
    uint64_t uses, room;
    uint32_t *last; /* [blocks] the last use of it so far */
};

struct run {
    const struct replay_options *o;
    const char *path;
    struct error *error;
    struct passes *passes;
    const struct passes_facts *facts;
    struct replay *out;
    struct lane *lane; /* [policies * frame_counts] */
    struct prefetch *prefetch; /* [prefetches] */
    struct replay_result **result_store;
    struct governor **governor_store;
    struct cache *collector; /* keeps nothing: turns rows into groups */
    struct cache_verdict *verdict; /* [experts] */
    uint32_t *ids;      /* [top_k] */
    uint32_t *wanted;   /* [experts] equal to `now`: in the group at hand */
    uint32_t *named;    /* [experts] index into a prefetch's names + 1 */
    uint32_t now;
    struct future group, single;
};

static int no_memory(struct run *r)
{
    return error_set(r->error, -ENOMEM, "%s: no memory to replay it", r->path);
}

static const uint32_t *row_ids(struct run *r, uint32_t row, uint32_t layer)
{
    const uint16_t *ids = passes_ids(r->passes, row, layer);
    for (uint32_t k = 0; k < r->facts->info.top_k; k++)
        r->ids[k] = ids[k];
    return r->ids;
}

/* The distinct experts of a layer of the pass. */
static const struct cache_use *collect(struct run *r,
                                       const struct trace_pass *pass,
                                       uint32_t layer, uint32_t *n)
{
    const struct trace_info *i = &r->facts->info;
    for (uint32_t row = 0; row < pass->rows; row++)
        cache_row(r->collector, row_ids(r, row, layer), i->top_k,
                  i->flags & TRACE_RANKED, pass->row[row].age);
    return cache_uses(r->collector, n);
}

/* -- the future, for min ------------------------------------------------- */

static int foresee(struct future *f, uint32_t block)
{
    if (f->uses == f->room) {
        uint64_t room = f->room ? 2 * f->room : 65536;
        uint32_t *next = realloc(f->next, room * sizeof *next);
        if (!next)
            return -ENOMEM;
        f->next = next;
        f->room = room;
    }
    if (f->last[block] != UINT32_MAX)
        f->next[f->last[block]] = (uint32_t)f->uses;
    f->last[block] = (uint32_t)f->uses;
    f->next[f->uses++] = UINT32_MAX;
    return 0;
}

static int foresee_layer(struct run *r, const struct trace_pass *pass,
                         uint32_t layer)
{
    uint32_t first = layer * r->facts->info.experts, n;
    const struct cache_use *use = collect(r, pass, layer, &n);
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++)
        code = foresee(&r->group, first + use[i].expert);
    for (uint32_t row = 0; row < pass->rows; row++) {
        const uint32_t *ids = row_ids(r, row, layer);
        for (uint32_t k = 0; !code && k < r->facts->info.top_k; k++)
            code = foresee(&r->single, first + ids[k]);
    }
    return code;
}

static int foresee_all(struct run *r)
{
    size_t bytes = (size_t)r->facts->info.layers * r->facts->info.experts *
                   sizeof(uint32_t);
    const struct trace_pass *pass;
    int got;
    if (r->facts->requests >= UINT32_MAX)
        return error_set(r->error, -EOVERFLOW,
                         "%s: min cannot look ahead over 2^32 requests",
                         r->path);
    r->group.last = malloc(bytes);
    r->single.last = malloc(bytes);
    if (!r->group.last || !r->single.last)
        return no_memory(r);
    memset(r->group.last, 0xff, bytes);
    memset(r->single.last, 0xff, bytes);
    while ((got = passes_next(r->passes, &pass, r->error)) > 0)
        for (uint32_t m = 0; m < r->facts->info.layers; m++)
            if (foresee_layer(r, pass, m))
                return no_memory(r);
    passes_rewind(r->passes);
    return got;
}

/* -- opening ------------------------------------------------------------- */

static int open_cache(struct run *r, struct cache **out, const char *policy,
                      uint32_t frames, const struct future *future)
{
    const struct trace_info *i = &r->facts->info;
    struct cache_options co = {
        .policy = policy,
        .layers = i->layers,
        .experts = i->experts,
        .top_k = i->top_k,
        .frames = frames,
        .pin_file = r->o->pin_file,
        .next_use = future ? future->next : NULL,
        .next_uses = future ? future->uses : 0,
    };
    int code = cache_open(out, &co);
    if (code == -ENOMEM)
        return no_memory(r);
    if (code == -ESPIPE && r->o->pin_file)
        return error_set(r->error, code, "%s: " TRACE_NO_PIPE,
                         r->o->pin_file);
    if (code && !strcmp(policy, "static-pin"))
        return error_set(r->error, code,
                         "%s: not a whole trace of %u layers of %u experts",
                         r->o->pin_file ? r->o->pin_file : "static-pin",
                         i->layers, i->experts);
    if (code)
        return error_set(r->error, code, "%s: policy %s cannot run on it",
                         r->path, policy);
    return 0;
}

static int open_lane(struct run *r, struct lane *lane, const char *policy,
                     uint32_t frames)
{
    bool min = !strcmp(policy, "min");
    bool single = min || !strcmp(policy, "lru") || !strcmp(policy, "fifo");
    int code =
        open_cache(r, &lane->cache, policy, frames, min ? &r->group : NULL);
    if (!code && single)
        code = open_cache(r, &lane->single, policy, frames,
                          min ? &r->single : NULL);
    for (uint32_t j = 0; !code && j < r->o->prefetches; j++)
        if (strcmp(r->o->prefetch[j], "none") &&
            governor_open(&lane->governor[j], r->facts->info.layers))
            code = no_memory(r);
    return code;
}

static int open_prefetch(struct run *r, struct prefetch *p, const char *name)
{
    const struct trace_info *i = &r->facts->info;
    p->perfect = !strcmp(name, "perfect");
    if (p->perfect || !strcmp(name, "none"))
        return 0;
    int code = prefetcher_open(&p->prefetcher, name, i->layers, i->experts,
                               i->top_k, r->facts->slots);
    if (code == -ENOMEM)
        return no_memory(r);
    return code ? error_set(r->error, code, "%s: prefetch %s cannot run on it",
                            r->path, name)
                : 0;
}

/* Point the lanes into the stores and open them. */
static int open_lanes(struct run *r)
{
    const struct replay_options *o = r->o;
    for (uint32_t p = 0; p < o->policies; p++) {
        for (uint32_t f = 0; f < o->frame_counts; f++) {
            uint32_t at = p * o->frame_counts + f;
            struct lane *lane = &r->lane[at];
            lane->governor = r->governor_store + at * o->prefetches;
            lane->result = r->result_store + at * o->prefetches;
            lane->step_loads = r->out->loads_store +
                               (size_t)at * r->facts->passes;
            lane->step_hits = r->out->hits_store +
                              (size_t)at * r->facts->passes;
            for (uint32_t j = 0; j < o->prefetches; j++) {
                uint32_t n = (p * o->prefetches + j) * o->frame_counts + f;
                lane->result[j] = &r->out->result[n];
                *lane->result[j] = (struct replay_result){
                    .policy = o->policy[p],
                    .prefetch = o->prefetch[j],
                    .frames = o->frames[f],
                    .step_loads = lane->step_loads,
                    .step_hits = lane->step_hits,
                };
            }
            int code = open_lane(r, lane, o->policy[p], o->frames[f]);
            if (code)
                return code;
        }
    }
    return 0;
}

static int allocate(struct run *r)
{
    const struct trace_info *i = &r->facts->info;
    uint32_t lanes = r->o->policies * r->o->frame_counts;
    uint32_t results = lanes * r->o->prefetches;
    size_t steps = (size_t)lanes * r->facts->passes + 1;
    r->out = calloc(1, sizeof *r->out);
    if (!r->out)
        return no_memory(r);
    r->out->facts = *r->facts;
    r->out->results = results;
    r->out->result = calloc(results, sizeof *r->out->result);
    r->out->loads_store = calloc(steps, sizeof *r->out->loads_store);
    r->out->hits_store = calloc(steps, sizeof *r->out->hits_store);
    r->lane = calloc(lanes, sizeof *r->lane);
    r->prefetch = calloc(r->o->prefetches, sizeof *r->prefetch);
    r->result_store = calloc(results, sizeof *r->result_store);
    r->governor_store = calloc(results, sizeof *r->governor_store);
    r->verdict = calloc(i->experts, sizeof *r->verdict);
    r->wanted = calloc(i->experts, sizeof *r->wanted);
    r->named = calloc(i->experts, sizeof *r->named);
    r->ids = calloc(i->top_k, sizeof *r->ids);
    if (!r->out->result || !r->out->loads_store || !r->out->hits_store ||
        !r->lane || !r->prefetch || !r->result_store || !r->governor_store ||
        !r->verdict || !r->wanted || !r->named || !r->ids)
        return no_memory(r);
    return open_cache(r, &r->collector, "none", 0, NULL);
}

static int open_all(struct run *r)
{
    int code = allocate(r);
    bool min = false;
    for (uint32_t p = 0; p < r->o->policies; p++)
        min |= !strcmp(r->o->policy[p], "min");
    if (!code && min)
        code = foresee_all(r);
    if (!code)
        code = open_lanes(r);
    for (uint32_t j = 0; !code && j < r->o->prefetches; j++)
        code = open_prefetch(r, &r->prefetch[j], r->o->prefetch[j]);
    return code;
}

static void close_all(struct run *r)
{
    uint32_t lanes = r->lane ? r->o->policies * r->o->frame_counts : 0;
    for (uint32_t i = 0; i < lanes; i++) {
        cache_close(r->lane[i].cache);
        cache_close(r->lane[i].single);
    }
    for (uint32_t i = 0; r->governor_store && i < r->out->results; i++)
        governor_close(r->governor_store[i]);
    for (uint32_t j = 0; r->prefetch && j < r->o->prefetches; j++)
        prefetcher_close(r->prefetch[j].prefetcher);
    cache_close(r->collector);
    free(r->lane);
    free(r->prefetch);
    free(r->result_store);
    free(r->governor_store);
    free(r->verdict);
    free(r->wanted);
    free(r->named);
    free(r->ids);
    free(r->group.next);
    free(r->group.last);
    free(r->single.next);
    free(r->single.last);
    passes_close(r->passes);
}

/* -- running ------------------------------------------------------------- */

/* Add names of one sequence, keep the higher chance of a name that is known. */
static void add_names(struct run *r, struct prefetch *p, const uint32_t *ids,
                      const float *confidence, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = r->named[ids[i]];
        if (at > 0) {
            at--;
            if (p->confidence[at] >= confidence[i])
                continue;
        } else if (p->count < NAMES_MAX) {
            at = p->count++;
        } else {
            at = NAMES_MAX - 1;
            if (p->confidence[at] >= confidence[i])
                continue;
            r->named[p->ids[at]] = 0;
        }
        for (; at > 0 && p->confidence[at - 1] < confidence[i]; at--) {
            p->ids[at] = p->ids[at - 1];
            p->confidence[at] = p->confidence[at - 1];
            r->named[p->ids[at]] = at + 1;
        }
        p->ids[at] = ids[i];
        p->confidence[at] = confidence[i];
        r->named[ids[i]] = at + 1;
    }
}

/* Ask once for each sequence of the pass, after its last row. */
static void ask(struct run *r, struct prefetch *p,
                const struct trace_pass *pass, uint32_t layer,
                const struct cache_use *use, uint32_t n)
{
    uint32_t ids[NAMES_MAX];
    float confidence[NAMES_MAX];
    p->count = 0;
    if (p->perfect) {
        for (; p->count < n && p->count < NAMES_MAX; p->count++) {
            p->ids[p->count] = use[p->count].expert;
            p->confidence[p->count] = 1;
        }
        return;
    }
    for (uint32_t row = 0; row < pass->rows; row++) {
        if (pass->row[row].age > 0)
            continue;
        uint32_t got = prefetcher_next(p->prefetcher, pass->row[row].slot,
                                       layer, ids, confidence, NAMES_MAX);
        add_names(r, p, ids, confidence, got);
    }
    for (uint32_t i = 0; i < p->count; i++)
        r->named[p->ids[i]] = 0;
}

/* The prefetches that are not resident, as far as the governor allows them. */
static void prefetch(struct run *r, const struct lane *lane, uint32_t j,
                     const struct trace_pass *pass, uint32_t layer)
{
    const struct prefetch *p = &r->prefetch[j];
    struct governor *g = lane->governor[j];
    struct replay_result *result = lane->result[j];
    struct governor_now now = {
        .expert_bytes = 1,
        .prefetch_bytes_max = r->o->width,
        .idle_s = r->o->width,
        .read_s = 1,
    };
    uint32_t rank = 0;
    for (uint32_t i = 0; i < p->count && rank < GOVERNOR_WIDTH_MAX; i++) {
        if (cache_resident(lane->cache, layer, p->ids[i]))
            continue;
        bool useful = r->wanted[p->ids[i]] == r->now;
        if (governor_allows(g, &now, layer, ++rank)) {
            now.prefetch_bytes++;
            now.idle_s--;
            result->all.prefetched++;
            result->all.prefetch_hits += useful;
            result->decode.prefetched += pass->decode;
            result->decode.prefetch_hits += pass->decode && useful;
        }
        governor_saw(g, layer, rank, useful);
    }
}

/* Each request on its own, row after row. Returns hits. */
static uint32_t look_up_singly(struct run *r, struct cache *c,
                               const struct trace_pass *pass, uint32_t layer)
{
    uint32_t hits = 0;
    for (uint32_t row = 0; row < pass->rows; row++) {
        const uint32_t *ids = row_ids(r, row, layer);
        for (uint32_t k = 0; k < r->facts->info.top_k; k++) {
            struct cache_use use = { ids[k], k + 1, 1, 0 };
            cache_group(c, pass->number, layer, &use, 1, r->verdict);
            hits += r->verdict[0].answer == CACHE_HIT;
        }
    }
    return hits;
}

static void run_lane(struct run *r, struct lane *lane,
                     const struct trace_pass *pass, uint32_t layer,
                const struct cache_use *use, uint32_t n)
{
    uint32_t requests = pass->rows * r->facts->info.top_k, loads = 0;
    for (uint32_t j = 0; j < r->o->prefetches; j++)
        if (lane->governor[j])
            prefetch(r, lane, j, pass, layer);
    cache_group(lane->cache, pass->number, layer, use, n, r->verdict);
    for (uint32_t i = 0; i < n; i++)
        loads += r->verdict[i].answer != CACHE_HIT;
    lane->step_loads[pass->number] += loads;
    lane->step_hits[pass->number] +=
        lane->single ? look_up_singly(r, lane->single, pass, layer)
                     : requests - loads;
    for (uint32_t j = 0; j < r->o->prefetches; j++) {
        struct replay_result *result = lane->result[j];
        result->all.requests += requests;
        result->all.loads += loads;
        result->decode.requests += pass->decode ? requests : 0;
        result->decode.loads += pass->decode ? loads : 0;
    }
}

static void run_layer(struct run *r, const struct trace_pass *pass,
                      uint32_t layer)
{
    const struct trace_info *info = &r->facts->info;
    uint32_t n;
    const struct cache_use *use = collect(r, pass, layer, &n);
    if (++r->now == 0) {
        memset(r->wanted, 0, info->experts * sizeof *r->wanted);
        r->now = 1;
    }
    for (uint32_t i = 0; i < n; i++)
        r->wanted[use[i].expert] = r->now;
    for (uint32_t j = 0; j < r->o->prefetches; j++)
        if (r->prefetch[j].prefetcher || r->prefetch[j].perfect)
            ask(r, &r->prefetch[j], pass, layer, use, n);
    for (uint32_t i = 0; i < r->o->policies * r->o->frame_counts; i++)
        run_lane(r, &r->lane[i], pass, layer, use, n);
    for (uint32_t j = 0; j < r->o->prefetches; j++)
        for (uint32_t row = 0; r->prefetch[j].prefetcher && row < pass->rows;
             row++)
            prefetcher_saw(r->prefetch[j].prefetcher, pass->row[row].slot,
                           pass->number, layer, row_ids(r, row, layer),
                           info->top_k);
}

static int run_passes(struct run *r)
{
    const struct trace_pass *pass;
    int got;
    while ((got = passes_next(r->passes, &pass, r->error)) > 0) {
        for (uint32_t j = 0; j < r->o->prefetches; j++)
            for (uint32_t row = 0; row < pass->rows; row++)
                if (r->prefetch[j].prefetcher && pass->row[row].starts)
                    prefetcher_forget(r->prefetch[j].prefetcher,
                                      pass->row[row].slot);
        for (uint32_t m = 0; m < r->facts->info.layers; m++)
            run_layer(r, pass, m);
    }
    return got;
}

static void finish(struct run *r)
{
    for (uint32_t i = 0; i < r->o->policies * r->o->frame_counts; i++) {
        struct cache_counters count;
        cache_counters(r->lane[i].cache, &count);
        for (uint32_t j = 0; j < r->o->prefetches; j++) {
            assert(r->lane[i].result[j]->all.loads == count.loads);
            r->lane[i].result[j]->evictions = count.evictions;
            r->lane[i].result[j]->bypassed = count.bypassed;
        }
    }
}

int replay_run(struct replay **out, const char *path,
               const struct replay_options *options, struct error *error)
{
    struct run r = { .o = options, .path = path, .error = error };
    *out = NULL;
    int code = passes_open(&r.passes, path, options->repair, error);
    if (code)
        return code;
    r.facts = passes_facts(r.passes);
    code = open_all(&r);
    if (!code)
        code = run_passes(&r);
    if (!code)
        finish(&r);
    close_all(&r);
    if (code) {
        replay_free(r.out);
        return code;
    }
    *out = r.out;
    return 0;
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    free(r->result);
    free(r->loads_store);
    free(r->hits_store);
    free(r);
}
