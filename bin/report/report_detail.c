#include "bin/report/report_detail.h"

#include "bin/cli/json.h"
#include "sched/stream.h"

static const char *const phase_name[K3_PHASES] = { "prefill", "decode" };

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static json_t *layer_object(const struct k3_layer_totals *t, uint32_t layer,
                            uint32_t layers)
{
    bool inside = layer < layers; /* outside, it is the embedding's rows */
    double other = seconds(t->wait_expert_ns);
    json_t *o = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I}",
        "wait_trunk_s", seconds(t->wait_trunk_ns), "wait_expert_s",
        inside ? other : 0.0, "wait_embed_s", inside ? 0.0 : other,
        "attention_s", seconds(t->attention_ns), "mlp_s", seconds(t->mlp_ns),
        "trunk_bytes", (json_int_t)t->trunk_bytes, "expert_bytes",
        (json_int_t)t->expert_bytes, "requests", (json_int_t)t->requests,
        "loads", (json_int_t)t->loads, "prefetch_hits",
        (json_int_t)t->prefetch_hits, "late", (json_int_t)t->late);
    json_object_set_new(o, "layer", layer < layers ? json_integer(layer)
                                                   : json_null());
    return o;
}

static json_t *layers_of(struct k3 *k, enum k3_phase phase)
{
    const struct k3_layer_totals *t = k3_layers(k, phase);
    uint32_t layers = k3_config(k)->layers;
    json_t *list = json_array();
    for (uint32_t l = 0; l <= layers; l++)
        json_array_append_new(list, layer_object(&t[l], l, layers));
    return list;
}

static json_t *kernels_of(struct k3 *k, enum k3_phase phase)
{
    const struct k3_kernel_totals *t = k3_kernels(k, phase);
    json_t *o = json_object();
    for (uint32_t i = 0; i < k3_kernels_count(); i++) {
        char name[K3_NAME_BYTES];
        k3_kernel_name(name, i);
        if (t[i].calls)
            set_real(o, name, seconds(t[i].ns));
    }
    return o;
}

/* The first microsecond of a bucket. Buckets are quarters of an octave. */
static uint64_t bucket_from(uint32_t bucket)
{
    return bucket ? (4ull + bucket % 4) << (bucket / 4) >> 2 : 0;
}

static json_t *histogram(const uint32_t counts[STREAM_HISTOGRAM])
{
    json_t *list = json_array();
    for (uint32_t b = 0; b < STREAM_HISTOGRAM; b++)
        if (counts[b])
            json_array_append_new(
                list, json_pack("[I, I]", (json_int_t)bucket_from(b),
                                (json_int_t)counts[b]));
    return list;
}

double report_percentile(const json_t *histogram, double share)
{
    double all = 0, seen = 0;
    size_t i;
    json_t *b;
    json_array_foreach(histogram, i, b)
        all += json_number_value(json_array_get(b, 1));
    json_array_foreach(histogram, i, b) {
        double from = json_number_value(json_array_get(b, 0));
        seen += json_number_value(json_array_get(b, 1));
        if (seen < share * all)
            continue;
        double octave = 1;
        while (octave * 2 <= from)
            octave *= 2;
        return from < 1 ? 1 : from + octave / 4;
    }
    return 0;
}

static void add_percentiles(json_t *o, const char *of, const char *name)
{
    const json_t *h = json_object_get(o, of);
    if (json_array_size(h))
        json_object_set_new(o, name,
                            json_pack("[f, f, f]", report_percentile(h, .5),
                                      report_percentile(h, .99),
                                      report_percentile(h, .999)));
}

static json_t *latency_of(struct k3 *k)
{
    static const char *const class_name[READ_CLASSES] = { "demand", "trunk",
                                                          "prefetch" };
    struct stream_stats s;
    json_t *o = json_object();
    stream_stats(k3_stream(k), &s);
    for (int c = 0; c < READ_CLASSES; c++)
        json_object_set_new(
            o, class_name[c],
            json_pack("{s:I, s:I, s:I, s:o, s:o}",
                      "reads", (json_int_t)s.reads[c],
                      "payload_bytes", (json_int_t)s.payload_bytes[c],
                      "device_bytes", (json_int_t)s.device_bytes[c],
                      "queue_us", histogram(s.queue_us[c]),
                      "device_us", histogram(s.device_us[c])));
    const char *key;
    json_t *class;
    json_object_foreach(o, key, class) {
        add_percentiles(class, "queue_us", "queue_p50_p99_p999_us");
        add_percentiles(class, "device_us", "device_p50_p99_p999_us");
    }
    return o;
}

static json_t *drives_of(struct k3 *k)
{
    struct k3_facts f;
    json_t *list = json_array();
    const struct k3_options *o = k3_options_of(k);
    k3_facts(k, &f);
    for (uint32_t d = 0; d < f.drives; d++) {
        const struct reader_drive_facts *r = &f.reader.drive[d];
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
                            "paced_bytes_per_s",
                            (json_int_t)r->paced_bytes_per_s,
                            "paced_latency_us",
                            (json_int_t)(o->paced_count
                                             ? o->paced[d].latency_ns / 1000
                                             : 0),
                            "raw_bytes_per_s", (json_int_t)r->raw_bytes_per_s,
                            "budget_bytes",
                            (json_int_t)k3_in_flight_budget(k, d),
                            "device_bytes", (json_int_t)r->device_bytes,
                            "busy_s", seconds(r->busy_ns),
                            "in_flight_mean_bytes", r->in_flight_mean_bytes));
    }
    return list;
}

void report_detail(json_t *report, struct k3 *k)
{
    json_t *layers = json_object(), *kernels = json_object();
    for (int i = 0; i < K3_PHASES; i++) {
        json_object_set_new(layers, phase_name[i],
                            layers_of(k, (enum k3_phase)i));
        json_object_set_new(kernels, phase_name[i],
                            kernels_of(k, (enum k3_phase)i));
    }
    json_object_set_new(report, "layers", layers);
    json_object_set_new(report, "kernels", kernels);
    json_object_set_new(report, "latency", latency_of(k));
    json_object_set_new(report, "drives", drives_of(k));
}
