/* Goal    a grammar takes exactly the texts that its schema allows, byte by
 *         byte, and every text that it has begun can be completed.
 * Method  texts by hand; random walks of accepted bytes, which must end in
 * JSON; copies that go on alike; schemas that must be refused by name. With
 *         arguments it is the tool of test_grammar.sh:
 *             check SCHEMA   each line of stdin: 1 accepted whole, 0 not
 *             make SCHEMA N SEED   N random texts, one a line
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/grammar/match.h"

static struct grammar *make(const char *schema, struct error *error, int *err)
{
    struct jv_doc doc;
    struct grammar *g = NULL;
    *err = jv_parse(&doc, schema, strlen(schema), JV_STRICT, NULL);
    if (*err)
        return NULL;
    *err = grammar_schema(&g, doc.root, error);
    jv_free(&doc);
    return g;
}

static struct grammar *good(const char *schema)
{
    struct error error = { 0 };
    int err;
    struct grammar *g = make(schema, &error, &err);
    if (!g)
        printf("# %s: %d %s\n", schema, err, error.text);
    assert_non_null(g);
    return g;
}

static bool takes(const struct grammar *g, const char *text, size_t n)
{
    struct match *m;
    assert_int_equal(match_open(&m, g), 0);
    int got = match_push(m, text, n);
    assert_true(got >= 0);
    bool whole = got && match_complete(m);
    match_close(m);
    return whole;
}

#define OBJECT                                                                 \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"                    \
    "\"integer\"},\"ab\":{\"type\":\"string\"},\"\\u00e9\":{\"type\":"         \
    "\"null\"}}"

static const struct {
    const char *schema, *yes, *no;
} cases[] = {
    { "true", " [1, {\"a\": null}] ", "[1,]" },
    { "{\"type\":\"integer\"}", "-0", "1.5" },
    { "{\"type\":\"integer\"}", "150e-1", "15e-1" },
    { "{\"type\":\"integer\"}", "1.50e1", "01" },
    { "{\"type\":\"boolean\"}", "true", "null" },
    { OBJECT "}", "{}", "{\"a\":1.5}" },
    { OBJECT "}", "{\"ab\":\"x\",\"a\":3,\"b\":[]}", "{\"a\":1,\"a\":2}" },
    { OBJECT "}", "{\"\\u0061\\u0062\":\"x\"}", "{\"x\":1,\"\\u0078\":2}" },
    { OBJECT "}", "{\"\xc3\xa9\":null}", "{\"\\u00E9\":1}" },
    { OBJECT ",\"additionalProperties\":false}", "{\"ab\":\"\"}",
      "{\"abc\":1}" },
    { OBJECT ",\"required\":[\"a\"]}", "{\"a\":1}", "{\"ab\":\"\"}" },
    { OBJECT ",\"required\":[\"z\"]}", "{\"z\":[]}", "{}" },
    { OBJECT ",\"maxProperties\":1,\"required\":[\"a\"]}", "{\"a\":1}",
      "{\"ab\":\"\",\"a\":1}" },
    { "{\"minProperties\":2,\"type\":\"object\"}", "{\"x\":1,\"y\":2}",
      "{\"x\":1}" },
    { "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,"
      "\"maxItems\":2}",
      "[null,null]", "[]" },
    { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],"
      "\"items\":false}",
      "[1,2]", "[1,2,3]" },
    { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
      "\"\\ud83d\\ude00b\"", "\"\\ud83d\\ude00\"" },
    { "{\"type\":\"string\"}", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
      "\"\\ud800\"" },
    { "{\"type\":\"string\"}", "\"\xf0\x9f\x98\x80\"", "\"\xed\xa0\x80\"" },
    { "{\"type\":\"string\"}", "\"\xe0\xa0\x80\"", "\"\xe0\x9f\x80\"" },
    { "{\"type\":\"string\",\"pattern\":\"^\\\\d{2}$\"}", "\"\\u00312\"",
      "\"123\"" },
    { "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":2}", "\"ba\"",
      "\"bb\"" },
    { "{\"type\":\"string\",\"pattern\":\"^(a|bb)*$\",\"minLength\":3,"
      "\"maxLength\":3}",
      "\"abb\"", "\"bbb\"" },
    { "{\"type\":\"string\",\"format\":\"date\"}", "\"2026-11-30\"",
      "\"2026-13-30\"" },
    { "{\"enum\":[\"red\",\"blue\",null,3]}", "3.0", "\"green\"" },
    { "{\"enum\":[\"red\",\"blue\",null,3]}", "\"b\\u006cue\"", "4" },
    { "{\"const\":{\"a\":[1,{\"b\":true}]}}", "{\"a\":[1,{\"b\":true}]}",
      "{\"a\":[1,{\"b\":true}],\"c\":1}" },
    { "{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5,\"type\":\"number\"}]}",
      "5", "4.9" },
    { "{\"allOf\":[{\"minimum\":5},{\"maximum\":6},{\"type\":\"integer\"}]}",
      "6", "7" },
    { "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":"
      "[\"k\"],\"type\":\"object\"},{\"properties\":{\"k\":{\"const\":\"y\"},"
      "\"v\":{\"type\":\"null\"}},\"required\":[\"k\",\"v\"],\"type\":"
      "\"object\"}]}",
      "{\"v\":null,\"k\":\"y\"}", "{\"k\":\"y\"}" },
    { "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\","
      "\"properties\":{\"next\":{\"$ref\":\"#/$defs/t\"}},"
      "\"additionalProperties\":false}}}",
      "{\"next\":{\"next\":{}}}", "{\"next\":{\"next\":1}}" },
    { "{\"type\":\"string\",\"nullable\":true}", "null", "1" },
    { "{\"properties\":{\"a\":{\"type\":\"null\"}},\"allOf\":[{\"required\":"
      "[\"a\"],\"type\":\"object\"}]}",
      "{\"a\":null}", "{\"a\":1}" },
    { "{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
      "1e-3", "1.0" },
};
enum { CASES = sizeof cases / sizeof *cases };

static void texts_by_hand(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct grammar *g = good(cases[i].schema);
        bool yes = takes(g, cases[i].yes, strlen(cases[i].yes));
        bool no = cases[i].no && takes(g, cases[i].no, strlen(cases[i].no));
        if (!yes || no)
            printf("# %s: %s %d, %s %d\n", cases[i].schema, cases[i].yes, yes,
                   cases[i].no, no);
        assert_true(yes && !no);
        grammar_free(g);
    }
}

static void blanks_have_a_limit(void **state)
{
    (void)state;
    struct grammar *g = good("true");
    char text[80];
    for (int n = 31; n <= 33; n++) {
        snprintf(text, sizeof text, "[%*s1]", n, "");
        assert_int_equal(takes(g, text, strlen(text)), n <= GRAMMAR_BLANKS);
    }
    grammar_free(g);
}

static void depth_has_a_limit(void **state)
{
    (void)state;
    struct grammar *g = good("true");
    char text[400];
    for (int n = GRAMMAR_DEPTH - 1; n <= GRAMMAR_DEPTH + 1; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        assert_int_equal(takes(g, text, 2 * (size_t)n), n <= GRAMMAR_DEPTH);
    }
    grammar_free(g);
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *word;
        int err;
    } bad[] = {
        { "{\"not\":{}}", "not at # ", -ENOTSUP },
        { "{\"properties\":{\"a\":{\"uniqueItems\":true}}}",
          "uniqueItems at #/properties/a", -ENOTSUP },
        { "{\"patternProperties\":{}}", "patternProperties", -ENOTSUP },
        { "{\"if\":{}}", "if at", -ENOTSUP },
        { "{\"multipleOf\":2}", "multipleOf", -ENOTSUP },
        { "{\"type\":\"strin\"}", "type at", -EINVAL },
        { "{\"minLength\":-1}", "minLength", -EINVAL },
        { "{\"pattern\":\"(\"}", "pattern at", -EINVAL },
        { "{\"format\":\"iri\"}", "format at", -EINVAL },
        { "{\"$ref\":\"http://x/\"}", "$ref", -EINVAL },
        { "{\"$ref\":\"#\"}", "$ref leads to itself", -EINVAL },
        { "{\"oneOf\":[{\"type\":\"string\"},{\"maxLength\":3}]}", "oneOf at",
          -EINVAL },
        { "{\"type\":\"string\",\"enum\":[1]}", "allows no value", -ENOENT },
        { "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
          "allows no value", -ENOENT },
        { "false", "allows no value", -ENOENT },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},"
          "\"required\":[\"a\"]}",
          "allows no value", -ENOENT },
        { "3", "must be an object", -EINVAL },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error = { 0 };
        int err;
        struct grammar *g = make(bad[i].schema, &error, &err);
        if (g || err != bad[i].err || !strstr(error.text, bad[i].word))
            printf("# %s: %d %s\n", bad[i].schema, err, error.text);
        assert_null(g);
        assert_int_equal(err, bad[i].err);
        assert_non_null(strstr(error.text, bad[i].word));
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*seed >> 33);
}

/* Bytes that lead to an end soon, where they may stand. */
static const char enders[] = "\"}],:0123456789truefalsnu";

