/* chat_tools.c - tools that are declared, and results of their calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/chat_internal.h"

enum { NAME_MAX_BYTES = 256 };

/* A declared name, and the message that declares it, -1 for the request. */
struct declared {
    const struct jv *name;
    int message;
};

struct names {
    struct declared *of;
    size_t count;
};

static int refuse_tools(struct refusal *r, int message, const char *sentence,
                        const char *name)
{
    if (message >= 0)
        return refusal_of_message(r, (unsigned)message, "tools", sentence,
                                  name);
    return refusal_set(r, "tools", sentence, name);
}

static bool is_name(const struct jv *v)
{
    if (!jv_is_type(v, JV_STRING) || !v->bytes || v->bytes > NAME_MAX_BYTES)
        return false;
    for (uint32_t i = 0; i < v->bytes; i++) {
        char c = v->text[i], lower = (char)(c | 0x20);
        bool first = (lower >= 'a' && lower <= 'z') || c == '_';
        if (!first && (i == 0 || (c != '-' && (c < '0' || c > '9'))))
            return false;
    }
    return true;
}

static int read_list(struct names *names, const struct jv *tools, int message,
                     struct refusal *r)
{
    if (jv_is_empty(tools))
        return 0;
    if (tools->type != JV_ARRAY)
        return refuse_tools(r, message, "it is not a list", "");
    struct declared *more =
        realloc(names->of, (names->count + tools->bytes) * sizeof *more);
    if (!more)
        return -ENOMEM;
    names->of = more;
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t)) {
        const struct jv *function = jv_get(t, "function");
        const struct jv *name = jv_get(function, "name");
        const struct jv *parameters = jv_get(function, "parameters");
        if (!jv_is(jv_get(t, "type"), "function"))
            return refuse_tools(r, message, "a tool is not of type function",
                                "");
        if (!is_name(name))
            return refuse_tools(r, message,
                                "a name is not a letter or _ and up to 255 "
                                "letters, digits, _ and -",
                                "");
        if (parameters && parameters->type != JV_OBJECT)
            return refuse_tools(r, message,
                                "parameters of %.256s are not an object",
                                name->text);
        names->of[names->count++] = (struct declared){ name, message };
    }
    return 0;
}

static int compare(const void *one, const void *other)
{
    const struct declared *a = one, *b = other;
    int order = strcmp(a->name->text, b->name->text);
    return order ? order
                 : (a->message > b->message) - (a->message < b->message);
}

static int check_unique(struct names *names, struct refusal *r)
{
    if (names->count)
        qsort(names->of, names->count, sizeof *names->of, compare);
    for (size_t i = 1; i < names->count; i++)
        if (!strcmp(names->of[i - 1].name->text, names->of[i].name->text))
            return refuse_tools(r, names->of[i].message,
                                "%.256s is declared twice",
                                names->of[i].name->text);
    return 0;
}

static int read_choice(struct chat *c, const struct names *names,
                       const struct jv *v, struct refusal *r)
{
    const struct jv *name = jv_get(jv_get(v, "function"), "name");
    if (jv_is_empty(v) || jv_is(v, "auto"))
        return 0;
    if (jv_is(v, "none")) {
        c->choice = names->count ? CHAT_NONE : CHAT_AUTO;
        c->calls = false;
        return 0;
    }
    bool named = jv_is_type(v, JV_OBJECT) &&
                 jv_is(jv_get(v, "type"), "function") &&
                 jv_is_type(name, JV_STRING);
    if (!named && !jv_is(v, "required"))
        return refusal_set(r, "tool_choice",
                           "it is none of auto, none, required and a function");
    if (!names->count)
        return refusal_set(r, "tool_choice",
                           "a call is required, and there are no "
                           "tools");
    for (size_t i = 0; i < names->count && named; i++)
        if (jv_is(name, names->of[i].name->text))
            c->named = name;
    if (named && !c->named)
        return refusal_set(r, "tool_choice", "%.100s is not declared",
                           name->text);
    c->choice = CHAT_REQUIRED;
    return 0;
}

int chat_read_tools(struct chat *c, const struct jv *body, struct refusal *r)
{
    struct names names = { 0 };
    const struct jv *tools = jv_get(body, "tools");
    int message = 0, err = read_list(&names, tools, -1, r);
    for (const struct jv *m = jv_first(c->messages); m && !err;
         m = jv_next(c->messages, m))
        err = read_list(&names, jv_get(m, "tools"), message++, r);
    if (!err)
        err = check_unique(&names, r);
    c->tools = jv_is_empty(tools) ? NULL : tools;
    c->calls = names.count > 0;
    if (!err)
        err = read_choice(c, &names, jv_get(body, "tool_choice"), r);
    free(names.of);
    return err;
}

/* A tool or its function: members that are null are left out, and those of the
 * function too. What is inside of anything else stays. */
