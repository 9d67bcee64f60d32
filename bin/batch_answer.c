/* batch_answer.c - the lines that answer: OpenAI batch responses. They hold no
 * time and no random number, so the same job gives the same bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch_job.h"
#include "model/tok_utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* A JSON string; bytes that are no UTF-8 become U+FFFD, as a decoder does. */
static json_t *text_of(const struct reply_text *t)
{
    char *clean = malloc(t->count * 3 + 1);
    size_t used = 0, at = 0;
    if (!clean)
        return NULL;
    while (at < t->count) {
        uint32_t cp;
        int n = tok_utf8_next(t->bytes + at, t->count - at, &cp);
        size_t take = n > 0 ? (size_t)n : n < 0 ? (size_t)-n : t->count - at;
        const char *from = n > 0 ? t->bytes + at : replacement;
        size_t bytes = n > 0 ? take : sizeof replacement - 1;
        memcpy(clean + used, from, bytes);
        used += bytes;
        at += take;
    }
    json_t *s = json_stringn(clean, used);
    free(clean);
    return s;
}

static char *line_of(json_t *root)
{
    char *line = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return line;
}

static json_t *message_of(const struct reply *r)
{
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          text_of(&r->text[REPLY_CONTENT]));
    if (m && r->text[REPLY_THOUGHTS].count &&
        json_object_set_new(m, "reasoning_content",
                            text_of(&r->text[REPLY_THOUGHTS]))) {
        json_decref(m);
        return NULL;
    }
    return m;
}

/* NULL: no memory; an answer that lacks something must not be given. */
static json_t *choice_of(const struct batch_job *j, uint32_t count,
                         enum batch_reason reason)
{
    const struct reply *r = &j->reply;
    const char *why = reason == BATCH_LENGTH ? "length" : "stop";
    json_t *c = json_pack("{s:i, s:o, s:n, s:s}", "index", 0,
                          j->chat ? "message" : "text",
                          j->chat ? message_of(r)
                                  : text_of(&r->text[REPLY_CONTENT]),
                          "logprobs", "finish_reason", why);
    json_t *ids = j->want_ids ? json_array() : NULL;
    int bad = !c || (j->want_ids && !ids);
    for (uint32_t i = 0; i < count && ids && !bad; i++)
        bad = json_array_append_new(
            ids, json_integer(j->r.ids[j->r.prompt_count + i]));
    if (!bad && ids)
        bad = json_object_set(c, "token_ids", ids);
    json_decref(ids);
    if (!bad)
        return c;
    json_decref(c);
    return NULL;
}

char *batch_job_answer(const struct batch_job *j,
                       const struct batch_rules *rules, uint32_t count,
                       enum batch_reason reason)
{
    char name[40];
    json_int_t prompt = j->r.prompt_count, all = prompt + count;
    snprintf(name, sizeof name, "batch_req_%" PRIu64, j->line);
    json_t *body = json_pack(
        "{s:s+, s:s, s:s, s:[o], s:{s:I, s:I, s:I}}", "id",
        j->chat ? "chatcmpl-" : "cmpl-", name + 10, "object",
        j->chat ? "chat.completion" : "text_completion", "model",
        rules->name, "choices", choice_of(j, count, reason), "usage",
        "prompt_tokens", prompt, "completion_tokens", (json_int_t)count,
        "total_tokens", all);
    return line_of(json_pack("{s:s, s:O, s:{s:i, s:s, s:o}, s:n}", "id", name,
                             "custom_id", j->id, "response", "status_code",
                             200, "request_id", name, "body", body, "error"));
}

char *batch_job_error(const struct batch_job *j, const struct why *why)
{
    char name[40], said[sizeof why->text];
    struct reply_text text = { .bytes = said, .count = strlen(why->text) };
    memcpy(said, why->text, text.count); /* may be cut inside a character */
    snprintf(name, sizeof name, "batch_req_%" PRIu64, j->line);
    return line_of(json_pack("{s:s, s:O?, s:n, s:{s:s, s:o}}", "id", name,
                             "custom_id", j->id, "response", "error", "code",
                             j->code ? j->code : "invalid_request", "message",
                             text_of(&text)));
}
