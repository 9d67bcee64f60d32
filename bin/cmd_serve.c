/* cmd_serve.c - sluice serve: the model behind an HTTP API. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bin/cli/machines.h"
#include "bin/cli/json.h"
#include "bin/cmd.h"
#include "bin/serve/engine.h"
#include "bin/serve/feeds.h"
#include "bin/serve/follow.h"
#include "bin/serve/http.h"
#include "bin/serve/metrics.h"
#include "bin/serve/store/store.h"
#include "bin/serve/net/system.h"
#include "io/clock.h"
#include "model/k3/limits.h"

enum { TICK_NS = 50000000, EXPIRE_SECONDS_MAX = 60, TRIM_TICKS = 20 * 5,
       ARENAS = 2 };

static struct {
    struct room room;
    struct http http;
    struct serve_options o;
    char   folder_name[256];
    char   data[4096];
    pthread_t clock;
    _Atomic bool clock_stops, drained;
} serve;

/* ---- the clock ---- */

static void drain_over(void)
{
    struct room *r = &serve.room;
    pthread_mutex_lock(&r->lock);
    r->state = ROOM_STOPPED;
    if (r->s)
        sluice_wake(r->s);
    pthread_mutex_unlock(&r->lock);
}

/* A signal: no new requests, and what runs has some time. */
static void drain(int64_t now, int64_t *since)
{
    struct room *r = &serve.room;
    if (!*since) {
        *since = now;
        system_notify("STOPPING=1");
        fprintf(stderr, "sluice: finishing what runs; a second signal stops "
                        "at once\n");
        pthread_mutex_lock(&r->lock);
        if (r->state < ROOM_DRAINING)
            r->state = ROOM_DRAINING;
        if (r->s)
            sluice_wake(r->s);
        pthread_mutex_unlock(&r->lock);
    }
    if (now - *since > (int64_t)serve.o.drain_seconds * 1000000000)
        drain_over();
}

static void expire_store(struct store *s, int64_t now)
{
    store_expire(s, now);
    store_expire_answers(s, now - (int64_t)serve.o.keep_seconds);
}

/* Between two looks for what has expired: no longer than things are kept. */
static uint64_t expire_seconds(void)
{
    uint64_t kept = serve.o.file_seconds < serve.o.keep_seconds
                        ? serve.o.file_seconds
                        : serve.o.keep_seconds;
    return kept < 1 ? 1 : kept < EXPIRE_SECONDS_MAX ? kept : EXPIRE_SECONDS_MAX;
}

static void *run_clock(void *arg)
{
    struct room *r = &serve.room;
    uint64_t expire_ticks = expire_seconds() * (1000000000 / TICK_NS);
    int64_t second = clock_ns(), draining = 0;
    (void)arg;
    for (uint64_t tick = 0; !serve.clock_stops; tick++) {
        int64_t now;
        nanosleep(&(struct timespec){ .tv_nsec = TICK_NS }, NULL);
        now = clock_ns();
        pthread_mutex_lock(&r->lock);
        follows_tick(r, now);
        room_expire(r, now);
        for (; now - second >= 1000000000; second += 1000000000)
            metrics_second(r);
        pthread_mutex_unlock(&r->lock);
        http_tick(&serve.http, now);
        if (r->store && tick % expire_ticks == 0)
            expire_store(r->store, time(NULL));
        if (tick % TRIM_TICKS == 0)
            malloc_trim(0); /* of connections that have gone */
        if (session_signal())
            drain(now, &draining);
    }
    return NULL;
}

/* ---- what the engine says ---- */

static void ready(struct room *r)
{
    char state[256];
    struct http *h = &serve.http;
    session_notes(r->s);
    for (uint32_t i = 0; i < h->sockets; i++)
        fprintf(stderr, "listening on %s\n", h->url[i]);
    snprintf(state, sizeof state, "READY=1\nSTATUS=listening on %s",
             h->url[0]);
    system_notify(state);
}

static void say(struct room *r, const char *sentence)
{
    (void)r;
    fprintf(stderr, "sluice: %s; trying again\n", sentence);
}

/* ---- open and close ---- */

