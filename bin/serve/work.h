/* work.h - one request of a client: its jobs, and all that was said so far.
 *
 * What the engine says of a request is a list of events that only grows, over
 * one text. Whoever answers a client has a place of its own in that list: so
 * two connections can follow one request, and one that comes later begins at
 * the beginning.
 *
 *  state      the jobs belong to              leaves by
 *  QUEUED     the queue                       a place in the engine, cancel
 *  RUNNING    the engine's thread             the last job's end; or it gives
 *                                             way, and is QUEUED again
 *  DONE, FAILED, CANCELLED    nobody: they are read
 *
 *     work_open -> { work_say ... } -> { work_job_end ... } -> work_release
 *
 * Bytes    the text of a request about three times, 32 an id.
 * Threads  the room's lock guards everything but the jobs of a running one.
 * Errors   -ENOMEM; work_say marks it in `broken`.
 */
#ifndef BIN_SERVE_WORK_H
#define BIN_SERVE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "bin/batch/job.h"
#include "bin/serve/api/api_error.h"

enum work_state {
    WORK_QUEUED,
    WORK_RUNNING,
    WORK_DONE,
    WORK_FAILED,
    WORK_CANCELLED
};

enum work_kind {
    WORK_THOUGHT = REPLY_THOUGHT_TEXT,
    WORK_TEXT = REPLY_CONTENT_TEXT,
    WORK_CALL = REPLY_CALL_BEGINS,       /* the text is its name */
    WORK_ARGUMENTS = REPLY_CALL_ARGUMENTS,
    WORK_FINISH, /* of a choice; `call` is an enum reply_reason */
};

struct work_event {
    enum work_kind kind;
    uint32_t choice, call;
    size_t   begin, bytes; /* in work.text: UTF-8 */
};

struct client; /* queue.h */
struct room;   /* room.h */

struct work {
    struct work *after, *kept_after; /* in the room's lists */
    struct room *room;
    uint64_t number;
    char     id[36];  /* ours: letters and digits, unique */
    int64_t  created; /* seconds since 1970 */
    enum work_state state;
    uint32_t refs;
    uint32_t followers; /* connections that follow it */
    int64_t  alone_ns; /* since when nobody does and somebody may come again;
                        * or, of one that is over, since when at all; 0: neither
                        */
    int64_t  begin_ns, run_ns, end_ns; /* asked, first place, finished */
    uint64_t owner;    /* hash of the client */
    struct client *client; /* while queued or running */
    int32_t  priority; /* less is earlier */
    uint8_t  name[32]; /* of the request: client, path, key and body */
    uint8_t  key[32];  /* the same without the body */
    bool     resend;   /* the client may send it again after a hang-up */
    bool     keep;     /* ... and wants it finished whatever happens */
    bool     kept;     /* in the list of those that can be found again */
    bool     delivered; /* somebody got all of it */
    bool     cancel;   /* asked for */
    bool     suspending; /* it gives its places back, to get them again */
    uint32_t returned;   /* jobs that have given theirs back */
    uint32_t placed_ids; /* new_ids when it last got places */

    struct batch_job *job;  /* that have not ended: a chain by `next` */
    struct batch_job *whole; /* DONE: what answers */
    const char *model;      /* as answers call it */
    uint64_t *engine_id;    /* [choices] the session's numbers */
    uint32_t choices, left; /* left: that have not ended */
    bool     chat, stream, stream_usage;
    bool     scored; /* with probabilities */
    uint64_t prompt_ids, prompt_hash, max_ids; /* of the first; of all */
    uint32_t new_ids;       /* so far, of all choices */
    uint64_t queue_place;   /* how many are before it, as of the last look */

    /* Of a response: its conversation before the answer and what it repeats of
     * the request, as the insides of a list and of an object of JSON. `store`:
     * it is to be kept in --data; `stored`: it is. */
    struct buffer turns, echo;
    bool   store, stored;

    struct work_event *event;
    size_t events, event_room;
    struct buffer text;
    bool   broken; /* no memory for an event */
    struct api_error error; /* FAILED, CANCELLED */
};

/* Takes the jobs, also on an error. */
int  work_open(struct work **out, struct batch_job *jobs);
/* The events of the job's last id. */
void work_say(struct work *w, const struct batch_job *j);
/* A job has ended as `finish` says; takes it. `count`: its new ids. True: it
 * was the last, and the state is DONE, FAILED or CANCELLED. */
bool work_job_end(struct work *w, struct batch_job *j, uint32_t count,
                  enum sluice_finish finish);
/* Before it had a place: all its jobs are freed. */
void work_drop_jobs(struct work *w, enum work_state state);
bool work_over(const struct work *w);
/* One reference less; the last frees it. NULL is fine. */
void work_release(struct work *w);

#endif
