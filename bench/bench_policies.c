/* bench_policies - every cache policy at several sizes on the traces given, and
 * how fast replay is.
 *
 * Hits and loads are counts: they do not depend on the machine. Requests a
 * second do; they are of one whole replay, reading and checking the trace
 * included.
 *
 * The last trace is made here: K3's shape, `--tokens` long. A choice comes back
 * in the next token with the chance that its rank has on the real trace; the
 * others are drawn from the choices of the last tokens or from a lasting
 * popularity. It is there for its length: its hit rates mean little.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bin/cli/opt.h"
#include "io/clock.h"
#include "model/sim/replay.h"
#include "sched/cache/cache.h"
#include "sched/trace/trace.h"

#define TRACES_MAX 16
#define SIZES       6u

enum { K3_LAYERS = 92, K3_EXPERTS = 896, K3_TOP_K = 16, K3_MEMORY = 32 };

/* Frames as shares of all experts, in 1/1000. */
static const uint32_t sizes[SIZES] = { 5, 10, 20, 50, 75, 200 };

static uint64_t random_state = 20260104;

static uint32_t rnd(uint32_t below)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 2685821657736338717ull >> 33) % below);
}

static bool named(const uint32_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* The next choice of a layer; past is a ring of its last ones. */
static void choose(uint32_t past[K3_MEMORY][K3_TOP_K], uint32_t token,
                   uint32_t layer, uint32_t ids[K3_TOP_K])
{
    static const uint32_t back[K3_TOP_K] = { 675, 562, 499, 463, 432, 356,
                                             359, 333, 272, 280, 257, 231,
                                             203, 207, 179, 187 };
    uint32_t n = 0;
    const uint32_t *last = past[(token + K3_MEMORY - 1) % K3_MEMORY];
    for (uint32_t k = 0; token > 0 && k < K3_TOP_K; k++)
        if (rnd(1000) < back[k])
            ids[n++] = last[k];
    while (n < K3_TOP_K) {
        uint32_t age = 2 + rnd(K3_MEMORY - 2), id;
        if (token > age && rnd(4) == 0)
            id = past[(token - age) % K3_MEMORY][rnd(K3_TOP_K)];
        else
            id = (layer * 397 + rnd(1 + rnd(1 + rnd(K3_EXPERTS)))) % K3_EXPERTS;
        if (!named(ids, n, id))
            ids[n++] = id;
    }
    memcpy(past[token % K3_MEMORY], ids, K3_TOP_K * sizeof *ids);
}

static int write_k3(const char *path, uint32_t tokens)
{
    static uint32_t past[K3_LAYERS][K3_MEMORY][K3_TOP_K];
    struct trace_info info = { .flags = TRACE_RANKED | TRACE_CRC,
                               .layers = K3_LAYERS,
                               .first_layer = 1,
                               .model_layers = K3_LAYERS + 1,
                               .experts = K3_EXPERTS,
                               .top_k = K3_TOP_K,
                               .expert_bytes = 17547264 };
    struct trace_writer *w;
    int code = trace_create(&w, path, &info, "{\"source\": \"bench\"}", 1);
    for (uint32_t t = 0; !code && t < tokens; t++) {
        trace_begin(w, t, 1);
        trace_row(w, 0, 0, t, TRACE_TOKEN_UNKNOWN, TRACE_DECODE,
                  t ? 0 : TRACE_FIRST);
        for (uint32_t m = 0; m < K3_LAYERS; m++) {
            uint32_t ids[K3_TOP_K];
            choose(past[m], t, m, ids);
            trace_choice(w, 0, m, ids, NULL);
        }
        code = trace_commit(w);
    }
    int finished = trace_finish(w);
    code = code ? code : finished;
    if (code)
        fprintf(stderr, "bench: %s: %s\n", path, strerror(-code));
    return code;
}

static double seconds(void)
{
    return 1e-9 * (double)clock_ns();
}

/* One replay of one policy at one size. */
static int measure(json_t *all, const char *path, const char *policy,
                   uint32_t frames)
{
    static const char *const none = "none";
    struct error error = { 0 };
    struct replay *r;
    struct replay_options o = { .policy = &policy,
                                .policies = 1,
                                .prefetch = &none,
                                .prefetches = 1,
                                .frames = &frames,
                                .frame_counts = 1 };
    double start = seconds();
    if (replay_run(&r, path, &o, &error)) {
        fprintf(stderr, "bench: %s\n", error.text);
        return 1;
    }
    const struct replay_count *c = r->facts.decode_passes
                                       ? &r->result[0].decode
                                       : &r->result[0].all;
    double speed = (double)r->facts.requests / (seconds() - start);
    double tokens = (double)(r->facts.tokens ? r->facts.tokens
                                             : r->facts.records);
    uint64_t hits = c->requests - c->loads;
    printf("%-10s %7u %7.2f %9.1f %8.2f %10.2f\n", policy, frames,
           100 * (double)hits / (double)c->requests,
           (double)c->loads / tokens,
           (double)c->loads / tokens * (double)r->facts.info.expert_bytes /
               1e9,
           speed / 1e6);
    fflush(stdout);
    json_array_append_new(
        all, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f}", "trace", path,
                       "policy", policy, "frames", (json_int_t)frames,
                       "requests", (json_int_t)c->requests, "hits",
                       (json_int_t)hits, "loads", (json_int_t)c->loads,
                       "requests_per_s", speed));
    replay_free(r);
    return 0;
}

