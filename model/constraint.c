#include "model/constraint.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/mask.h"
#include "model/json/jv.h"

enum { MASKS_KEPT = 48, HEAD_MASKS = 4, LIKELY_BYTES = 64 };

struct forms {
    const struct tok  *tok;
    struct vocabulary *vocabulary;
    uint32_t  vocab;
    uint64_t *end;  /* ids that end a text */
    uint64_t *text; /* ids that are text */
    int open_id, close_id, sep_id;
};

/*  place       may come                        leaves by
 *  THOUGHTS    text, close                     close -> HEAD("think")
 *  HEAD        the head's letters, then sep    sep -> `then`
 *  BETWEEN     open                            open -> HEAD("response|tools")
 *  ANSWER      the form; behind it, or where it is empty, open; close; end
 *                                              open -> HEAD("tools")
 *                                              close -> HEAD("response")
 *  CLOSED      open, close, end                open -> HEAD("tools")
 *                                              close -> HEAD("message")
 *  CALLS       calls, and the tools' close     that close -> CALLED
 *  CALLED      close, end                      close -> HEAD("message")
 *  OVER        end
 *  FREE        anything                        never
 *
 * Open comes only where tools are offered; close of the message and end only
 * where the answer is whole and no call is owed.
 */
enum place {
    THOUGHTS,
    HEAD,
    BETWEEN,
    ANSWER,
    CLOSED,
    CALLS,
    CALLED,
    OVER,
    FREE
};

struct constraint {
    const struct forms *f;
    struct form form;
    enum place place, then; /* then: behind the head */
    bool owes;    /* a call has to come */
    bool begun;   /* the answer has text */
    struct grammar *grammar, *head, *tools; /* NULL: any text; any calls */
    struct match *answer, *in_head, *calls;
    struct mask_cache *masks, *head_masks;
    char     letters[16]; /* of the head so far */
    size_t   letter_count;
    struct match *ahead[2]; /* copies of answer and calls, for what is likely */
    uint64_t *word; /* the mask, with control ids in it */
};

static size_t words_of(const struct forms *f)
{
    return ((size_t)f->vocab + 63) / 64;
}

static void allow(uint64_t *word, int id)
{
    if (id >= 0)
        word[id / 64] |= UINT64_C(1) << id % 64;
}

/* ---- forms ---- */

/* The text of an id; a control id, which is no text, has none. */
static const char *text_of(const struct forms *f, uint32_t id, size_t *bytes)
{
    const char *text = "";
    bool known = id < tok_vocab(f->tok);
    *bytes = known ? tok_piece(f->tok, id, &text) : 0;
    if (*bytes && f->end[id / 64] >> id % 64 & 1)
        *bytes = 0;
    if (known && id + TOK_SPECIALS >= tok_vocab(f->tok))
        *bytes = 0; /* whatever it is called */
    return text;
}

/* As a grammar has it: those of calls know control ids as bytes that are in no
 * text. */
static const char *bytes_of(void *arg, uint32_t id, size_t *bytes)
{
    static const char control[] = { (char)GRAMMAR_OPEN, (char)GRAMMAR_CLOSE,
                                    (char)GRAMMAR_SEP };
    const struct forms *f = arg;
    const int ids[] = { f->open_id, f->close_id, f->sep_id };
    const char *text = text_of(f, id, bytes);
    for (size_t i = 0; i < *bytes; i++)
        if ((uint8_t)text[i] >= GRAMMAR_OPEN)
            *bytes = 0;
    for (int i = 0; i < 3 && !*bytes; i++)
        if ((int)id == ids[i]) {
            *bytes = 1;
            return &control[i];
        }
    return text;
}

