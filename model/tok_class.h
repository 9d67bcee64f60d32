/* tok_class.h - what kind of character, as the splitter asks.
 *
 * One byte of flags for each code point, from the Unicode tables of the PCRE2
 * that is linked (14 or newer; a newer one knows more characters). They are
 * asked once, at open, and kept in pages of 256 code points, equal pages once.
 *
 *     tok_class_open -> { tok_class_at ... } -> tok_class_close
 *
 * Bytes    about 40 KB.
 * Threads  read-only after open.
 * Errors   open: -ENOMEM, or -ENOSYS when PCRE2 was built without Unicode.
 * Cost     open walks all 1,114,112 code points; tok_class_at is two loads.
 */
#ifndef MODEL_TOK_CLASS_H
#define MODEL_TOK_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "model/tok_utf8.h"

enum {
    TOK_HAN = 1,     /* Script=Han: includes radicals and numerals */
    TOK_UPPER = 2,   /* Lu Lt Lm Lo M, not Han */
    TOK_LOWER = 4,   /* Ll Lm Lo M, not Han */
    TOK_LETTER = 8,  /* L, Han too */
    TOK_NUMBER = 16, /* N, Han too */
    TOK_SPACE = 32,  /* White_Space */
    TOK_BREAK = 64,  /* CR, LF; also TOK_SPACE */
    TOK_INVALID = 128 /* a byte that is no UTF-8; no other flag */
};

enum { TOK_CODE_POINTS = 0x110000, TOK_PAGE = 256 };

struct tok_class {
    uint8_t *pages;                              /* [page_count][TOK_PAGE] */
    uint16_t page_of[TOK_CODE_POINTS / TOK_PAGE]; /* row of `pages` */
    uint32_t page_count;
};

int tok_class_open(struct tok_class **out);
void tok_class_close(struct tok_class *t);

/* The flags of one code point. */
static inline unsigned tok_class_of(const struct tok_class *t, uint32_t cp)
{
    return t->pages[(size_t)t->page_of[cp / TOK_PAGE] * TOK_PAGE +
                    cp % TOK_PAGE];
}

/* The flags of the character at `text`, text < end, and its length in bytes.
 * A byte that does not belong to a whole character is TOK_INVALID, length 1. */
static inline unsigned tok_class_at(const struct tok_class *t, const char *text,
                                    const char *end, unsigned *length)
{
    uint32_t cp;
    int got = tok_utf8_next(text, (size_t)(end - text), &cp);
    *length = got > 0 ? (unsigned)got : 1;
    return got > 0 ? tok_class_of(t, cp) : TOK_INVALID;
}

#endif
