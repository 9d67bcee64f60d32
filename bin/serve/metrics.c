#include "bin/serve/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "io/clock.h"

static void put(struct buffer *out, const char *name, const char *type,
                const char *help, double value)
{
    buffer_format(out, "# HELP sluice_%s %s\n# TYPE sluice_%s %s\n"
                       "sluice_%s %.17g\n",
                  name, help, name, type, name, value);
}

static void put_classes(struct buffer *out, const char *name,
                        const char *help, const uint64_t value[2])
{
    static const char *const class[2] = { "interactive", "batch" };
    buffer_format(out, "# HELP sluice_%s %s\n# TYPE sluice_%s counter\n", name,
                  help, name);
    for (int i = 0; i < 2; i++)
        buffer_format(out, "sluice_%s{class=\"%s\"} %" PRIu64 "\n", name,
                      class[i], value[i]);
}

/* Draft rows by where they came from. */
static void put_drafts(struct buffer *out, const char *name, const char *help,
                       const struct room *r, bool accepted)
{
    static const char *const source[BATCH_SOURCES] = {
        [BATCH_FROM_TEXT] = "text",
        [BATCH_FROM_DRAFTER] = "drafter",
        [BATCH_FROM_FORM] = "form",
    };
    buffer_format(out, "# HELP sluice_%s %s\n# TYPE sluice_%s counter\n", name,
                  help, name);
    for (int i = 0; i < BATCH_SOURCES; i++) {
        const struct batch_drafts *d = &r->drafts[i];
        const uint64_t *place = accepted ? d->accepted : d->drafted;
        uint64_t sum = 0;
        for (uint32_t j = 0; j < DRAFT_FIXED_MAX; j++)
            sum += place[j];
        buffer_format(out, "sluice_%s{source=\"%s\"} %" PRIu64 "\n", name,
                      source[i], sum);
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put_requests(struct buffer *out, const struct room *r)
{
    const struct sluice_counters *c = &r->counters;
    const struct room_counts *n = &r->counts;
    put_classes(out, "requests_total", "Requests taken.", n->asked);
    put_classes(out, "answered_total", "Requests answered.", n->answered);
    put_classes(out, "failed_total", "Requests that failed.", n->failed);
    put_classes(out, "cancelled_total", "Requests cancelled.", n->cancelled);
    put(out, "attached_total", "counter",
        "Requests sent again that followed the first.", (double)n->attached);
    put(out, "hung_up_total", "counter",
        "Clients that left before the answer.", (double)n->hung_up);
    put(out, "suspended_total", "counter",
        "Requests that gave way to others, to go on later.",
        (double)n->suspended);
    put(out, "queue_refused_total", "counter",
        "Requests refused because the queue was full.",
        (double)n->refused_queue);
    put(out, "queue_wait_seconds_sum", "counter",
        "Time in the queue, of requests that left it for the engine.",
        (double)n->wait_ns / 1e9);
    put(out, "queue_wait_seconds_count", "counter", "How many those are.",
        (double)n->waited);
    put(out, "http_requests_total", "counter", "HTTP requests.",
        (double)n->http_requests);
    put(out, "http_errors_total", "counter",
        "HTTP requests answered with 400 and above, or not at all.",
        (double)n->http_errors);
    put(out, "queued", "gauge", "Requests that wait.", r->queue.count);
    put(out, "running", "gauge", "Requests in the engine.", c->running);
    put(out, "running_batch", "gauge", "Lines of batches in the engine.",
        r->batch_running);
    put(out, "places", "gauge", "Requests the engine runs at one time.",
        r->sequences);
    put(out, "kept", "gauge", "Requests that can be found again.",
        r->kept_count);
}

void metrics_put(struct buffer *out, const struct room *r)
{
    const struct sluice_counters *c = &r->counters;
    put_requests(out, r);
    put(out, "passes_total", "counter", "Passes over the weights.",
        (double)c->passes);
    put(out, "prompt_tokens_total", "counter", "Tokens read.",
        (double)c->prompt_ids);
    put(out, "prompt_tokens_copied_total", "counter",
        "Tokens of prompts that another request had read.",
        (double)c->copied_ids);
    put(out, "prompt_tokens_loaded_total", "counter",
        "Tokens of prompts whose state was in the prefix cache.",
        (double)c->loaded_ids);
    put(out, "new_tokens_total", "counter", "Tokens made.",
        (double)c->new_ids);
    put_drafts(out, "drafted_tokens_total",
               "Tokens drafted, by where they came from.", r, false);
    put_drafts(out, "accepted_tokens_total", "Drafts that were right.", r,
               true);
    put(out, "drafter", "gauge", "1 when a trained drafter drafts.",
        r->drafter);
    put(out, "read_bytes_total", "counter", "Bytes read by passes.",
        (double)c->read_bytes);
    put(out, "wasted_bytes_total", "counter",
        "Of those, read ahead and not used.", (double)c->wasted_bytes);
    put(out, "read_wait_seconds_total", "counter",
        "Time in passes that waited for reads.", (double)c->wait_ns / 1e9);
    put(out, "pass_seconds_total", "counter", "Time in passes.",
        (double)(c->prefill_ns + c->decode_ns) / 1e9);
    put(out, "expert_requests_total", "counter", "Experts asked for.",
        (double)r->expert_requests);
    put(out, "expert_hits_total", "counter", "Experts that were in memory.",
        (double)r->expert_hits);
    put(out, "resident_memory_bytes", "gauge", "Memory of the process.",
        (double)resident_bytes());
    put(out, "ready", "gauge", "1 when requests are answered.",
        r->state == ROOM_READY);
}

/* ---- the page ---- */

static void put_work(struct buffer *out, const struct room *r,
                     const struct work *w, bool first)
{
    buffer_format(out,
                  "%s{\"id\":\"%s\",\"state\":\"%s\",\"prompt_tokens\":%" PRIu64
                  ",\"new_tokens\":%" PRIu32 ",\"max_tokens\":%" PRIu64
                  ",\"seconds\":%.3f,\"seconds_left\":%.3f,\"before\":%" PRIu64
                  "}",
                  first ? "" : ",", w->id,
                  w->state == WORK_QUEUED ? "queued" : "running",
                  w->prompt_ids, w->new_ids, w->max_ids,
                  (double)(clock_ns() - w->begin_ns) / 1e9,
                  room_seconds_left(r, w),
                  w->state == WORK_QUEUED ? w->queue_place : 0);
}

static void put_history(struct buffer *out, const struct room *r)
{
    uint64_t n = r->samples < ROOM_HISTORY ? r->samples : ROOM_HISTORY;
    buffer_text(out, ",\"history\":[");
    for (uint64_t i = r->samples - n; i < r->samples; i++) {
        const struct room_sample *s = &r->history[i % ROOM_HISTORY];
        buffer_format(out,
                      "%s[%.0f,%" PRIu32 ",%" PRIu32 ",%" PRIu32 "]",
                      i > r->samples - n ? "," : "", (double)s->read_rate,
                      s->ids, s->running, s->queued);
    }
    buffer_text(out, "]");
}

void metrics_queue(struct buffer *out, const struct room *r, uint64_t owner)
{
    uint32_t shown = 0, others = 0;
    buffer_text(out, "{\"requests\":[");
    for (int i = 0; i < 2; i++) {
        const struct work *w = i ? r->queue.first : r->running;
        for (; w; w = w->after) {
            if (w->owner == owner)
                put_work(out, r, w, !shown++);
            else
                others++;
        }
    }
    const struct sluice_counters *c = &r->counters;
    buffer_format(out,
                  "],\"others\":%" PRIu32 ",\"batch_lines\":%" PRIu32
                  ",\"running\":%" PRIu32 ",\"queued\":%" PRIu32
                  ",\"places\":%" PRIu32 ",\"layer\":%" PRIu32
                  ",\"layers\":%" PRIu32 ",\"passes\":%" PRIu64
                  ",\"seconds_per_pass\":%.6g,\"read_rate\":%.0f,"
                  "\"read_limit\":%.0f,\"new_tokens\":%" PRIu64
                  ",\"prompt_tokens\":%" PRIu64 ",\"read_bytes\":%" PRIu64
                  ",\"expert_requests\":%" PRIu64 ",\"expert_hits\":%" PRIu64
                  ",\"memory_bytes\":%" PRIu64 ",\"budget_bytes\":%" PRIu64
                  ",\"model\":",
                  others, r->batch_running, c->running, r->queue.count,
                  r->sequences, atomic_load(&r->layer),
                  atomic_load(&r->layers), c->passes, r->pass_seconds,
                  r->pass_rate, r->drive_limit, c->new_ids, c->prompt_ids,
                  c->read_bytes, r->expert_requests, r->expert_hits,
                  resident_bytes(), r->info.budget_bytes);
    api_text(out, r->o->name[0]);
    put_history(out, r);
    buffer_text(out, "}");
}

void metrics_second(struct room *r)
{
    struct room_sample *s = &r->history[r->samples % ROOM_HISTORY];
    s->running = r->counters.running;
    s->queued = r->queue.count;
    r->samples++;
    r->history[r->samples % ROOM_HISTORY] = (struct room_sample){ 0 };
}
