#include "model/grammar/mask.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/match_internal.h"
#include "model/json/utf8.h"

enum { TOKEN_BYTES_MAX = 1 << 12 };

/* A node of the tree, in the order of a walk: its subtree follows it. */
struct branch {
    uint8_t  byte;
    uint16_t depth; /* bytes from the root, this one too */
    uint32_t end;   /* the first node behind the subtree */
    uint32_t first, tokens; /* ids that end here, in `id` */
};

struct tree {
    struct branch *branch;
    uint32_t branches;
    uint32_t *id;
    uint32_t ids, depth; /* the deepest */
};

struct vocabulary {
    uint32_t ids;
    struct tree plain;   /* whole characters that a string may hold as they
                          * are */
    struct tree special; /* all others */
    uint32_t *length;    /* [plain.ids] characters, ascending */
    uint32_t *by_length; /* [plain.ids] ids in that order */
};

/* ---- the tree ---- */

struct token {
    const char *text;
    size_t bytes;
    uint32_t id, characters;
};

static int by_text(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, n);
    if (order)
        return order;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_characters(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    if (x->characters != y->characters)
        return x->characters < y->characters ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Characters of a text that a string may hold as it is; 0: it is none. */
static uint32_t plain_characters(const char *text, size_t bytes)
{
    uint32_t n = 0;
    for (size_t at = 0; at < bytes; n++) {
        uint32_t c;
        int length = utf8_next(text + at, bytes - at, &c);
        if (length <= 0 || c < 0x20 || c == '"' || c == '\\')
            return 0;
        at += (size_t)length;
    }
    return n;
}

static size_t common(const struct token *a, const struct token *b)
{
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes, i = 0;
    while (i < n && a->text[i] == b->text[i])
        i++;
    return i;
}

static int make_tree(struct tree *t, struct token *token, uint32_t count)
{
    size_t room = 1;
    uint32_t open[TOKEN_BYTES_MAX + 1], depth = 0;
    qsort(token, count, sizeof *token, by_text);
    for (uint32_t i = 0; i < count; i++)
        room += token[i].bytes - (i ? common(&token[i - 1], &token[i]) : 0);
    t->branch = calloc(room, sizeof *t->branch);
    t->id = calloc(count + 1, sizeof *t->id);
    if (!t->branch || !t->id)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        size_t shared = i ? common(&token[i - 1], &token[i]) : 0;
        while (depth > shared)
            t->branch[open[--depth]].end = t->branches;
        while (depth < token[i].bytes) {
            t->branch[t->branches] = (struct branch){
                .byte = (uint8_t)token[i].text[depth],
                .depth = (uint16_t)(depth + 1), .first = t->ids };
            open[depth++] = t->branches++;
        }
        struct branch *last = &t->branch[open[depth - 1]];
        if (!last->tokens++)
            last->first = t->ids;
        t->id[t->ids++] = token[i].id;
        t->depth = depth > t->depth ? depth : t->depth;
    }
    while (depth)
        t->branch[open[--depth]].end = t->branches;
    return 0;
}

static void free_tree(struct tree *t)
{
    free(t->branch);
    free(t->id);
}

int vocabulary_open(struct vocabulary **out, uint32_t ids,
                    vocabulary_bytes_fn *bytes, void *arg)
{
    struct vocabulary *v = calloc(1, sizeof *v);
    struct token *plain = calloc((size_t)ids + 1, sizeof *plain);
    struct token *special = calloc((size_t)ids + 1, sizeof *special);
    uint32_t plains = 0, specials = 0;
    int err = v && plain && special ? 0 : -ENOMEM;
    *out = NULL;
    for (uint32_t i = 0; i < ids && !err; i++) {
        struct token t = { .id = i };
        t.text = bytes(arg, i, &t.bytes);
        if (!t.bytes || t.bytes > TOKEN_BYTES_MAX)
            continue;
        t.characters = plain_characters(t.text, t.bytes);
        if (t.characters)
            plain[plains++] = t;
        else
            special[specials++] = t;
    }
    if (!err) {
        v->ids = ids;
        v->length = calloc(plains + 1, sizeof *v->length);
        v->by_length = calloc(plains + 1, sizeof *v->by_length);
        err = v->length && v->by_length ? make_tree(&v->plain, plain, plains)
                                        : -ENOMEM;
    }
    if (!err)
        err = make_tree(&v->special, special, specials);
    if (!err) {
        qsort(plain, plains, sizeof *plain, by_characters);
        for (uint32_t i = 0; i < plains; i++) {
            v->length[i] = plain[i].characters;
            v->by_length[i] = plain[i].id;
        }
        *out = v;
    } else {
        vocabulary_close(v);
    }
    free(plain);
    free(special);
    return err;
}

void vocabulary_close(struct vocabulary *v)
{
    if (!v)
        return;
    free_tree(&v->plain);
    free_tree(&v->special);
    free(v->length);
    free(v->by_length);
    free(v);
}

/* ---- masks ---- */

struct kept {
    uint64_t key[2];
    uint64_t used;  /* when */
    uint32_t count; /* ids allowed */
    bool     filled;
    uint64_t *word;
};

