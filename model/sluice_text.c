/* sluice_text.c - sluice.h: text to ids and back. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/chat.h"
#include "model/session_internal.h"

void sluice_ids_free(struct sluice_ids *list)
{
    free(list->ids);
    *list = (struct sluice_ids){ 0 };
}

int sluice_text_open(struct sluice_text **out, const char *folder,
                     struct sluice_error *error)
{
    struct error e = { 0 };
    *out = NULL;
    struct sluice_text *t = calloc(1, sizeof *t);
    if (!t)
        error_set(&e, -ENOMEM, "no memory for a tokenizer");
    else
        tok_open(&t->tok, folder, &e);
    if (!e.code) {
        *out = t;
        return 0;
    }
    free(t);
    return knobs_error(error, &e);
}

void sluice_text_close(struct sluice_text *t)
{
    if (!t)
        return;
    tok_close(t->tok);
    free(t);
}

const struct tok *knobs_tok(const struct sluice_text *t)
{
    return t ? t->tok : NULL;
}

int sluice_tokenize(const struct sluice_text *t, const char *text,
                    size_t bytes, struct sluice_ids *out)
{
    struct id_list list = { out->ids, out->count, out->capacity };
    int err = tok_encode(t->tok, text, bytes, false, &list);
    *out = (struct sluice_ids){ list.ids, list.count, list.capacity };
    return err;
}

size_t sluice_detokenize(const struct sluice_text *t, const uint32_t *ids,
                         size_t count, char *out, size_t room)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t n = tok_piece(t->tok, ids[i], &bytes);
        if (n && all < room)
            memcpy(out + all, bytes, n < room - all ? n : room - all);
        all += n;
    }
    return all;
}

bool sluice_is_end(const struct sluice_text *t, uint32_t id)
{
    return tok_is_stop(t->tok, id);
}

static int render(const struct sluice_text *t, const struct jv *body,
                  struct id_list *out, struct sluice_reply *reply,
                  struct error *error)
{
    struct chat c;
    struct refusal r = { 0 };
    if (body->type != JV_OBJECT)
        return error_set(error, -EINVAL, "the conversation is not an object");
    int err = chat_read(&c, body, &r);
    if (err)
        return error_set(error, err, "%s%s%s", r.field, *r.field ? ": " : "",
                         err == -ENOMEM ? "no memory" : r.sentence);
    *reply = (struct sluice_reply){ .chat = true, .in_answer = c.in_answer,
                                    .calls = c.calls, .one_call = c.one_call };
    return chat_encode(&c, t->tok, out, error);
}

int sluice_chat(const struct sluice_text *t, const char *json, size_t bytes,
                struct sluice_ids *out, struct sluice_reply *reply,
                struct sluice_error *error)
{
    struct error e = { 0 };
    struct jv_doc doc = { 0 };
    struct jv_wrong wrong;
    struct id_list list = { out->ids, out->count, out->capacity };
    int err = jv_parse(&doc, json, bytes, JV_STRICT, &wrong);
    if (err == -ENOMEM)
        error_set(&e, err, "no memory for a conversation");
    else if (err)
        error_set(&e, -EINVAL, "not JSON: %s at byte %zu", wrong.what,
                  wrong.at + 1);
    else
        render(t, doc.root, &list, reply, &e);
    jv_free(&doc);
    *out = (struct sluice_ids){ list.ids, list.count, list.capacity };
    return knobs_error(error, &e);
}
