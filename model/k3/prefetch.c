#include "model/k3/prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/k3/flow.h"
#include "sched/prefetch/governor.h"
#include "sched/prefetch/prefetcher.h"

/* Experts named for a layer that were not resident, best first. */
struct named {
    uint32_t expert[GOVERNOR_WIDTH_MAX];
    uint32_t count;
};

struct prefetching {
    struct prefetcher *prefetcher;
    struct governor *governor;
    struct named *named; /* [moe layers] */
    int64_t named_ns;  /* when experts were last named; 0: not in this pass */
    uint64_t behind_bytes; /* demand bytes requested just before that */
    uint64_t demand_bytes; /* demand bytes before the current layer */
    double *spare_s;   /* [moe layers]: drive time before its router,
                          negative: not known */
    double bytes_per_s; /* of all drives */
    bool disk_bound;
};

static const double spare_weight = 0.3; /* of a new measurement */

uint64_t k3_prefetch_bytes(const char *name, uint32_t layers, uint32_t experts,
                           uint32_t hidden)
{
    uint64_t table = (uint64_t)layers * experts * experts;
    if (!strcmp(name, "none"))
        return 0;
    return 2ull * layers * (6ull * hidden + 4ull * experts) +
           (!strcmp(name, "table") ? table : 0) +
           (!strcmp(name, "path") ? PREFETCH_PATH_BYTES : 0) + (1 << 20);
}

int k3_prefetch_open(struct prefetching **out, const struct flow *f,
                     struct error *error)
{
    uint32_t layers = config_moe_layers(f->c);
    *out = NULL;
    if (!layers || !strcmp(f->o->prefetch, "none"))
        return 0;
    struct prefetching *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(error, -ENOMEM, "no memory for prefetches");
    p->named = calloc(layers, sizeof *p->named);
    p->spare_s = calloc(layers, sizeof *p->spare_s);
    int err = p->named && p->spare_s ? 0 : -ENOMEM;
    if (!err)
        err = governor_open(&p->governor, layers);
    if (!err)
        err = prefetcher_open(&p->prefetcher, f->o->prefetch, layers,
                              f->c->experts, f->c->top_k, f->o->sequences);
    if (err) {
        k3_prefetch_close(p);
        return error_set(error, err, "prefetch %s: %s", f->o->prefetch,
                         err == -EINVAL ? "unknown" : strerror(-err));
    }
    for (uint32_t m = 0; m < layers; m++)
        p->spare_s[m] = -1;
    p->bytes_per_s = f->bytes_per_s;
    *out = p;
    return 0;
}

void k3_prefetch_set_gate(struct prefetching *p, prefetch_gate_fn *gate,
                          void *arg)
{
    prefetcher_set_gate(p->prefetcher, gate, arg);
}

void k3_prefetch_close(struct prefetching *p)
{
    if (!p)
        return;
    prefetcher_close(p->prefetcher);
    governor_close(p->governor);
    free(p->named);
    free(p->spare_s);
    free(p);
}

void k3_prefetch_forget(struct flow *f, uint32_t sequence)
{
    if (f->prefetching)
        prefetcher_forget(f->prefetching->prefetcher, sequence);
}

/* ---- the life of a prefetch ---- */

static bool chosen(const struct flow *f, uint32_t expert)
{
    size_t n = (size_t)f->rows * f->c->top_k;
    for (size_t i = 0; i < n; i++)
        if (f->ids[i] == expert)
            return true;
    return false;
}

