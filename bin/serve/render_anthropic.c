/* render_anthropic.c - a message of Anthropic's API, whole and in events. */
#include <inttypes.h>
#include <string.h>

#include "bin/serve/render.h"
#include "model/json/jv_write.h"

/* ---- what both have ---- */

static void put_event(struct buffer *out, const char *type)
{
    buffer_format(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void put_string(struct buffer *out, const struct buffer *text)
{
    jv_write_line_string(out, text->count ? text->bytes : "", text->count);
}

/* The stop string that ended it, the longest; NULL: none did. */
static const struct reply_stop *stop_of(const struct reply *r)
{
    const struct reply_stop *best = NULL;
    for (uint32_t i = 0; i < r->stops && r->stopped; i++) {
        const struct reply_stop *s = &r->stop[i];
        if (s->matched == s->bytes && (!best || s->bytes > best->bytes))
            best = s;
    }
    return best;
}

static void put_reason(struct buffer *out, const struct reply *r)
{
    const struct reply_stop *stop = stop_of(r);
    const char *reason = r->reason == REPLY_CALLS    ? "tool_use"
                         : r->reason == REPLY_LENGTH ? "max_tokens"
                         : stop                      ? "stop_sequence"
                                                     : "end_turn";
    buffer_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (stop && r->reason == REPLY_STOP)
        jv_write_line_string(out, stop->text, stop->bytes);
    else
        buffer_text(out, "null");
}

static void begin_message(const struct work *w, struct buffer *out)
{
    buffer_format(out,
                  "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":"
                  "\"assistant\",\"model\":",
                  w->id);
    api_text(out, w->model);
}

static void put_call_id(struct buffer *out, const struct work *w,
                        uint32_t call)
{
    buffer_format(out, "\"toolu_%016" PRIx64 "_%" PRIu32 "\"", w->prompt_hash,
                  call);
}

/* ---- a stream ---- */

static void begin(struct render *r, const struct work *w, struct buffer *out)
{
    (void)r;
    put_event(out, "message_start");
    buffer_text(out, ",\"message\":{");
    begin_message(w, out);
    buffer_format(out,
                  ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":"
                  "null,\"usage\":{\"input_tokens\":%" PRIu64
                  ",\"output_tokens\":0}}}\n\n",
                  w->prompt_ids);
}

static void end_part(struct render *r, struct buffer *out)
{
    if (r->part_kind < 0)
        return;
    put_event(out, "content_block_stop");
    buffer_format(out, ",\"index\":%" PRIu32 "}\n\n", r->part++);
    r->part_kind = -1;
}

static void begin_part(struct render *r, const struct work *w,
                       const struct work_event *e, struct buffer *out)
{
    put_event(out, "content_block_start");
    buffer_format(out, ",\"index\":%" PRIu32 ",\"content_block\":{", r->part);
    if (e->kind == WORK_THOUGHT) {
        buffer_text(out, "\"type\":\"thinking\",\"thinking\":\"\","
                         "\"signature\":\"\"");
    } else if (e->kind == WORK_TEXT) {
        buffer_text(out, "\"type\":\"text\",\"text\":\"\"");
    } else {
        buffer_text(out, "\"type\":\"tool_use\",\"id\":");
        put_call_id(out, w, e->call);
        buffer_text(out, ",\"name\":");
        jv_write_line_string(out, render_text(w, e), e->bytes);
        buffer_text(out, ",\"input\":{}");
    }
    buffer_text(out, "}}\n\n");
    r->part_kind = e->kind;
}

static void event(struct render *r, const struct work *w,
                  const struct work_event *e, struct buffer *out)
{
    static const char *const delta[] = {
        [WORK_THOUGHT] = "\"thinking_delta\",\"thinking\"",
        [WORK_TEXT] = "\"text_delta\",\"text\"",
        [WORK_ARGUMENTS] = "\"input_json_delta\",\"partial_json\"",
    };
    if (e->kind == WORK_FINISH) {
        end_part(r, out);
        return;
    }
    bool goes_on = (int)e->kind == r->part_kind ||
                   (e->kind == WORK_ARGUMENTS && r->part_kind == WORK_CALL);
    if (!goes_on || e->kind == WORK_CALL) {
        end_part(r, out);
        begin_part(r, w, e, out);
    }
    if (e->kind == WORK_CALL)
        return;
    put_event(out, "content_block_delta");
    buffer_format(out, ",\"index\":%" PRIu32 ",\"delta\":{\"type\":%s:",
                  r->part, delta[e->kind]);
    jv_write_line_string(out, render_text(w, e), e->bytes);
    buffer_text(out, "}}\n\n");
}

static void end(struct render *r, const struct work *w, struct buffer *out)
{
    uint64_t prompt, made;
    uint32_t count;
    (void)r;
    batch_job_usage(w->whole, &prompt, &made);
    put_event(out, "message_delta");
    buffer_text(out, ",\"delta\":{");
    put_reason(out, &batch_job_parts(w->whole, &count)->reply);
    buffer_format(out,
                  "},\"usage\":{\"input_tokens\":%" PRIu64
                  ",\"output_tokens\":%" PRIu64 "}}\n\n",
                  prompt, made);
    put_event(out, "message_stop");
    buffer_text(out, "}\n\n");
}

/* ---- the whole ---- */

/* The arguments of a call, which have to be an object. */
static void put_input(struct buffer *out, const struct buffer *arguments)
{
    struct jv_doc doc;
    bool parsed = !jv_parse(&doc, arguments->count ? arguments->bytes : "",
                            arguments->count, JV_STRICT, NULL);
    if (parsed && doc.root->type == JV_OBJECT) {
        buffer_put(out, arguments->bytes, arguments->count);
    } else {
        buffer_text(out, "{\"arguments\":");
        put_string(out, arguments);
        buffer_text(out, "}");
    }
    if (parsed)
        jv_free(&doc);
}

static void whole(struct render *r, const struct work *w,
                  const struct batch_rules *rules, struct buffer *out)
{
    uint64_t prompt, made;
    uint32_t count;
    const struct reply *a = &batch_job_parts(w->whole, &count)->reply;
    const char *comma = "";
    (void)r, (void)rules;
    batch_job_usage(w->whole, &prompt, &made);
    buffer_text(out, "{");
    begin_message(w, out);
    buffer_text(out, ",\"content\":[");
    if (a->thoughts.count) {
        buffer_text(out, "{\"type\":\"thinking\",\"thinking\":");
        put_string(out, &a->thoughts);
        buffer_text(out, ",\"signature\":\"\"}");
        comma = ",";
    }
    if (a->content.count) {
        buffer_format(out, "%s{\"type\":\"text\",\"text\":", comma);
        put_string(out, &a->content);
        buffer_text(out, "}");
        comma = ",";
    }
    for (uint32_t i = 0; i < a->calls; i++) {
        buffer_format(out, "%s{\"type\":\"tool_use\",\"id\":", comma);
        put_call_id(out, w, i);
        buffer_text(out, ",\"name\":");
        put_string(out, &a->call[i].name);
        buffer_text(out, ",\"input\":");
        put_input(out, &a->call[i].arguments);
        buffer_text(out, "}");
        comma = ",";
    }
    buffer_text(out, "],");
    put_reason(out, a);
    buffer_format(out,
                  ",\"usage\":{\"input_tokens\":%" PRIu64
                  ",\"output_tokens\":%" PRIu64 "}}",
                  prompt, made);
}

const struct render_api render_anthropic = { begin, event, end, whole };
