/* tok_ranks.c - tiktoken.model: lines `base64 SP rank LF` to a hash. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/slurp.h"
#include "model/text/tok_internal.h"

enum {
    FILE_MAX = 1 << 28, /* bytes; K3's has 2,795,286 */
    LINE_MIN = 6        /* bytes of the shortest line, "QQ== 0" */
};

/* The value of a base64 digit, or -1. */
static int digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode canonical, padded base64. Returns the bytes written, at most 3/4 of
 * `length`, or -1. */
static long base64(char *to, const char *text, size_t length)
{
    if (length == 0 || length % 4)
        return -1;
    size_t pad = text[length - 1] == '=' ? 1 + (text[length - 2] == '=') : 0;
    long written = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < length; i++) {
        int value = i < length - pad ? digit((unsigned char)text[i]) : 0;
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 < 3)
            continue;
        size_t keep = i + 1 == length ? 3 - pad : 3;
        if (keep < 3 && bits & (0xffffu >> (8 * (keep - 1))))
            return -1; /* bits set under the padding */
        for (size_t k = 0; k < keep; k++)
            to[written++] = (char)(bits >> (16 - 8 * k));
        bits = 0;
    }
    return written;
}

static uint32_t hash(const char *text, size_t bytes)
{
    uint64_t h = bytes * 0x9e3779b97f4a7c15u;
    while (bytes >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 32;
        text += 8;
        bytes -= 8;
    }
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++)
        word = word << 8 | (unsigned char)text[i];
    h = (h ^ word) * 0x94d049bb133111ebu;
    return (uint32_t)(h >> 32);
}

static struct tok_slot *slot_of(const struct tok *t, const char *text,
                                size_t bytes, uint32_t h)
{
    for (uint32_t i = h;; i++) {
        struct tok_slot *s = &t->slots[i & t->slot_mask];
        if (s->rank == TOK_NONE)
            return s;
        if (s->hash != h)
            continue;
        uint32_t begin = t->begin[s->rank];
        if (t->begin[s->rank + 1] - begin == bytes &&
            !memcmp(t->blob + begin, text, bytes))
            return s;
    }
}

int32_t tok_ranks_find(const struct tok *t, const char *text, size_t bytes)
{
    if (bytes == 1)
        return t->byte_rank[(unsigned char)*text];
    if (bytes > t->piece_max)
        return TOK_NONE;
    return slot_of(t, text, bytes, hash(text, bytes))->rank;
}

/* Read one line without its end into the next rank. Returns NULL or what is
 * wrong with it. */
static const char *take(struct tok *t, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    if (!space)
        return "no space between token and rank";
    if (space - line > TOK_PIECE_MAX / 3 * 4)
        return "token of more than 3072 bytes";
    const char *rank_text = space + 1, *end = line + length;
    uint64_t rank = 0;
    for (const char *c = rank_text; c < end; c++) {
        if (*c < '0' || *c > '9' || rank > TOK_RANKS_MAX)
            return "the rank is not a number";
        rank = 10 * rank + (uint64_t)(*c - '0');
    }
    if (rank_text == end || (*rank_text == '0' && end - rank_text > 1))
        return "the rank is not a number";
    if (rank != t->ranks)
        return "ranks do not ascend by one from 0";
    uint32_t begin = t->begin[t->ranks];
    long bytes = base64(t->blob + begin, line, (size_t)(space - line));
    if (bytes < 0)
        return "the token is not base64";
    const char *text = t->blob + begin;
    uint32_t h = hash(text, (size_t)bytes);
    t->begin[t->ranks + 1] = begin + (uint32_t)bytes;
    struct tok_slot *s = slot_of(t, text, (size_t)bytes, h);
    if (s->rank != TOK_NONE)
        return "the token appears twice";
    *s = (struct tok_slot){ (int32_t)t->ranks, h };
    if (bytes == 1)
        t->byte_rank[(unsigned char)*text] = (int32_t)t->ranks;
    if ((uint32_t)bytes > t->piece_max)
        t->piece_max = (uint32_t)bytes;
    t->ranks++;
    return NULL;
}

static int reserve(struct tok *t, const char *text, size_t bytes)
{
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    if (lines > bytes / LINE_MIN + 1) /* shorter lines are refused later */
        lines = bytes / LINE_MIN + 1;
    if (lines > TOK_RANKS_MAX)
        lines = TOK_RANKS_MAX;
    uint32_t slots = 512;
    while (slots < 2 * lines)
        slots *= 2;
    t->blob = malloc(bytes + 1);
    t->begin = malloc((lines + 1) * sizeof *t->begin);
    t->slots = malloc(slots * sizeof *t->slots);
    if (!t->blob || !t->begin || !t->slots)
        return -ENOMEM;
    t->begin[0] = 0;
    t->slot_mask = slots - 1;
    for (uint32_t i = 0; i < slots; i++)
        t->slots[i].rank = TOK_NONE;
    for (int i = 0; i < 256; i++)
        t->byte_rank[i] = TOK_NONE;
    return 0;
}

static int parse(struct tok *t, const char *path, const char *text,
                 size_t bytes, struct error *error)
{
    int err = reserve(t, text, bytes);
    if (err)
        return error_set(error, err, "%s: no memory", path);
    const char *end = text + bytes;
    size_t number = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - line);
        number++;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        if (length > 0) {
            const char *wrong = t->ranks == TOK_RANKS_MAX
                                    ? "too many tokens"
                                    : take(t, line, length);
            if (wrong)
                return error_set(error, -EBADMSG, "%s: line %zu: %s", path,
                                 number, wrong);
        }
        line = next;
    }
    for (int i = 0; i < 256; i++)
        if (t->byte_rank[i] == TOK_NONE)
            return error_set(error, -EBADMSG,
                             "%s: no token for the single byte 0x%02x", path,
                             i);
    return 0;
}

int tok_ranks_load(struct tok *t, const char *path, struct error *error)
{
    char *text;
    size_t bytes;
    int err = slurp_file(&text, &bytes, path, FILE_MAX, error);
    if (err)
        return err;
    err = parse(t, path, text, bytes, error);
    free(text);
    if (err)
        return err;
    char *less = realloc(t->blob, t->begin[t->ranks] + 1);
    if (less)
        t->blob = less;
    return 0;
}
