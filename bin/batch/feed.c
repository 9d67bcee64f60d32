#include "bin/batch/feed.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch/hash.h"
#include "bin/batch/retry.h"
#include "bin/batch/said.h"
#include "bin/cli/session.h"
#include "model/chat/request.h"

enum {
    SEEN = 1,     /* by a line of the input */
    FINISHED = 2, /* has an answer in the output */
    CHECKED = 4,  /* its sluice_hash was compared */
    PLACE_SHIFT = 3, /* where the answer is held, 0: in the output itself */
    FLUSH_PUTS = 256,
    PIPE_LINES = 1 << 16,   /* counted on when nobody knows */
    PIPE_LONGEST = 64 << 10,
    PIPE_SHARE = 32,        /* of the memory: lines of a pipe, the longest */
    LINE_HEAP = 5 * sizeof(struct batch_key) + 48,
    LONGEST_HEAP = 24,      /* bytes for each of the longest line */
    HELD_MAX = 64 << 10, HELD_MIN = 4 << 10, HELD_SHARE = 2048,
    PIECE_BYTES = 200 << 10, /* the longest piece that is encoded at once */
};

/* Why an id has no key. */
static int no_key(const struct batch_feed *f, struct error *error)
{
    if (!f->keys.limit || f->keys.count < f->keys.limit)
        return error_set(error, -ENOMEM, "no memory for an id");
    return error_set(error, -ENOBUFS,
                     "%s: more than %zu lines, for which the memory has "
                     "no room: the same command goes on, and the lines of a "
                     "file are counted before",
                     f->in.path, f->keys.limit);
}

/* Of the line at hand. */
static struct batch_key *key_of_line(struct batch_feed *f)
{
    return batch_key_of_line(&f->keys, f->in.line);
}

/* A line of the output: what it answers is finished. */
static int answer_there(void *arg, const char *text, size_t bytes,
                        uint64_t place)
{
    struct batch_feed *f = arg;
    struct batch_said s;
    int err = batch_said_read(&s, text, bytes);
    if (err)
        return err;
    struct batch_key *key = batch_said_key(&f->keys, &s);
    batch_said_free(&s);
    if (!key)
        return -ENOMEM;
    if (key->value & FINISHED)
        return 1;
    key->value = FINISHED | place << PLACE_SHIFT;
    key->asked = s.answers ? s.hash : 0;
    f->before++;
    f->hashed += key->asked != 0;
    f->unhashed += s.answers && !s.hash;
    f->errors_before += s.failed;
    return 0;
}

int batch_feed_open(struct batch_feed *f, const char *in, const char *out,
                    bool in_order, struct error *error)
{
    memset(f, 0, sizeof *f);
    f->in.fd = -1;
    int err = batch_in_open(&f->in, in, error);
    return err ? err
               : batch_out_open(&f->out, out, in_order, answer_there, f, error);
}

int batch_feed_retry(struct batch_feed *f, const char *out, bool in_order,
                     bool all, struct error *error)
{
    if (!f->errors_before)
        return 0;
    int err = batch_retry(f->in.path, out, in_order, all, &f->rules,
                          &f->retried, error);
    if (err || !f->retried)
        return err;
    batch_out_close(f->out, false);
    f->out = NULL;
    batch_keys_free(&f->keys);
    f->before = f->hashed = f->unhashed = f->errors_before = 0;
    return batch_out_open(&f->out, out, in_order, answer_there, f, error);
}

void batch_feed_close(struct batch_feed *f, bool complete)
{
    batch_job_free(&f->job);
    while (f->others) {
        struct batch_job *j = f->others;
        f->others = j->next;
        batch_job_free(j);
        free(j);
    }
    batch_in_close(&f->in);
    batch_out_close(f->out, complete);
    batch_keys_free(&f->keys);
}

static int put(struct batch_feed *f, uint64_t line, char *text,
               struct error *error)
{
    if (!text)
        return error_set(error, -ENOMEM, "no memory for an answer");
    int err = batch_out_put(f->out, line, text, strlen(text), error);
    free(text);
    if (!err && ++f->puts >= FLUSH_PUTS)
        err = batch_feed_flush(f, error);
    return err;
}

int batch_feed_flush(struct batch_feed *f, struct error *error)
{
    f->puts = 0;
    return batch_out_flush(f->out, error);
}

static void count_cut(struct batch_feed *f, const struct batch_job *job)
{
    uint32_t count;
    const struct batch_job *part = batch_job_parts(job, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct reply *r = &part[i].reply;
        bool cut = r->reason == REPLY_LENGTH;
        f->cut += cut;
        f->thinking += cut && part[i].chat && r->region == REPLY_THINK;
    }
}

int batch_feed_answer(struct batch_feed *f, struct batch_job *job,
                      uint32_t count, enum sluice_finish finish,
                      struct error *error)
{
    uint64_t prompt_tokens, new_tokens;
    int whole = batch_job_end(job, count, finish);
    if (whole < 0)
        return put(f, job->line, NULL, error);
    if (!whole)
        return 0;
    f->answered++;
    count_cut(f, job);
    batch_job_usage(job, &prompt_tokens, &new_tokens);
    f->prompt_tokens += prompt_tokens;
    f->new_tokens += new_tokens;
    return put(f, job->line, batch_job_answer(job, &f->rules), error);
}