static void write_level(struct buffer *out, const struct jv *v, bool tool)
{
    uint32_t count;
    const struct jv **keys = jv_sorted(v, &count);
    bool first = true;
    if (!keys && v->bytes)
        out->failed = true;
    buffer_text(out, "{");
    for (uint32_t i = 0; i < count; i++) {
        const struct jv *value = keys[i] + 1;
        if (value->type == JV_NULL)
            continue;
        buffer_text(out, first ? "" : ",");
        first = false;
        jv_write_string(out, keys[i]->text, keys[i]->bytes);
        buffer_text(out, ":");
        if (tool && jv_is(keys[i], "function"))
            write_level(out, value, false);
        else
            jv_write(out, value, JV_COMPACT);
    }
    buffer_text(out, "}");
    free(keys);
}

void chat_write_tools(struct buffer *out, const struct jv *tools)
{
    buffer_text(out, "[");
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t)) {
        buffer_text(out, t == jv_first(tools) ? "" : ",");
        write_level(out, t, true);
    }
    buffer_text(out, "]");
}

static void offer(struct buffer *out, const struct chat *c,
                  const struct jv *tools)
{
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t)) {
        const struct jv *name = jv_get(jv_get(t, "function"), "name");
        if (c->named && !jv_is(name, c->named->text))
            continue;
        buffer_text(out, out->bytes[out->count - 1] == '[' ? "" : ",");
        jv_write(out, t, JV_COMPACT);
    }
}

void chat_offered(struct buffer *out, const struct chat *c)
{
    buffer_text(out, "[");
    if (out->failed)
        return;
    offer(out, c, c->tools);
    for (const struct jv *m = jv_first(c->messages); m && !out->failed;
         m = jv_next(c->messages, m))
        offer(out, c, jv_get(m, "tools"));
    buffer_text(out, "]");
}

static bool any_strict(const struct jv *tools)
{
    bool any = false;
    for (const struct jv *t = jv_first(tools); t; t = jv_next(tools, t))
        any |= jv_is_type(jv_get(jv_get(t, "function"), "strict"), JV_TRUE);
    return any;
}

bool chat_keeps_calls(const struct chat *c)
{
    bool strict = c->choice == CHAT_REQUIRED || any_strict(c->tools);
    for (const struct jv *m = jv_first(c->messages); m && !strict;
         m = jv_next(c->messages, m))
        strict = any_strict(jv_get(m, "tools"));
    return c->calls && strict;
}

/* The place among `calls` of the first with this id, and its name. */
static const struct jv *call_with(const struct jv *calls, const struct jv *id,
                                  uint32_t *place)
{
    *place = 0;
    for (const struct jv *c = jv_first(calls); c && id;
         c = jv_next(calls, c), ++*place) {
        const struct jv *each = jv_given(c, "id");
        if (each && each->bytes == id->bytes &&
            !memcmp(each->text, id->text, id->bytes))
            return jv_get(jv_get(c, "function"), "name");
    }
    return NULL;
}

static const struct jv *call_at(const struct jv *calls, uint32_t place)
{
    const struct jv *c = jv_first(calls);
    while (c && place--)
        c = jv_next(calls, c);
    return jv_get(jv_get(c, "function"), "name");
}

static int compare_results(const void *one, const void *other)
{
    const struct chat_result *a = one, *b = other;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->message > b->message) - (a->message < b->message);
}

int chat_results(const struct jv *messages, const struct jv *message,
                 const struct jv *caller, uint32_t before,
                 struct chat_result **out, const struct jv **nameless)
{
    const struct jv *calls = jv_get(caller, "tool_calls"), *m;
    size_t count = 0;
    bool matched = true;
    for (m = message; m && jv_is(jv_get(m, "role"), "tool");
         m = jv_next(messages, m))
        count++;
    struct chat_result *run = calloc(count, sizeof *run);
    *out = NULL;
    *nameless = NULL;
    if (!run)
        return -ENOMEM;
    m = message;
    for (size_t i = 0; i < count; i++, m = jv_next(messages, m)) {
        run[i].message = m;
        if (matched)
            run[i].name =
                call_with(calls, jv_given(m, "tool_call_id"), &run[i].rank);
        matched = matched && run[i].name;
    }
    if (matched)
        qsort(run, count, sizeof *run, compare_results);
    for (size_t i = 0; i < count && !matched; i++) {
        m = run[i].message;
        const struct jv *tool = jv_get(m, "tool"), *name = jv_get(m, "name");
        run[i].name = !jv_is_empty(tool) ? tool
                      : !jv_is_empty(name)
                          ? name
                          : call_at(calls, before + (uint32_t)i);
        if (!run[i].name && !*nameless)
            *nameless = m;
    }
    if (*nameless) {
        free(run);
        return 0;
    }
    *out = run;
    return (int)count;
}
