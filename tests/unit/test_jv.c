/* Goal    JSON is read as RFC 8259 has it, keeps its spelling, and is written
 *         as Python writes it.
 * Method  texts and what they are; numbers at the borders of their types; the
 *         spellings are those of Python's json.dumps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/json/jv.h"
#include "model/json/jv_write.h"

static int parse(struct jv_doc *d, const char *text, unsigned dialect)
{
    return jv_parse(d, text, strlen(text), dialect, NULL);
}

static void good_and_bad(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0", "-0", "-0.0e-0", "1E+2", " [ ] ", "{}", "\"\\u00e9\\/\"", "true",
        "[1,2,{\"a\":[null]}]", "\"\xf0\x9f\x8c\x8a\"", "\t\r\n null\n",
        "{\"a\":1,\"a\":2}", "\"\\ud83d\"", "\"\x7f\"", "[[[]]]",
    };
    static const char *const bad[] = {
        "", " ", "01", "1.", ".5", "+1", "-", "1e", "1e+", "0x1", "nul",
        "[1,]", "[,]", "[1 2]", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}",
        "\"", "\"\\x\"", "\"\\u12g4\"", "\"\\u12\"", "\"\n\"", "\"\xff\"",
        "[", "{", "[1", "{\"a\":1", "1 2", "NaN", "Infinity", "-Infinity",
        "'a'", "\xef\xbb\xbf{}", "\"\xed\xa0\x80\"", "tru", "[1]]", "\"\\",
    };
    struct jv_doc d;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(parse(&d, good[i], JV_STRICT), 0);
        jv_free(&d);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct jv_wrong wrong = { 0 };
        if (jv_parse(&d, bad[i], strlen(bad[i]), JV_STRICT, &wrong) !=
            -EBADMSG)
            fail_msg("%s is read", bad[i]);
        assert_non_null(wrong.what);
        assert_true(wrong.at <= strlen(bad[i]));
    }
    assert_int_equal(jv_parse(&d, "\"\0\"", 3, JV_STRICT, NULL), -EBADMSG);
}

static void depth(void **state)
{
    (void)state;
    struct jv_doc d;
    char text[2 * (JV_DEPTH_MAX + 1)];
    for (size_t n = JV_DEPTH_MAX; n <= JV_DEPTH_MAX + 1; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        int err = jv_parse(&d, text, 2 * n, JV_STRICT, NULL);
        assert_int_equal(err, n > JV_DEPTH_MAX ? -EBADMSG : 0);
        if (!err)
            jv_free(&d);
    }
}

static void dialects(void **state)
{
    (void)state;
    struct jv_doc d;
    assert_int_equal(parse(&d, "[NaN,-Infinity,Infinity]", JV_NAN), 0);
    assert_int_equal(d.root[2].raw_bytes, 9);
    jv_free(&d);
    assert_int_equal(parse(&d, " {\"a\":1} rest", JV_PREFIX), 0);
    assert_int_equal(d.end, 8);
    jv_free(&d);
}

static void walking(void **state)
{
    (void)state;
    struct jv_doc d;
    assert_int_equal(parse(&d, "{\"a\":[1, {\"x\" : 2} ],\"b\":\"\\u0000z\","
                               "\"a\":[],\"c\":null,\"c\":7}", JV_STRICT), 0);
    const struct jv *k = jv_first(d.root);
    assert_true(jv_is(k, "a"));
    assert_int_equal(k[1].raw_bytes, 15);
    assert_memory_equal(k[1].raw, "[1, {\"x\" : 2} ]", 15);
    const struct jv *one = jv_first(k + 1), *two = jv_next(k + 1, one);
    assert_int_equal(jv_get(two, "x")->type, JV_NUMBER);
    assert_null(jv_next(k + 1, two));
    k = jv_next(d.root, k);
    assert_int_equal(k[1].bytes, 2);
    assert_memory_equal(k[1].text, "\0z", 3); /* terminated */
    assert_int_equal(jv_get(d.root, "a")->bytes, 0); /* the last */
    assert_non_null(jv_get(d.root, "c"));
    assert_null(jv_get(d.root, "d"));
    assert_null(jv_get(NULL, "d"));
    assert_null(jv_first(NULL));
    jv_free(&d);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool        whole;
        int64_t     value;
    } cases[] = {
        { "3", true, 3 }, { "3.0", true, 3 }, { "3e0", true, 3 },
        { "30e-1", true, 3 }, { "0.3e1", true, 3 }, { "3.000", true, 3 },
        { "300.0e-2", true, 3 }, { "-0", true, 0 }, { "0.0", true, 0 },
        { "0e999999999999", true, 0 }, { "0.000e-99", true, 0 },
        { "1e18", true, 1000000000000000000 },
        { "9223372036854775807", true, INT64_MAX },
        { "-9223372036854775808", true, INT64_MIN },
        { "9223372036854775808", false, 0 }, { "1e19", false, 0 },
        { "-9223372036854775809", false, 0 }, { "1e999999999999", false, 0 },
        { "3.5", false, 0 }, { "35e-1", false, 0 }, { "1e-1", false, 0 },
        { "10e-2", false, 0 }, { "0.1", false, 0 }, { "\"3\"", false, 0 },
        { "100", true, 100 }, { "100.50e1", true, 1005 },
        { "1.00e2", true, 100 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jv_doc d;
        int64_t got = 77;
        assert_int_equal(parse(&d, cases[i].text, JV_STRICT), 0);
        if (jv_integer(d.root, &got) != cases[i].whole ||
            (cases[i].whole && got != cases[i].value))
            fail_msg("%s is %lld", cases[i].text, (long long)got);
        jv_free(&d);
    }
}