/* The next byte that may follow, of those that close something first. */
static char closing_byte(struct match *m)
{
    static const char first[] = "\"]}0123456789,:tfn";
    for (const char *c = first; *c; c++)
        if (match_push(m, c, 1) > 0)
            return *c;
    for (int i = 255; i > 0; i--) {
        char b = (char)i;
        if (match_push(m, &b, 1) > 0)
            return b;
    }
    return 0;
}

/* A string of the schema by lot, with its quotes: names are found so. */
static size_t random_word(const char *schema, char *out, size_t room,
                          uint64_t *seed)
{
    size_t quotes = 0, n = 0;
    for (const char *c = schema; *c; c++)
        quotes += *c == '"' && (c == schema || c[-1] != '\\');
    if (quotes < 2)
        return 0;
    size_t wanted = next_random(seed) % (quotes / 2) * 2;
    for (const char *c = schema; *c; c++) {
        bool quote = *c == '"' && (c == schema || c[-1] != '\\');
        if (quote && wanted) {
            wanted--;
            continue;
        }
        if (!wanted && (quote || n) && n < room)
            out[n++] = *c;
        if (quote && n > 1)
            return n;
    }
    return 0;
}

/* A random text of the grammar; ends as soon as it can behind `calm` bytes.
 * Letters are those of the schema, so that its names are found. */
