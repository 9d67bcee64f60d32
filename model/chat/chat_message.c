/* chat_message.c - is every message one that can be rendered. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/chat_internal.h"

/* A field that only has to be there or not, by its role. */
static int check_fields(const struct jv *m, unsigned at, struct refusal *r)
{
    static const char *const known[] = { "role",         "content",
                                         "name",         "tool",
                                         "tool_call_id", "reasoning_content",
                                         "reasoning",    "tool_calls",
                                         "tools",        "partial" };
    static const char *const text[] = { "name", "tool", "tool_call_id",
                                        "reasoning_content", "reasoning" };
    for (const struct jv *k = jv_first(m); k; k = jv_next(m, k)) {
        size_t i = 0, n = sizeof known / sizeof *known;
        while (i < n && !jv_is(k, known[i]))
            i++;
        if (i < n || jv_is_empty(k + 1))
            continue;
        refusal_of_message(r, at, k->text, "this field is not supported");
        r->code = REFUSED_UNSUPPORTED;
        return -EINVAL;
    }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        const struct jv *v = jv_given(m, text[i]);
        if (v && v->type != JV_STRING)
            return refusal_of_message(r, at, text[i], "it is not a text");
    }
    return 0;
}

static int check_content(const struct jv *m, unsigned at, struct refusal *r)
{
    const struct jv *content = jv_given(m, "content");
    if (!content || content->type == JV_STRING)
        return 0;
    if (content->type != JV_ARRAY)
        return refusal_of_message(r, at, "content",
                                  "it is neither a text nor a list of parts");
    for (const struct jv *p = jv_first(content); p; p = jv_next(content, p)) {
        const struct jv *type = jv_get(p, "type");
        if (jv_is(type, "text") && jv_is_type(jv_get(p, "text"), JV_STRING))
            continue;
        if (jv_is_type(type, JV_STRING) && !jv_is(type, "text")) {
            refusal_of_message(r, at, "content",
                               "a part of type %.40s: only text is supported",
                               type->text);
            r->code = REFUSED_UNSUPPORTED;
            return -EINVAL;
        }
        return refusal_of_message(
            r, at, "content",
            "a part is not {\"type\": \"text\", \"text\": "
            "\"...\"}");
    }
    return 0;
}

static int check_calls(const struct jv *calls, unsigned at, bool assistant,
                       struct refusal *r)
{
    if (jv_is_empty(calls))
        return 0;
    if (!assistant)
        return refusal_of_message(r, at, "tool_calls",
                                  "only an assistant message has calls");
    if (calls->type != JV_ARRAY)
        return refusal_of_message(r, at, "tool_calls", "it is not a list");
    for (const struct jv *c = jv_first(calls); c; c = jv_next(calls, c)) {
        const struct jv *type = jv_given(c, "type"), *id = jv_given(c, "id");
        const struct jv *function = jv_get(c, "function");
        const struct jv *name = jv_get(function, "name");
        const struct jv *arguments = jv_given(function, "arguments");
        if ((type && !jv_is(type, "function")) ||
            !jv_is_type(name, JV_STRING) || !name->bytes)
            return refusal_of_message(r, at, "tool_calls",
                                      "a call is not a function with a name");
        if (id && id->type != JV_STRING)
            return refusal_of_message(r, at, "tool_calls",
                                      "an id is not a text");
        if (arguments && arguments->type != JV_STRING &&
            arguments->type != JV_OBJECT)
            return refusal_of_message(r, at, "tool_calls",
                                      "arguments are neither a text nor an "
                                      "object");
    }
    return 0;
}

static int check_partial(struct chat *c, const struct jv *m, unsigned at,
                         bool assistant, struct refusal *r)
{
    const struct jv *partial = jv_given(m, "partial");
    if (!partial || partial->type == JV_FALSE)
        return 0;
    if (partial->type != JV_TRUE)
        return refusal_of_message(r, at, "partial",
                                  "it is neither true nor false");
    if (!assistant || jv_next(c->messages, m))
        return refusal_of_message(
            r, at, "partial",
            "only the last message can be the beginning of "
            "the reply, and only an assistant's");
    if (!jv_is_empty(jv_get(m, "tool_calls")))
        return refusal_of_message(r, at, "partial",
                                  "a beginning of the reply has no calls");
    c->prefill = true;
    return 0;
}

static int check_message(struct chat *c, const struct jv *m, unsigned at,
                         struct refusal *r)
{
    static const char *const roles[] = { "system", "developer", "user",
                                         "assistant", "tool" };
    const struct jv *role = jv_get(m, "role");
    size_t which = 0;
    if (m->type != JV_OBJECT)
        return refusal_of_message(r, at, "", "it is not an object");
    while (which < 5 && !jv_is(role, roles[which]))
        which++;
    if (which == 5)
        return refusal_of_message(r, at, "role",
                                  "it is none of system, developer, "
                                  "user, assistant and tool");
    int err = check_fields(m, at, r);
    if (!err)
        err = check_content(m, at, r);
    if (!err)
        err = check_calls(jv_get(m, "tool_calls"), at, which == 3, r);
    if (!err)
        err = check_partial(c, m, at, which == 3, r);
    if (err || jv_is_empty(jv_get(m, "tools")))
        return err;
    if (which > 1)
        return refusal_of_message(r, at, "tools",
                                  "only a system message declares tools");
    if (!jv_is_empty(jv_get(m, "content")))
        return refusal_of_message(
            r, at, "content", "a message that declares tools has no content");
    return 0;
}

/* Where the reply begins when the last message is its beginning. */
static bool begins_in_answer(const struct chat *c, const struct jv *last)
{
    const struct jv *content = jv_get(last, "content");
    bool thoughts = !jv_is_empty(jv_get(last, "reasoning_content")) ||
                    !jv_is_empty(jv_get(last, "reasoning"));
    if (!c->thinking || !thoughts)
        return true;
    if (jv_is_type(content, JV_STRING))
        return content->bytes > 0;
    const struct jv *p = jv_first(content);
    while (p && jv_is_empty(jv_get(p, "text")))
        p = jv_next(content, p);
    return p != NULL;
}

int chat_read_messages(struct chat *c, struct refusal *r)
{
    const struct jv *m, *last = NULL, *caller = NULL;
    unsigned at = 0;
    for (m = jv_first(c->messages); m; m = jv_next(c->messages, m)) {
        int err = check_message(c, m, at, r);
        if (err)
            return err;
        last = m;
        at++;
    }
    uint32_t results = 0;
    for (m = jv_first(c->messages); m; m = jv_next(c->messages, m)) {
        struct chat_result *run;
        const struct jv *nameless;
        if (jv_is(jv_get(m, "role"), "assistant")) {
            caller = m;
            results = 0;
        }
        if (!jv_is(jv_get(m, "role"), "tool"))
            continue;
        int n = chat_results(c->messages, m, caller, results, &run, &nameless);
        if (n < 0)
            return n;
        free(run);
        if (n == 0)
            return refusal_set(r, "messages",
                               "a result has no name, and no call "
                               "to take it from");
        results += (uint32_t)n;
        while (--n > 0)
            m = jv_next(c->messages, m);
    }
    c->in_answer = c->prefill ? begins_in_answer(c, last) : !c->thinking;
    return 0;
}
