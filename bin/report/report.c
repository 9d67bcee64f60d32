#include "bin/report/machines.h"
#include "bin/report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bin/cli/json.h"
#include "bin/cli/outputs.h"
#include "bin/report/report_detail.h"
#include "model/ckpt/figure.h"
#include "model/k3/rates.h"
#include "model/memory.h"
#include "model/pack/sidecar.h"
#include "model/sluice.h"

static const double GIB = 1024.0 * 1024 * 1024;

static json_t *ids(const uint32_t *list, uint64_t count)
{
    json_t *array = json_array();
    for (uint64_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(list[i]));
    return array;
}

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

json_t *report_plan(const struct plan *p)
{
    json_t *o = json_object();
    set_int(o, "budget_bytes", p->budget_bytes);
    set_int(o, "floor_bytes", p->floor_bytes);
    set_int(o, "state_bytes", p->state_bytes);
    set_int(o, "ring_bytes", p->ring_bytes);
    set_int(o, "resident_bytes", p->resident_bytes);
    set_int(o, "expert_frames", p->expert_frames);
    set_int(o, "scratch_bytes", p->scratch_bytes);
    set_int(o, "program_bytes", p->program_bytes);
    set_int(o, "staging_frames", p->staging_frames);
    set_int(o, "staging_bytes", p->staging_bytes);
    set_int(o, "cache_bytes", p->cache_bytes);
    set_int(o, "total_bytes", p->total_bytes);
    set_int(o, "rows", p->rows);
    set_int(o, "sequences", p->sequences);
    set_int(o, "streamed_tiles", p->streamed_tiles);
    set_int(o, "decoded_tiles", p->decoded_tiles);
    set_int(o, "streamed_payload_bytes", p->streamed_payload_bytes);
    set_int(o, "resident_payload_bytes", p->resident_payload_bytes);
    return o;
}

static uint64_t rate_of(const struct reader_facts *r)
{
    return r->paced_bytes_per_s ? r->paced_bytes_per_s : r->raw_bytes_per_s;
}

static json_t *kept(const struct k3_kept *kept)
{
    return json_pack("{s:I, s:I}", "coded", (json_int_t)kept->coded, "decoded",
                     (json_int_t)kept->decoded);
}

/* Coded weights: what is stored for what it stands for. */
static json_t *coded_object(const struct k3_facts *f)
{
    json_t *o = json_object();
    set_int(o, "files", f->coded_files);
    set_int(o, "trunk_stored_bytes", f->trunk_bytes);
    set_int(o, "trunk_decoded_bytes", f->trunk_decoded_bytes);
    set_int(o, "expert_stored_bytes", f->expert_bytes);
    set_int(o, "expert_decoded_bytes", f->expert_decoded_bytes);
    bool any = f->coded_files > 0;
    json_object_set_new(o, "trunk_used", json_boolean(
        any && !(f->packed_skip & SIDECAR_TRUNK)));
    json_object_set_new(o, "scales_used", json_boolean(
        any && !(f->packed_skip & SIDECAR_SCALES)));
    set_int(o, "mended", f->mended);
    json_object_set_new(o, "resident", json_pack("{s:o, s:o}", "products",
                                                 kept(&f->kept_products),
                                                 "rows", kept(&f->kept_rows)));
    if (f->decode)
        json_object_set_new(
            o, "decode_time",
            json_pack("{s:f, s:f, s:f}", "product", f->decode->product, "many",
                      f->decode->many, "rows", f->decode->rows));
    json_t *notes = json_array();
    for (uint32_t i = 0; i < f->coded_notes; i++)
        json_array_append_new(notes, json_bytes(f->coded_note[i]));
    json_object_set_new(o, "notes", notes);
    return o;
}

static json_t *io_object(const struct k3_facts *f)
{
    const struct reader_facts *r = &f->reader;
    json_t *o = json_object();
    json_object_set_new(o, "method", json_bytes(r->method));
    json_object_set_new(o, "direct", json_boolean(r->direct));
    json_object_set_new(o, "registered", json_boolean(r->registered_buffers));
    set_real(o, "huge_page_share", f->huge_page_share);
    set_int(o, "device_bytes_per_s", r->paced_bytes_per_s);
    set_int(o, "raw_bytes_per_s", r->raw_bytes_per_s);
    set_real(o, "in_flight_mean_bytes", r->in_flight_mean_bytes);
    set_int(o, "in_flight_peak_bytes", r->in_flight_peak_bytes);
    set_int(o, "retries", r->retries);
    set_int(o, "short_reads", r->short_reads);
    json_object_set_new(o, "setup", json_bytes(r->setup));
    json_object_set_new(o, "registered_files",
                        json_boolean(r->registered_files));
    set_int(o, "drives", f->drives);
    set_int(o, "numa_nodes", f->nodes);
    json_object_set_new(o, "owner_node", json_integer(r->owner_node));
    set_int(o, "reads", r->reads);
    set_int(o, "payload_bytes", r->payload_bytes);
    set_int(o, "device_bytes", r->device_bytes);
    set_int(o, "resident_read_bytes", f->resident_read_bytes);
    json_t *notes = json_array();
    for (uint32_t i = 0; i < r->notes; i++)
        json_array_append_new(notes, json_bytes(r->note[i]));
    json_object_set_new(o, "notes", notes);
    return o;
}

