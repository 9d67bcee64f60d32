/* Goal    a sentence is one line, whatever a hostile file puts into it.
 * Method  control characters in an argument, at the edges of their ranges, and
 *         text that has to stay as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "model/ckpt/error.h"

static void controls_become_question_marks(void **state)
{
    struct error error = { 0 };
    (void)state;
    assert_int_equal(error_set(&error, -EBADMSG, "%s: tensor %s",
                               "a.safetensors",
                               "x\ny\r\tz\033[2J\x7f\x01 \x1f"),
                     -EBADMSG);
    assert_string_equal(error.text, "a.safetensors: tensor x?y??z?[2J?? ?");
    assert_int_equal(error.code, -EBADMSG);
}

static void so_do_those_of_two_bytes(void **state)
{
    struct error error = { 0 };
    (void)state;
    error_set(&error, -EBADMSG, "%s",
              "\xc2\x80|\xc2\x9b[2J|\xc2\x9f|\xc2\xa0|\xc2");
    assert_string_equal(error.text, "??|??[2J|??|\xc2\xa0|\xc2");
}

static void text_stays(void **state)
{
    static const char text[] = " ~ \xc3\x9b \xe6\x9c\x88 \xf0\x9f\x8c\x99";
    struct error error = { 0 };
    (void)state;
    error_set(&error, -EIO, "%s", text);
    assert_string_equal(error.text, text);
}

static void the_first_sentence_stays(void **state)
{
    struct error error = { 0 };
    (void)state;
    assert_int_equal(error_set(NULL, -EIO, "nobody asks"), -EIO);
    error_set(&error, -EIO, "the cause");
    assert_int_equal(error_set(&error, -ENOMEM, "what came of it"), -ENOMEM);
    assert_string_equal(error.text, "the cause");
    assert_int_equal(error.code, -EIO);
}

static void a_long_one_is_cut(void **state)
{
    char longer[2 * sizeof(((struct error *)0)->text)];
    struct error error = { 0 };
    (void)state;
    memset(longer, '\n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    error_set(&error, -EIO, "%s", longer);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_int_equal(strspn(error.text, "?"), sizeof error.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_become_question_marks),
        cmocka_unit_test(so_do_those_of_two_bytes),
        cmocka_unit_test(text_stays),
        cmocka_unit_test(the_first_sentence_stays),
        cmocka_unit_test(a_long_one_is_cut),
    };
    return cmocka_run_group_tests_name("why", tests, NULL, NULL);
}
