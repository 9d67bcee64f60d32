/* tok_special.c - tokenizer_config.json: special tokens and the end id. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/slurp.h"
#include "model/text/tok_internal.h"

enum {
    FILE_MAX = 1 << 24, /* bytes; K3's has 2,614 */
    TEXT_MAX = 1024     /* bytes of a special token */
};

static const char *const stop_texts[] = { "[EOS]", "<|end_of_msg|>", "[PAD]" };
_Static_assert(sizeof stop_texts / sizeof *stop_texts < TOK_STOPS_MAX,
               "room for eos_token");

/* An id as the config spells it: digits, no sign, no leading zero. */
static int64_t id_of(const char *text)
{
    int64_t id = 0;
    if (text[0] == '0' && text[1])
        return -1;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || id > UINT32_MAX)
            return -1;
        id = 10 * id + (*c - '0');
    }
    return *text ? id : -1;
}

/* Point special[] at the texts of the config, which `root` owns. */
static int name_all(struct tok *t, const char *path, json_t *root,
                    struct error *error)
{
    json_t *added = json_object_get(root, "added_tokens_decoder"), *entry;
    const char *key;
    if (!json_is_object(added))
        return error_set(error, -EBADMSG,
                         "%s: added_tokens_decoder is not an object", path);
    json_object_foreach (added, key, entry) {
        int64_t id = id_of(key);
        if (id < 0)
            return error_set(error, -EBADMSG,
                             "%s: added_tokens_decoder: %.40s is not an id",
                             path, key);
        if (id < t->ranks || id >= (int64_t)t->ranks + TOK_SPECIALS)
            return error_set(error, -EBADMSG,
                             "%s: special token %lld is not in %u..%u, the ids "
                             "after those of tiktoken.model",
                             path, (long long)id, t->ranks,
                             t->ranks + TOK_SPECIALS - 1);
        json_t *content = json_object_get(entry, "content");
        size_t bytes = json_string_length(content); /* 0 for no string */
        if (bytes == 0 || bytes > TEXT_MAX)
            return error_set(
                error, -EBADMSG,
                "%s: special token %lld: content is not a string of "
                "1 to %d bytes",
                path, (long long)id, (int)TEXT_MAX);
        struct tok_special *s = &t->special[id - t->ranks];
        s->text = json_string_value(content);
        s->bytes = (uint32_t)bytes;
    }
    return 0;
}

/* Copy the texts into special_blob; tokens without one become reserved. */
static int keep_all(struct tok *t)
{
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < TOK_SPECIALS; i++)
        total += t->special[i].text ? t->special[i].bytes + 1u : 40;
    char *blob = t->special_blob = malloc(total);
    if (!blob)
        return -ENOMEM;
    for (uint32_t i = 0; i < TOK_SPECIALS; i++) {
        struct tok_special *s = &t->special[i];
        s->id = t->ranks + i;
        if (s->text)
            memcpy(blob + at, s->text, s->bytes + 1u);
        else
            s->bytes = (uint32_t)snprintf(blob + at, total - at,
                                          "<|reserved_token_%u|>", s->id);
        s->text = blob + at;
        at += s->bytes + 1u;
    }
    return 0;
}

static int compare(const struct tok_special *a, const struct tok_special *b)
{
    uint32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, common);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Fill sorted[] and starts[]; 256 entries are few enough for insertion. */
static int sort_all(struct tok *t, const char *path, struct error *error)
{
    for (uint32_t i = 0; i < TOK_SPECIALS; i++) {
        const struct tok_special *s = &t->special[i];
        uint32_t at = i;
        while (at > 0 && compare(&t->special[t->sorted[at - 1]], s) > 0) {
            t->sorted[at] = t->sorted[at - 1];
            at--;
        }
        t->sorted[at] = (uint16_t)i;
        t->starts[(unsigned char)*s->text] = 1;
    }
    for (uint32_t i = 1; i < TOK_SPECIALS; i++) {
        const struct tok_special *a = &t->special[t->sorted[i - 1]];
        const struct tok_special *b = &t->special[t->sorted[i]];
        if (compare(a, b) == 0)
            return error_set(error, -EBADMSG,
                             "%s: special tokens %u and %u are both %.64s",
                             path, a->id, b->id, a->text);
    }
    return 0;
}

static void add_stop(struct tok *t, int id)
{
    if (id >= 0 && !tok_is_stop(t, (uint32_t)id))
        t->stops[t->stop_count++] = (uint32_t)id;
}

static int find_stops(struct tok *t, const char *path, json_t *root,
                      struct error *error)
{
    for (size_t i = 0; i < sizeof stop_texts / sizeof *stop_texts; i++)
        add_stop(t, tok_special(t, stop_texts[i]));
    json_t *eos = json_object_get(root, "eos_token");
    if (json_is_object(eos))
        eos = json_object_get(eos, "content");
    if (!eos || json_is_null(eos))
        return 0;
    int id = json_is_string(eos) ? tok_special(t, json_string_value(eos)) : -1;
    if (id < 0)
        return error_set(error, -EBADMSG,
                         "%s: eos_token is not a special token", path);
    add_stop(t, id);
    return 0;
}

int tok_special_load(struct tok *t, const char *path, struct error *error)
{
    char *text;
    size_t bytes;
    int err = slurp_file(&text, &bytes, path, FILE_MAX, error);
    if (err)
        return err;
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!root)
        return error_set(error, -EBADMSG, "%s: line %d: %s", path, at.line,
                         at.text);
    err = name_all(t, path, root, error);
    if (!err && keep_all(t))
        err = error_set(error, -ENOMEM, "%s: no memory", path);
    if (!err)
        err = sort_all(t, path, error);
    if (!err)
        err = find_stops(t, path, root, error);
    json_decref(root);
    return err;
}

/* The longest special that [text, end) begins with, or NULL. The candidates are
 * the entries of sorted[] that agree so far: one range, narrowed by each byte;
 * an entry that ends here is the first of its range. */
static const struct tok_special *longest(const struct tok *t, const char *text,
                                         const char *end)
{
    const struct tok_special *best = NULL;
    uint32_t low = 0, high = TOK_SPECIALS;
    for (uint32_t depth = 0; low < high; depth++) {
        const struct tok_special *s = &t->special[t->sorted[low]];
        if (s->bytes == depth) {
            best = s;
            low++;
        }
        if (text + depth == end)
            break;
        unsigned char c = (unsigned char)text[depth];
        while (low < high &&
               (unsigned char)t->special[t->sorted[low]].text[depth] < c)
            low++;
        while (low < high &&
               (unsigned char)t->special[t->sorted[high - 1]].text[depth] > c)
            high--;
    }
    return best;
}

const char *tok_special_search(const struct tok *t, const char *text,
                               const char *end, uint32_t *id)
{
    for (; text < end; text++) {
        if (!t->starts[(unsigned char)*text])
            continue;
        const struct tok_special *s = longest(t, text, end);
        if (!s)
            continue;
        *id = s->id;
        return text;
    }
    return NULL;
}