/* Under the present name and the one that older readers know. */
static const char *const renamed[][2] = {
    { "expert_prefetch_bytes", "expert_guess_bytes" },
    { "prefetched", "guessed" },
    { "prefetch_hits", "guess_hits" },
};

void report_set_old_names(json_t *o)
{
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        json_t *value = json_object_get(o, renamed[i][0]);
        if (value)
            json_object_set(o, renamed[i][1], value);
    }
}

bool report_is_old_name(const char *name)
{
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(name, renamed[i][1]))
            return true;
    return false;
}

/* The numbers that both phases have. */
static void set_phase(json_t *o, const struct k3_totals *t)
{
    set_int(o, "read_bytes", k3_read_bytes(t));
    set_int(o, "trunk_bytes", t->trunk_bytes);
    set_int(o, "embed_bytes", t->embed_bytes);
    set_int(o, "expert_demand_bytes", t->demand_bytes);
    set_int(o, "expert_prefetch_bytes", t->prefetch_bytes);
    set_int(o, "wasted_bytes", t->wasted_bytes);
    set_int(o, "expert_items", t->expert_items);
    set_real(o, "wait_trunk_s", seconds(t->wait_trunk_ns));
    set_real(o, "wait_expert_s",
             seconds(t->wait_expert_ns - t->wait_embed_ns));
    set_real(o, "wait_embed_s", seconds(t->wait_embed_ns));
    set_real(o, "idle_s", seconds(t->idle_ns));
    set_real(o, "all_idle_s", seconds(t->all_idle_ns));
    report_set_old_names(o);
}

static json_t *prefill_object(const struct k3_facts *f)
{
    const struct k3_totals *t = &f->totals[K3_PREFILL];
    json_t *o = json_object();
    set_int(o, "decoded_bytes", f->decoded_bytes[K3_PREFILL]);
    set_int(o, "tokens", t->rows);
    set_int(o, "passes", t->passes);
    set_real(o, "seconds", seconds(t->ns));
    set_phase(o, t);
    return o;
}

static json_t *decode_object(const struct k3_facts *f, uint64_t tokens)
{
    const struct k3_totals *t = &f->totals[K3_DECODE];
    json_t *o = json_object();
    double s = seconds(t->ns), per = tokens ? 1.0 / (double)tokens : 0;
    double wait = seconds(t->wait_trunk_ns + t->wait_expert_ns);
    double compute = s - wait;
    uint64_t rate = rate_of(&f->reader);
    double io = rate ? (double)k3_read_bytes(t) / (double)rate : 0;
    set_int(o, "tokens", tokens);
    set_int(o, "passes", t->passes);
    set_int(o, "rows", t->rows);
    set_int(o, "decoded_bytes", f->decoded_bytes[K3_DECODE]);
    set_real(o, "seconds", s);
    set_real(o, "seconds_per_token", s * per);
    set_real(o, "read_bytes_per_token", (double)k3_read_bytes(t) * per);
    set_phase(o, t);
    set_real(o, "wait_share", s > 0 ? wait / s : 0);
    set_real(o, "compute_s", compute);
    set_real(o, "io_s", io);
    set_real(o, "disk_idle_share",
             s > 0 ? seconds(t->idle_ns) / s / (double)f->drives : 0);
    set_real(o, "overlap",
             s > 0 ? (io > compute ? io : compute) / s : 0);
    return o;
}

static json_t *experts_object(const struct k3_facts *f)
{
    const struct fetch_counts *e = &f->experts;
    json_t *o = json_object();
    set_int(o, "requests", e->requests);
    set_int(o, "hits", e->hits);
    set_int(o, "loads", e->loads);
    set_int(o, "prefetched", e->prefetched);
    set_int(o, "prefetch_hits", e->prefetch_hits);
    set_int(o, "late", e->late);
    set_int(o, "evictions", e->evictions);
    set_int(o, "bypassed", e->bypassed);
    set_real(o, "demand_latency_mean_s",
             e->timed ? seconds(e->latency_ns) / (double)e->timed : 0);
    set_real(o, "demand_latency_max_s", seconds(e->latency_max_ns));
    report_set_old_names(o);
    return o;
}