struct mask_cache {
    const struct vocabulary *v;
    struct kept *kept;
    uint32_t masks;
    uint64_t now;
    struct threads *level; /* [deepest + 1] threads behind each byte */
    struct pool_mark *mark; /* [deepest + 1] */
    uint32_t levels;
};

static size_t words_of(const struct vocabulary *v)
{
    return ((size_t)v->ids + 63) / 64;
}

int mask_cache_open(struct mask_cache **out, const struct vocabulary *v,
                    uint32_t masks)
{
    struct mask_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    assert(masks >= 1);
    if (!c)
        return -ENOMEM;
    c->v = v;
    c->masks = masks;
    c->levels = 1 + (v->plain.depth > v->special.depth ? v->plain.depth
                                                       : v->special.depth);
    c->kept = calloc(masks, sizeof *c->kept);
    c->level = calloc(c->levels, sizeof *c->level);
    c->mark = calloc(c->levels, sizeof *c->mark);
    if (!c->kept || !c->level || !c->mark) {
        mask_cache_close(c);
        return -ENOMEM;
    }
    *out = c;
    return 0;
}

void mask_cache_close(struct mask_cache *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->kept && i < c->masks; i++)
        free(c->kept[i].word);
    for (uint32_t i = 0; c->level && i < c->levels; i++)
        free(c->level[i].thread);
    free(c->kept);
    free(c->level);
    free(c->mark);
    free(c);
}

static void allow(uint64_t *word, uint32_t id)
{
    word[id / 64] |= UINT64_C(1) << id % 64;
}

/* How many plain characters a thread takes whatever they are. */
static uint32_t takes_any(const struct thread *t)
{
    if (t->part != PART_NONE)
        return 0;
    if (t->place == IN_NAME && t->free_name)
        return UINT32_MAX;
    if (t->place != IN_STRING && t->place != IN_RAW)
        return 0;
    if (t->shape->dfa)
        return t->shape->dfa->total[t->state] && !t->shape->min &&
                       t->shape->max == UINT32_MAX
                   ? UINT32_MAX
                   : 0;
    return t->shape->max == UINT32_MAX ? UINT32_MAX
                                       : t->shape->max - t->used;
}

/* Walk the tree from the threads of level 0. */
static int walk(struct mask_cache *c, struct match *m, const struct tree *t,
                uint64_t *word)
{
    for (uint32_t i = 0; i < t->branches;) {
        const struct branch *b = &t->branch[i];
        pool_rewind(&m->pool, c->mark[b->depth - 1]);
        int err = threads_step(m->g, &m->pool, &c->level[b->depth - 1],
                               b->byte, &c->level[b->depth]);
        if (err)
            return err;
        if (!c->level[b->depth].count) {
            i = b->end;
            continue;
        }
        c->mark[b->depth] = pool_mark(&m->pool);
        for (uint32_t j = 0; j < b->tokens; j++)
            allow(word, t->id[b->first + j]);
        i++;
    }
    return 0;
}

static int fill(struct mask_cache *c, struct match *m, uint64_t *word)
{
    const struct vocabulary *v = c->v;
    struct pool_mark start = pool_mark(&m->pool);
    uint32_t any = 0;
    int err = 0;
    bool others = false; /* threads that take some plain characters */
    c->mark[0] = start;
    c->level[0].count = 0;
    memset(word, 0, words_of(v) * sizeof *word);
    for (uint32_t i = 0; i < m->now.count && !err; i++) {
        uint32_t takes = takes_any(&m->now.thread[i]);
        any = takes > any ? takes : any;
        err = threads_add(&c->level[0], &m->now.thread[i]);
    }
    for (uint32_t i = 0; i < v->plain.ids && v->length[i] <= any; i++)
        allow(word, v->by_length[i]);
    if (!err)
        err = walk(c, m, &v->special, word);
    /* Tokens of plain characters: for the threads that do not take them all. */
    c->level[0].count = 0;
    for (uint32_t i = 0; i < m->now.count && !err && any != UINT32_MAX; i++)
        if (!takes_any(&m->now.thread[i])) {
            others = true;
            err = threads_add(&c->level[0], &m->now.thread[i]);
        }
    if (!err && others)
        err = walk(c, m, &v->plain, word);
    pool_rewind(&m->pool, start);
    return err;
}

const uint64_t *mask_fill(struct mask_cache *c, struct match *m,
                          uint32_t *count)
{
    uint64_t key[2];
    struct kept *k = &c->kept[0];
    match_key(m, key);
    c->now++;
    for (uint32_t i = 0; i < c->masks; i++) {
        struct kept *other = &c->kept[i];
        if (other->filled && other->key[0] == key[0] &&
            other->key[1] == key[1]) {
            other->used = c->now;
            if (count)
                *count = other->count;
            return other->word;
        }
        if (other->used < k->used)
            k = other;
    }
    if (!k->word)
        k->word = malloc(words_of(c->v) * sizeof *k->word + 8);
    k->filled = false;
    if (!k->word || fill(c, m, k->word))
        return NULL;
    k->filled = true;
    k->used = c->now;
    k->key[0] = key[0];
    k->key[1] = key[1];
    k->count = 0;
    for (size_t i = 0; i < words_of(c->v); i++)
        k->count += (uint32_t)__builtin_popcountll(k->word[i]);
    if (count)
        *count = k->count;
    return k->word;
}
