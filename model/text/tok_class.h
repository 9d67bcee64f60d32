/* tok_class.h - the classes of a character that the splitter needs.
 *
 * One byte of flags for each code point, from a fixed version of Unicode, so
 * that ids are the same on every machine. tok_unicode.py writes the table
 * tok_unicode.c; open expands it into pages of 256 code points and stores equal
 * pages once.
 *
 *     tok_class_open -> { tok_class_at ... } -> tok_class_close
 *
 * Bytes    about 40 KB.
 * Threads  read-only after open.
 * Errors   open: -ENOMEM.
 * Cost     open fills 1.1 MB once; tok_class_at is two loads.
 */
#ifndef MODEL_TEXT_TOK_CLASS_H
#define MODEL_TEXT_TOK_CLASS_H

#include <stddef.h>
#include <stdint.h>

#include "model/json/utf8.h"

enum {
    TOK_HAN = 1,     /* Script=Han: includes radicals and numerals */
    TOK_UPPER = 2,   /* Lu Lt Lm Lo M, not Han */
    TOK_LOWER = 4,   /* Ll Lm Lo M, not Han */
    TOK_LETTER = 8,  /* L, Han too */
    TOK_NUMBER = 16, /* N, Han too */
    TOK_SPACE = 32,  /* White_Space */
    TOK_BREAK = 64,  /* CR, LF; also TOK_SPACE */
    TOK_INVALID = 128 /* a byte that is not UTF-8; alone */
};

enum { TOK_CODE_POINTS = 0x110000, TOK_PAGE = 256 };

struct tok_class {
    uint8_t *pages;                              /* [page_count][TOK_PAGE] */
    uint16_t page_of[TOK_CODE_POINTS / TOK_PAGE]; /* index into pages */
    uint32_t page_count;
};

extern const char tok_unicode_version[]; /* "17.0.0" */
/* [tok_unicode_run_count] runs of equal flags, ascending from 0: first code
 * point << 8 | flags. */
extern const uint32_t tok_unicode_runs[];
extern const uint32_t tok_unicode_run_count;

int tok_class_open(struct tok_class **out);
void tok_class_close(struct tok_class *t);

/* The flags of one code point. */
static inline unsigned tok_class_of(const struct tok_class *t, uint32_t cp)
{
    return t->pages[(size_t)t->page_of[cp / TOK_PAGE] * TOK_PAGE +
                    cp % TOK_PAGE];
}

/* The flags of the character at `text`, text < end, and its length in bytes. A
 * byte that is not part of a whole character is TOK_INVALID, length 1. */
static inline unsigned tok_class_at(const struct tok_class *t, const char *text,
                                    const char *end, unsigned *length)
{
    uint32_t cp;
    int got = utf8_next(text, (size_t)(end - text), &cp);
    *length = got > 0 ? (unsigned)got : 1;
    return got > 0 ? tok_class_of(t, cp) : TOK_INVALID;
}

#endif