/* An error is the answer to this line, unless it has that already. */
static int answer_error(struct batch_feed *f, struct batch_key *key,
                        const struct error *said, struct error *error)
{
    if (!key)
        return no_key(f, error);
    uint64_t value = key->value, line = f->job.line;
    key->value |= FINISHED;
    if (value & FINISHED)
        return value >> PLACE_SHIFT
                   ? batch_out_take(f->out, line, value >> PLACE_SHIFT, error)
                   : batch_out_put(f->out, line, NULL, 0, error);
    f->refused++;
    char hash[BATCH_HASH_TEXT] = "";
    if (f->text)
        batch_hash_error(hash, &f->rules, f->text, f->text_bytes);
    return put(f, line, batch_job_error(&f->job, said, hash), error);
}

/* Was the answer that there is given to this request? The line's id was read.
 * Its prompts are read, too, and forgotten. */
static int check_answered(struct batch_feed *f, struct batch_job *j,
                          struct batch_key *key, struct error *error)
{
    struct batch_hash hash;
    struct error said = { 0 };
    char text[BATCH_HASH_TEXT] = "";
    if (!f->strict || !f->rules.identity || !key->asked ||
        key->value & CHECKED)
        return 0;
    key->value |= CHECKED;
    int err = batch_job_body(j, &f->rules, &said);
    if (!err)
        err = batch_hash_open(&hash, &f->rules);
    if (!err) {
        for (const struct batch_job *p = j; p; p = p->next)
            batch_hash_add(&hash, p);
        batch_hash_end(&hash, text);
    }
    while (j->next) {
        struct batch_job *next = j->next;
        j->next = next->next;
        batch_job_free(next);
        free(next);
    }
    if (err == -ENOMEM)
        return error_set(error, err, "no memory for line %" PRIu64, j->line);
    if (!err && batch_hash_short(text, strlen(text)) == key->asked)
        return 0;
    return error_set(error, -EINVAL,
                     "%s: line %" PRIu64 " has an answer to another request, "
                     "or of another model or other options: give another "
                     "output, or --resume ids to keep it",
                     f->in.path, j->line);
}

int batch_feed_check(struct batch_feed *f, struct error *error)
{
    struct batch_in in;
    const char *text;
    size_t bytes;
    bool open = f->strict && f->hashed && f->in.lines &&
                strcmp(f->in.path, "-"); /* which is read once */
    int got = open ? batch_in_open(&in, f->in.path, error) : -ENODATA;
    if (f->unhashed)
        fprintf(stderr, "sluice: %" PRIu64 " answers that are there have no "
                "sluice_hash, and are kept\n", f->unhashed);
    while (got >= 0 || got == -EMSGSIZE) {
        struct batch_job j;
        struct error said = { 0 };
        struct batch_key *key = NULL;
        if (session_signal()) {
            got = -ECANCELED;
            break;
        }
        got = batch_in_next(&in, true, &text, &bytes);
        if (got != 1 || batch_is_blank(text, bytes))
            continue;
        int err = batch_job_read(&j, in.line, text, bytes, &said);
        if (!err && !(key = batch_key_of_id(&f->keys, j.id)))
            err = -ENOMEM;
        if (!err && key->value & FINISHED)
            got = check_answered(f, &j, key, error);
        else if (err == -ENOMEM)
            got = error_set(error, err, "no memory for an id");
        batch_job_free(&j);
    }
    if (open)
        batch_in_close(&in);
    return got == -ENODATA ? 0 : got;
}

int batch_feed_ended(struct batch_feed *f, struct error *error)
{
    if (f->unfinished)
        return error_set(error, -EBADMSG,
                         "%s: line %" PRIu64 " has no end and is not whole: it "
                         "was still being written",
                         f->in.path, f->in.line);
    if (batch_in_changed(&f->in))
        return error_set(error, -ESTALE,
                         "%s: was changed during the job; the same command "
                         "answers what it has now",
                         f->in.path);
    return 0;
}

