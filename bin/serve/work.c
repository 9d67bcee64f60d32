#include "bin/serve/work.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/clock.h"
#include "model/chat/answer.h"
#include "model/chat/chat.h"

static void free_job(struct batch_job *j)
{
    batch_job_free(j);
    free(j);
}

int work_open(struct work **out, struct batch_job *jobs)
{
    struct work *w = calloc(1, sizeof *w);
    *out = w;
    if (!w) {
        while (jobs) {
            struct batch_job *next = jobs->next;
            free_job(jobs);
            jobs = next;
        }
        return -ENOMEM;
    }
    w->refs = 1;
    w->job = jobs;
    w->created = time(NULL);
    w->begin_ns = clock_ns();
    w->chat = jobs->chat;
    w->stream = jobs->stream;
    w->stream_usage = jobs->stream_usage;
    w->scored = jobs->score;
    w->prompt_hash = answer_hash(jobs->ids, jobs->prompt_count);
    for (struct batch_job *j = jobs; j; j = j->next) {
        if (j->index % j->choices == 0) /* once for all its choices */
            w->prompt_ids += j->prompt_count -
                             (j->chat && !j->prefill ? CHAT_OPENING_IDS : 0);
        w->max_ids += j->r.max_ids;
        w->choices++;
    }
    w->left = w->choices;
    w->engine_id = calloc(w->choices, sizeof *w->engine_id);
    if (w->engine_id)
        return 0;
    work_release(w);
    *out = NULL;
    return -ENOMEM;
}

static void add(struct work *w, enum work_kind kind, uint32_t choice,
                uint32_t call, const char *text, size_t bytes)
{
    if (w->events == w->event_room) {
        size_t room = w->event_room * 2 + 8;
        struct work_event *more = realloc(w->event, room * sizeof *more);
        if (!more) {
            w->broken = true;
            return;
        }
        w->event = more;
        w->event_room = room;
    }
    w->event[w->events++] = (struct work_event){ kind, choice, call,
                                                 w->text.count, bytes };
    if (bytes)
        buffer_put(&w->text, text, bytes);
    w->broken |= w->text.failed;
}

void work_say(struct work *w, const struct batch_job *j)
{
    const struct reply *r = &j->reply;
    for (uint32_t i = 0; i < r->events; i++) {
        const struct reply_event *e = &r->event[i];
        add(w, (enum work_kind)e->kind, j->index, e->call,
            r->event_text.bytes + e->begin, e->bytes);
    }
}

static void unlink_job(struct work *w, const struct batch_job *j)
{
    struct batch_job **link = &w->job;
    while (*link != j)
        link = &(*link)->next;
    *link = j->next;
}

bool work_job_end(struct work *w, struct batch_job *j, uint32_t count,
                  enum sluice_finish finish)
{
    bool answered = finish != SLUICE_CANCELLED && finish != SLUICE_FAILED;
    uint32_t index = j->index;
    assert(w->left);
    unlink_job(w, j);
    j->next = NULL;
    w->left--;
    int whole = 0;
    if (answered) {
        bool cut = finish == SLUICE_LENGTH;
        j->reply.events = 0; /* of the last id: said */
        j->reply.event_text.count = 0;
        w->broken |= reply_end(&j->reply, cut) < 0;
        work_say(w, j);
        enum reply_reason reason = cut && j->r.ignore_end ? REPLY_LENGTH
                                                          : j->reply.reason;
        add(w, WORK_FINISH, index, reason, "", 0);
        whole = batch_job_end(j, count, finish);
        w->broken |= whole < 0;
    } else if (w->state == WORK_RUNNING) {
        w->state = finish == SLUICE_CANCELLED ? WORK_CANCELLED : WORK_FAILED;
    }
    if (whole > 0)
        w->whole = j;
    else
        free_job(j);
    if (w->left)
        return false;
    if (w->broken && w->state == WORK_RUNNING)
        w->state = WORK_FAILED;
    if (w->state == WORK_RUNNING)
        w->state = WORK_DONE;
    w->end_ns = clock_ns();
    return true;
}

void work_drop_jobs(struct work *w, enum work_state state)
{
    while (w->job) {
        struct batch_job *j = w->job;
        w->job = j->next;
        j->next = NULL;
        free_job(j);
    }
    w->left = 0;
    w->state = state;
    w->end_ns = clock_ns();
}

bool work_over(const struct work *w)
{
    return w->state >= WORK_DONE;
}

void work_release(struct work *w)
{
    if (!w || --w->refs)
        return;
    work_drop_jobs(w, w->state);
    if (w->whole)
        free_job(w->whole);
    free(w->engine_id);
    free(w->event);
    buffer_free(&w->text);
    buffer_free(&w->turns);
    buffer_free(&w->echo);
    free(w);
}