static size_t random_text(const struct grammar *g, const char *schema,
                          char *out, size_t room, size_t calm, uint64_t *seed)
{
    size_t letters = strlen(schema);
    struct match *m;
    size_t n = 0;
    assert_int_equal(match_open(&m, g), 0);
    while (!match_complete(m) || (n < calm && next_random(seed) % 8)) {
        char b = 0;
        int got = 0;
        bool ending = n >= calm && next_random(seed) % 2;
        char word[128];
        size_t letters_of = random_word(schema, word, sizeof word, seed);
        if (letters_of && n + sizeof word < room &&
            match_push(m, word, letters_of) == 1) {
            memcpy(out + n, word, letters_of);
            n += letters_of;
            continue;
        }
        for (int tries = 0; !got && !ending && tries < 100; tries++) {
            uint32_t kind = next_random(seed) % 4;
            b = kind < 2 ? schema[next_random(seed) % letters]
                : kind == 2 || n >= calm
                    ? enders[next_random(seed) % (sizeof enders - 1)]
                    : (char)next_random(seed);
            got = match_push(m, &b, 1);
            assert_true(got >= 0);
        }
        if (!got)
            b = closing_byte(m);
        if (!b && match_complete(m))
            break;
        if (!b)
            printf("# dead end: %.*s\n", (int)n, out);
        assert_true(b != 0);
        out[n++] = b;
        assert_true(n < room);
    }
    match_close(m);
    return n;
}

enum { ROOM = 1 << 20 };

