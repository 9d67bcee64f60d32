/* render_openai.c - chat.completion and text_completion, whole and in chunks.
 */
#include <inttypes.h>
#include <string.h>

#include "bin/serve/render.h"
#include "bin/serve/room.h"
#include "model/json/jv_write.h"

/* Up to and with the list of choices' "[". */
static void begin_chunk(const struct work *w, struct buffer *out)
{
    buffer_format(out,
                  "data: {\"id\":\"%s%s\",\"object\":\"%s\","
                  "\"created\":%" PRId64 ",\"model\":",
                  w->chat ? "chatcmpl-" : "cmpl-", w->id,
                  w->chat ? "chat.completion.chunk" : "text_completion",
                  w->created);
    api_text(out, w->model);
    buffer_text(out, ",\"choices\":[");
}

static void end_chunk(const struct work *w, struct buffer *out)
{
    buffer_text(out, w->stream_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void begin(struct render *r, const struct work *w, struct buffer *out)
{
    (void)r;
    for (uint32_t i = 0; i < w->choices && w->chat; i++) {
        begin_chunk(w, out);
        buffer_format(out,
                      "{\"index\":%" PRIu32 ",\"delta\":{\"role\":"
                      "\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                      "\"finish_reason\":null}",
                      i);
        end_chunk(w, out);
    }
}

static void put_call(const struct work *w, const struct work_event *e,
                     struct buffer *out)
{
    const char *text = render_text(w, e);
    buffer_format(out, "\"tool_calls\":[{\"index\":%" PRIu32, e->call);
    if (e->kind == WORK_CALL) {
        buffer_format(out,
                      ",\"id\":\"call_%016" PRIx64 "_%" PRIu32 "_%" PRIu32
                      "\",\"type\":\"function\",\"function\":{\"name\":",
                      w->prompt_hash, e->choice, e->call);
        jv_write_line_string(out, text, e->bytes);
        buffer_text(out, ",\"arguments\":\"\"}}]");
        return;
    }
    buffer_text(out, ",\"function\":{\"arguments\":");
    jv_write_line_string(out, text, e->bytes);
    buffer_text(out, "}}]");
}

static void put_delta(const struct work *w, const struct work_event *e,
                      struct buffer *out)
{
    buffer_text(out, "\"delta\":{");
    if (e->kind == WORK_CALL || e->kind == WORK_ARGUMENTS) {
        put_call(w, e, out);
    } else if (e->kind != WORK_FINISH) {
        buffer_text(out, e->kind == WORK_THOUGHT ? "\"reasoning_content\":"
                                                 : "\"content\":");
        jv_write_line_string(out, render_text(w, e), e->bytes);
    }
    buffer_text(out, "}");
}

static void event(struct render *r, const struct work *w,
                  const struct work_event *e, struct buffer *out)
{
    (void)r;
    if (e->kind == WORK_FINISH && w->scored)
        return; /* end() says it */
    begin_chunk(w, out);
    buffer_format(out, "{\"index\":%" PRIu32 ",", e->choice);
    if (w->chat) {
        put_delta(w, e, out);
    } else {
        buffer_text(out, "\"text\":");
        jv_write_line_string(out, render_text(w, e), e->bytes);
    }
    buffer_text(out, ",\"logprobs\":null,\"finish_reason\":");
    if (e->kind == WORK_FINISH)
        buffer_format(out, "\"%s\"}",
                      reply_reason_name((enum reply_reason)e->call));
    else
        buffer_text(out, "null}");
    end_chunk(w, out);
}

/* Probabilities come at the end, all of a choice in the chunk that says why it
 * ended: which of its tokens count is known then. */
static void put_logprobs(const struct work *w, const struct batch_job *part,
                         struct buffer *out)
{
    uint32_t reason = 0;
    for (size_t i = 0; i < w->events; i++)
        if (w->event[i].kind == WORK_FINISH &&
            w->event[i].choice == part->index)
            reason = w->event[i].call;
    begin_chunk(w, out);
    buffer_format(out, "{\"index\":%" PRIu32 ",%s,\"logprobs\":",
                  part->index, w->chat ? "\"delta\":{}" : "\"text\":\"\"");
    batch_job_logprobs(out, part, &w->room->rules);
    buffer_format(out, ",\"finish_reason\":\"%s\"}",
                  reply_reason_name((enum reply_reason)reason));
    end_chunk(w, out);
}

static void end(struct render *r, const struct work *w, struct buffer *out)
{
    uint64_t prompt, made, thought = 0;
    uint32_t count;
    const struct batch_job *part = batch_job_parts(w->whole, &count);
    (void)r;
    for (uint32_t i = 0; i < count; i++)
        if (part[i].score)
            put_logprobs(w, &part[i], out);
    if (w->stream_usage) {
        batch_job_usage(w->whole, &prompt, &made);
        for (uint32_t i = 0; i < count; i++)
            thought += part[i].reply.thought_ids;
        begin_chunk(w, out);
        buffer_format(out,
                      "],\"usage\":{\"prompt_tokens\":%" PRIu64
                      ",\"completion_tokens\":%" PRIu64
                      ",\"total_tokens\":%" PRIu64,
                      prompt, made, prompt + made);
        if (w->chat)
            buffer_format(out,
                          ",\"completion_tokens_details\":"
                          "{\"reasoning_tokens\":%" PRIu64 "}",
                          thought);
        buffer_text(out, "}}\n\n");
    }
    buffer_text(out, "data: [DONE]\n\n");
}

static void whole(struct render *r, const struct work *w,
                  const struct batch_rules *rules, struct buffer *out)
{
    (void)r;
    batch_job_answer_body(out, w->whole, rules, w->id, w->created);
}

const struct render_api render_openai = { begin, event, end, whole };