/* Connections and files at one time, as far as the system lets us. */
static void raise_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l))
        return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static void wait_for_follows(struct room *r)
{
    for (int i = 0; i < 100; i++) {
        pthread_mutex_lock(&r->lock);
        bool any = r->follows;
        pthread_mutex_unlock(&r->lock);
        if (!any)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
}

static int open_all(struct error *error)
{
    struct room *r = &serve.room;
    const struct serve_options *o = &serve.o;
    const struct output_file files[] = {
        { .option = "--api-key-file", .path = o->key_file, .read = true },
        { .option = "--tls-cert", .path = o->tls_cert, .read = true },
        { .option = "--tls-key", .path = o->tls_key, .read = true },
        { .option = "--access-log", .path = o->access_log },
    };
    int err = outputs_check(files, sizeof files / sizeof *files, o->model,
                            error);
    if (!err)
        err = samplers_load(&serve.o.s.samplers, o->model, error);
    if (!err)
        err = room_open(r, o, error);
    if (!err && o->data)
        err = store_open(&r->store, o->data, o->data_bytes,
                         (int64_t)o->file_seconds, error);
    if (!err)
        err = feeds_open(&r->feeds, r, error);
    if (!err)
        err = http_open(&serve.http, r, error);
    if (!err)
        err = http_start(&serve.http, error);
    return err;
}

static int run(void)
{
    struct error error = { 0 };
    struct room *r = &serve.room;
    raise_limit();
    mallopt(M_ARENA_MAX, ARENAS); /* a burst leaves its memory in each */
    session_catch(NULL);
    int err = open_all(&error);
    if (!err && pthread_create(&serve.clock, NULL, run_clock, NULL))
        err = error_set(&error, -EAGAIN, "no thread for the clock");
    bool clocked = !err;
    if (!err)
        err = engine_open(r, &error);
    if (!err)
        engine_run(r, ready, say);
    if (clocked) {
        pthread_mutex_lock(&r->lock);
        r->state = ROOM_STOPPED;
        pthread_mutex_unlock(&r->lock);
    }
    http_quiesce(&serve.http);
    engine_close(r);
    wait_for_follows(r);
    if (clocked) {
        serve.clock_stops = true;
        pthread_join(serve.clock, NULL);
    }
    http_close(&serve.http);
    feeds_close(r->feeds);
    store_close(r->store);
    room_close(r);
    samplers_free(&serve.o.s.samplers);
    session_release();
    return err ? session_failed(serve.o.model, &error) : 0;
}

/* ---- options ---- */

static const char *add_name(void *arg, const char *value)
{
    struct serve_options *o = arg;
    if (o->names == ROOM_NAMES_MAX)
        return "is one name too many";
    if (!*value)
        return "is empty";
    o->name[o->names++] = value;
    return NULL;
}

/* DIR[,SIZE]; the folder may have commas of its own. */
static const char *set_data(void *arg, const char *value)
{
    struct serve_options *o = arg;
    const char *comma = strrchr(value, ',');
    size_t n = strlen(value);
    if (comma && !opt_size(&o->data_bytes, comma + 1))
        n = (size_t)(comma - value);
    if (!n || n >= sizeof serve.data)
        return "is not DIR[,SIZE]";
    memcpy(serve.data, value, n);
    serve.data[n] = 0;
    o->data = serve.data;
    return NULL;
}

/* The folder's name, where no other is given; and that of the folder as it was
 * typed. */
static void name_model(struct serve_options *o)
{
    size_t end = strlen(o->model), begin;
    if (o->names)
        return;
    while (end > 1 && o->model[end - 1] == '/')
        end--;
    begin = end;
    while (begin && o->model[begin - 1] != '/')
        begin--;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), o->model + begin);
    json_plain(serve.folder_name, sizeof serve.folder_name, name);
    o->name[o->names++] = serve.folder_name;
}

static const char *check(const struct serve_options *o)
{
    if (o->port > 65535)
        return "--port is at most 65535";
    if (!o->tls_cert != !o->tls_key)
        return "--tls-cert and --tls-key come together";
    if (o->no_auth && o->key_file)
        return "--no-auth and --api-key-file exclude each other";
    if (o->sequences > K3_ROWS_MAX)
        return "--sequences is too large";
    if (!o->connections_max || o->connections_max > 60000)
        return "--max-connections is from 1 to 60000";
    if (!o->body_max || o->body_max > 1u << 30)
        return "--max-body is from 1 to 1G";
    if (!o->tick_ms)
        return "--tick is above 0";
    if (!o->max || o->max > 1u << 24)
        return "--max-tokens is from 1 to 16777216";
    if (o->s.report || o->s.trace || o->s.timeline || o->s.logits)
        return "--report, --trace, --timeline and --logits are not for serve";
    return NULL;
}

