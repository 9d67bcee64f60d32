#include "bin/report/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bin/cli/json.h"
#include "bin/cli/outputs.h"
#include "model/k3/limits.h"
#include "model/k3/tiles.h"
#include "model/sluice.h"
#include "sched/trace/trace.h"

struct recorder {
    const char *dir;
    struct output file;
    struct trace_writer *w; /* NULL until planned */
    uint32_t first_dense, top_k, moe_layers;
    uint32_t *sequence_of;  /* [sequences] number + 1 in the trace, or none */
    uint32_t  sequences;    /* begun so far */
    uint32_t  step;
    struct k3_row *row;     /* [rows] of the present pass */
    uint32_t  rows;
    uint32_t  waiting;      /* draft rows, accepted or rejected later */
    int code;               /* first error of the file */
};

static void commit(struct recorder *r)
{
    int err = trace_commit(r->w);
    if (err && !r->code)
        r->code = err;
    r->step++;
    r->waiting = 0;
}

/* The first `n` draft rows of the sequence were accepted. */
static void accept_drafts(struct recorder *r, uint32_t sequence, uint32_t n)
{
    for (uint32_t i = 0; i < r->rows; i++) {
        const struct k3_row *row = &r->row[i];
        if (!row->draft || row->sequence != sequence)
            continue;
        trace_row(r->w, i, r->sequence_of[sequence] - 1, row->position,
                  row->id, TRACE_DRAFT, n ? 0 : TRACE_REJECTED);
        n -= n > 0;
        r->waiting--;
    }
}

static enum trace_phase phase_of(const struct k3_row *row)
{
    if (row->draft)
        return TRACE_DRAFT;
    return row->phase == K3_DECODE ? TRACE_DECODE : TRACE_PREFILL;
}

static void on_began(void *arg, const struct k3_row *rows, uint32_t n)
{
    struct recorder *r = arg;
    if (r->waiting)
        commit(r); /* nobody said which drafts were accepted */
    trace_begin(r->w, r->step, n);
    r->rows = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *sequence = &r->sequence_of[rows[i].sequence];
        if (!rows[i].position || !*sequence)
            *sequence = ++r->sequences;
        r->row[i] = rows[i];
        trace_row(r->w, i, *sequence - 1, rows[i].position, rows[i].id,
                  phase_of(&rows[i]), rows[i].position ? 0 : TRACE_FIRST);
    }
}

static void on_routed(void *arg, uint32_t layer, uint32_t row,
                      const uint32_t *ids, const float *weights,
                      const uint8_t *source)
{
    static const uint8_t code[K3_SOURCES] = {
        [FETCH_MISS] = TRACE_MISS, [FETCH_RESIDENT] = TRACE_RESIDENT,
        [FETCH_PREFETCHED] = TRACE_PREFETCHED, [FETCH_LATE] = TRACE_LATE,
        [K3_SOURCE_SHARED] = TRACE_SHARED,
    };
    struct recorder *r = arg;
    uint32_t m = layer - r->first_dense;
    float sum = 0, share[K3_TOP_K_MAX];
    uint8_t hit[K3_TOP_K_MAX];
    for (uint32_t i = 0; i < r->top_k; i++)
        sum += weights[i];
    for (uint32_t i = 0; i < r->top_k; i++) {
        share[i] = sum > 0 ? weights[i] / sum : 0;
        hit[i] = code[source[i]];
    }
    trace_choice(r->w, row, m, ids, share);
    trace_hits(r->w, row, m, hit);
}

static void on_passed(void *arg, const struct k3_moe_times *times)
{
    struct recorder *r = arg;
    for (uint32_t i = 0; i < r->rows; i++) {
        r->waiting += r->row[i].draft;
        for (uint32_t m = 0; m < r->moe_layers; m++) {
            uint32_t us[TRACE_TIME_COLUMNS] = {
                times[m].wait_trunk_us, times[m].attention_us,
                times[m].wait_expert_us, times[m].experts_us };
            trace_times(r->w, i, m, us);
        }
    }
    if (!r->waiting)
        commit(r);
}

static void on_accepted(void *arg, uint32_t sequence, uint32_t n)
{
    struct recorder *r = arg;
    if (!r->waiting)
        return;
    accept_drafts(r, sequence, n);
    if (!r->waiting)
        commit(r);
}

/* ---- open and close ---- */

