/* chat_encode.c - segments to ids. */
#include <errno.h>

#include "model/chat/chat_internal.h"

int chat_control_ids(const struct tok *t, uint32_t ids[CHAT_CONTROLS],
                     struct error *error)
{
    static const char *const text[CHAT_CONTROLS] = {
        [CHAT_OPEN] = "<|open|>",
        [CHAT_CLOSE] = "<|close|>",
        [CHAT_SEP] = "<|sep|>",
        [CHAT_END] = "<|end_of_msg|>",
    };
    for (int i = 0; i < CHAT_CONTROLS; i++) {
        int id = tok_special(t, text[i]);
        if (id < 0)
            return error_set(error, -ENOTSUP,
                             "this vocabulary has no %s: it cannot chat",
                             text[i]);
        ids[i] = (uint32_t)id;
    }
    return 0;
}

struct encode {
    const struct tok *tok;
    struct id_list *out;
    uint32_t control[CHAT_CONTROLS];
};

static int push(void *context, int control, const char *text, size_t bytes)
{
    struct encode *e = context;
    if (control >= 0)
        return id_list_push(e->out, e->control[control]);
    return tok_encode(e->tok, text, bytes, false, e->out);
}

int chat_encode(const struct chat *c, const struct tok *t, struct id_list *out,
                struct error *error)
{
    struct encode e = { .tok = t, .out = out };
    size_t before = out->count;
    int err = chat_control_ids(t, e.control, error);
    if (err)
        return err;
    err = chat_segments(c, push, &e);
    if (!err)
        return 0;
    out->count = before;
    return error_set(error, err, "no memory for a prompt");
}
