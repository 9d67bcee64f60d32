/* render_responses.c - a response of OpenAI's Responses API, whole and in
 * events. */
#include <inttypes.h>
#include <string.h>

#include "bin/serve/render.h"
#include "model/json/jv_write.h"

/* ---- items ---- */

static void put_bytes(struct buffer *out, const char *text, size_t n)
{
    jv_write_line_string(out, n ? text : "", n);
}

static void put_item_id(struct buffer *out, const struct work *w,
                        enum work_kind kind, uint32_t index)
{
    buffer_format(out, "\"%s_%s_%" PRIu32 "\"",
                  kind == WORK_THOUGHT ? "rs" : kind == WORK_TEXT ? "msg"
                                                                  : "fc",
                  w->id, index);
}

static void put_call_id(struct buffer *out, const struct work *w,
                        uint32_t call)
{
    buffer_format(out, "\"call_%016" PRIx64 "_0_%" PRIu32 "\"",
                  w->prompt_hash, call);
}

/* An item, done or (text NULL) just begun. `name` is of a call. */
static void put_item(struct buffer *out, const struct work *w,
                     enum work_kind kind, uint32_t index, uint32_t call,
                     const struct buffer *name, const char *text, size_t n)
{
    buffer_text(out, "{\"id\":");
    put_item_id(out, w, kind, index);
    buffer_format(out, ",\"status\":\"%s\"", text ? "completed"
                                                  : "in_progress");
    if (kind == WORK_THOUGHT) {
        buffer_text(out, ",\"type\":\"reasoning\",\"summary\":[],\"content\":"
                         "[");
        if (text) {
            buffer_text(out, "{\"type\":\"reasoning_text\",\"text\":");
            put_bytes(out, text, n);
            buffer_text(out, "}");
        }
        buffer_text(out, "]}");
    } else if (kind == WORK_TEXT) {
        buffer_text(out, ",\"type\":\"message\",\"role\":\"assistant\","
                         "\"content\":[");
        if (text) {
            buffer_text(out, "{\"type\":\"output_text\",\"text\":");
            put_bytes(out, text, n);
            buffer_text(out, ",\"annotations\":[],\"logprobs\":[]}");
        }
        buffer_text(out, "]}");
    } else {
        buffer_text(out, ",\"type\":\"function_call\",\"call_id\":");
        put_call_id(out, w, call);
        buffer_text(out, ",\"name\":");
        put_bytes(out, name->bytes, name->count);
        buffer_text(out, ",\"arguments\":");
        put_bytes(out, text, text ? n : 0);
        buffer_text(out, "}");
    }
}

/* The object; `items` is the inside of its output. */
static void put_response(struct buffer *out, const struct work *w,
                         const struct buffer *items)
{
    uint32_t count;
    uint64_t prompt, made;
    const struct batch_job *part = w->state == WORK_DONE
                                       ? batch_job_parts(w->whole, &count)
                                       : NULL;
    bool cut = part && part->reply.reason == REPLY_LENGTH;
    buffer_format(out,
                  "{\"id\":\"resp_%s\",\"object\":\"response\","
                  "\"created_at\":%" PRId64 ",\"status\":\"%s\",\"error\":null,"
                  "\"incomplete_details\":%s,\"max_output_tokens\":%" PRIu64
                  ",\"model\":",
                  w->id, w->created,
                  !part ? "in_progress" : cut ? "incomplete" : "completed",
                  cut ? "{\"reason\":\"max_output_tokens\"}" : "null",
                  w->max_ids);
    api_text(out, w->model);
    buffer_text(out, ",\"output\":[");
    if (items->count)
        buffer_put(out, items->bytes, items->count);
    buffer_text(out, "],");
    if (w->echo.count)
        buffer_put(out, w->echo.bytes, w->echo.count);
    out->failed |= w->echo.failed;
    buffer_format(out, "\"store\":%s,\"usage\":", w->store ? "true" : "false");
    if (!part) {
        buffer_text(out, "null}");
        return;
    }
    batch_job_usage(w->whole, &prompt, &made);
    buffer_format(out,
                  "{\"input_tokens\":%" PRIu64 ",\"input_tokens_details\":"
                  "{\"cached_tokens\":0},\"output_tokens\":%" PRIu64
                  ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu32
                  "},\"total_tokens\":%" PRIu64 "}}",
                  prompt, made, part->reply.thought_ids, prompt + made);
    out->failed |= items->failed;
}

/* ---- a stream ---- */

static void begin_event(struct render *r, struct buffer *out,
                        const char *type)
{
    buffer_format(out,
                  "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":"
                  "%" PRIu32,
                  type, type, r->chunks++);
}

static void begin_item_event(struct render *r, const struct work *w,
                             struct buffer *out, const char *type,
                             bool content)
{
    begin_event(r, out, type);
    buffer_text(out, ",\"item_id\":");
    put_item_id(out, w, (enum work_kind)r->part_kind, r->part);
    buffer_format(out, ",\"output_index\":%" PRIu32 "%s", r->part,
                  content ? ",\"content_index\":0" : "");
}

static void begin(struct render *r, const struct work *w, struct buffer *out)
{
    static const char *const type[] = { "response.created",
                                        "response.in_progress" };
    const struct buffer none = { 0 };
    for (int i = 0; i < 2; i++) {
        begin_event(r, out, type[i]);
        buffer_text(out, ",\"response\":");
        put_response(out, w, &none);
        buffer_text(out, "}\n\n");
    }
}

