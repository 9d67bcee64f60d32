/* utf8.h - one character of UTF-8, or why there is none.
 *
 * Strict: no surrogates, no overlong forms, nothing above U+10FFFF. It tells a
 * character that is cut off from one that is wrong, because a stream may still
 * complete the first.
 */
#ifndef MODEL_JSON_UTF8_H
#define MODEL_JSON_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX = 4 }; /* bytes in the longest character */

/* Look at the first character of bytes [text, text + bytes), bytes > 0.
 * Returns its length, 1..4, with *cp set; 0 when all `bytes` bytes (1..3) begin
 * a character that needs more; or -n when the first n bytes (1..3) begin no
 * character: n is what a decoder replaces by one U+FFFD. */
static inline int utf8_next(const char *text, size_t bytes, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned lead = s[0], low = 0x80, high = 0xbf;
    int length;
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
        *cp = lead & 0x1f;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        *cp = lead & 0x0f;
        low = lead == 0xe0 ? 0xa0 : 0x80;
        high = lead == 0xed ? 0x9f : 0xbf;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        *cp = lead & 0x07;
        low = lead == 0xf0 ? 0x90 : 0x80;
        high = lead == 0xf4 ? 0x8f : 0xbf;
    } else {
        return -1;
    }
    for (int i = 1; i < length; i++) {
        if ((size_t)i == bytes)
            return 0;
        if (s[i] < low || s[i] > high)
            return -i;
        *cp = *cp << 6 | (s[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

/* Write one character, cp <= U+10FFFF and no surrogate. Returns its length. */
static inline unsigned utf8_put(char out[UTF8_MAX], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    unsigned length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (unsigned i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)(0xf00 >> length | cp);
    return length;
}

/* The place of the first byte that is in no character, or `bytes`. A character
 * that is cut off is wrong where it begins. */
static inline size_t utf8_valid(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint32_t cp;
        int n = (unsigned char)text[at] < 0x80
                    ? 1
                    : utf8_next(text + at, bytes - at, &cp);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return at;
}

#endif
