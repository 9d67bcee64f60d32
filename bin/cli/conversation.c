#include "bin/cli/conversation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/replace.h"
#include "model/ckpt/slurp.h"
#include "model/constraint.h"
#include "model/json/jv.h"
#include "model/json/jv_write.h"
#include "model/knobs.h"

enum { FILE_BYTES_MAX = 64 << 20 };

static int status(const struct buffer *b)
{
    return b->failed ? -ENOMEM : 0;
}

static int no_memory(struct error *error)
{
    return error_set(error, -ENOMEM, "no memory for the conversation");
}

/* A file of JSON. */
static int read_json(struct jv_doc *d, const char *path, struct error *error)
{
    struct jv_wrong wrong;
    char *text = NULL;
    size_t bytes;
    int err = slurp_file(&text, &bytes, path, FILE_BYTES_MAX, error);
    if (err)
        return err;
    err = jv_parse(d, text, bytes, JV_STRICT, &wrong);
    free(text);
    if (err == -EBADMSG)
        return error_set(error, err, "%s: not JSON: %s at byte %zu", path,
                         wrong.what, wrong.at + 1);
    return err ? no_memory(error) : 0;
}

static int read_tools(struct conversation *c, const char *path,
                      struct error *error)
{
    struct jv_doc d;
    int err = read_json(&d, path, error);
    if (err)
        return err;
    const struct jv *list = d.root;
    if (jv_is_type(list, JV_OBJECT))
        list = jv_get(list, "tools");
    if (!jv_is_type(list, JV_ARRAY))
        err = error_set(error, -EINVAL, "%s: there is no list of tools", path);
    else
        jv_write(&c->tools, list, JV_SPACED);
    jv_free(&d);
    return err ? err : c->tools.failed ? no_memory(error) : 0;
}

int conversation_open(struct conversation *c, const char *system,
                      const char *tools, struct error *error)
{
    memset(c, 0, sizeof *c);
    if (system && conversation_system(c, system))
        return no_memory(error);
    return tools ? read_tools(c, tools, error) : 0;
}

void conversation_free(struct conversation *c)
{
    buffer_free(&c->system);
    buffer_free(&c->messages);
    buffer_free(&c->tools);
    memset(c, 0, sizeof *c);
}

int conversation_system(struct conversation *c, const char *text)
{
    c->system.count = 0;
    buffer_put(&c->system, text, strlen(text));
    return status(&c->system);
}

bool conversation_is_strict(const struct conversation *c)
{
    const struct form form = { .chat = true, .calls = true,
                               .tools = c->tools.count ? c->tools.bytes : NULL,
                               .tools_bytes = c->tools.count };
    return !form_is_free(&form);
}

const char *conversation_effort(const char *name)
{
    static const char *const efforts[] = { "none", "low", "high", "max" };
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (!strcmp(name, efforts[i]))
            return efforts[i];
    return NULL;
}

static void begin_message(struct conversation *c, const char *role)
{
    buffer_format(&c->messages, "%s{\"role\": \"%s\", \"content\": ",
                  c->messages.count ? ",\n" : "", role);
}

static void put_clean(struct buffer *out, const char *text, size_t bytes)
{
    struct buffer clean = { 0 };
    jv_clean(&clean, text, bytes);
    jv_write_line_string(out, clean.bytes, clean.count);
    out->failed |= clean.failed;
    buffer_free(&clean);
}

int conversation_user(struct conversation *c, const char *text, size_t bytes)
{
    begin_message(c, "user");
    put_clean(&c->messages, text, bytes);
    buffer_text(&c->messages, "}");
    c->asked = c->messages.count;
    return status(&c->messages);
}

int conversation_reply(struct conversation *c, const struct reply *r)
{
    struct buffer *m = &c->messages;
    begin_message(c, "assistant");
    jv_write_line_string(m, r->content.bytes, r->content.count);
    if (r->thoughts.count) {
        buffer_text(m, ", \"reasoning_content\": ");
        jv_write_line_string(m, r->thoughts.bytes, r->thoughts.count);
    }
    for (uint32_t i = 0; i < r->calls; i++) {
        const struct reply_call *call = &r->call[i];
        buffer_format(m, "%s{\"id\": \"call_%zu_%u\", \"type\": \"function\", "
                      "\"function\": {\"name\": ",
                      i ? ", " : ", \"tool_calls\": [", c->asked, i);
        jv_write_line_string(m, call->name.bytes, call->name.count);
        buffer_text(m, ", \"arguments\": ");
        jv_write_line_string(m, call->arguments.bytes, call->arguments.count);
        buffer_text(m, "}}");
    }
    buffer_text(m, r->calls ? "]}" : "}");
    return status(m);
}