static json_t *sizes_of(const struct k3 *k)
{
    const struct k3_options *o = k3_options_of(k);
    json_t *drives = json_array();
    for (uint32_t d = 0; d < o->paced_count; d++)
        json_array_append_new(
            drives,
            json_pack("{s:I, s:I}", "bytes_per_s",
                      (json_int_t)o->paced[d].bytes_per_s, "latency_ns",
                      (json_int_t)o->paced[d].latency_ns));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:s?, s:o}",
        "memory_bytes", (json_int_t)o->memory_bytes,
        "heap_bytes", (json_int_t)o->heap_bytes,
        "threads", (json_int_t)k3_threads(k),
        "context", (json_int_t)o->context,
        "rows", (json_int_t)o->rows,
        "logits", (json_int_t)o->logits,
        "sequences", (json_int_t)o->sequences,
        "drafts", (json_int_t)o->drafts,
        "policy", o->policy, "prefetch", o->prefetch, "drives", drives);
}

/* Where the trace comes from: engine, model, config, options. */
static char *describe(const struct recorder *r, const struct k3 *k)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", r->dir);
    json_t *o = json_object();
    json_object_set_new(o, "source", json_string("sluice " SLUICE_VERSION));
    json_object_set_new(o, "model", json_bytes(r->dir));
    json_object_set_new(o, "options", sizes_of(k));
    json_object_set_new(o, "config", json_load_file(path, 0, NULL));
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    return text;
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static int failed(const struct recorder *r, int err, struct error *error)
{
    return output_failed(&r->file, -err, error);
}

int recorder_planned(struct recorder *r, const struct k3 *k,
                     struct error *error)
{
    const struct config *c = k3_config(k);
    struct trace_info info = {
        .flags = TRACE_RANKED | TRACE_SCORES | TRACE_HITS | TRACE_TIMES |
                 TRACE_CRC,
        .layers = config_moe_layers(c), .first_layer = c->first_dense,
        .model_layers = c->layers, .experts = c->experts, .top_k = c->top_k,
        .expert_bytes = expert_bytes(c),
        .trunk_bytes = k3_tiles(k)->payload_bytes, .created_us = now_us(),
    };
    r->first_dense = c->first_dense;
    r->top_k = c->top_k;
    r->moe_layers = info.layers;
    r->sequence_of = calloc(k3_plan_of(k)->sequences,
                            sizeof *r->sequence_of);
    r->row = calloc(k3_rows(k), sizeof *r->row);
    char *meta = describe(r, k);
    int err = r->sequence_of && r->row && meta ? 0 : -ENOMEM;
    if (!err)
        err = trace_create_at(&r->w, r->file.r.fd, &info, meta,
                              k3_rows(k));
    free(meta);
    return err ? failed(r, err, error) : 0;
}

/* The buffer for the rows of a pass and for the JSON. */
static uint64_t buffer_bytes(const struct config *c, uint32_t rows)
{
    uint64_t cells = (uint64_t)config_moe_layers(c) * c->top_k;
    return (cells * 5 + config_moe_layers(c) * 16ull +
            sizeof(struct k3_row) + 64) * rows + (128 << 10);
}

int recorder_open(struct recorder **out, const char *path, const char *dir,
                  struct k3_options *o, struct error *error)
{
    struct config c;
    *out = NULL;
    int err = config_load(&c, dir, error);
    if (err)
        return err;
    uint32_t rows = o->rows && o->rows < K3_ROWS_MAX ? o->rows : K3_ROWS_MAX;
    uint64_t bytes = buffer_bytes(&c, rows);
    config_free(&c);
    struct recorder *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(error, -ENOMEM, "no memory for the trace");
    err = output_open(&r->file, path, "the trace", error);
    if (err) {
        free(r);
        return err;
    }
    o->heap_bytes += bytes;
    o->began = on_began;
    o->routed = on_routed;
    o->passed = on_passed;
    o->accepted = on_accepted;
    o->routed_arg = r;
    r->dir = dir;
    *out = r;
    return 0;
}

int recorder_begun(struct recorder *r, struct error *error)
{
    return r ? output_publish(&r->file, error) : 0;
}

int recorder_close(struct recorder *r, struct error *error)
{
    if (!r)
        return 0;
    if (r->w && r->waiting)
        commit(r);
    bool written = r->w != NULL;
    int err = written ? trace_finish(r->w) : 0;
    if (r->code)
        err = r->code;
    if (err)
        failed(r, err, error);
    int other = output_close(&r->file, written && !err, error);
    err = err ? err : other;
    free(r->sequence_of);
    free(r->row);
    free(r);
    return err;
}