static void every_walk_ends_in_json(void **state)
{
    (void)state;
    char *text = malloc(ROOM);
    uint64_t seed = 29;
    for (int i = 0; i < CASES; i++) {
        struct grammar *g = good(cases[i].schema);
        for (int j = 0; j < 12; j++) {
            struct jv_doc doc;
            size_t n = random_text(g, cases[i].schema, text, ROOM,
                                   10u * (unsigned)j, &seed);
            int err = jv_parse(&doc, text, n, JV_STRICT, NULL);
            if (err)
                printf("# %.*s\n", (int)n, text);
            assert_int_equal(err, 0);
            jv_free(&doc);
            assert_true(takes(g, text, n));
        }
        grammar_free(g);
    }
    free(text);
}

static void copies_go_on_alike(void **state)
{
    (void)state;
    uint64_t seed = 31;
    for (int i = 0; i < CASES; i++) {
        struct grammar *g = good(cases[i].schema);
        struct match *m, *copy;
        assert_int_equal(match_open(&m, g), 0);
        assert_int_equal(match_open(&copy, g), 0);
        for (int j = 0; j < 300; j++) {
            char b = j % 4 ? enders[next_random(&seed) % (sizeof enders - 1)]
                           : (char)next_random(&seed);
            uint64_t x[2], y[2];
            assert_int_equal(match_copy(copy, m), 0);
            match_key(m, x);
            match_key(copy, y);
            assert_memory_equal(x, y, sizeof x);
            assert_int_equal(match_push(copy, &b, 1), match_push(m, &b, 1));
            assert_int_equal(match_complete(copy), match_complete(m));
            match_key(m, x);
            match_key(copy, y);
            assert_memory_equal(x, y, sizeof x);
        }
        match_close(m);
        match_close(copy);
        grammar_free(g);
    }
}

static void patterns_too(void **state)
{
    (void)state;
    struct grammar *g;
    struct error error = { 0 };
    const char *p = "(yes|no)( \\w+)?\xc3\xa9?";
    assert_int_equal(grammar_pattern(&g, p, strlen(p), &error), 0);
    assert_true(takes(g, "yes", 3));
    assert_true(takes(g, "no way\xc3\xa9", 8));
    assert_false(takes(g, "no\xc3", 3));
    assert_false(takes(g, "nope", 4));
    grammar_free(g);
    assert_int_equal(grammar_pattern(&g, "[^\\s\\S]", 8, &error), -ENOENT);
}

static char *slurp(const char *path)
{
    char *text = calloc(1, ROOM);
    FILE *f = fopen(path, "r");
    if (!f || !text || !fread(text, 1, ROOM - 1, f))
        exit(3);
    fclose(f);
    return text;
}

/* The tool of test_grammar.sh; 4: the schema was refused. */
static int tool(int argc, char **argv)
{
    struct error error = { 0 };
    int err;
    char *schema = slurp(argv[2]), *line = malloc(ROOM);
    struct grammar *g = make(schema, &error, &err);
    if (!g) {
        printf("refused: %s\n", error.text);
        free(schema);
        free(line);
        return 4;
    }
    if (!strcmp(argv[1], "check"))
        while (fgets(line, ROOM, stdin)) {
            size_t n = strcspn(line, "\n");
            puts(takes(g, line, n) ? "1" : "0");
        }
    else if (argc > 4) {
        uint64_t seed = strtoull(argv[4], NULL, 10);
        for (int i = atoi(argv[3]); i > 0; i--) {
            size_t n = random_text(g, schema, line, ROOM,
                                   next_random(&seed) % 200, &seed);
            for (size_t j = 0; j < n; j++)
                if (line[j] == '\n' || line[j] == '\r')
                    line[j] = ' ';
            printf("%.*s\n", (int)n, line);
        }
    }
    grammar_free(g);
    free(schema);
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return tool(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_by_hand),
        cmocka_unit_test(blanks_have_a_limit),
        cmocka_unit_test(depth_has_a_limit),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(every_walk_ends_in_json),
        cmocka_unit_test(copies_go_on_alike),
        cmocka_unit_test(patterns_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
