/* test_serve_parts.c - parts of the server that need no socket.
 *
 * Goal    Who is next in the queue; requests of other APIs become the chat
 *         request that they mean; calls of tools are written as each API has
 *         them, in events and whole; keys and paths are what they say.
 * Method  Small cases by hand, exact texts.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "bin/serve/api/convert.h"
#include "bin/serve/net/auth.h"
#include "bin/serve/queue.h"
#include "bin/serve/render.h"
#include "bin/serve/routes.h"

/* ---- the queue ---- */

static void add(struct queue *q, struct work *w, uint64_t owner, int priority)
{
    *w = (struct work){ .owner = owner, .priority = priority };
    assert_int_equal(queue_add(q, w), 0);
}

static void test_queue_is_fair(void **state)
{
    struct queue q;
    struct work a[4], b[2];
    (void)state;
    queue_init(&q);
    for (int i = 0; i < 4; i++)
        add(&q, &a[i], 1, 0);
    for (int i = 0; i < 2; i++)
        add(&q, &b[i], 2, 0);
    assert_ptr_equal(queue_take(&q), &a[0]); /* the first that came */
    assert_ptr_equal(queue_take(&q), &b[0]); /* none of b runs */
    assert_ptr_equal(queue_take(&q), &a[1]); /* longest ago */
    queue_done(&q, &a[0]);
    queue_done(&q, &a[1]);
    assert_ptr_equal(queue_take(&q), &a[2]); /* b has one that runs */
    queue_remove(&q, &b[1]);
    assert_ptr_equal(queue_take(&q), &a[3]);
    assert_null(queue_take(&q));
    queue_done(&q, &b[0]);
    queue_done(&q, &a[2]);
    queue_done(&q, &a[3]);
    assert_null(q.clients);
}

static void test_queue_has_priorities(void **state)
{
    struct queue q;
    struct work w[3];
    (void)state;
    queue_init(&q);
    add(&q, &w[0], 1, 1);
    add(&q, &w[1], 1, 0);
    add(&q, &w[2], 1, -1);
    for (int i = 2; i >= 0; i--)
        assert_ptr_equal(queue_take(&q), &w[i]);
    for (int i = 0; i < 3; i++)
        queue_done(&q, &w[i]);
}

/* ---- requests of other APIs ---- */

static char *converted(const char *text, bool messages, struct api_error *e)
{
    struct jv_doc doc;
    struct buffer out = { 0 };
    memset(e, 0, sizeof *e);
    assert_int_equal(jv_parse(&doc, text, strlen(text), JV_STRICT, NULL), 0);
    int err = messages ? convert_messages(&out, doc.root, false, e)
                       : convert_responses(&out, doc.root, NULL, e);
    assert_int_equal(err, e->status ? -1 : 0);
    jv_free(&doc);
    if (err)
        buffer_free(&out);
    return err ? NULL : out.bytes;
}

static void becomes(const char *text, bool messages, const char *expected)
{
    struct api_error e;
    char *got = converted(text, messages, &e);
    assert_string_equal(e.text, "");
    assert_string_equal(got, expected);
    free(got);
}

