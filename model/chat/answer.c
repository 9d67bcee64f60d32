#include "model/chat/answer.h"

#include <inttypes.h>
#include <string.h>

#include "model/json/jv_write.h"

uint64_t answer_hash(const uint32_t *ids, size_t count)
{
    uint64_t h = 0x9e3779b97f4a7c15ull + count;
    for (size_t i = 0; i < count; i++) { /* splitmix64 of what came so far */
        h = (h ^ ids[i]) + 0x9e3779b97f4a7c15ull;
        h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
        h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
        h ^= h >> 31;
    }
    return h;
}

static void put_calls(struct buffer *out, const struct answer *a,
                      uint32_t choice)
{
    const struct reply *r = a->choice[choice].reply;
    buffer_text(out, ",\"tool_calls\":[");
    for (uint32_t i = 0; i < r->calls; i++) {
        const struct reply_call *c = &r->call[i];
        buffer_format(out,
                      "%s{\"id\":\"call_%016" PRIx64 "_%" PRIu32 "_%" PRIu32
                      "\",\"type\":\"function\","
                      "\"function\":{\"name\":",
                      i ? "," : "", a->prompt_hash, choice, i);
        jv_write_line_string(out, c->name.bytes, c->name.count);
        buffer_text(out, ",\"arguments\":");
        jv_write_line_string(out, c->arguments.bytes, c->arguments.count);
        buffer_text(out, "}}");
    }
    buffer_text(out, "]");
}

static void put_message(struct buffer *out, const struct answer *a,
                        uint32_t choice)
{
    const struct reply *r = a->choice[choice].reply;
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (r->calls && !r->content.count)
        buffer_text(out, "null");
    else
        jv_write_line_string(out, r->content.bytes, r->content.count);
    buffer_text(out, ",\"refusal\":null");
    if (r->thoughts.count) {
        buffer_text(out, ",\"reasoning_content\":");
        jv_write_line_string(out, r->thoughts.bytes, r->thoughts.count);
    }
    if (r->calls)
        put_calls(out, a, choice);
    buffer_text(out, "}");
}

static void put_text(struct buffer *out, const struct answer_choice *c)
{
    const struct buffer *content = &c->reply->content;
    struct buffer whole = { 0 };
    buffer_text(out, "\"text\":");
    jv_clean(&whole, c->echo, c->echo ? c->echo_bytes : 0);
    buffer_put(&whole, content->bytes, content->count);
    jv_write_line_string(out, whole.bytes, whole.count);
    out->failed |= whole.failed;
    buffer_free(&whole);
}

static void put_choice(struct buffer *out, const struct answer *a, uint32_t i)
{
    const struct answer_choice *c = &a->choice[i];
    buffer_format(out, "%s{\"index\":%" PRIu32 ",", i ? "," : "", i);
    if (a->is_chat) {
        put_message(out, a, i);
    } else {
        put_text(out, c);
    }
    buffer_text(out, ",\"logprobs\":");
    answer_logprobs(out, a, c);
    buffer_format(out, ",\"finish_reason\":\"%s\"",
                  reply_reason_name(c->reply->reason));
    if (c->ids) {
        buffer_text(out, ",\"token_ids\":[");
        for (uint32_t k = 0; k < c->count; k++)
            buffer_format(out, k ? ",%" PRIu32 : "%" PRIu32, c->ids[k]);
        buffer_text(out, "]");
    }
    buffer_text(out, "}");
}

void answer_body(struct buffer *out, const struct answer *a)
{
    uint64_t thoughts = 0;
    buffer_format(out,
                  "{\"id\":\"%s%.100s\",\"object\":\"%s\",\"created\":%" PRId64
                  ",\"model\":",
                  a->is_chat ? "chatcmpl-" : "cmpl-", a->number,
                  a->is_chat ? "chat.completion" : "text_completion",
                  a->created);
    jv_write_line_string(out, a->model, strlen(a->model));
    buffer_text(out, ",\"choices\":[");
    for (uint32_t i = 0; i < a->choices; i++) {
        put_choice(out, a, i);
        thoughts += a->choice[i].reply->thought_ids;
    }
    buffer_format(out,
                  "],\"usage\":{\"prompt_tokens\":%" PRIu64
                  ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64,
                  a->prompt_ids, a->new_ids, a->prompt_ids + a->new_ids);
    if (a->is_chat)
        buffer_format(out,
                      ",\"completion_tokens_details\":"
                      "{\"reasoning_tokens\":%" PRIu64 "}",
                      thoughts);
    buffer_text(out, "}}");
}
