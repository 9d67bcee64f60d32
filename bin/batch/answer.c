/* answer.c - the lines that answer: OpenAI batch responses. The same job gives
 * the same bytes, but for `created`. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bin/batch/hash.h"
#include "bin/batch/job.h"
#include "model/chat/answer.h"
#include "model/chat/chat.h"
#include "model/json/jv_write.h"

static void begin(struct buffer *out, const struct batch_job *j)
{
    buffer_format(out, "{\"id\":\"batch_req_%" PRIu64 "\",\"custom_id\":",
                  j->line);
    if (j->id_text.count)
        buffer_put(out, j->id_text.bytes, j->id_text.count);
    else
        buffer_text(out, "null");
}

/* What is not whole must not be given. */
static char *end(struct buffer *out)
{
    if (!out->failed)
        return out->bytes;
    buffer_free(out);
    return NULL;
}

void batch_job_usage(const struct batch_job *j, uint64_t *prompt_tokens,
                     uint64_t *new_tokens)
{
    uint32_t count;
    const struct batch_job *part = batch_job_parts(j, &count);
    *prompt_tokens = *new_tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_job *p = &part[i];
        /* The opening of a reply's channel is the model's own. */
        if (p->index % p->choices == 0)
            *prompt_tokens += p->prompt_count -
                              (p->chat && !p->prefill ? CHAT_OPENING_IDS : 0);
        *new_tokens += p->count + (p->finish == SLUICE_END);
    }
}

void batch_job_answer_body(struct buffer *out, const struct batch_job *j,
                           const struct batch_rules *rules,
                           const char *number, int64_t created)
{
    uint32_t count;
    const struct batch_job *part = batch_job_parts(j, &count);
    struct answer_choice *choice = calloc(count, sizeof *choice);
    struct answer a = {
        .is_chat = part->chat,
        .number = number,
        .model = rules->name,
        .tok = rules->tok,
        .created = created,
        .prompt_hash = answer_hash(part->ids, part->prompt_count),
        .choice = choice,
        .choices = count,
    };
    if (!choice) {
        out->failed = true;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_job *p = &part[i];
        choice[i] = (struct answer_choice){
            .reply = &p->reply,
            .echo = p->echo.bytes,
            .echo_bytes = p->echo.count,
            .score = p->score,
            .scores = p->count,
            .ids = p->want_ids ? p->ids + p->prompt_count : NULL,
            .count = p->count,
        };
    }
    batch_job_usage(j, &a.prompt_ids, &a.new_ids);
    answer_body(out, &a);
    free(choice);
}

static void put_hash(struct buffer *out, const struct batch_job *j,
                     const struct batch_rules *rules)
{
    struct batch_hash hash;
    char text[BATCH_HASH_TEXT];
    uint32_t count;
    const struct batch_job *part = batch_job_parts(j, &count);
    if (!rules->identity)
        return;
    out->failed |= batch_hash_open(&hash, rules) != 0;
    for (uint32_t i = 0; i < count; i++)
        batch_hash_add(&hash, &part[i]);
    batch_hash_end(&hash, text);
    buffer_format(out, ",\"sluice_hash\":\"%s\"", text);
}

void batch_job_logprobs(struct buffer *out, const struct batch_job *part,
                        const struct batch_rules *rules)
{
    const struct answer_choice choice = { .reply = &part->reply,
                                          .score = part->score,
                                          .scores = part->count };
    const struct answer a = { .is_chat = part->chat, .tok = rules->tok,
                              .choice = &choice, .choices = 1 };
    answer_logprobs(out, &a, &choice);
}

char *batch_job_answer(const struct batch_job *j,
                       const struct batch_rules *rules)
{
    struct buffer out = { 0 };
    char number[24];
    uint32_t count;
    snprintf(number, sizeof number, "%" PRIu64, j->line);
    begin(&out, batch_job_parts(j, &count));
    buffer_format(&out, ",\"response\":{\"status_code\":200,\"request_id\":"
                        "\"batch_req_%s\",\"body\":",
                  number);
    batch_job_answer_body(&out, j, rules, number, time(NULL));
    buffer_text(&out, "},\"error\":null");
    put_hash(&out, j, rules);
    buffer_text(&out, "}");
    return end(&out);
}

char *batch_job_error(const struct batch_job *j, const struct error *error,
                      const char *hash)
{
    struct buffer out = { 0 }, clean = { 0 };
    begin(&out, j);
    buffer_text(&out, ",\"response\":null,\"error\":{\"code\":\"");
    buffer_text(&out, j->code ? j->code : "invalid_request");
    buffer_text(&out, "\",\"message\":");
    /* It may be cut inside a character. */
    jv_clean(&clean, error->text, strlen(error->text));
    jv_write_line_string(&out, clean.bytes, clean.count);
    buffer_text(&out, "}");
    if (hash && *hash)
        buffer_format(&out, ",\"sluice_hash\":\"%s\"", hash);
    buffer_text(&out, "}");
    out.failed |= clean.failed;
    buffer_free(&clean);
    return end(&out);
}
