#include "model/text/tok.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/tok_bpe.h"
#include "model/text/tok_internal.h"
#include "model/text/tok_split.h"

/* The released tokenizer first cuts long texts into slices. The cuts change the
 * ids, so they are made here too. */
enum {
    SLICE_MAX = 400000, /* characters */
    RUN_MAX = 25000     /* characters in a row that are all blank, or all not */
};

int tok_open(struct tok **out, const char *dir, struct error *error)
{
    *out = NULL;
    struct tok *t = calloc(1, sizeof *t);
    char *path = malloc(strlen(dir) + sizeof "/tokenizer_config.json");
    int err = -ENOMEM;
    if (!t || !path)
        goto fail;
    err = tok_class_open(&t->class);
    if (err)
        goto fail;
    strcat(strcpy(path, dir), "/tiktoken.model");
    err = tok_ranks_load(t, path, error);
    if (err)
        goto fail;
    strcat(strcpy(path, dir), "/tokenizer_config.json");
    err = tok_special_load(t, path, error);
    if (err)
        goto fail;
    free(path);
    *out = t;
    return 0;
fail:
    free(path);
    tok_close(t);
    return error_set(error, err, "%s: %s", dir, strerror(-err));
}

void tok_close(struct tok *t)
{
    if (!t)
        return;
    tok_class_close(t->class);
    free(t->blob);
    free(t->begin);
    free(t->slots);
    free(t->special_blob);
    free(t);
}

uint32_t tok_vocab(const struct tok *t)
{
    return t->ranks + TOK_SPECIALS;
}

size_t tok_piece(const struct tok *t, uint32_t id, const char **bytes)
{
    if (id < t->ranks) {
        *bytes = t->blob + t->begin[id];
        return t->begin[id + 1] - t->begin[id];
    }
    if (id - t->ranks < TOK_SPECIALS) {
        *bytes = t->special[id - t->ranks].text;
        return t->special[id - t->ranks].bytes;
    }
    *bytes = "";
    return 0;
}

int tok_special(const struct tok *t, const char *text)
{
    for (uint32_t i = 0; i < TOK_SPECIALS; i++)
        if (!strcmp(t->special[i].text, text))
            return (int)t->special[i].id;
    return -1;
}

bool tok_is_stop(const struct tok *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->stop_count; i++)
        if (t->stops[i] == id)
            return true;
    return false;
}

/* One call of tok_encode_counting. */
struct encoder {
    const struct tok *t;
    struct tok_bpe    bpe;
    struct id_list   *out;
    uint64_t          steps;
    bool              structural;
};

static int encode_plain(struct encoder *e, const char *text, const char *end)
{
    int err = 0;
    while (text < end && !err) {
        size_t bytes = tok_split_next(e->t->class, text, end, &e->steps);
        err = tok_bpe_piece(e->t, &e->bpe, text, bytes, e->out);
        text += bytes;
    }
    return err;
}

static int encode_slice(struct encoder *e, const char *text, const char *end)
{
    uint32_t id;
    const char *special, *name;
    while (e->structural &&
           (special = tok_special_search(e->t, text, end, &id))) {
        int err = encode_plain(e, text, special);
        if (!err)
            err = id_list_push(e->out, id);
        if (err)
            return err;
        text = special + tok_piece(e->t, id, &name);
    }
    return encode_plain(e, text, end);
}

/* Blank as Python's str.isspace sees it: White_Space and four separators. */
static bool is_blank(unsigned class, char first)
{
    return class & TOK_SPACE || (first >= 0x1c && first <= 0x1f);
}

/* Cut into slices and encode each. After a cut the run counts from 1 again. */
static int encode_slices(struct encoder *e, const char *text, size_t bytes)
{
    const char *end = text + bytes, *slice = text;
    size_t in_slice = 0, in_run = 0;
    bool blank_run = false;
    for (const char *at = text; at < end;) {
        unsigned length;
        unsigned class = tok_class_at(e->t->class, at, end, &length);
        bool blank = is_blank(class, *at);
        in_run = in_slice > 0 && blank == blank_run ? in_run + 1 : 1;
        blank_run = blank;
        if (in_slice == SLICE_MAX || in_run > RUN_MAX) {
            int err = encode_slice(e, slice, at);
            if (err)
                return err;
            slice = at;
            in_run = 1;
            in_slice = in_slice == SLICE_MAX ? 0 : in_slice;
        }
        e->steps++;
        in_slice++;
        at += length;
    }
    return encode_slice(e, slice, end);
}

int tok_encode_counting(const struct tok *t, const char *text, size_t bytes,
                        bool structural, struct id_list *out, uint64_t *steps)
{
    struct encoder e = { .t = t, .out = out, .structural = structural };
    size_t before = out->count;
    int err = encode_slices(&e, text, bytes);
    if (err)
        out->count = before;
    *steps += e.steps + e.bpe.steps;
    tok_bpe_free(&e.bpe);
    return err;
}

int tok_encode(const struct tok *t, const char *text, size_t bytes,
               bool structural, struct id_list *out)
{
    uint64_t steps = 0;
    return tok_encode_counting(t, text, bytes, structural, out, &steps);
}

int id_list_push(struct id_list *list, uint32_t id)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        uint32_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids)
            return -ENOMEM;
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return 0;
}

void id_list_free(struct id_list *list)
{
    free(list->ids);
    *list = (struct id_list){ 0 };
}