int forms_open(struct forms **out, const struct tok *tok, uint32_t vocab,
               bool (*is_end)(void *arg, uint32_t id), void *arg,
               struct error *error)
{
    struct forms *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return error_set(error, -ENOMEM, "no memory for the vocabulary");
    f->tok = tok;
    f->vocab = vocab;
    f->open_id = tok_special(tok, "<|open|>");
    f->close_id = tok_special(tok, "<|close|>");
    f->sep_id = tok_special(tok, "<|sep|>");
    f->end = calloc(words_of(f) + 1, sizeof *f->end);
    f->text = calloc(words_of(f) + 1, sizeof *f->text);
    int err = f->end && f->text ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < vocab && !err; i++)
        if (is_end(arg, i))
            allow(f->end, (int)i);
    if (!err)
        err = vocabulary_open(&f->vocabulary, vocab, bytes_of, f);
    for (uint32_t i = 0; i < vocab && !err; i++) {
        size_t bytes;
        text_of(f, i, &bytes);
        if (bytes)
            allow(f->text, (int)i);
    }
    if (err) {
        forms_close(f);
        return error_set(error, err, "no memory for the vocabulary");
    }
    *out = f;
    return 0;
}

void forms_close(struct forms *f)
{
    if (!f)
        return;
    vocabulary_close(f->vocabulary);
    free(f->end);
    free(f->text);
    free(f);
}

/* ---- a request ---- */

static int open_grammar(struct constraint *c, struct error *error)
{
    const struct form *form = &c->form;
    struct jv_doc doc;
    struct jv_wrong wrong;
    if (form->kind == FORM_FREE)
        return 0;
    if (form->kind == FORM_JSON)
        return grammar_json(&c->grammar, error);
    if (form->kind == FORM_PATTERN)
        return grammar_pattern(&c->grammar, form->text, form->bytes, error);
    int err = jv_parse(&doc, form->text, form->bytes, JV_STRICT, &wrong);
    if (err)
        return error_set(error, err == -ENOMEM ? err : -EINVAL,
                         "schema: %s at byte %zu",
                         err == -ENOMEM ? "no memory" : wrong.what, wrong.at);
    err = grammar_schema(&c->grammar, doc.root, error);
    jv_free(&doc);
    return err;
}

int constraint_open(struct constraint **out, const struct forms *f,
                    const struct form *form, struct error *error)
{
    struct constraint *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return error_set(error, -ENOMEM, "no memory for a form");
    c->f = f;
    c->form = *form;
    c->place = form->chat && !form->in_answer ? THOUGHTS : ANSWER;
    int err = 0;
    if (form->chat && (f->open_id < 0 || f->close_id < 0 || f->sep_id < 0))
        err = error_set(error, -ENOTSUP, "the tokenizer has no control ids for "
                        "a chat reply");
    if (!err)
        err = open_grammar(c, error);
    struct form calls = *form;
    calls.kind = FORM_FREE;
    if (!err && !form_is_free(&calls))
        err = form_calls(&c->tools, form->tools, form->tools_bytes,
                         form->must_call, error);
    c->owes = form->must_call;
    if (!err && ((c->grammar && match_open(&c->answer, c->grammar)) ||
                 (c->tools && match_open(&c->calls, c->tools)) ||
                 mask_cache_open(&c->masks, f->vocabulary, MASKS_KEPT) ||
                 !(c->word = calloc(words_of(f) + 1, sizeof *c->word))))
        err = error_set(error, -ENOMEM, "no memory for a form");
    if (err) {
        constraint_close(c);
        return err;
    }
    *out = c;
    return 0;
}

static void close_head(struct constraint *c)
{
    match_close(c->in_head);
    mask_cache_close(c->head_masks);
    grammar_free(c->head);
    c->in_head = NULL;
    c->head_masks = NULL;
    c->head = NULL;
}

void constraint_close(struct constraint *c)
{
    if (!c)
        return;
    close_head(c);
    match_close(c->answer);
    match_close(c->calls);
    match_close(c->ahead[0]);
    match_close(c->ahead[1]);
    mask_cache_close(c->masks);
    grammar_free(c->grammar);
    grammar_free(c->tools);
    free(c->word);
    free(c);
}

/* A head begins; `then` follows its separator. */
static int begin_head(struct constraint *c, const char *letters,
                      enum place then)
{
    close_head(c);
    c->place = HEAD;
    c->then = then;
    c->letter_count = 0;
    if (grammar_pattern(&c->head, letters, strlen(letters), NULL) ||
        match_open(&c->in_head, c->head) ||
        mask_cache_open(&c->head_masks, c->f->vocabulary, HEAD_MASKS))
        return -ENOMEM;
    return 0;
}

