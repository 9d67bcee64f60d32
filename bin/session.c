#include "bin/session.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/memory.h"
#include "sched/cache.h"
#include "sched/predict.h"
#include "sched/stream.h"

enum { PROGRESS_NS = 200 * 1000 * 1000 };

static struct k3 *caught;
static volatile sig_atomic_t caught_signal;

void session_defaults(struct session_args *a)
{
    memset(a, 0, sizeof *a);
    a->context = 4096;
    a->io = "auto";
    a->prefetch = "auto";
    a->draft = "off";
    a->top_p = 1;
    a->mla_latent_eps = 1e-6;
}

const char *session_device(void *arg, const char *value)
{
    struct session_args *a = arg;
    char *end;
    double rate = strtod(value, &end), latency = 0;
    if (end == value || !(rate >= 1e-6) || !(rate <= 1e6))
        return "is not GBPS[,LATENCY_US]";
    if (*end == ',') {
        const char *second = end + 1;
        latency = strtod(second, &end);
        if (end == second || !isfinite(latency) || latency < 0 ||
            latency > 1e9)
            return "is not GBPS[,LATENCY_US]";
    }
    if (*end)
        return "is not GBPS[,LATENCY_US]";
    if (a->drives == SESSION_DRIVES_MAX)
        return "is one drive too many";
    a->drive[a->drives++] = (struct paced_drive){
        .bytes_per_s = (uint64_t)(rate * 1e9),
        .latency_ns = (int64_t)(latency * 1e3) };
    return NULL;
}

/* "--policy is A, B, C": what the option takes, in a static buffer. */
static const char *choices(bool cache)
{
    static char text[256];
    bool offline = false;
    const char *each;
    int n = snprintf(text, sizeof text, "%s",
                     cache ? "--policy is one of" : "--prefetch is auto");
    for (uint32_t i = 0; n < (int)sizeof text; i++) {
        each = cache ? cache_policy_name(i, NULL, &offline)
                     : predict_name(i, NULL);
        if (!each)
            break;
        if (offline)
            continue;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %s%s",
                      cache && !i ? "" : ",", each,
                      strcmp(each, "static-pin") ? "" : "=TRACE");
    }
    return text;
}

static bool known_policy(const char *name)
{
    bool offline;
    const char *each;
    if (!strncmp(name, "static-pin=", 11))
        return true;
    for (uint32_t i = 0; (each = cache_policy_name(i, NULL, &offline)); i++)
        if (!strcmp(each, name))
            return !offline;
    return false;
}

static bool known_prefetch(const char *name)
{
    const char *each;
    for (uint32_t i = 0; (each = predict_name(i, NULL)); i++)
        if (!strcmp(each, name))
            return true;
    return false;
}

/* 0: not a number that serves. */
static uint32_t draft_count(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end || text[0] < '0' || text[0] > '9' || n > 256 ? 0
                                                             : (uint32_t)n;
}

struct draft_options session_draft(const struct session_args *a)
{
    if (!strcmp(a->draft, "auto"))
        return (struct draft_options){ DRAFT_AUTO_MOST, true };
    return (struct draft_options){ draft_count(a->draft), false };
}

const char *session_options(const struct session_args *a,
                            struct k3_options *o)
{
    if (a->threads > 1024)
        return "--threads is at most 1024";
    if (!a->context || a->context > 1u << 24)
        return "--context is from 1 to 16777216";
    if (a->rows > 512)
        return "--rows is at most 512";
    if (strcmp(a->io, "auto") && strcmp(a->io, "uring") &&
        strcmp(a->io, "pread"))
        return "--io is auto, uring or pread";
    if (a->policy && !known_policy(a->policy))
        return choices(true);
    if (a->policy && !strcmp(a->policy, "static-pin"))
        return "--policy static-pin needs a trace: static-pin=FILE";
    if (strcmp(a->prefetch, "auto") && !known_prefetch(a->prefetch))
        return choices(false);
    if (strcmp(a->draft, "off") && strcmp(a->draft, "auto") &&
        !draft_count(a->draft))
        return "--draft is off, auto or a number from 1 to 256";
    if (a->temperature < 0)
        return "--temperature is not negative";
    if (a->top_p <= 0 || a->top_p > 1)
        return "--top-p is above 0 and at most 1";
    if (a->mla_latent_eps < 0)
        return "--mla-latent-eps is not negative";
    memset(o, 0, sizeof *o);
    o->memory_bytes = a->memory ? a->memory : memory_default();
    o->threads = (uint32_t)a->threads;
    o->context = (uint32_t)a->context;
    o->rows = (uint32_t)a->rows;
    o->io = a->io;
    o->policy = a->policy;
    if (a->policy && !strncmp(a->policy, "static-pin=", 11)) {
        o->policy = "static-pin";
        o->pin_file = a->policy + 11;
    }
    o->prefetch = a->prefetch;
    o->paced = a->drive;
    o->paced_count = a->drives;
    o->mla_latent_eps = (float)a->mla_latent_eps;
    return NULL;
}

