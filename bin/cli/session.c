#include "bin/cli/session.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/cli/hint.h"
#include "bin/cli/machines.h"
#include "bin/cli/terminal.h"
#include "io/clock.h"
#include "model/ckpt/figure.h"
#include "model/memory.h"
#include "sched/cache/cache.h"
#include "sched/prefetch/prefetcher.h"

enum { PROGRESS_NS = 200 * 1000 * 1000 };

static struct sluice *caught;
static atomic_int caught_signal; /* threads look at it, too */
static const char *announcement; /* of the first signal */
static const int caught_numbers[] = { SIGINT, SIGTERM, SIGHUP };
enum { CAUGHT = sizeof caught_numbers / sizeof *caught_numbers };
static struct sigaction before[CAUGHT], pipe_was;
static bool catching;

void session_defaults(struct session_args *a)
{
    memset(a, 0, sizeof *a);
    a->context = SESSION_CONTEXT;
    a->io = "auto";
    a->prefetch = "auto";
    a->packed = "auto";
    a->check_reads = "first";
    samplers_defaults(&a->samplers);
    a->mla_latent_eps = 1e-6;
}

const char *session_resident(void *arg, const char *value)
{
    static const char *const name[] = { "auto", "coded", "decoded" };
    struct session_args *a = arg;
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, name[i])) {
            a->resident = (enum k3_resident)i;
            return NULL;
        }
    return "is auto, coded or decoded";
}

const char *session_context(void *arg, const char *value)
{
    struct session_args *a = arg;
    char *end;
    errno = 0;
    a->context = strtoull(value, &end, 10);
    a->context_said = true;
    return errno || *end || value[0] < '0' || value[0] > '9'
               ? "is not a whole number"
               : NULL;
}

const char *session_drive(void *arg, const char *value)
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

const char *session_mirror(void *arg, const char *value)
{
    struct session_args *a = arg;
    if (a->mirrors == SESSION_MIRRORS_MAX)
        return "is one folder too many";
    a->mirror[a->mirrors++] = value;
    return NULL;
}

const char *state_pace(void *arg, const char *value)
{
    struct state_pace *p = arg;
    char *end;
    double n = strtod(value, &end);
    bool seconds = *end == 's' && !end[1];
    if (end == value || (*end && !seconds) || !(n > 0) || !(n < 1e9) ||
        (!seconds && n != (uint32_t)n))
        return "is not a number of tokens, or of seconds like 30s";
    *p = seconds ? (struct state_pace){ .seconds = n }
                 : (struct state_pace){ .ids = (uint32_t)n };
    return NULL;
}

const char *session_prefix_cache(void *arg, const char *value)
{
    struct session_args *a = arg;
    const char *comma = strrchr(value, ',');
    size_t length = comma ? (size_t)(comma - value) : strlen(value);
    if (comma && (opt_size(&a->prefix_cache_bytes, comma + 1) ||
                  !a->prefix_cache_bytes))
        return "is not DIR[,SIZE]";
    if (!length || length >= sizeof a->prefix_cache_path)
        return "is not DIR[,SIZE]";
    memcpy(a->prefix_cache_path, value, length);
    a->prefix_cache_path[length] = 0;
    a->prefix_cache = a->prefix_cache_path;
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
                     : prefetcher_name(i, NULL);
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
    for (uint32_t i = 0; (each = prefetcher_name(i, NULL)); i++)
        if (!strcmp(each, name))
            return true;
    return false;
}

/* 0: not a number that serves. */
static uint32_t draft_count(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end || text[0] < '0' || text[0] > '9' || n > DRAFT_FIXED_MAX ? 0
                                                             : (uint32_t)n;
}

const char *session_draft_said(const struct session_args *a)
{
    return a->draft ? a->draft : a->drafter ? "auto" : "off";
}

struct draft_options session_draft(const struct session_args *a)
{
    if (!strcmp(session_draft_said(a), "auto"))
        return (struct draft_options){ DRAFT_AUTO_MAX, true };
    return (struct draft_options){ draft_count(session_draft_said(a)), false };
}

struct sluice_options session_sluice(const struct session_args *a)
{
    struct draft_options d = session_draft(a);
    return (struct sluice_options){
        .size = sizeof(struct sluice_options),
        .drafts = d.adaptive ? SLUICE_DRAFTS_AUTO : d.max,
        .drafter = a->drafter, .drafter_taps = a->drafter_taps,
        .prefix_cache = a->prefix_cache,
        .prefix_cache_bytes = a->prefix_cache_bytes };
}

