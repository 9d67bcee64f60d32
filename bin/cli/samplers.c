#include "bin/cli/samplers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/slurp.h"

enum { FILE_BYTES_MAX = 16 << 20 };

void samplers_defaults(struct samplers_args *a)
{
    *a = (struct samplers_args){ .temperature = NAN, .top_p = NAN,
                                 .min_p = NAN, .presence = NAN,
                                 .frequency = NAN, .repetition = NAN,
                                 .top_k = UINT64_MAX };
}

const char *samplers_bias(void *arg, const char *value)
{
    struct samplers_args *a = arg;
    char *end;
    errno = 0;
    unsigned long id = strtoul(value, &end, 10);
    double add = *end == '=' ? strtod(end + 1, &end) : NAN;
    if (value[0] < '0' || value[0] > '9' || *end || errno || id > UINT32_MAX ||
        !(fabs(add) <= 100))
        return "is not ID=F, F from -100 to 100";
    if (a->biases == SAMPLERS_BIASES_MAX)
        return "is one bias too many";
    a->bias[a->biases++] = (struct sluice_bias){ (uint32_t)id, (float)add };
    return NULL;
}

const char *samplers_stop(void *arg, const char *value)
{
    struct samplers_args *a = arg;
    if (!*value)
        return "is empty";
    if (a->stops == REQUEST_STOPS_MAX)
        return "is one text too many";
    a->stop[a->stops++] = value;
    return NULL;
}

const char *samplers_check(const struct samplers_args *a)
{
    if (a->temperature < 0)
        return "--temperature is not negative";
    if (a->top_p <= 0 || a->top_p > 1)
        return "--top-p is above 0 and at most 1";
    if (a->min_p < 0 || a->min_p > 1)
        return "--min-p is from 0 to 1";
    if (fabs(a->presence) > 2)
        return "--presence-penalty is from -2 to 2";
    if (fabs(a->frequency) > 2)
        return "--frequency-penalty is from -2 to 2";
    if (a->repetition <= 0 || a->repetition > 100)
        return "--repetition-penalty is above 0 and at most 100";
    if (a->json + !!a->schema_file + !!a->regex > 1)
        return "of --json, --json-schema and --regex one can be asked for";
    return NULL;
}

/* generation_config.json over the defaults. */
static int read_config(struct samplers_args *a, const char *model,
                       struct error *error)
{
    char path[4096], *text = NULL;
    size_t bytes;
    struct jv_doc d;
    struct jv_wrong wrong;
    struct refusal r = { 0 };
    snprintf(path, sizeof path, "%s/generation_config.json", model);
    int err = slurp_file(&text, &bytes, path, FILE_BYTES_MAX, error);
    if (err)
        return err;
    err = jv_parse(&d, text, bytes, JV_STRICT, &wrong);
    free(text);
    if (err)
        return error_set(error, err, "%s: not JSON: %s at byte %zu", path,
                         err == -ENOMEM ? "no memory" : wrong.what,
                         wrong.at + 1);
    const struct jv *sample = jv_get(d.root, "do_sample");
    a->chosen.temperature = jv_is_type(sample, JV_TRUE) ? 1 : 0;
    if (request_sampling(&a->chosen, d.root, &r))
        err = error_set(error, -EINVAL, "%s: %s: %s", path, r.field,
                        r.sentence);
    if (jv_is_type(sample, JV_FALSE))
        a->chosen.temperature = 0;
    jv_free(&d);
    return err;
}

static int load_form(struct samplers_args *a, struct error *error)
{
    int err = 0;
    if (a->json)
        a->form = SLUICE_JSON;
    if (a->schema_file) {
        a->form = SLUICE_SCHEMA;
        err = slurp_file(&a->schema, &a->form_bytes, a->schema_file,
                         FILE_BYTES_MAX, error);
        a->form_text = a->schema;
    }
    if (a->regex) {
        a->form = SLUICE_PATTERN;
        a->form_text = a->regex;
        a->form_bytes = strlen(a->regex);
    }
    return err;
}

int samplers_load(struct samplers_args *a, const char *model,
                  struct error *error)
{
    a->chosen = (struct request_sampling){ .top_p = 1, .repetition = 1 };
    int err = a->generation_config ? read_config(a, model, error) : 0;
    const struct {
        double said, *out;
    } all[] = {
        { a->temperature, &a->chosen.temperature },
        { a->top_p, &a->chosen.top_p },
        { a->min_p, &a->chosen.min_p },
        { a->presence, &a->chosen.presence },
        { a->frequency, &a->chosen.frequency },
        { a->repetition, &a->chosen.repetition },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].said))
            *all[i].out = all[i].said;
    if (a->top_k != UINT64_MAX)
        a->chosen.top_k = a->top_k < UINT32_MAX ? (uint32_t)a->top_k
                                                : UINT32_MAX;
    a->chosen.seed = a->seed;
    a->chosen.has_seed = false;
    return err ? err : load_form(a, error);
}

void samplers_free(struct samplers_args *a)
{
    free(a->schema);
    a->schema = NULL;
}

void samplers_request(struct sluice_request *r,
                      const struct request_sampling *s)
{
    r->temperature = s->temperature;
    r->top_p = s->top_p;
    r->top_k = s->top_k;
    r->min_p = s->min_p;
    r->presence_penalty = s->presence;
    r->frequency_penalty = s->frequency;
    r->repetition_penalty = s->repetition;
    r->seed = s->seed;
}

void samplers_ask(struct sluice_request *r, const struct samplers_args *a)
{
    samplers_request(r, &a->chosen);
    r->bias = a->bias;
    r->biases = a->biases;
    r->form = a->form;
    r->form_text = a->form_text;
    r->form_bytes = a->form_bytes;
    r->ignore_end = a->ignore_eos;
}
