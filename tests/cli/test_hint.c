/* Goal    a hint belongs to the file that failed, and names only options that
 *         the command has.
 * Method  sentences about files of a model, beside it and elsewhere, with every
 *         code that has a hint; commands with and without the options.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bin/cli/hint.h"
#include "bin/cli/opt.h"

/* `want`: how the hint begins; NULL: there is none. */
static void says(const char *want, const char *model, int code,
                 const char *text)
{
    struct error error = { 0 };
    char out[HINT_BYTES] = "";
    error_set(&error, code, "%s", text);
    bool said = hint_for(out, model, &error);
    if (said != (want != NULL))
        fail_msg("%s: %s", text, said ? out : "no hint");
    if (want && strncmp(out, want, strlen(want)))
        fail_msg("%s: %s", text, out);
}

static void test_files(void **state)
{
    (void)state;
    static const char again[] = "compare the file with the published one";
    for (int i = 0; i < 2; i++) {
        int code = i ? -EBADMSG : -ENODATA;
        says(again, "a/m", code, "a/m/model-00001-of-000002.safetensors: bad");
        says(again, "a/m/", code, "a/m//config.json: line 3: no");
        says(again, "/", code, "/tiktoken.model: cut");
        says("sluice pack 'a/m' makes it again", "a/m", code,
             "a/m.packed/model-00001.pack: bad");
        says(NULL, "a/m", code, "a/m2/config.json: bad");
        says(NULL, "a/m", code, "a/m/trace: bad");
        says(NULL, "a/m", code, "a/m/other/config.json: bad");
        says(NULL, "a/m", code, "a/m.packed: bad");
        says(NULL, ".", code, "./answers.jsonl: line 1 is not an answer");
        says(NULL, "a/m", code, "answers: line 1 is not an answer");
        says(NULL, NULL, code, "trace: is cut off");
    }
    says("sluice doctor 'a/m' says", "a/m", -ENOENT, "a/m: has no config.json");
    says("sluice doctor 'a/m' says", "a/m", -ENOENT, "a/m/config.json: none");
    says(NULL, "a/m", -ENOENT, "a/m2: no such file");
    says(NULL, "a/m", -ENOENT, "a/m/trace: no such file");
    says(NULL, NULL, -ENOENT, "trace: no such file");
    says(NULL, "a/m", -EINVAL, "a/m/config.json: is wrong");
}

static void command(const char *first, const char *second)
{
    const struct opt table[] = {
        { first, 0, OPT_TEXT, NULL, "X", "", NULL },
        { second, 0, OPT_TEXT, NULL, "X", "", NULL } };
    const struct opt_command cmd = { "sluice test", "", table, 2 };
    char name[] = "test", *argv[] = { name, NULL };
    assert_int_equal(opt_parse(&cmd, 1, argv, NULL, 0), 0);
    bool memory = opt_takes("memory"), context = opt_takes("context");
    says(!memory   ? NULL
         : context ? "give it more with --memory, or a smaller --context"
                   : "give it more with --memory", "m", -ENOBUFS, "floor");
    says(!memory   ? NULL
         : context ? "try a smaller --memory or --context"
                   : "try a smaller --memory", "m", -ENOMEM, "no memory");
    struct error error = { .code = -ENOBUFS };
    char out[HINT_BYTES] = "";
    hint_for(out, "m", &error);
    assert_int_equal(strstr(out, "context") != NULL, memory && context);
}

static void test_options(void **state)
{
    (void)state;
    command("memory", "context");
    command("memory", "jobs");
    command("jobs", "context");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests_name("hint", tests, NULL, NULL);
}
