/* Goal    what is printed never ends in half a character, and nothing is lost.
 * Method  every cut of an emoji by hand; then random bytes in random portions:
 *         the output is the input, and what is held back could still become a
 *         character, as a list of all beginnings says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "model/text/tok_stream.h"
#include "tests/unit/tok_files.h"

static void expect(struct tok_stream *s, const char *in, size_t n,
                   const char *want, size_t want_n)
{
    char out[64];
    assert_int_equal(tok_stream_push(s, in, n, out, n + 3), want_n);
    assert_memory_equal(out, want, want_n);
}

#define PUSH(in, want) expect(&s, in, sizeof in - 1, want, sizeof want - 1)

static void test_by_hand(void **state)
{
    (void)state;
    struct tok_stream s;
    char out[3];
    tok_stream_init(&s);
    PUSH("ab\xf0", "ab");
    PUSH("\x9f", "");
    PUSH("\x98", "");
    PUSH("\x80z", "\xf0\x9f\x98\x80z");
    PUSH("\xf0\x9f\x98", "");
    PUSH("\x80\xe4\xb8", "\xf0\x9f\x98\x80");
    PUSH("", "");
    PUSH("x", "\xe4\xb8x");      /* will not complete: as it is */
    PUSH("\xc3", "");
    PUSH("\xc3", "\xc3");        /* the second may still */
    PUSH("\xa9", "\xc3\xa9");
    PUSH("\xe0\x9f", "\xe0\x9f"); /* overlong: certain at once */
    PUSH("\xed\xa0", "\xed\xa0"); /* a surrogate */
    PUSH("\xf4\x90", "\xf4\x90"); /* above U+10FFFF */
    PUSH("\xf5\xc0\x80\xbf", "\xf5\xc0\x80\xbf");
    PUSH("\xf0\x9f", "");
    assert_int_equal(tok_stream_flush(&s, out, sizeof out), 2);
    assert_memory_equal(out, "\xf0\x9f", 2);
    assert_int_equal(tok_stream_flush(&s, out, sizeof out), 0);
}

/* Encode one code point: the list of all beginnings is made of these. */
static size_t utf8(unsigned char *to, uint32_t cp)
{
    if (cp < 0x80) {
        to[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        to[0] = (unsigned char)(0xc0 + cp / 64);
        to[1] = (unsigned char)(0x80 + cp % 64);
        return 2;
    }
    if (cp < 0x10000) {
        to[0] = (unsigned char)(0xe0 + cp / 4096);
        to[1] = (unsigned char)(0x80 + cp / 64 % 64);
        to[2] = (unsigned char)(0x80 + cp % 64);
        return 3;
    }
    to[0] = (unsigned char)(0xf0 + cp / 262144);
    to[1] = (unsigned char)(0x80 + cp / 4096 % 64);
    to[2] = (unsigned char)(0x80 + cp / 64 % 64);
    to[3] = (unsigned char)(0x80 + cp % 64);
    return 4;
}

static uint8_t begins[1 << 24]; /* by bytes, first one highest, zero padded */

static uint32_t key(const unsigned char *s, size_t n)
{
    return (uint32_t)s[0] << 16 | (n > 1 ? (uint32_t)s[1] << 8 : 0) |
           (n > 2 ? s[2] : 0u);
}

static void test_random(void **state)
{
    (void)state;
    static unsigned char in[4096], out[4200];
    uint64_t seed = 88172645463325252u;
    for (uint32_t cp = 0x80; cp < 0x110000; cp++) {
        unsigned char c[4];
        size_t n = cp >= 0xd800 && cp < 0xe000 ? 0 : utf8(c, cp);
        for (size_t k = 1; k < n; k++)
            begins[key(c, k)] = 1;
    }
    for (int round = 0; round < 2000; round++) {
        size_t n = 0, given = 0, got = 0;
        struct tok_stream s;
        tok_stream_init(&s);
        while (n < 300)
            if (round % 2 && tok_files_random(&seed, 3))
                n += utf8(in + n, tok_files_random(&seed, 0xd800));
            else if (round % 2)
                n += utf8(in + n, 0xe000 + tok_files_random(&seed, 0x102000));
            else /* the bytes that matter, often */
                in[n++] = "\x80\x90\xa0\xbf\xc3\xe0\xe4\xed\xf0\xf4\xffz"
                    [tok_files_random(&seed, 12)] & 0xff;
        while (given < n) {
            size_t portion = 1 + tok_files_random(&seed, 5);
            if (portion > n - given)
                portion = n - given;
            got += tok_stream_push(&s, (char *)in + given, portion,
                                   (char *)out + got, portion + 3);
            given += portion;
            /* the longest beginning is held, and nothing else */
            size_t held = given - got, longest = 0;
            for (size_t k = 1; k <= 3 && k <= given; k++)
                if (begins[key(in + given - k, k)])
                    longest = k;
            assert_int_equal(held, longest);
        }
        got += tok_stream_flush(&s, (char *)out + got, 3);
        assert_int_equal(got, n);
        assert_memory_equal(out, in, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("tok_stream", tests, NULL, NULL);
}
