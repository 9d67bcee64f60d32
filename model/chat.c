#include "model/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct chat_options chat_default = { true, "max" };

enum control { OPEN, CLOSE, SEP, END_OF_MSG, CONTROLS };
static const char *const control_text[CONTROLS] = {
    [OPEN] = "<|open|>",
    [CLOSE] = "<|close|>",
    [SEP] = "<|sep|>",
    [END_OF_MSG] = "<|end_of_msg|>",
};

static const char *const efforts[] = { "low", "high", "max" };

static const char effort_before[] =
    "`thinking_effort` guides on how much to think in your thinking channel "
    "(not including the response channel), supported values include `low`, "
    "`medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=";
static const char effort_after[] = "`.";

/* The first error stays and makes what follows do nothing. */
struct render {
    const struct tok *t;
    struct id_list   *out;
    uint32_t          control[CONTROLS];
    int               err;
};

static void put_control(struct render *r, enum control which)
{
    if (!r->err)
        r->err = id_list_push(r->out, r->control[which]);
}

/* One segment of text. */
static void put_bytes(struct render *r, const char *text, size_t bytes)
{
    if (!r->err && bytes > 0)
        r->err = tok_encode(r->t, text, bytes, false, r->out);
}

static void put_text(struct render *r, const char *text)
{
    put_bytes(r, text, strlen(text));
}

/* One segment, with & and " as entities: what an attribute's value needs. */
static void put_escaped(struct render *r, const char *value)
{
    static const char amp[] = "&amp;", quot[] = "&quot;";
    char *copy = malloc(strlen(value) * (sizeof quot - 1) + 1);
    char *end = copy;
    if (!copy) {
        r->err = r->err ? r->err : -ENOMEM;
        return;
    }
    for (; *value; value++) {
        if (*value == '&')
            end = stpcpy(end, amp);
        else if (*value == '"')
            end = stpcpy(end, quot);
        else
            *end++ = *value;
    }
    put_bytes(r, copy, (size_t)(end - copy));
    free(copy);
}

static void put_tag(struct render *r, const char *tag)
{
    put_control(r, OPEN);
    put_text(r, tag);
}

static void put_attribute(struct render *r, const char *key, const char *value)
{
    char spaced[16] = " ";
    put_text(r, strcat(spaced, key)); /* keys are ours and short */
    put_text(r, "=\"");
    put_escaped(r, value);
    put_text(r, "\"");
}

static void put_open(struct render *r, const char *tag)
{
    put_tag(r, tag);
    put_control(r, SEP);
}

static void put_close(struct render *r, const char *tag)
{
    put_control(r, CLOSE);
    put_text(r, tag);
    put_control(r, SEP);
}

static void put_effort(struct render *r, const char *effort)
{
    char body[sizeof effort_before + sizeof effort_after + 8];
    strcat(strcat(strcpy(body, effort_before), effort), effort_after);
    put_tag(r, "message");
    put_attribute(r, "role", "system");
    put_attribute(r, "type", "thinking-effort");
    put_control(r, SEP);
    put_text(r, body);
    put_close(r, "message");
    put_control(r, END_OF_MSG);
}

static void put_message(struct render *r, const struct chat_message *m,
                        bool thinking)
{
    bool assistant = !strcmp(m->role, "assistant");
    put_tag(r, "message");
    put_attribute(r, "role", m->role);
    if (m->name)
        put_attribute(r, "name", m->name);
    put_control(r, SEP);
    if (assistant && thinking) {
        put_open(r, "think");
        put_bytes(r, m->reasoning, m->reasoning ? m->reasoning_bytes : 0);
        put_close(r, "think");
    }
    if (assistant)
        put_open(r, "response");
    put_bytes(r, m->content, m->content ? m->content_bytes : 0);
    for (size_t i = 0; i < m->parts; i++)
        put_bytes(r, m->part[i].text, m->part[i].bytes);
    if (assistant)
        put_close(r, "response");
    put_close(r, "message");
    put_control(r, END_OF_MSG);
}

static bool is_role(const char *role)
{
    return role && (!strcmp(role, "system") || !strcmp(role, "user") ||
                    !strcmp(role, "assistant"));
}

static int check(struct render *r, const struct chat_message *messages,
                 size_t count, const char *effort, struct why *why)
{
    bool known = !effort;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts && !known; i++)
        known = !strcmp(effort, efforts[i]);
    if (!known)
        return why_set(why, -EINVAL,
                       "thinking effort %.40s is not low, high or max", effort);
    for (size_t i = 0; i < count; i++)
        if (!is_role(messages[i].role))
            return why_set(why, -EINVAL,
                           "message %zu: role %.40s is not system, user or "
                           "assistant",
                           i + 1,
                           messages[i].role ? messages[i].role : "(none)");
    for (int c = 0; c < CONTROLS; c++) {
        int id = tok_special(r->t, control_text[c]);
        if (id < 0)
            return why_set(why, -ENOTSUP,
                           "this vocabulary has no %s: it cannot chat",
                           control_text[c]);
        r->control[c] = (uint32_t)id;
    }
    return 0;
}

int chat_render(const struct tok *t, const struct chat_message *messages,
                size_t count, const struct chat_options *options,
                struct id_list *out, struct why *why)
{
    struct render r = { .t = t, .out = out };
    const char *effort = options->effort;
    size_t before = out->count;
    int err = check(&r, messages, count, effort, why);
    if (err)
        return err;
    if (options->thinking && effort)
        put_effort(&r, effort);
    for (size_t i = 0; i < count; i++)
        put_message(&r, &messages[i], options->thinking);
    put_tag(&r, "message");
    put_attribute(&r, "role", "assistant");
    put_control(&r, SEP);
    put_open(&r, options->thinking ? "think" : "response");
    if (!r.err)
        return 0;
    out->count = before;
    return why_set(why, r.err, "no memory for a prompt");
}
