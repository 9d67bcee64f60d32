/* form_calls.c - the calls that a request's tools allow. */
#include <errno.h>
#include <stdlib.h>

#include "model/constraint.h"
#include "model/grammar/grammar.h"
#include "model/json/jv.h"

static bool is_strict(const struct jv *tool)
{
    return jv_is_type(jv_get(jv_get(tool, "function"), "strict"), JV_TRUE);
}

static int parse_tools(struct jv_doc *doc, const char *text, size_t bytes,
                       struct error *error)
{
    struct jv_wrong wrong;
    int err = jv_parse(doc, text, bytes, JV_STRICT, &wrong);
    if (err)
        return error_set(error, err == -ENOMEM ? err : -EINVAL,
                         "tools: %s at byte %zu",
                         err == -ENOMEM ? "no memory" : wrong.what, wrong.at);
    if (doc->root->type == JV_ARRAY)
        return 0;
    jv_free(doc);
    return error_set(error, -EINVAL, "tools: they are not a list");
}

bool form_is_free(const struct form *form)
{
    struct jv_doc doc;
    bool strict = form->must_call;
    if (form->kind != FORM_FREE)
        return false;
    if (!form->tools || !form->calls || strict ||
        parse_tools(&doc, form->tools, form->tools_bytes, NULL))
        return !strict;
    for (const struct jv *t = jv_first(doc.root); t && !strict;
         t = jv_next(doc.root, t))
        strict = is_strict(t);
    jv_free(&doc);
    return !strict;
}

/* The schema of a tool's arguments: its own, or any object. */
static int take_tool(struct grammar_tool *out, const struct jv *tool,
                     const struct jv *any, bool must, struct error *error)
{
    const struct jv *function = jv_get(tool, "function");
    const struct jv *name = jv_get(function, "name");
    struct grammar *g;
    if (!jv_is_type(name, JV_STRING))
        return error_set(error, -EINVAL, "tools: a tool has no name");
    *out = (struct grammar_tool){ .name = name->text, .bytes = name->bytes,
                                  .parameters = jv_get(function,
                                                       "parameters") };
    if (is_strict(tool))
        return 0;
    bool any_object = !must;
    if (must && out->parameters) {
        int err = grammar_calls(&g, out, 1, NULL);
        if (!err)
            grammar_free(g);
        if (err == -ENOMEM)
            return error_set(error, err, "no memory for tools");
        any_object = err != 0;
    }
    out->parameters = any_object ? any : out->parameters;
    return 0;
}

int form_calls(struct grammar **out, const char *tools, size_t bytes,
               bool must, struct error *error)
{
    static const char object[] = "{\"type\":\"object\"}";
    struct jv_doc doc, any;
    struct grammar_tool *list;
    uint32_t n = 0;
    *out = NULL;
    int err = parse_tools(&doc, tools, bytes, error);
    if (err)
        return err;
    err = jv_parse(&any, object, sizeof object - 1, JV_STRICT, NULL);
    list = calloc(doc.root->bytes + 1, sizeof *list);
    if (err || !list)
        err = error_set(error, -ENOMEM, "no memory for tools");
    else if (!doc.root->bytes)
        err = error_set(error, -EINVAL, "tools: there are none");
    for (const struct jv *t = jv_first(doc.root); t && !err;
         t = jv_next(doc.root, t))
        err = take_tool(&list[n++], t, any.root, must, error);
    if (!err)
        err = grammar_calls(out, list, n, error);
    free(list);
    jv_free(&any);
    jv_free(&doc);
    return err;
}