static void test_messages(void **state)
{
    (void)state;
    becomes("{\"model\":\"m\",\"max_tokens\":5,\"top_k\":3,"
            "\"stop_sequences\":[\"x\"],\"metadata\":{\"user_id\":\"u\"},"
            "\"system\":[{\"type\":\"text\",\"text\":\"S\"}],"
            "\"tool_choice\":{\"type\":\"any\","
            "\"disable_parallel_tool_use\":true},"
            "\"tools\":[{\"name\":\"f\",\"description\":\"d\","
            "\"input_schema\":{\"type\": \"object\"}}],"
            "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":["
            "{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},"
            "{\"type\":\"text\",\"text\":\"a\"},"
            "{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\","
            "\"input\":{\"k\": 1e2}}]},"
            "{\"role\":\"user\",\"content\":["
            "{\"type\":\"text\",\"text\":\"more\"},"
            "{\"type\":\"tool_result\",\"tool_use_id\":\"i\","
            "\"content\":\"r\"}]}]}",
            true,
            "{\"n\":1,\"model\":\"m\",\"max_tokens\":5,\"top_k\":3,"
            "\"stop\":[\"x\"],\"thinking\":false,\"tools\":[{\"type\":"
            "\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
            "\"parameters\":{\"type\": \"object\"}}}],"
            "\"tool_choice\":\"required\",\"parallel_tool_calls\":false,"
            "\"messages\":[ {\"role\":\"system\",\"content\":[{\"type\":"
            "\"text\",\"text\":\"S\"}]},{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":\"a\","
            "\"reasoning_content\":\"t\",\"tool_calls\":[{\"type\":"
            "\"function\",\"id\":\"i\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"k\": 1e2}}}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"i\",\"content\":\"r\"},"
            "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"more\"}]}]}");
    /* The reply goes on with the last message. */
    becomes("{\"max_tokens\":1,\"thinking\":{\"type\":\"enabled\"},"
            "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":\"a\"}]}",
            true,
            "{\"n\":1,\"max_tokens\":1,\"thinking\":true,\"messages\":[ "
            "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
            "\"content\":\"a\",\"partial\":true}]}");
}

static void test_responses(void **state)
{
    (void)state;
    becomes("{\"model\":\"m\",\"instructions\":\"S\",\"store\":true,"
            "\"max_output_tokens\":5,\"reasoning\":{\"effort\":\"low\"},"
            "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
            "\"schema\":{},\"strict\":true}},"
            "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},"
            "\"tools\":[{\"type\":\"function\",\"name\":\"f\","
            "\"parameters\":{}}],"
            "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"q\"}]},"
            "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
            "\"reasoning_text\",\"text\":\"t\"}]},"
            "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{"
            "\"type\":\"output_text\",\"text\":\"a\"}]},"
            "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\","
            "\"arguments\":\"{}\"},"
            "{\"type\":\"function_call\",\"call_id\":\"2\",\"name\":\"f\","
            "\"arguments\":\"{}\"},"
            "{\"type\":\"function_call_output\",\"call_id\":\"1\","
            "\"output\":\"r\"}]}",
            false,
            "{\"n\":1,\"model\":\"m\",\"max_tokens\":5,\"reasoning_effort\":"
            "\"low\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
            "\"f\",\"parameters\":{}}}],\"tool_choice\":{\"type\":"
            "\"function\",\"function\":{\"name\":\"f\"}},"
            "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
            "\"name\":\"n\",\"schema\":{},\"strict\":true}},\"messages\":[ "
            "{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
            "\"content\":\"q\"},{\"role\":\"assistant\","
            "\"reasoning_content\":\"t\",\"content\":\"a\",\"tool_calls\":[{"
            "\"type\":\"function\",\"id\":\"1\",\"function\":{\"name\":\"f\","
            "\"arguments\":\"{}\"}},{\"type\":\"function\",\"id\":\"2\","
            "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}]}");
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *field;
        bool messages;
    } bad[] = {
        { "{\"messages\":[]}", "max_tokens", true },
        { "{\"max_tokens\":1,\"messages\":[]}", "messages", true },
        { "{\"max_tokens\":1,\"mcp_servers\":[1],\"messages\":[]}",
          "mcp_servers", true },
        { "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
          "[{\"type\":\"image\"}]}]}", "messages.content", true },
        { "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":"
          "\"\"}]}", "messages.role", true },
        { "{\"input\":7}", "input", false },
        { "{\"input\":\"a\",\"background\":true}", "background", false },
        { "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]}", "tools",
          false },
        { "{\"input\":[{\"type\":\"computer_call\"}]}", "input", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct api_error e;
        assert_null(converted(bad[i].text, bad[i].messages, &e));
        assert_int_equal(e.status, 400);
        assert_string_equal(e.field, bad[i].field);
    }
}

/* ---- calls ---- */

static void put(struct buffer *b, const char *text)
{
    buffer_put(b, text, strlen(text));
}

/* One that has said "hm", called f with {"a":1}, and is over. */
static struct work *work_with_call(void)
{
    static const struct {
        enum reply_kind kind;
        const char *text;
    } said[] = { { REPLY_THOUGHT_TEXT, "hm" }, { REPLY_CALL_BEGINS, "f" },
                 { REPLY_CALL_ARGUMENTS, "{\"a\"" },
                 { REPLY_CALL_ARGUMENTS, ":1}" } };
    struct reply_options o = { .chat = false };
    struct batch_job *j = calloc(1, sizeof *j);
    struct work *w;
    j->ids = calloc(8, sizeof *j->ids);
    j->prompt_count = 5;
    j->choices = 1;
    j->r.max_ids = 3;
    j->chat = true;
    reply_init(&j->reply, NULL, &o);
    assert_int_equal(work_open(&w, j), 0);
    snprintf(w->id, sizeof w->id, "ID");
    w->model = "m";
    w->created = 7;
    w->prompt_hash = 0xabc;
    w->state = WORK_RUNNING;
    for (size_t i = 0; i < 4; i++) {
        struct reply_event e = { .kind = said[i].kind,
                                 .bytes = strlen(said[i].text) };
        struct reply r = { .event = &e, .events = 1 };
        struct batch_job part = { .reply = r };
        put(&part.reply.event_text, said[i].text);
        work_say(w, &part);
        buffer_free(&part.reply.event_text);
    }
    put(&j->reply.thoughts, "hm");
    j->reply.call = calloc(1, sizeof *j->reply.call);
    j->reply.calls = 1;
    put(&j->reply.call[0].name, "f");
    put(&j->reply.call[0].arguments, "{\"a\":1}");
    j->reply.reason = REPLY_CALLS;
    j->reply.done = true;
    assert_true(work_job_end(w, j, 3, SLUICE_END));
    assert_int_equal(w->state, WORK_DONE);
    return w;
}

static char *rendered(enum api api, bool stream)
{
    struct work *w = work_with_call();
    struct render r;
    struct buffer out = { 0 };
    const struct batch_rules rules = { .name = "m" };
    render_begin(&r, api, stream);
    while (!r.over)
        render_more(&r, w, &rules, &out, SIZE_MAX);
    assert_false(out.failed);
    render_free(&r);
    work_release(w);
    return out.bytes;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s\nis not in\n%s", part, text);
}

static void test_calls_in_streams(void **state)
{
    (void)state;
    char *t = rendered(API_OPENAI, true);
    has(t, "\"delta\":{\"reasoning_content\":\"hm\"}");
    has(t, "\"tool_calls\":[{\"index\":0,\"id\":\"call_0000000000000abc_0_0\","
           "\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"arguments\":\"\"}}]");
    has(t, "{\"index\":0,\"function\":{\"arguments\":\":1}\"}}");
    has(t, "\"finish_reason\":\"tool_calls\"");
    free(t);
    t = rendered(API_ANTHROPIC, true);
    has(t, "\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":"
           "\"toolu_0000000000000abc_0\",\"name\":\"f\",\"input\":{}}");
    has(t, "\"index\":1,\"delta\":{\"type\":\"input_json_delta\","
           "\"partial_json\":\"{\\\"a\\\"\"}");
    has(t, "\"stop_reason\":\"tool_use\"");
    free(t);
    t = rendered(API_RESPONSES, true);
    has(t, "\"type\":\"response.function_call_arguments.done\","
           "\"sequence_number\":9,\"item_id\":\"fc_ID_1\",\"output_index\":1,"
           "\"arguments\":\"{\\\"a\\\":1}\",\"name\":\"f\"}");
    has(t, "event: response.completed\n");
    free(t);
}

static void test_calls_whole(void **state)
{
    (void)state;
    char *t = rendered(API_OPENAI, false);
    has(t, "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}");
    has(t, "\"completion_tokens\":4"); /* with the end */
    free(t);
    t = rendered(API_ANTHROPIC, false);
    has(t, "\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\","
           "\"signature\":\"\"},{\"type\":\"tool_use\",\"id\":"
           "\"toolu_0000000000000abc_0\",\"name\":\"f\",\"input\":{\"a\":1}}]");
    free(t);
    t = rendered(API_RESPONSES, false);
    has(t, "\"type\":\"function_call\",\"call_id\":"
           "\"call_0000000000000abc_0_0\",\"name\":\"f\",\"arguments\":"
           "\"{\\\"a\\\":1}\"}]");
    free(t);
}

/* ---- keys, paths ---- */

static void test_keys(void **state)
{
    char path[] = "/tmp/test_serve_XXXXXX";
    struct error error = { 0 };
    struct auth a;
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "# none\n\none\r\ntwo  \n";
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    assert_int_equal(auth_open(&a, path, &error), 0);
    assert_int_equal(a.count, 2);
    assert_int_equal(auth_find(&a, "Bearer one"), 1);
    assert_int_equal(auth_find(&a, "two"), 2);
    assert_int_equal(auth_find(&a, "Bearer on"), 0);
    assert_int_equal(auth_find(&a, ""), 0);
    assert_int_equal(auth_find(&a, NULL), 0);
    auth_close(&a);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(auth_open(&a, path, &error), -EACCES);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    error = (struct error){ 0 };
    assert_int_equal(auth_open(&a, path, &error), -EINVAL);
    close(fd);
    unlink(path);
}

static void test_paths(void **state)
{
    char id[STORE_ID] = "";
    enum api api;
    struct api_error e = { 0 };
    (void)state;
    const struct route *r = route_find("GET", "/v1/files/a-1/content", id,
                                       &api, &e);
    assert_non_null(r);
    assert_string_equal(id, "a-1");
    assert_string_equal(r->path, "/v1/files/{id}/content");
    assert_null(route_find("GET", "/v1/files//content", id, &api, &e));
    assert_int_equal(e.status, 404);
    e.status = 0;
    assert_null(route_find("GET", "/v1/files/a/b/content", id, &api, &e));
    assert_int_equal(e.status, 404);
    e.status = 0;
    assert_null(route_find("PUT", "/v1/files", id, &api, &e));
    assert_int_equal(e.status, 405);
    assert_non_null(route_find("HEAD", "/health", id, &api, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_is_fair),
        cmocka_unit_test(test_queue_has_priorities),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_calls_in_streams),
        cmocka_unit_test(test_calls_whole),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
