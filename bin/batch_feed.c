#include "bin/batch_feed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEN = 1,     /* by a line of the input */
    FINISHED = 2, /* has an answer in the output */
    PLACE_SHIFT = 2, /* where the answer is held, 0: in the output itself */
    FLUSH_PUTS = 256,
    PIPE_LINES = 1 << 16,   /* counted on when nobody knows */
    PIPE_LONGEST = 64 << 10,
    PIECE_BYTES = 200 << 10, /* the longest piece that is encoded at once */
};

static struct batch_key *key_of_id(struct batch_feed *f, const json_t *id)
{
    char number[40];
    if (json_is_string(id))
        return batch_keys_at(&f->keys, json_string_value(id),
                             json_string_length(id));
    /* No text can be the same: NUL stands before it. */
    int n = snprintf(number, sizeof number, "%ci%" JSON_INTEGER_FORMAT, 0,
                     json_integer_value(id));
    return batch_keys_at(&f->keys, number, (size_t)n);
}

static struct batch_key *key_of_line(struct batch_feed *f, uint64_t line)
{
    char number[40];
    int n = snprintf(number, sizeof number, "%cl%" PRIu64, 0, line);
    return batch_keys_at(&f->keys, number, (size_t)n);
}

/* A line of the output: what it answers is finished. */
static int answer_there(void *arg, const char *text, size_t bytes,
                        uint64_t place)
{
    struct batch_feed *f = arg;
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    const char *name = json_string_value(json_object_get(root, "id"));
    json_t *id = json_object_get(root, "custom_id");
    json_t *code =
        json_object_get(json_object_get(root, "error"), "code");
    struct batch_key *key = NULL;
    uint64_t line;
    bool known = name && sscanf(name, "batch_req_%" SCNu64, &line) == 1;
    bool ours = known && json_object_get(root, "response") &&
                json_object_get(root, "error");
    bool by_line = !json_is_string(id) && !json_is_integer(id);
    if (json_is_string(code) &&
        !strcmp(json_string_value(code), BATCH_DUPLICATE))
        by_line = true;
    if (ours)
        key = by_line ? key_of_line(f, line) : key_of_id(f, id);
    json_decref(root);
    if (!ours)
        return -EBADMSG;
    if (!key)
        return -ENOMEM;
    if (key->value & FINISHED)
        return 1;
    key->value = FINISHED | place << PLACE_SHIFT;
    f->before++;
    return 0;
}

int batch_feed_open(struct batch_feed *f, const char *in, const char *out,
                    bool in_order, struct why *why)
{
    memset(f, 0, sizeof *f);
    f->in.fd = -1;
    int err = batch_in_open(&f->in, in, why);
    return err ? err : batch_out_open(&f->out, out, in_order, answer_there, f,
                                      why);
}

void batch_feed_close(struct batch_feed *f, bool complete)
{
    batch_job_free(&f->job);
    batch_in_close(&f->in);
    batch_out_close(f->out, complete);
    batch_keys_free(&f->keys);
}

static int put(struct batch_feed *f, uint64_t line, char *text,
               struct why *why)
{
    if (!text)
        return why_set(why, -ENOMEM, "no memory for an answer");
    int err = batch_out_put(f->out, line, text, strlen(text), why);
    free(text);
    if (!err && ++f->puts >= FLUSH_PUTS)
        err = batch_feed_flush(f, why);
    return err;
}

int batch_feed_flush(struct batch_feed *f, struct why *why)
{
    f->puts = 0;
    return batch_out_flush(f->out, why);
}

int batch_feed_answer(struct batch_feed *f, const struct batch_job *job,
                      uint32_t count, enum batch_reason reason,
                      struct why *why)
{
    f->answered++;
    return put(f, job->line, batch_job_answer(job, &f->rules, count, reason),
               why);
}

