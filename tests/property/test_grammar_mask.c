/* Goal    a mask allows exactly the ids whose bytes the match takes.
 * Method  a vocabulary of all bytes, random pieces of JSON and random bytes;
 *         matches of many schemas driven by random allowed ids; at every step
 *         the mask against match_push on a copy, for every id; masks that come
 *         out of the cache against fresh ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/mask.h"

enum { IDS = 700, BYTES_MAX = 12 };

static struct {
    char text[BYTES_MAX];
    size_t bytes;
} token[IDS];

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33);
}

static const char *bytes_of(void *arg, uint32_t id, size_t *bytes)
{
    (void)arg;
    *bytes = token[id].bytes;
    return token[id].text;
}

static const char *const pieces[] = {
    "\"", "\":", "\",\"", "{\"", "\"}", "},{", "[", "]", ",", ":", " ", "\n",
    "true", "false", "null", "12", ".5", "e3", "-", "abc", "na", "name", "\\",
    "\\u00", "\\n", "\xc3\xa9", "\xf0\x9f", "\x98\x80", "hello", " wor", "me\"",
};
enum { PIECES = sizeof pieces / sizeof *pieces };

static void make_tokens(void)
{
    uint64_t seed = 41;
    for (uint32_t i = 0; i < IDS; i++) {
        token[i].bytes = 0;
        if (i < 256) {
            token[i].text[0] = (char)i;
            token[i].bytes = 1;
        } else if (i < 690) {
            while (!token[i].bytes || next_random(&seed) % 2) {
                const char *p = pieces[next_random(&seed) % PIECES];
                if (token[i].bytes + strlen(p) > BYTES_MAX)
                    break;
                memcpy(token[i].text + token[i].bytes, p, strlen(p));
                token[i].bytes += strlen(p);
            }
        } /* the last ten are no text */
    }
}

static const char *const schemas[] = {
    "true", "{\"type\":\"object\"}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\","
    "\"maxLength\":6},\"na\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":"
    "125}},\"required\":[\"name\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"enum\":[\"abc\",\"abd\",12,null]}}",
    "{\"type\":\"string\",\"pattern\":\"^[a-n ]*$\"}",
    "{\"type\":\"string\",\"pattern\":\"na\"}",
    ("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"string\","
     "\"pattern\":\"^hel\"},{\"type\":\"number\"}]}"),
};

static void equals_pushing_every_id(void **state)
{
    (void)state;
    struct vocabulary *v;
    uint64_t seed = 43, allowed_all = 0, refused = 0;
    make_tokens();
    assert_int_equal(vocabulary_open(&v, IDS, bytes_of, NULL), 0);
    for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
        struct jv_doc doc;
        struct grammar *g;
        struct mask_cache *c;
        struct match *m, *copy;
        assert_int_equal(jv_parse(&doc, schemas[s], strlen(schemas[s]),
                                  JV_STRICT, NULL), 0);
        assert_int_equal(grammar_schema(&g, doc.root, NULL), 0);
        assert_int_equal(mask_cache_open(&c, v, 3), 0);
        assert_int_equal(match_open(&copy, g), 0);
        for (int run = 0; run < 20; run++) {
            assert_int_equal(match_open(&m, g), 0);
            for (int step = 0; step < 25; step++) {
                uint32_t count, seen = 0, can[IDS];
                const uint64_t *word = mask_fill(c, m, &count);
                assert_non_null(word);
                for (uint32_t id = 0; id < IDS; id++) {
                    assert_int_equal(match_copy(copy, m), 0);
                    bool takes = token[id].bytes &&
                                 match_push(copy, token[id].text,
                                            token[id].bytes) == 1;
                    if (takes != (word[id / 64] >> id % 64 & 1))
                        printf("# %s: %.*s\n", schemas[s],
                               (int)token[id].bytes, token[id].text);
                    assert_int_equal(takes, word[id / 64] >> id % 64 & 1);
                    if (takes)
                        can[seen++] = id;
                }
                assert_int_equal(seen, count);
                allowed_all += seen;
                refused += IDS - seen;
                if (!seen) {
                    assert_true(match_complete(m));
                    break;
                }
                uint32_t id = can[next_random(&seed) % seen];
                assert_int_equal(match_push(m, token[id].text,
                                            token[id].bytes), 1);
            }
            match_close(m);
        }
        match_close(copy);
        mask_cache_close(c);
        grammar_free(g);
        jv_free(&doc);
    }
    vocabulary_close(v);
    assert_true(allowed_all > 20000 && refused > 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pushing_every_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
