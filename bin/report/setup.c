#include "bin/report/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bin/cli/json.h"
#include "model/k3/weights.h"
#include "model/ckpt/identity.h"

enum { LINE_BYTES = 1024, NAME_BYTES = 256 };

static void set_text(json_t *o, const char *name, const char *text)
{
    if (text && *text)
        json_object_set_new(o, name, json_bytes(text));
}

/* ---- the model ---- */

static json_t *model_object(const struct setup_input *in, struct error *error)
{
    const struct weights *w = k3_weights(in->k);
    struct identity id;
    char text[IDENTITY_TEXT_BYTES];
    if (weights_identity(&id, w, error))
        return NULL;
    identity_text(text, &id);
    json_t *o = json_object();
    set_text(o, "folder", in->model);
    set_int(o, "shards", w->parts ? w->parts->shards : ckpt_files(w->ckpt));
    if (w->parts)
        set_int(o, "parts", w->parts->cuts.parts);
    set_int(o, "bytes", weights_bytes(w));
    set_text(o, "identity", text);
    return o;
}

/* ---- the machine ---- */

/* The value of the first line "name : value" of a file of /proc. */
static void proc_value(char out[NAME_BYTES], const char *path,
                       const char *name)
{
    char line[LINE_BYTES];
    FILE *f = fopen(path, "re");
    *out = '\0';
    while (f && !*out && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, name, strlen(name)))
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, NAME_BYTES, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (f)
        fclose(f);
}

static void add_machine(json_t *o)
{
    struct utsname u;
    char cpu[NAME_BYTES];
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    proc_value(cpu, "/proc/cpuinfo", "model name");
    set_text(o, "cpu", cpu);
    set_int(o, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    if (pages > 0 && size > 0)
        set_int(o, "host_memory_bytes", (uint64_t)pages * (uint64_t)size);
    if (uname(&u))
        return;
    set_text(o, "host", u.nodename);
    set_text(o, "kernel", u.release);
}

/* The first line of a small file, without spaces at its end; "" if none. */
static void first_line(char out[NAME_BYTES], const char *path)
{
    FILE *f = fopen(path, "re");
    *out = '\0';
    if (f && !fgets(out, NAME_BYTES, f))
        *out = '\0';
    if (f)
        fclose(f);
    size_t n = strcspn(out, "\n");
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* Type and source of the file system with this device number. */
static void mounted(char type[NAME_BYTES], char source[NAME_BYTES], dev_t dev)
{
    char line[4096], want[32], at[32];
    FILE *f = fopen("/proc/self/mountinfo", "re");
    snprintf(want, sizeof want, "%u:%u", major(dev), minor(dev));
    *type = *source = '\0';
    while (f && !*type && fgets(line, sizeof line, f)) {
        const char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*s %*s %31s", at) != 1 || strcmp(at, want))
            continue;
        sscanf(dash, " - %255s %255s", type, source);
    }
    if (f)
        fclose(f);
}

static json_t *real_drive(dev_t dev)
{
    char type[NAME_BYTES], source[NAME_BYTES], model[NAME_BYTES];
    char path[128];
    json_t *o = json_object();
    mounted(type, source, dev);
    /* A partition has the drive's `device` one folder above. */
    static const char *const where[] = { "device", "../device" };
    *model = '\0';
    for (int i = 0; i < 2 && !*model; i++) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/model",
                 major(dev), minor(dev), where[i]);
        first_line(model, path);
    }
    set_text(o, "name", *source ? source : "not known");
    set_text(o, "model", model);
    set_text(o, "file_system", type);
    return o;
}

/* In the order in which the reader counts them: simulated ones as they were
 * given, else file systems as the shards lie on them. */
static json_t *drives_array(const struct setup_input *in)
{
    const struct weights *w = k3_weights(in->k);
    json_t *list = json_array();
    dev_t seen[DRIVES_MAX];
    uint32_t count = 0;
    for (uint32_t d = 0; d < in->args->drives; d++) {
        const struct paced_drive *p = &in->args->drive[d];
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:f}", "name", "simulated",
                            "bytes_per_s", (json_int_t)p->bytes_per_s,
                            "latency_us", (double)p->latency_ns / 1e3));
    }
    for (uint32_t f = 0; !in->args->drives && f < weights_files(w); f++) {
        struct stat st;
        bool known = stat(weights_path(w, f), &st) || count == DRIVES_MAX;
        for (uint32_t i = 0; i < count && !known; i++)
            known = seen[i] == st.st_dev;
        if (known)
            continue;
        seen[count++] = st.st_dev;
        json_array_append_new(list, real_drive(st.st_dev));
    }
    return list;
}

/* ---- the options ---- */

static json_t *options_object(const struct setup_input *in)
{
    const struct session_args *a = in->args;
    const struct plan *p = k3_plan_of(in->k);
    const struct k3_options *k = k3_options_of(in->k);
    struct k3_facts f;
    json_t *o = json_object();
    k3_facts(in->k, &f);
    set_int(o, "memory_bytes", p->budget_bytes);
    json_object_set_new(o, "memory_given", json_boolean(a->memory));
    set_int(o, "threads", f.threads);
    set_int(o, "context", a->context);
    set_int(o, "rows", p->rows);
    set_int(o, "sequences", p->sequences);
    set_int(o, "max_tokens", in->max_tokens);
    set_text(o, "io", f.reader.method);
    set_text(o, "policy", f.policy);
    set_text(o, "pin_file", k->pin_file);
    set_text(o, "prefetch", f.prefetch);
    set_text(o, "draft", session_draft_said(a));
    if (a->drafter)
        set_text(o, "drafter", a->drafter);
    set_text(o, "packed", a->packed);
    set_text(o, "check_reads", a->check_reads);
    static const char *const kept[] = { "auto", "coded", "decoded" };
    set_text(o, "resident", kept[a->resident]);
    const struct request_sampling *chosen = &a->samplers.chosen;
    set_real(o, "temperature", chosen->temperature);
    set_real(o, "top_p", chosen->top_p);
    set_int(o, "top_k", chosen->top_k);
    set_real(o, "min_p", chosen->min_p);
    set_real(o, "presence_penalty", chosen->presence);
    set_real(o, "frequency_penalty", chosen->frequency);
    set_real(o, "repetition_penalty", chosen->repetition);
    set_int(o, "seed", chosen->seed);
    json_object_set_new(o, "ignore_eos", json_boolean(a->samplers.ignore_eos));
    set_real(o, "mla_latent_eps", a->mla_latent_eps);
    return o;
}

int setup_make(json_t **out, const struct setup_input *in,
               struct error *error)
{
    struct k3_facts f;
    struct tm utc;
    char date[32];
    time_t now = time(NULL);
    *out = NULL;
    json_t *model = model_object(in, error);
    if (!model)
        return error->code;
    json_t *o = json_object(), *words = json_array();
    k3_facts(in->k, &f);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_array_append_new(words, json_bytes(opt_program));
    for (int i = 0; i < in->argc; i++)
        json_array_append_new(words, json_bytes(in->argv[i]));
    set_text(o, "run", in->run);
    set_text(o, "date", date);
    json_object_set_new(o, "command", words);
    json_object_set_new(o, "model", model);
    add_machine(o);
    set_text(o, "isa", f.isa);
    set_text(o, "version", SLUICE_VERSION);
    json_object_set_new(o, "drive_names", drives_array(in));
    json_object_set_new(o, "options", options_object(in));
    *out = o;
    return 0;
}