/* An error is the answer to this line, unless it has that already. */
static int answer_error(struct batch_feed *f, struct batch_key *key,
                        const struct why *said, struct why *why)
{
    if (!key)
        return why_set(why, -ENOMEM, "no memory for an id");
    uint64_t value = key->value, line = f->job.line;
    key->value |= FINISHED;
    if (value & FINISHED)
        return value >> PLACE_SHIFT
                   ? batch_out_take(f->out, line, value >> PLACE_SHIFT, why)
                   : batch_out_put(f->out, line, NULL, 0, why);
    f->refused++;
    return put(f, line, batch_job_error(&f->job, said), why);
}

static bool is_blank(const char *text, size_t bytes)
{
    while (bytes && (*text == ' ' || *text == '\t' || *text == '\r')) {
        text++;
        bytes--;
    }
    return !bytes;
}

/* One line. 1: it is a request; 0: it is dealt with. */
static int take_line(struct batch_feed *f, const char *text, size_t bytes,
                     struct why *why)
{
    struct why said = { 0 };
    struct batch_job *j = &f->job;
    if (is_blank(text, bytes)) {
        f->blank++;
        return batch_out_put(f->out, f->in.line, NULL, 0, why);
    }
    int err = batch_job_read(j, f->in.line, text, bytes, &said);
    if (err == -EINVAL)
        return answer_error(f, key_of_line(f, f->in.line), &said, why);
    if (err)
        return why_set(why, err, "%s", said.text);
    struct batch_key *key = key_of_id(f, j->id);
    if (!key)
        return why_set(why, -ENOMEM, "no memory for an id");
    if (key->value & SEEN) {
        uint64_t refused = f->refused;
        j->code = BATCH_DUPLICATE;
        why_set(&said, -EINVAL, "an earlier line has this custom_id");
        err = answer_error(f, key_of_line(f, f->in.line), &said, why);
        f->duplicates += f->refused - refused;
        return err;
    }
    key->value |= SEEN;
    if (key->value & FINISHED)
        return answer_error(f, key, &said, why);
    err = batch_job_body(j, &f->rules, &said);
    if (err == -EINVAL)
        return answer_error(f, key, &said, why);
    return err ? why_set(why, err, "%s", said.text) : 1;
}

int batch_feed_next(struct batch_feed *f, bool wait, struct batch_job **job,
                    struct why *why)
{
    for (;;) {
        const char *text;
        size_t bytes;
        int got = batch_in_next(&f->in, wait, &text, &bytes);
        if (got == 0 || got == -ENODATA)
            return got;
        if (got == -EMSGSIZE) {
            struct why said = { 0 };
            f->job.line = f->in.line;
            why_set(&said, -EINVAL, "the line has more than %d bytes",
                    BATCH_LINE_MAX);
            got = answer_error(f, key_of_line(f, f->in.line), &said, why);
        } else if (got < 0) {
            return why_set(why, got, "%s: %s", f->in.path, strerror(-got));
        } else {
            got = take_line(f, text, bytes, why);
        }
        if (got == 1) {
            *job = malloc(sizeof **job);
            if (!*job)
                return why_set(why, -ENOMEM, "no memory for a request");
            **job = f->job;
            memset(&f->job, 0, sizeof f->job);
            return 1;
        }
        batch_job_free(&f->job);
        if (got < 0)
            return got;
    }
}

uint64_t batch_feed_bytes(const struct batch_feed *f)
{
    uint64_t lines = f->in.lines ? f->in.lines : PIPE_LINES;
    uint64_t longest = f->in.longest_bytes ? f->in.longest_bytes
                                           : PIPE_LONGEST;
    longest = longest < BATCH_LINE_MAX ? longest : BATCH_LINE_MAX;
    uint64_t piece = longest < PIECE_BYTES ? longest : PIECE_BYTES;
    /* Per line: its key in a table that may just have doubled, its turn. Of the
     * longest: the buffer, its JSON, its ids while their list grows. */
    return (2 << 20) + lines * (5 * sizeof(struct batch_key) + 48) +
           longest * 24 + piece * 60;
}