static const struct opt table[] = {
    { "host", 0, OPT_TEXT, &serve.o.host, "ADDRESS",
      "where to listen; default 127.0.0.1. Others than this machine need "
      "--api-key-file or --no-auth", NULL },
    { "port", 0, OPT_UINT, &serve.o.port, "N", "default 8080; 0 takes a free "
      "one", NULL },
    { "unix", 0, OPT_TEXT, &serve.o.unix_path, "PATH",
      "listen on a socket in the file system, too", NULL },
    { "served-model-name", 0, OPT_CALL, &serve.o, "NAME",
      "what requests call the model; repeat for more; default: the "
      "folder's name", add_name },
    { "data", 0, OPT_CALL, &serve.o, "DIR[,SIZE]",
      "keep files and batches in this folder, SIZE bytes at most",
      set_data },
    { "file-seconds", 0, OPT_UINT, &serve.o.file_seconds, "N",
      "how long files and finished batches stay; default 30 days", NULL },
    { "api-key-file", 0, OPT_TEXT, &serve.o.key_file, "FILE",
      "let in who has one of these keys, one a line", NULL },
    { "no-auth", 0, OPT_FLAG, &serve.o.no_auth, NULL,
      "let everybody in who reaches the address", NULL },
    { "tls-cert", 0, OPT_TEXT, &serve.o.tls_cert, "FILE",
      "HTTPS, with this certificate (PEM)", NULL },
    { "tls-key", 0, OPT_TEXT, &serve.o.tls_key, "FILE", "and its key", NULL },
    { "cors", 0, OPT_TEXT, &serve.o.cors, "ORIGIN",
      "let pages of this origin in (* is all); default none", NULL },
    { "access-log", 0, OPT_TEXT, &serve.o.access_log, "FILE|-",
      "a line of JSON for each HTTP request; - is stdout", NULL },
    { "max-tokens", 'n', OPT_UINT, &serve.o.max, "N",
      "max new tokens of a request that does not say; default: what the "
      "context has room for", NULL },
    { "sequences", 0, OPT_UINT, &serve.o.sequences, "N",
      "requests at one time; default 16, or fewer where memory is short",
      NULL },
    { "max-queue", 0, OPT_UINT, &serve.o.queue_max, "N",
      "requests that may wait; default 1000", NULL },
    { "max-body", 0, OPT_SIZE, &serve.o.body_max, "SIZE",
      "longest body of a request; default 16M", NULL },
    { "max-connections", 0, OPT_UINT, &serve.o.connections_max, "N",
      "default 2000", NULL },
    { "keep-seconds", 0, OPT_UINT, &serve.o.keep_seconds, "N",
      "how long a finished answer that nobody fetched is kept for who "
      "asks again; default 3600", NULL },
    { "linger", 0, OPT_UINT, &serve.o.linger_ms, "MS",
      "how long a request runs on when its client has gone and may ask "
      "again; default 15000", NULL },
    { "tick", 0, OPT_UINT, &serve.o.tick_ms, "MS",
      "longest silence of a connection that waits; default 1000", NULL },
    { "drain-seconds", 0, OPT_UINT, &serve.o.drain_seconds, "N",
      "time for what runs after SIGTERM; default 60", NULL },
    SESSION_OPTIONS(&serve.o.s),
};

int cmd_serve(int argc, char **argv)
{
    struct serve_options *o = &serve.o;
    *o = (struct serve_options){
        .host = "127.0.0.1", .port = 8080, .max = 1u << 24,
        .body_max = 16 << 20, .queue_max = 1000, .connections_max = 2000,
        .keep_seconds = 3600, .file_seconds = 30 * 86400, .tick_ms = 1000,
        .linger_ms = 15000, .drain_seconds = 60 };
    session_defaults(&o->s);
    const struct opt_command cmd = {
        "sluice serve MODEL [options]",
        "Serve the model over HTTP, to clients of OpenAI's and Anthropic's "
        "APIs: chat, completions, messages, responses, files, batches. A page "
        "is at /. bin/serve/README.md has a command for every path.",
        table, sizeof table / sizeof *table };
    struct k3_options k;
    int ended = opt_parse_one(&cmd, argc, argv, &o->model,
                              "serve needs the folder of a model");
    if (ended >= 0)
        return ended;
    const char *wrong = session_options(&o->s, &k);
    if (!wrong)
        wrong = check(o);
    if (wrong)
        return opt_usage_error(&cmd, "%s", wrong);
    if (machines_follow(o->model, &o->s))
        return 0;
    name_model(o);
    return run();
}