/* The events that say all of a part once more. */
static void put_done(struct render *r, const struct work *w,
                     struct buffer *out)
{
    bool text = r->part_kind == WORK_TEXT, call = r->part_kind == WORK_CALL;
    const char *type = text   ? "response.output_text.done"
                       : call ? "response.function_call_arguments.done"
                              : "response.reasoning_text.done";
    begin_item_event(r, w, out, type, !call);
    buffer_text(out, call ? ",\"arguments\":" : ",\"text\":");
    put_bytes(out, r->kept.bytes, r->kept.count);
    if (call) {
        buffer_text(out, ",\"name\":");
        put_bytes(out, r->name.bytes, r->name.count);
    }
    buffer_text(out, text ? ",\"logprobs\":[]}\n\n" : "}\n\n");
    if (!text)
        return;
    begin_item_event(r, w, out, "response.content_part.done", true);
    buffer_text(out, ",\"part\":{\"type\":\"output_text\",\"annotations\":[],"
                     "\"logprobs\":[],\"text\":");
    put_bytes(out, r->kept.bytes, r->kept.count);
    buffer_text(out, "}}\n\n");
}

static void end_part(struct render *r, const struct work *w,
                     struct buffer *out)
{
    enum work_kind kind = (enum work_kind)r->part_kind;
    const char *text = r->kept.count ? r->kept.bytes : "";
    if (r->part_kind < 0)
        return;
    put_done(r, w, out);
    begin_event(r, out, "response.output_item.done");
    buffer_format(out, ",\"output_index\":%" PRIu32 ",\"item\":", r->part);
    put_item(out, w, kind, r->part, r->call, &r->name, text, r->kept.count);
    buffer_text(out, "}\n\n");
    buffer_text(&r->items, r->items.count ? "," : "");
    put_item(&r->items, w, kind, r->part, r->call, &r->name, text,
             r->kept.count);
    r->kept.count = 0;
    r->part++;
    r->part_kind = -1;
    out->failed |= r->kept.failed | r->name.failed | r->items.failed;
}

static void begin_part(struct render *r, const struct work *w,
                       const struct work_event *e, struct buffer *out)
{
    r->part_kind = e->kind;
    r->call = e->call;
    r->name.count = 0;
    if (e->kind == WORK_CALL)
        buffer_put(&r->name, render_text(w, e), e->bytes);
    begin_event(r, out, "response.output_item.added");
    buffer_format(out, ",\"output_index\":%" PRIu32 ",\"item\":", r->part);
    put_item(out, w, e->kind, r->part, r->call, &r->name, NULL, 0);
    buffer_text(out, "}\n\n");
    if (e->kind != WORK_TEXT)
        return;
    begin_item_event(r, w, out, "response.content_part.added", true);
    buffer_text(out, ",\"part\":{\"type\":\"output_text\",\"text\":\"\","
                     "\"annotations\":[],\"logprobs\":[]}}\n\n");
}

static void event(struct render *r, const struct work *w,
                  const struct work_event *e, struct buffer *out)
{
    static const char *const type[] = {
        [WORK_THOUGHT] = "response.reasoning_text.delta",
        [WORK_TEXT] = "response.output_text.delta",
        [WORK_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    if (e->kind == WORK_FINISH) {
        end_part(r, w, out);
        return;
    }
    bool goes_on = (int)e->kind == r->part_kind ||
                   (e->kind == WORK_ARGUMENTS && r->part_kind == WORK_CALL);
    if (!goes_on || e->kind == WORK_CALL) {
        end_part(r, w, out);
        begin_part(r, w, e, out);
    }
    if (e->kind == WORK_CALL)
        return;
    begin_item_event(r, w, out, type[e->kind], e->kind != WORK_ARGUMENTS);
    buffer_text(out, ",\"delta\":");
    put_bytes(out, render_text(w, e), e->bytes);
    buffer_text(out, e->kind == WORK_TEXT ? ",\"logprobs\":[]}\n\n"
                                          : "}\n\n");
    buffer_put(&r->kept, render_text(w, e), e->bytes);
}

static void end(struct render *r, const struct work *w, struct buffer *out)
{
    uint32_t count;
    const struct reply *a = &batch_job_parts(w->whole, &count)->reply;
    begin_event(r, out, a->reason == REPLY_LENGTH ? "response.incomplete"
                                                  : "response.completed");
    buffer_text(out, ",\"response\":");
    put_response(out, w, &r->items);
    buffer_text(out, "}\n\n");
}

/* ---- the whole ---- */

void render_response(const struct work *w, struct buffer *out)
{
    uint32_t count, index = 0;
    const struct reply *a = &batch_job_parts(w->whole, &count)->reply;
    struct buffer items = { 0 };
    if (a->thoughts.count)
        put_item(&items, w, WORK_THOUGHT, index++, 0, NULL, a->thoughts.bytes,
                 a->thoughts.count);
    if (a->content.count) {
        buffer_text(&items, index ? "," : "");
        put_item(&items, w, WORK_TEXT, index++, 0, NULL,
                 a->content.bytes, a->content.count);
    }
    for (uint32_t i = 0; i < a->calls; i++) {
        const struct reply_call *c = &a->call[i];
        buffer_text(&items, index ? "," : "");
        put_item(&items, w, WORK_CALL, index++, i, &c->name,
                 c->arguments.count ? c->arguments.bytes : "",
                 c->arguments.count);
    }
    put_response(out, w, &items);
    buffer_free(&items);
}

static void whole(struct render *r, const struct work *w,
                  const struct batch_rules *rules, struct buffer *out)
{
    (void)r, (void)rules;
    render_response(w, out);
}

const struct render_api render_responses = { begin, event, end, whole };