void k3_prefetch_compare(struct flow *f, int32_t layer)
{
    struct prefetching *p = f->prefetching;
    if (!p)
        return;
    uint32_t moe = (uint32_t)layer - f->c->first_dense;
    struct named *named = &p->named[moe];
    for (uint32_t i = 0; i < named->count; i++)
        governor_saw(p->governor, moe, i + 1, chosen(f, named->expert[i]));
    named->count = 0;
    for (uint32_t i = 0; i < f->runs; i++)
        for (uint32_t j = 0; j < f->run[i].count; j++)
            prefetcher_saw(
                p->prefetcher, f->run[i].sequence, (uint32_t)f->passes, moe,
                f->ids + (size_t)(f->run[i].first + j) * f->c->top_k,
                f->c->top_k);
    /* Time that the drive had for prefetches: since they were named, less what
     * it needed for the experts demanded before them. */
    double spare = (double)(stream_now_ns(f->stream) - p->named_ns) / 1e9 -
                   (double)p->behind_bytes / p->bytes_per_s;
    double *known = &p->spare_s[moe];
    if (p->named_ns)
        *known += (*known < 0 ? 1 : spare_weight) *
                  ((spare > 0 ? spare : 0) - *known);
    p->demand_bytes = fetch_counts(f->fetch).demand_bytes;
}

static bool has_name(const struct named *named, uint32_t expert)
{
    for (uint32_t i = 0; i < named->count; i++)
        if (named->expert[i] == expert)
            return true;
    return false;
}

/* Name experts of a layer that are not resident, for each sequence of the pass
 * the likeliest first. */
static void name(struct flow *f, uint32_t moe, struct named *named)
{
    struct prefetching *p = f->prefetching;
    uint32_t ids[K3_TOP_K_MAX];
    float confidence[K3_TOP_K_MAX];
    uint32_t max =
        f->c->top_k < GOVERNOR_WIDTH_MAX ? f->c->top_k : GOVERNOR_WIDTH_MAX;
    named->count = 0;
    for (uint32_t i = 0; i < f->runs; i++) {
        uint32_t n = prefetcher_next(p->prefetcher, f->run[i].sequence, moe,
                                     ids, confidence, max);
        for (uint32_t j = 0; j < n && named->count < GOVERNOR_WIDTH_MAX; j++)
            if (!fetch_has(f->fetch, moe, ids[j]) && !has_name(named, ids[j]))
                named->expert[named->count++] = ids[j];
    }
}

void k3_prefetch_ahead(struct flow *f, int32_t layer)
{
    struct prefetching *p = f->prefetching;
    uint32_t next = (uint32_t)layer + 1, moe = next - f->c->first_dense;
    if (!p || next < f->c->first_dense || moe >= config_moe_layers(f->c))
        return;
    struct named *named = &p->named[moe];
    int64_t begin = stream_now_ns(f->stream);
    p->named_ns = begin;
    p->behind_bytes = fetch_counts(f->fetch).demand_bytes - p->demand_bytes;
    name(f, moe, named);
    uint64_t bytes = owned_expert_bytes(f->o->owned, f->c);
    struct governor_now now = {
        .disk_bound = p->disk_bound,
        .expert_bytes = bytes,
        .prefetch_bytes_max = f->plan.staging_frames / 2 * bytes,
        .read_s = (double)bytes / p->bytes_per_s,
    };
    /* One more than there is time for: an expert that is half read when it is
     * chosen has saved half of its time. */
    now.idle_s = p->spare_s[moe] < 0 ? 0 : p->spare_s[moe] + now.read_s;
    for (uint32_t i = 0; i < named->count; i++) {
        if (!governor_allows(p->governor, &now, moe, i + 1))
            continue;
        if (!fetch_prefetch(f->fetch, moe, &named->expert[i], 1))
            break;
        now.prefetch_bytes += now.expert_bytes;
        now.idle_s -= now.read_s;
    }
    flow_watch_kernel(f, K3_PREFETCH, layer, begin);
}

void k3_prefetch_pass(struct flow *f, double compute_s, uint64_t bytes,
                      uint64_t wasted)
{
    struct prefetching *p = f->prefetching;
    if (!p)
        return;
    p->disk_bound = (double)bytes / p->bytes_per_s > compute_s;
    p->named_ns = 0;
    p->demand_bytes = fetch_counts(f->fetch).demand_bytes;
    governor_count(p->governor, bytes, wasted);
}