json_t *report_make(const struct report_input *in)
{
    struct k3_facts f;
    struct rusage usage;
    k3_quiesce(in->k);
    k3_facts(in->k, &f);
    getrusage(RUSAGE_SELF, &usage);
    json_t *r = json_object();
    if (in->setup)
        json_object_set_new(r, "setup", in->setup);
    json_object_set_new(r, "prompt_ids", ids(in->prompt, in->prompt_count));
    json_object_set_new(r, "generated_ids",
                        ids(in->generated, in->generated_count));
    json_object_set_new(r, "plan", report_plan(k3_plan_of(in->k)));
    json_object_set_new(r, "io", io_object(&f));
    json_object_set_new(r, "coded", coded_object(&f));
    json_object_set_new(r, "prefill",
                        prefill_object(&f));
    json_object_set_new(r, "decode", decode_object(&f, in->decode_tokens));
    json_object_set_new(r, "experts", experts_object(&f));
    set_int(r, "peak_rss_bytes", memory_peak_rss());
    set_real(r, "cpu_seconds",
             (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) /
                     1e6);
    set_real(r, "wall_seconds", in->wall_seconds);
    set_real(r, "open_s", in->open_seconds);
    set_real(r, "probe_s", seconds(f.reader.probe_end_ns -
                                   f.reader.probe_begin_ns));
    set_int(r, "threads", f.threads);
    json_object_set_new(r, "isa", json_string(f.isa));
    json_object_set_new(r, "policy", json_string(f.policy));
    json_object_set_new(r, "prefetch", json_string(f.prefetch));
    report_detail(r, in->k);
    machines_report(r, in->k);
    json_object_set_new(r, "version", json_string(SLUICE_VERSION));
    return r;
}

int report_write(const char *path, const json_t *report, struct error *error)
{
    if (!path)
        return 0;
    struct output o;
    int err = output_open(&o, path, "the report", error);
    if (err)
        return err;
    errno = 0;
    if (json_dumpf(report, o.f, JSON_INDENT(1)) || fputc('\n', o.f) == EOF)
        err = output_failed(&o, errno ? errno : EIO, error);
    int other = output_close(&o, !err, error);
    return err ? err : other;
}

static double real(const json_t *o, const char *part, const char *name)
{
    return json_number_value(json_object_get(json_object_get(o, part), name));
}

static struct figure tokens(const json_t *r, const char *part)
{
    return figure_count((uint64_t)real(r, part, "tokens"), "token");
}

/* In percent of `whole`, of the decode passes. */
static struct figure share(const json_t *r, const char *name, double whole)
{
    return figure_percent(real(r, "decode", name) / whole);
}

static void say_bytes(const json_t *r, const char *part)
{
    double s = real(r, part, "seconds"), bytes = real(r, part, "read_bytes");
    double rate = real(r, "io", "device_bytes_per_s");
    rate = rate > 0 ? rate : real(r, "io", "raw_bytes_per_s");
    fprintf(stderr, "%s read %s GB a pass at %s GB/s", part,
            figure(bytes / 1e9 / real(r, part, "passes")).text,
            figure(s > 0 ? bytes / s / 1e9 : 0).text);
    if (rate > 0)
        fprintf(stderr, ", %s %% of the drive%s %s GB/s",
                figure_percent(s > 0 ? bytes / s / rate : 0).text,
                real(r, "io", "drives") > 1 ? "s'" : "'s",
                figure(rate / 1e9).text);
    fputc('\n', stderr);
}

/* Copies of shards that were lost on the way. */
static void say_lost(const json_t *report)
{
    const json_t *notes =
        json_object_get(json_object_get(report, "io"), "notes");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const char *text = json_string_value(json_array_get(notes, i));
        if (text && !strncmp(text, READER_LOST, strlen(READER_LOST)))
            fprintf(stderr, "%s\n", text);
    }
}

void report_say(const json_t *r)
{
    say_lost(r);
    bool decoded = real(r, "decode", "passes") > 0;
    const char *part = decoded ? "decode" : "prefill";
    double s = real(r, part, "seconds");
    fprintf(stderr, "prefill %s in %s s, decode %s",
            tokens(r, "prefill").text,
            figure(real(r, "prefill", "seconds")).text,
            tokens(r, "decode").text);
    if (decoded)
        fprintf(stderr, " in %s s: %s s/token", figure(s).text,
                figure(real(r, "decode", "seconds_per_token")).text);
    fprintf(stderr, "\nopened in %s s, of it %s s to measure drives\n",
            figure(json_number_value(json_object_get(r, "open_s"))).text,
            figure(json_number_value(json_object_get(r, "probe_s"))).text);
    if (real(r, part, "passes") > 0)
        say_bytes(r, part);
    if (decoded)
        fprintf(stderr, "time went to compute %s %%, waiting for trunk "
                "%s %%, for experts %s %%, for the embedding %s %%\n"
                "drive idle %s %%, overlap %s; ",
                share(r, "compute_s", s).text, share(r, "wait_trunk_s", s).text,
                share(r, "wait_expert_s", s).text,
                share(r, "wait_embed_s", s).text,
                share(r, "disk_idle_share", 1).text,
                figure(real(r, "decode", "overlap")).text);
    double used = json_number_value(json_object_get(r, "peak_rss_bytes"));
    fprintf(stderr, "memory %s of %s GiB\n", figure(used / GIB).text,
            figure(real(r, "plan", "budget_bytes") / GIB).text);
    machines_say(r);
}