/* ---- masks ---- */

static const uint64_t *mask_of(struct constraint *c, struct mask_cache *cache,
                               struct match *m, bool *failed)
{
    const uint64_t *word = mask_fill(cache, m, NULL);
    *failed = !word;
    if (!word)
        return NULL;
    memcpy(c->word, word, words_of(c->f) * sizeof *c->word);
    return c->word;
}

static void allow_all(uint64_t *word, const uint64_t *more, size_t words)
{
    for (size_t i = 0; i < words; i++)
        word[i] |= more[i];
}

static bool answer_is_whole(const struct constraint *c)
{
    return !c->answer || match_complete(c->answer);
}

static const uint64_t *mask_of_answer(struct constraint *c, bool *failed)
{
    const struct forms *f = c->f;
    size_t words = words_of(f);
    bool whole = answer_is_whole(c);
    if (!c->answer)
        memcpy(c->word, f->text, words * sizeof *c->word);
    else if (!mask_of(c, c->masks, c->answer, failed))
        return NULL;
    if (whole && !c->owes)
        allow_all(c->word, f->end, words);
    if (!c->form.chat)
        return c->word;
    bool before_call = c->form.calls && (whole || !c->begun);
    if (before_call)
        allow(c->word, f->open_id);
    if (before_call || whole)
        allow(c->word, f->close_id);
    return c->word;
}

const uint64_t *constraint_mask(struct constraint *c, bool *failed)
{
    const struct forms *f = c->f;
    size_t words = words_of(f);
    *failed = false;
    switch (c->place) {
    case FREE:
        return NULL;
    case HEAD:
        if (!mask_of(c, c->head_masks, c->in_head, failed))
            return NULL;
        if (match_complete(c->in_head))
            allow(c->word, f->sep_id);
        return c->word;
    case ANSWER:
        return mask_of_answer(c, failed);
    case CALLS:
        return mask_of(c, c->masks, c->calls, failed);
    case THOUGHTS:
        memcpy(c->word, f->text, words * sizeof *c->word);
        allow(c->word, f->close_id);
        return c->word;
    case BETWEEN:
        memset(c->word, 0, words * sizeof *c->word);
        allow(c->word, f->open_id);
        return c->word;
    case CLOSED:
    case CALLED:
    case OVER:
        memset(c->word, 0, words * sizeof *c->word);
        if (c->place == CLOSED && c->form.calls)
            allow(c->word, f->open_id);
        if (c->owes)
            return c->word;
        allow_all(c->word, f->end, words);
        if (c->place != OVER)
            allow(c->word, f->close_id);
        return c->word;
    }
    return NULL;
}

uint32_t constraint_choices(struct constraint *c, uint32_t *only)
{
    bool failed;
    const uint64_t *word = constraint_mask(c, &failed);
    uint32_t n = 0;
    if (!word)
        return UINT32_MAX;
    for (size_t i = 0; i < words_of(c->f) && n < 2; i++) {
        if (word[i] && !n)
            *only = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(word[i]);
        n += (uint32_t)__builtin_popcountll(word[i]);
    }
    return n;
}

/* Ids of bytes in which control ids stand as grammars have them. */
static uint32_t encode_likely(const struct forms *f, const char *text,
                              size_t bytes, uint32_t *ids, uint32_t max)
{
    const int control[] = { f->open_id, f->close_id, f->sep_id };
    uint32_t n = 0;
    for (size_t at = 0; at < bytes && n < max;) {
        size_t end = at;
        struct id_list list = { 0 };
        if ((uint8_t)text[at] >= GRAMMAR_OPEN) {
            ids[n++] = (uint32_t)control[(uint8_t)text[at++] - GRAMMAR_OPEN];
            continue;
        }
        while (end < bytes && (uint8_t)text[end] < GRAMMAR_OPEN)
            end++;
        if (tok_encode(f->tok, text + at, end - at, false, &list))
            return n;
        for (size_t i = 0; i < list.count && n < max; i++)
            ids[n++] = list.ids[i];
        id_list_free(&list);
        at = end;
    }
    return n;
}