/* One line. 1: it is a request; 0: it is dealt with. */
static int take_line(struct batch_feed *f, const char *text, size_t bytes,
                     struct error *error)
{
    struct error said = { 0 };
    struct batch_job *j = &f->job;
    f->text = text;
    f->text_bytes = bytes;
    if (batch_is_blank(text, bytes)) {
        f->blank++;
        return batch_out_put(f->out, f->in.line, NULL, 0, error);
    }
    int err = batch_job_read(j, f->in.line, text, bytes, &said);
    if (err == -EINVAL && !j->doc.root && f->in.no_end) {
        f->unfinished = true; /* whoever writes it has not come to its end */
        return -ENODATA;
    }
    if (err == -EINVAL)
        return answer_error(f, key_of_line(f), &said, error);
    if (err)
        return error_set(error, err, "%s", said.text);
    if (f->rules.held_max && j->id_text.count > f->rules.held_max) {
        error_set(&said, -EINVAL, "custom_id has more than %" PRIu32 " bytes",
                  f->rules.held_max);
        j->code = REFUSED_INVALID;
        buffer_free(&j->id_text);
        return answer_error(f, key_of_line(f), &said, error);
    }
    struct batch_key *key = batch_key_of_id(&f->keys, j->id);
    if (!key)
        return no_key(f, error);
    if (key->value & SEEN) {
        uint64_t refused = f->refused;
        j->code = BATCH_DUPLICATE;
        error_set(&said, -EINVAL, "an earlier line has this custom_id");
        err = answer_error(f, key_of_line(f), &said, error);
        f->duplicates += f->refused - refused;
        return err;
    }
    key->value |= SEEN;
    if (key->value & FINISHED) {
        err = check_answered(f, j, key, error);
        return err ? err : answer_error(f, key, &said, error);
    }
    err = batch_job_body(j, &f->rules, &said);
    if (err == -EINVAL)
        return answer_error(f, key, &said, error);
    return err ? error_set(error, err, "%s", said.text) : 1;
}

int batch_feed_next(struct batch_feed *f, bool wait, struct batch_job **job,
                    struct error *error)
{
    assert(f->out && f->rules.vocab && f->rules.context && f->rules.max);
    if (f->others) {
        *job = f->others;
        f->others = (*job)->next;
        (*job)->next = NULL;
        return 1;
    }
    for (;;) {
        const char *text;
        size_t bytes;
        if (session_signal())
            return 0;
        int got = batch_in_next(&f->in, wait, &text, &bytes);
        if (got == 0 || got == -ENODATA)
            return got;
        if (got == -EMSGSIZE) {
            struct error said = { 0 };
            f->job.line = f->in.line;
            f->text = NULL;
            error_set(&said, -EINVAL, "the line has more than %" PRIu64
                      " bytes%s", f->in.line_max,
                      f->in.lines ? ""
                                  : ", which is what this memory budget has "
                                    "for a line of a pipe");
            got = answer_error(f, key_of_line(f), &said, error);
        } else if (got < 0) {
            return error_set(error, got, "%s: %s", f->in.path,
                             f->in.what ? f->in.what : strerror(-got));
        } else {
            got = take_line(f, text, bytes, error);
        }
        if (got == 1) {
            *job = malloc(sizeof **job);
            if (!*job)
                return error_set(error, -ENOMEM, "no memory for a request");
            **job = f->job;
            memset(&f->job, 0, sizeof f->job);
            f->ignored += (*job)->ignored;
            f->others = (*job)->next;
            (*job)->next = NULL;
            return 1;
        }
        batch_job_free(&f->job);
        if (got < 0)
            return got;
    }
}

uint64_t batch_feed_requests(const struct batch_feed *f)
{
    uint64_t prompts = 1;
    for (const struct batch_job *j = f->others; j; j = j->next)
        prompts++;
    return f->in.lines * prompts;
}

void batch_feed_limit(struct batch_feed *f, uint64_t memory_bytes)
{
    uint64_t share = memory_bytes / PIPE_SHARE;
    uint64_t lines = share / LINE_HEAP, longest = share / LONGEST_HEAP;
    uint64_t held = share / HELD_SHARE;
    f->rules.held_max = HELD_MAX;
    if (f->in.lines) /* every one is counted on */
        return;
    f->keys.limit = f->keys.count + (lines > PIPE_LINES ? lines : PIPE_LINES);
    f->in.line_max = longest > BATCH_LINE_MAX ? BATCH_LINE_MAX
                     : longest > PIPE_LONGEST ? longest
                                              : PIPE_LONGEST;
    if (held < HELD_MAX)
        f->rules.held_max = held > HELD_MIN ? (uint32_t)held : HELD_MIN;
}

static uint64_t longest_of(const struct batch_feed *f)
{
    uint64_t longest = f->in.lines ? f->in.longest_bytes : f->in.line_max;
    return longest < BATCH_LINE_MAX ? longest : BATCH_LINE_MAX;
}

uint64_t batch_feed_bytes(const struct batch_feed *f)
{
    uint64_t lines = f->in.lines ? f->in.lines + f->keys.count
                                 : f->keys.limit;
    uint64_t longest = longest_of(f);
    uint64_t piece = longest < PIECE_BYTES ? longest : PIECE_BYTES;
    /* Per line: its key in a table that may just have doubled, its turn. Of the
     * longest: the buffer, its JSON, its ids while their list grows. */
    uint64_t unpack = !f->in.lines ? BATCH_PIPE_WINDOW + UNPACK_MORE_BYTES
                      : f->in.packed ? BATCH_WINDOW + UNPACK_MORE_BYTES
                                     : 0;
    return unpack + (2 << 20) + lines * LINE_HEAP + longest * LONGEST_HEAP +
           piece * 60;
}

uint64_t batch_feed_job_bytes(const struct batch_feed *f)
{
    uint64_t longest = longest_of(f), held = f->rules.held_max;
    /* The id, and the stop strings with their tables, in buffers that grow. */
    return 8 * (longest < held ? longest : held);
}