static void print_head(const char *path)
{
    printf("\n%s\n%-10s %7s %7s %9s %8s %10s\n", path, "policy", "frames",
           "hits %", "loads/tok", "GB/tok", "Mreq/s");
}

/* All policies at all sizes; those past the first are cheap to skip. */
static int table(json_t *all, const char *path)
{
    struct trace *t;
    struct trace_fault fault;
    int code = trace_open(&t, path, false, &fault);
    if (code) {
        fprintf(stderr, "bench: %s: %s\n", path,
                fault.problem ? trace_problem_text(fault.problem)
                              : strerror(-code));
        return 1;
    }
    uint32_t blocks = trace_info(t)->layers * trace_info(t)->experts;
    trace_close(t);
    print_head(path);
    const char *name;
    for (uint32_t p = 0; (name = cache_policy_name(p, NULL, NULL)); p++)
        for (uint32_t s = 0; strcmp(name, "static-pin") && s < SIZES; s++)
            if (measure(all, path, name, blocks * sizes[s] / 1000))
                return 1;
    return 0;
}

/* How fast the policies are at the size of a 224 GB machine. */
static int speed(json_t *all, uint32_t tokens)
{
    static const char path[] = "build/bench/k3_synthetic.trace";
    static const char *const policies[] = { "dhd", "lru", "ema", "s3fifo" };
    int code = write_k3(path, tokens);
    if (!code)
        print_head(path);
    for (size_t i = 0; !code && i < sizeof policies / sizeof *policies; i++)
        code = measure(all, path, policies[i], 6000);
    unlink(path);
    return code ? 1 : 0;
}

int main(int argc, char **argv)
{
    static uint64_t tokens = 5000;
    static const struct opt options[] = {
        { "tokens", 0, OPT_UINT, &tokens, "N",
          "length of the synthetic trace, 3 KB each (5000)", NULL },
    };
    static const struct opt_command command = {
        "make bench-policies ARGS='[TRACE...] [--tokens N]'",
        "Hits, loads and speed of every cache policy.",
        options, 1,
    };
    const char *paths[TRACES_MAX];
    int count = opt_parse(&command, argc, argv, paths, TRACES_MAX);
    if (count < 0)
        return opt_status(count);
    if (!tokens || tokens > 2000000)
        return opt_usage_error(&command, "--tokens is 1 to 2000000");
    json_t *all = json_array();
    int status = 0;
    for (int i = 0; !status && i < count; i++)
        status = table(all, paths[i]);
    if (!status)
        status = speed(all, (uint32_t)tokens);
    return bench_json("policies", all) || status;
}