bool conversation_again(struct conversation *c)
{
    if (!c->asked)
        return false;
    c->messages.count = c->asked;
    c->messages.bytes[c->asked] = 0;
    return true;
}

static int write_body(const struct conversation *c, struct buffer *out)
{
    buffer_text(out, "{\"messages\": [");
    if (c->system.count) {
        buffer_text(out, "{\"role\": \"system\", \"content\": ");
        put_clean(out, c->system.bytes, c->system.count);
        buffer_text(out, c->messages.count ? "},\n" : "}");
    }
    buffer_put(out, c->messages.bytes, c->messages.count);
    buffer_text(out, "]");
    if (c->tools.count) {
        buffer_text(out, ",\n\"tools\": ");
        buffer_put(out, c->tools.bytes, c->tools.count);
    }
    if (c->effort)
        buffer_format(out, ",\n\"reasoning_effort\": \"%s\"", c->effort);
    buffer_text(out, "}\n");
    return status(out);
}

int conversation_prompt(const struct conversation *c,
                        const struct sluice_text *text,
                        struct sluice_ids *ids, struct sluice_reply *reply,
                        struct error *error)
{
    struct buffer body = { 0 };
    struct sluice_error e = { 0 };
    int err = write_body(c, &body) ? no_memory(error) : 0;
    ids->count = 0;
    if (!err && sluice_chat(text, body.bytes, body.count, ids, reply, &e))
        err = knobs_error_back(error, &e);
    buffer_free(&body);
    return err;
}

int conversation_save(const struct conversation *c, const char *path,
                      struct error *error)
{
    struct buffer body = { 0 };
    struct replace to;
    int err = write_body(c, &body);
    if (!err)
        err = replace_open(&to, path, 0);
    if (!err) {
        err = file_append_all(to.fd, body.bytes, body.count);
        if (err)
            replace_abort(&to);
        else
            err = replace_commit(&to, true);
    }
    buffer_free(&body);
    return err ? error_set(error, err, "%s: %s", path, strerror(-err)) : 0;
}

/* The messages of a request; a system message in front is the system's. */
static int take_messages(struct conversation *c, const struct jv *list)
{
    for (const struct jv *m = jv_first(list); m; m = jv_next(list, m)) {
        const struct jv *role = jv_get(m, "role");
        const struct jv *content = jv_get(m, "content");
        if (m == jv_first(list) && jv_is(role, "system") &&
            jv_is_type(content, JV_STRING)) {
            buffer_put(&c->system, content->text, content->bytes);
            continue;
        }
        buffer_text(&c->messages, c->messages.count ? ",\n" : "");
        jv_write(&c->messages, m, JV_SPACED);
        if (jv_is(role, "user"))
            c->asked = c->messages.count;
    }
    return status(&c->messages) | status(&c->system);
}

int conversation_load(struct conversation *c, const char *path,
                      const struct sluice_text *text, struct error *error)
{
    struct conversation loaded = { .effort = c->effort };
    struct sluice_ids ids = { 0 };
    struct sluice_reply reply;
    struct jv_doc d;
    int err = read_json(&d, path, error);
    if (err)
        return err;
    const struct jv *tools = jv_given(d.root, "tools");
    if (!jv_is_type(jv_get(d.root, "messages"), JV_ARRAY))
        err = error_set(error, -EINVAL, "%s: there are no messages", path);
    else if (take_messages(&loaded, jv_get(d.root, "messages")))
        err = no_memory(error);
    if (!err && tools)
        jv_write(&loaded.tools, tools, JV_SPACED);
    jv_free(&d);
    if (!err)
        err = conversation_prompt(&loaded, text, &ids, &reply, error);
    sluice_ids_free(&ids);
    if (err) {
        conversation_free(&loaded);
        return err;
    }
    conversation_free(c);
    *c = loaded;
    return 0;
}
