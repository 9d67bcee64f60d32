#include "model/sim/simulate_meta.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "model/sim/trace_error.h"

static json_t *read_json(const char *path, struct error *error)
{
    struct trace *t;
    struct trace_fault fault;
    uint32_t bytes;
    int err = trace_open(&t, path, true, &fault);
    if (err) {
        trace_error(error, err, path, &fault);
        return NULL;
    }
    const char *text = trace_meta(t, &bytes);
    json_t *meta = json_loadb(text ? text : "", text ? bytes : 0, 0, NULL);
    trace_close(t);
    return meta ? meta : json_object();
}

static uint64_t number(const json_t *o, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(o, name));
    return value > 0 ? (uint64_t)value : 0;
}

static uint32_t small_number(const json_t *o, const char *name)
{
    uint64_t value = number(o, name);
    return value < 1u << 24 ? (uint32_t)value : 0;
}

int simulate_meta_open(struct simulate_meta *m, const char *trace,
                       const char *model, struct error *error)
{
    memset(m, 0, sizeof *m);
    json_t *meta = read_json(trace, error);
    if (!meta)
        return error->code;
    json_t *config = json_object_get(meta, "config");
    const json_t *o = json_object_get(meta, "options");
    int err;
    if (model)
        err = config_load(&m->config, model, error);
    else if (json_is_object(config))
        err = config_parse(&m->config, config, trace, error);
    else
        err = error_set(error, -EINVAL,
                        "%s: no config is in it, so time needs "
                        "--model DIR",
                        trace);
    m->k3 = (struct k3_options){
        .memory_bytes = number(o, "memory_bytes"),
        .heap_bytes = number(o, "heap_bytes"),
        .threads = small_number(o, "threads"),
        .context = small_number(o, "context"),
        .rows = small_number(o, "rows"),
        .logits = small_number(o, "logits"),
        .sequences = small_number(o, "sequences"),
        .drafts = small_number(o, "drafts"),
    };
    json_decref(meta);
    return err;
}

void simulate_meta_close(struct simulate_meta *m)
{
    config_free(&m->config);
}
