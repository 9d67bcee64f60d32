/* room.h - what the threads of a server share, behind one lock.
 *
 *   the engine's thread  owns the session: it takes requests from the queue,
 *                        runs passes, and writes down what they said
 *   threads of HTTP      put requests into the queue, and read works
 *   the clock's thread   once in a tenth of a second: connections that were
 *                        silent for an interval, requests that nobody follows,
 *                        answers and files that expire
 *
 *     room_open -> engine_run -> room_close
 *
 * Bytes    queued requests and kept answers; both are bounded.
 * Threads  `lock` guards all that is not marked "set at the start".
 */
#ifndef BIN_SERVE_ROOM_H
#define BIN_SERVE_ROOM_H

#include <pthread.h>
#include <stdatomic.h>

#include "bin/cli/session.h"
#include "bin/serve/queue.h"

enum {
    ROOM_NAMES_MAX = 32,
    ROOM_HISTORY = 300, /* seconds that the page shows */
    ROOM_RATES = 32,    /* ends of requests that the rate is made of */
    ROOM_KEPT_MAX = 4096,
};

struct serve_options {
    struct session_args s;
    const char *model;
    const char *name[ROOM_NAMES_MAX + 1]; /* ended by NULL; at least one */
    uint32_t    names;
    const char *host, *unix_path, *data, *key_file, *tls_cert, *tls_key, *cors,
        *access_log;
    uint64_t port, data_bytes, sequences, max;
    uint64_t body_max, queue_max, connections_max;
    uint64_t keep_seconds;  /* of answers that nobody fetched */
    uint64_t file_seconds;  /* of files and batches */
    uint64_t tick_ms;       /* silence of a connection */
    uint64_t linger_ms;     /* of a request whose client hung up and may come
                             * again */
    uint64_t drain_seconds;
    bool     no_auth;
};

enum room_state { ROOM_LOADING, ROOM_READY, ROOM_DRAINING, ROOM_STOPPED };

struct room_sample { /* one second */
    float read_rate; /* bytes a second of the last pass; 0: none ended */
    uint32_t ids, running, queued;
};

/* Totals since the start, for /metrics. */
struct room_counts {
    uint64_t asked[2], answered[2], failed[2], cancelled[2]; /* chat, batch */
    uint64_t refused_queue, attached, expired, hung_up, suspended;
    uint64_t wait_ns; /* in the queue, of those that got a place */
    uint64_t waited;  /* how many those are */
    uint64_t http_requests, http_errors;
};

struct store;
struct feeds;
struct follow;

struct room {
    const struct serve_options *o; /* set at the start */
    struct batch_rules rules;      /* set at the start */
    struct sluice_text *text;      /* set at the start */
    struct store *store;           /* set at the start; NULL: no --data */
    struct feeds *feeds;           /* the engine's */

    pthread_mutex_t lock;
    enum room_state state;
    char failure[480];  /* LOADING: why it is loaded again */
    struct sluice *s;   /* NULL while loading */
    uint32_t sequences; /* places of the session */
    struct queue queue;
    struct work *running; /* by `after` */
    struct work *kept;    /* that can be found again, by `kept_after` */
    uint32_t kept_count;
    struct follow *follows;   /* answers that are being written */
    uint64_t numbers;     /* given to works */
    uint64_t boot;        /* random: ids of two processes differ */
    int64_t  begin_ns;    /* of the server */

    /* LOADING: bytes of weights that are in memory, and that will be. */
    _Atomic uint64_t loaded_bytes, to_load_bytes;
    /* As of the last pass. */
    _Atomic uint32_t layer, layers;
    struct sluice_counters counters;
    struct sluice_info info;
    double   pass_seconds, pass_rate; /* of late; bytes a second */
    double   drive_limit;             /* bytes a second; 0: not known */
    uint64_t expert_requests, expert_hits;
    struct batch_drafts drafts[BATCH_SOURCES];
    bool     drafter; /* there is one, and it has not failed */
    uint32_t batch_running;
    bool     noted; /* a sentence about the prefix cache was said */
    int64_t  ended_ns[ROOM_RATES]; /* a ring: when requests ended */
    uint64_t ended;
    struct room_counts counts;
    struct room_sample history[ROOM_HISTORY]; /* a ring */
    uint64_t samples;
};

int  room_open(struct room *r, const struct serve_options *o,
               struct error *error);
void room_close(struct room *r);

/* ---- the lock is held ---- */

/* Queue it. 0; -1 with *e: the queue is full, or the server goes. */
int  room_ask(struct room *r, struct work *w, struct api_error *e);
/* Its rows leave between two passes; in the queue, at once. */
void room_cancel(struct room *r, struct work *w, const char *why);
/* It has ended: tell who waits, keep it or let it go. */
void room_ended(struct room *r, struct work *w);
/* Somebody stops following it. */
void room_leave(struct room *r, struct work *w);
/* A request of this name that runs, or is kept; NULL. */
struct work *room_find(struct room *r, const uint8_t name[32]);
void room_keep(struct room *r, struct work *w);
/* Let go of what nobody came for. */
void room_expire(struct room *r, int64_t now_ns);
/* Seconds until a request that is asked now has a place; and until `w` is at
 * its end. 0: not known. */
double room_wait_seconds(const struct room *r);
double room_seconds_left(const struct room *r, const struct work *w);

#endif