static const char *hint(int error)
{
    switch (error) {
    case -ENOBUFS:
        return "give it more with --memory, or a smaller --context";
    case -ENOMEM:
        return "try a smaller --memory or --context";
    case -EMFILE:
        return "raise the limit of open files: ulimit -n 4096";
    case -EIO:
        return "look at the drive: dmesg, smartctl -a";
    case -ENODATA:
    case -EBADMSG:
        return "compare the file with the published one, download it again";
    default:
        return NULL;
    }
}

int session_files(const struct session_args *a, const char *model,
                  const struct output_file two[2], struct why *why)
{
    const char *pin = a->policy ? strchr(a->policy, '=') : NULL;
    const struct output_file files[] = {
        two[0], two[1],
        { "--policy", pin ? pin + 1 : NULL, true },
        { "--report", a->report, false },
        { "--trace", a->trace, false },
        { "--timeline", a->timeline, false },
        { "--logits", a->logits, false },
    };
    return outputs_check(files, sizeof files / sizeof *files, model, why);
}

int session_failed(const char *model, const struct why *why)
{
    fflush(stdout);
    fprintf(stderr, "sluice: %s\n", why->text);
    if (hint(why->error))
        fprintf(stderr, "hint: %s\n", hint(why->error));
    else if (model && !strncmp(why->text, model, strlen(model)) &&
             (why->error == -ENOENT || why->error == -ENOTDIR))
        fprintf(stderr, "hint: %s doctor %s says what is missing\n",
                opt_program, model);
    return 1;
}

int session_fits(const struct plan *p, struct why *why)
{
    uint64_t bytes = p->total_bytes - p->program_bytes;
    uint64_t machine = memory_machine_free(), group = memory_cgroup_free();
    bool grouped = group < machine;
    uint64_t most = grouped ? group : machine;
    if (bytes <= most)
        return 0;
    return why_set(why, -ENOMEM, "the plan takes %" PRIu64 " bytes of memory "
                   "(%.2f GiB), %s has %" PRIu64 " (%.2f GiB) free", bytes,
                   (double)bytes / 0x1p30,
                   grouped ? "the cgroup" : "the machine", most,
                   (double)most / 0x1p30);
}

void session_notes(struct k3 *k)
{
    struct k3_facts f;
    k3_facts(k, &f);
    for (uint32_t i = 0; i < f.reader.notes; i++) {
        fprintf(stderr, "sluice: %s\n", f.reader.note[i]);
        if (f.arena_note && !strcmp(f.arena_note, f.reader.note[i]))
            f.arena_note = NULL; /* both found it refused */
    }
    if (f.arena_note)
        fprintf(stderr, "sluice: %s\n", f.arena_note);
}

static void on_signal(int number)
{
    if (caught_signal)
        _exit(128 + number);
    caught_signal = number;
    if (caught)
        k3_cancel(caught);
}

void session_catch(struct k3 *k)
{
    struct sigaction action = { .sa_handler = on_signal };
    caught = k;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

void session_release(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    caught = NULL;
}

int session_signal(void)
{
    return caught_signal;
}

void progress_begin(struct progress *p, const char *phase, uint64_t all)
{
    p->on = isatty(STDERR_FILENO);
    p->phase = phase;
    p->all = all;
    p->done = 0;
    p->begin_ns = stream_clock_ns();
    p->shown_ns = 0;
}

static void show(struct progress *p)
{
    int64_t now = stream_clock_ns();
    if (!p->on || now - p->shown_ns < PROGRESS_NS)
        return;
    p->shown_ns = now;
    struct k3_facts f;
    k3_facts(p->k, &f);
    double seconds = (double)(now - p->begin_ns) / 1e9;
    uint64_t bytes = 0;
    for (int i = 0; i < K3_PHASES; i++)
        bytes += k3_read_bytes(&f.totals[i]);
    int64_t spent = f.totals[0].ns + f.totals[1].ns;
    fprintf(stderr, "\r\033[K%s %llu/%llu tokens, layer %u/%u", p->phase,
            (unsigned long long)p->done, (unsigned long long)p->all,
            p->layer + 1, p->layers);
    if (p->done)
        fprintf(stderr, ", %.3g s/token", seconds / (double)p->done);
    if (spent)
        fprintf(stderr, ", %.2f GB/s", (double)bytes / (double)spent);
    fflush(stderr);
}

void progress_step(struct progress *p, uint64_t done)
{
    p->done = done;
    show(p);
}

void progress_layer(void *progress, uint32_t layer, uint32_t layers)
{
    struct progress *p = progress;
    p->layer = layer;
    p->layers = layers;
    if (p->k)
        show(p);
}

void progress_clear(struct progress *p)
{
    if (p->on)
        fprintf(stderr, "\r\033[K");
}