uint32_t constraint_likely(struct constraint *c, uint32_t *ids, uint32_t max)
{
    char text[LIKELY_BYTES];
    bool calls = c->place == CALLS;
    struct match *from = calls ? c->calls
                         : c->place == ANSWER ? c->answer
                                              : NULL;
    struct match **to = &c->ahead[calls];
    if (!from || (!*to && match_open(to, calls ? c->tools : c->grammar)) ||
        match_copy(*to, from))
        return 0;
    int n = match_likely(*to, text, sizeof text);
    return n > 0 ? encode_likely(c->f, text, (size_t)n, ids, max) : 0;
}

/* ---- ids ---- */

static bool in_set(const uint64_t *set, uint32_t id)
{
    return set[id / 64] >> id % 64 & 1;
}

/* The head is over: the tools, or what it was for. */
static enum place behind_head(const struct constraint *c)
{
    bool tools = c->letter_count == 5 && !memcmp(c->letters, "tools", 5);
    return !tools ? c->then : c->tools ? CALLS : FREE;
}

/* The answer ends. Where it is not whole, calls take its place. */
static int end_answer(struct constraint *c, bool close)
{
    c->owes |= !answer_is_whole(c);
    return close ? begin_head(c, "response", CLOSED)
                 : begin_head(c, "tools", CALLS);
}

static int push_control(struct constraint *c, uint32_t id)
{
    const struct forms *f = c->f;
    bool close = (int)id == f->close_id, open = (int)id == f->open_id;
    if (c->place == THOUGHTS && close)
        return begin_head(c, "think", BETWEEN);
    if (c->place == BETWEEN && open)
        return begin_head(c, c->form.calls ? "response|tools" : "response",
                          ANSWER);
    if (c->place == ANSWER && (open || close))
        return end_answer(c, close);
    if (c->place == CLOSED && open)
        return begin_head(c, "tools", CALLS);
    if ((c->place == CLOSED || c->place == CALLED) && close)
        return begin_head(c, "message", OVER);
    if (c->place == HEAD && (int)id == f->sep_id)
        c->place = behind_head(c);
    else
        c->place = FREE; /* an end id, or one that no mask allowed */
    return 0;
}

static int push_call(struct constraint *c, uint32_t id)
{
    size_t n;
    const char *text = bytes_of((void *)c->f, id, &n);
    int got = n ? match_push(c->calls, text, n) : 0;
    if (got > 0 && match_complete(c->calls)) {
        c->place = CALLED;
        c->owes = false;
    } else if (!got) {
        c->place = FREE;
    }
    return got < 0 ? got : 0;
}

int constraint_push(struct constraint *c, uint32_t id)
{
    assert(id < c->f->vocab);
    if (c->place == FREE)
        return 0;
    if (c->place == CALLS)
        return push_call(c, id);
    if (!in_set(c->f->text, id))
        return push_control(c, id);
    if (c->place == ANSWER)
        c->begun = true;
    if (c->place == THOUGHTS || (c->place == ANSWER && !c->answer))
        return 0;
    struct match *m = c->place == HEAD ? c->in_head
                      : c->place == ANSWER ? c->answer
                                           : NULL;
    const char *text;
    size_t n = tok_piece(c->f->tok, id, &text);
    int got = m ? match_push(m, text, n) : 0;
    if (got > 0 && c->place == HEAD &&
        c->letter_count + n <= sizeof c->letters) {
        memcpy(c->letters + c->letter_count, text, n);
        c->letter_count += n;
    }
    if (!got)
        c->place = FREE; /* ids that were given, not made */
    return got < 0 ? got : 0;
}

bool constraint_whole(const struct constraint *c)
{
    return !c->owes &&
           (c->place == CLOSED || c->place == CALLED || c->place == OVER ||
            (c->place == ANSWER && answer_is_whole(c)) ||
            (c->place == HEAD && (c->then == CLOSED || c->then == OVER)));
}