const char *session_options(const struct session_args *a,
                            struct k3_options *o)
{
    if (a->threads > 1024)
        return "--threads is at most 1024";
    if (!a->context || a->context > SESSION_CONTEXT_MAX)
        return "--context is from 1 to 16777216";
    if (a->rows > 512)
        return "--rows is at most 512";
    if (strcmp(a->io, "auto") && strcmp(a->io, "uring") &&
        strcmp(a->io, "pread"))
        return "--io is auto, uring or pread";
    if (strcmp(a->check_reads, "first") && strcmp(a->check_reads, "always") &&
        strcmp(a->check_reads, "off"))
        return "--check-reads is first, always or off";
    if (a->policy && !known_policy(a->policy))
        return choices(true);
    if (a->policy && !strcmp(a->policy, "static-pin"))
        return "--policy static-pin needs a trace: static-pin=FILE";
    if (a->policy && !strcmp(a->policy, "static-pin=-"))
        return "--policy static-pin=-: - is no file here: use ./-";
    if (strcmp(a->prefetch, "auto") && !known_prefetch(a->prefetch))
        return choices(false);
    const char *draft = session_draft_said(a);
    if (strcmp(draft, "off") && strcmp(draft, "auto") && strcmp(draft, "0") &&
        !draft_count(draft))
        return "--draft is off, auto or a number from 0 to 256";
    enum dspark_stream taps;
    if (a->drafter_taps && (!a->drafter ||
                            dspark_stream_named(&taps, a->drafter_taps)))
        return "--drafter-taps is prefix or attn_res, with --drafter";
    if (a->drafter && !session_draft(a).max)
        return "--drafter needs --draft auto or a number above 0";
    if (a->parts.count && strcmp(a->packed, "auto") && strcmp(a->packed, "off"))
        return "--packed does not go with --parts, which are coded themselves";
    const char *wrong = samplers_check(&a->samplers);
    if (wrong)
        return wrong;
    if (!(a->mla_latent_eps >= 0 && a->mla_latent_eps <= 1))
        return "--mla-latent-eps is from 0 to 1";
    memset(o, 0, sizeof *o);
    o->memory_bytes = a->memory ? a->memory
                                : memory_default() / machines_ranks_here();
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
    o->packed = a->packed;
    o->resident = a->resident;
    o->part_dir = a->parts.path;
    o->part_dirs = a->parts.count;
    o->check_reads = !strcmp(a->check_reads, "always") ? K3_CHECK_ALWAYS
                     : !strcmp(a->check_reads, "off")  ? K3_CHECK_OFF
                                                       : K3_CHECK_FIRST;
    o->realtime = true;
    o->mirror = a->mirror;
    o->mirrors = a->mirrors;
    o->paced = a->drive;
    o->paced_count = a->drives;
    o->mla_latent_eps = (float)a->mla_latent_eps;
    return machines_options(o);
}

int session_files(const struct session_args *a, const char *model,
                  const struct output_file *own, size_t count, bool numbered,
                  struct error *error)
{
    const char *pin = a->policy ? strchr(a->policy, '=') : NULL;
    const struct output_file shared[] = {
        { .option = "--policy", .path = pin ? pin + 1 : NULL, .read = true },
        { .option = "stderr", .path = OUTPUTS_STDERR },
        { .option = "--report", .path = a->report },
        { .option = "--trace", .path = a->trace },
        { .option = "--timeline", .path = a->timeline },
        { .option = "--logits", .path = a->logits, .numbered = numbered },
    };
    enum { SHARED = sizeof shared / sizeof *shared };
    struct output_file files[SHARED + SESSION_OWN_MAX];
    assert(count <= SESSION_OWN_MAX);
    memcpy(files, own, count * sizeof *own);
    memcpy(files + count, shared, sizeof shared);
    return outputs_check(files, count + SHARED, model, error);
}

int session_failed(const char *model, const struct error *error)
{
    fflush(stdout);
    fprintf(stderr, "sluice: %s\n", error->text);
    char hint[HINT_BYTES];
    if (hint_for(hint, model, error))
        fprintf(stderr, "hint: %s\n", hint);
    return 1;
}

void session_notes(const struct sluice *s)
{
    const char *note;
    for (uint32_t i = 0; (note = sluice_note(s, i)); i++)
        fprintf(stderr, "sluice: %s\n", note);
}

static void on_signal(int number)
{
    static const char said[] = "\nsluice: interrupted: what has begun is "
                               "finished; once more ends it at once\n";
    int code = errno;
    if (caught_signal)
        _exit(128 + number);
    caught_signal = number;
    const char *text = announcement         ? announcement
                       : number == SIGINT ? said
                                            : "";
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        announcement = NULL; /* nobody listens */
    if (caught)
        sluice_interrupt(caught);
    errno = code;
}

void session_announce(const char *text)
{
    announcement = text;
}

/* What is ignored stays so: nohup, a shell's background. */
void session_catch(struct sluice *s)
{
    struct sigaction action = { .sa_handler = on_signal };
    assert(!caught && !catching); /* one at a time */
    caught = s;
    catching = true;
    for (size_t i = 0; i < CAUGHT; i++) {
        sigaction(caught_numbers[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(caught_numbers[i], &action, NULL);
    }
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, &pipe_was);
}

void session_release(void)
{
    for (size_t i = 0; catching && i < CAUGHT; i++)
        sigaction(caught_numbers[i], &before[i], NULL);
    if (catching)
        sigaction(SIGPIPE, &pipe_was, NULL);
    catching = false;
    caught = NULL;
    announcement = NULL;
}

int session_signal(void)
{
    return caught_signal;
}

void progress_begin(struct progress *p, const char *phase, uint64_t all)
{
    p->on = terminal_has_line();
    p->phase = phase;
    p->all = all;
    p->done = 0;
    p->begin_ns = clock_ns();
    p->shown_ns = 0;
}

static void show(struct progress *p)
{
    int64_t now = clock_ns();
    if (!p->on || now - p->shown_ns < PROGRESS_NS)
        return;
    p->shown_ns = now;
    struct sluice_counters c;
    sluice_counters(p->session, &c, sizeof c);
    double seconds = (double)(now - p->begin_ns) / 1e9;
    uint64_t pass_ns = c.prefill_ns + c.decode_ns;
    char pace[64] = "", rate[64] = "";
    if (p->done)
        snprintf(pace, sizeof pace, ", %s s/token",
                 figure(seconds / (double)p->done).text);
    if (pass_ns)
        snprintf(rate, sizeof rate, ", %s GB/s",
                 figure((double)c.read_bytes / (double)pass_ns).text);
    terminal_line("%s %llu/%llu tokens, layer %u/%u%s%s", p->phase,
                  (unsigned long long)p->done, (unsigned long long)p->all,
                  p->layer + 1, p->layers, pace, rate);
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
    if (p->session)
        show(p);
}

void progress_clear(struct progress *p)
{
    if (p->on)
        terminal_clear();
}
