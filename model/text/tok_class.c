#include "model/text/tok_class.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The flags of each code point, from the runs of tok_unicode.c. */
static void fill(uint8_t *flags_of)
{
    for (uint32_t r = 0; r < tok_unicode_run_count; r++) {
        uint32_t first = tok_unicode_runs[r] >> 8;
        uint32_t end = r + 1 < tok_unicode_run_count
                           ? tok_unicode_runs[r + 1] >> 8
                           : TOK_CODE_POINTS;
        assert(first < end && end <= TOK_CODE_POINTS);
        memset(flags_of + first, (int)(tok_unicode_runs[r] & 0xff),
               end - first);
    }
}

/* Keep each different page of `flags_of` once. */
static int fold(struct tok_class *t, const uint8_t *flags_of)
{
    t->pages = malloc(TOK_CODE_POINTS);
    if (!t->pages)
        return -ENOMEM;
    for (uint32_t p = 0; p < TOK_CODE_POINTS / TOK_PAGE; p++) {
        const uint8_t *page = flags_of + (size_t)p * TOK_PAGE;
        uint32_t row = 0;
        while (row < t->page_count &&
               memcmp(t->pages + (size_t)row * TOK_PAGE, page, TOK_PAGE))
            row++;
        if (row == t->page_count)
            memcpy(t->pages + (size_t)t->page_count++ * TOK_PAGE, page,
                   TOK_PAGE);
        t->page_of[p] = (uint16_t)row;
    }
    uint8_t *less = realloc(t->pages, (size_t)t->page_count * TOK_PAGE);
    if (less)
        t->pages = less;
    return 0;
}

int tok_class_open(struct tok_class **out)
{
    *out = NULL;
    struct tok_class *t = calloc(1, sizeof *t);
    uint8_t *flags_of = calloc(TOK_CODE_POINTS, 1);
    int err = -ENOMEM;
    if (t && flags_of) {
        fill(flags_of);
        err = fold(t, flags_of);
    }
    free(flags_of);
    if (err) {
        tok_class_close(t);
        return err;
    }
    *out = t;
    return 0;
}

void tok_class_close(struct tok_class *t)
{
    if (!t)
        return;
    free(t->pages);
    free(t);
}