static void writes(const char *text, enum jv_style style, const char *want)
{
    struct jv_doc d;
    struct buffer out = { 0 };
    assert_int_equal(parse(&d, text, JV_NAN), 0);
    jv_write(&out, d.root, style);
    assert_false(out.failed);
    assert_string_equal(out.bytes, want);
    buffer_free(&out);
    jv_free(&d);
}

static void spelling(void **state)
{
    (void)state;
    writes("{\"b\":1,\"a\":{\"z\":[ ],\"y\":{}},\"b\":2}", JV_COMPACT,
           "{\"a\":{\"y\":{},\"z\":[]},\"b\":2}");
    writes("{\"b\":1,\"a\":[1,2],\"b\":3}", JV_SPACED,
           "{\"b\": 3, \"a\": [1, 2]}");
    writes("\"\\u0001\\u001F\\b\\f\\n\\r\\t\\/\\\"\\\\\\u007f\\u2028\"",
           JV_COMPACT,
           "\"\\u0001\\u001f\\b\\f\\n\\r\\t/\\\"\\\\\x7f\xe2\x80\xa8\"");
    writes("[-0,-0.0,0.0,1.0,1e2,1E400,NaN,-Infinity]", JV_COMPACT,
           "[0,-0.0,0.0,1.0,100.0,Infinity,NaN,-Infinity]");
    writes("[123456789012345678901234567890,0.1,1e15,1e16,0.0001,0.00001]",
           JV_COMPACT,
           "[123456789012345678901234567890,0.1,1000000000000000.0,1e+16,"
           "0.0001,1e-05]");
    writes("[5e-324,1.7976931348623157e308,5.684341886080802e-14,2.5e-3]",
           JV_COMPACT,
           "[5e-324,1.7976931348623157e+308,5.684341886080802e-14,0.0025]");
    writes("[9007199254740993.0,1234567890123456.7,12e-7,123e20]", JV_COMPACT,
           "[9007199254740992.0,1234567890123456.8,1.2e-06,1.23e+22]");
    writes("[]", JV_SPACED, "[]");
    writes("[\"\\ud83d\",\"\\ud83dx\",\"\\ude00\\ud83d\\ude00\"]", JV_COMPACT,
           "[\"\xef\xbf\xbd\",\"\xef\xbf\xbdx\","
           "\"\xef\xbf\xbd\xf0\x9f\x98\x80\"]");
    struct buffer out = { 0 };
    static const char ends[] = "a\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\n";
    jv_write_line_string(&out, ends, 9);
    assert_string_equal(out.bytes, "\"a\\u0085\\u2028\\u2029\"");
    buffer_free(&out);
    jv_clean(&out, ends, sizeof ends - 1);
    assert_string_equal(out.bytes, "a\xc2\x85\xe2\x80\xa8\xe2\x80\xa9"
                                   "\xef\xbf\xbd\n");
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_and_bad), cmocka_unit_test(depth),
        cmocka_unit_test(dialects),     cmocka_unit_test(walking),
        cmocka_unit_test(integers),     cmocka_unit_test(spelling),
    };
    return cmocka_run_group_tests_name("jv", tests, NULL, NULL);
}
