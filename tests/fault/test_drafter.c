/* Goal    a drafter changes nothing but time: the ids are those of a run
 *         without, and a drafter that is not one is refused in a sentence, or,
 *         when it fails in a session, is done without.
 * Method  both drafters of the fixtures on the model of fixtures/a: four
 *         requests, greedy, sampled and kept to JSON, over budgets, drafts,
 *         threads and sequences, all ids compared with a run without. Then the
 *         RadixArk one damaged: fields of its config, its header, NaN in every
 *         tensor, cut off before the session and inside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
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

#include "model/ckpt/safetensors.h"
#include "model/decode/batch.h"
#include "model/knobs.h"

#define MODEL "tests/oracle/fixtures/a"
#define DRAFTERS "tests/oracle/fixtures/dspark/"
enum { REQUESTS = 4, MAX = 24, CONTEXT = 64, PLENTY = 400 << 20 };

static char dir[64]; /* a copy of a drafter */

struct answers {
    uint32_t ids[REQUESTS][MAX], count[REQUESTS];
    uint64_t drafted, accepted;
    char     note[500];
    bool     resident;
    uint64_t floor;
};

struct way {
    const char *drafter; /* NULL: none */
    uint64_t memory;     /* 0: PLENTY; else beyond the floor */
    uint32_t drafts, threads, sequences;
    bool     cut; /* the drafter's file, with the first id */
};

struct asked {
    struct answers *a;
    uint32_t index;
    bool     cut;
};

static bool on_token(void *arg, const struct sluice_token *t)
{
    struct asked *q = arg;
    char path[128];
    if (t->id != SLUICE_NO_ID) {
        assert_true(q->a->count[q->index] < MAX);
        q->a->ids[q->index][q->a->count[q->index]++] = t->id;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (q->cut)
        assert_int_equal(truncate(path, 8192), 0);
    q->cut = false;
    return false;
}

static void on_note(void *arg, const char *sentence, bool lost)
{
    struct asked *q = arg;
    assert_false(lost);
    snprintf(q->a->note, sizeof q->a->note, "%s", sentence);
}

static struct sluice_request request(struct asked *q)
{
    static const uint32_t prompt[] = { 3,  7,   11, 5, 9,   200, 31, 77,
                                       400, 12, 3,  500, 162, 9 };
    struct sluice_request r = {
        .size = sizeof r, .ids = prompt, .count = 12, .max_ids = MAX,
        .ignore_end = true, .arg = q, .token = on_token, .note = on_note };
    if (q->index == 1)
        r.count = 14;
    if (q->index == 2) {
        r.temperature = 0.8;
        r.seed = 5;
    }
    if (q->index == 3) {
        r.form = SLUICE_JSON;
        r.temperature = 1.5;
        r.ignore_end = false;
    }
    return r;
}

static int open_way(struct sluice **s, const struct way *w,
                    struct sluice_error *e)
{
    struct k3_options engine = { .rows = 16, .context = CONTEXT, .logits = 8,
                                 .in_flight_bytes = 1 << 20 };
    struct sluice_options o = {
        .size = sizeof o, .memory_bytes = PLENTY, .threads = w->threads,
        .sequences = w->sequences, .drafts = w->drafts, .forms = true,
        .drafter = w->drafter };
    engine.drafts = w->drafts == SLUICE_DRAFTS_AUTO ? 15 : w->drafts;
    engine.drafts *= w->sequences;
    int err = knobs_open(s, MODEL, &o, &engine, e);
    if (err || !w->memory)
        return err;
    o.memory_bytes = k3_plan_of(knobs_engine(*s))->floor_bytes + w->memory;
    sluice_close(*s);
    return knobs_open(s, MODEL, &o, &engine, e);
}

static struct answers answer(const struct way *w)
{
    struct answers a = { 0 };
    struct asked asked[REQUESTS];
    struct sluice_error e = { 0 };
    struct sluice *s;
    if (open_way(&s, w, &e))
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        asked[i] = (struct asked){ &a, i, w->cut && !i };
        struct sluice_request r = request(&asked[i]);
        if (sluice_submit(s, &r, NULL, &e))
            fail_msg("%s", e.text);
    }
    if (sluice_run(s, &e))
        fail_msg("%s", e.text);
    if (w->drafter) {
        const struct batch_counts *c = knobs_counts(s);
        struct dspark_facts f;
        dspark_facts(knobs_drafter(s), &f);
        a.resident = f.resident;
        for (uint32_t i = 0; i < DSPARK_BLOCK; i++) {
            a.drafted += c->source[BATCH_FROM_DRAFTER].drafted[i];
            a.accepted += c->source[BATCH_FROM_DRAFTER].accepted[i];
        }
    }
    sluice_close(s);
    return a;
}

static const struct way plain = { .threads = 2, .sequences = 1 };

static void same(const struct answers *a, const struct answers *b)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(a->count[i], b->count[i]);
        assert_memory_equal(a->ids[i], b->ids[i], sizeof a->ids[i]);
    }
}

static void same_ids(void **state)
{
    static const char *const kind[] = { DRAFTERS "radixark",
                                        DRAFTERS "inferact" };
    const struct way ways[] = {
        { .drafts = 7, .threads = 2, .sequences = 1 },
        { .drafts = 3, .threads = 1, .sequences = 4 },
        { .drafts = 7, .threads = 2, .sequences = 2, .memory = 3 << 20 },
        { .drafts = SLUICE_DRAFTS_AUTO, .threads = 2, .sequences = 4 } };
    struct answers want = answer(&plain);
    (void)state;
    assert_int_equal(want.count[0], MAX);
    assert_true(want.count[3] > 0);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct way w = ways[i];
            w.drafter = kind[k];
            struct answers got = answer(&w);
            same(&want, &got);
            assert_string_equal(got.note, "");
            assert_int_equal(got.resident, !w.memory);
            if (w.drafts != SLUICE_DRAFTS_AUTO) /* else as time has it */
                assert_true(got.drafted > 40 && got.accepted > 5);
        }
}

/* ---- damage ---- */

static void copy_drafter(const char *name)
{
    char command[400];
    snprintf(command, sizeof command,
             "rm -rf '%s' && cp -r " DRAFTERS "%s '%s' && chmod -R u+w '%s'",
             dir, name, dir, dir);
    assert_int_equal(system(command), 0);
}

static void refused(const char *word)
{
    const struct way w = { .drafter = dir, .drafts = 7, .threads = 1,
                           .sequences = 1 };
    struct sluice_error e = { 0 };
    struct sluice *s;
    assert_true(open_way(&s, &w, &e) < 0);
    assert_null(s);
    if (!strstr(e.text, dir) || !strstr(e.text, word))
        fail_msg("\"%s\" names not %s", e.text, word);
}

static void configs(void **state)
{
    static const struct {
        const char *drafter, *field, *value, *word; /* value NULL: none */
    } c[] = {
        { "radixark", "architectures", "[\"Other\"]", "Other" },
        { "radixark", "architectures", NULL, "architectures" },
        { "radixark", "markov_head_type", "\"gated\"", "markov_head_type" },
        { "radixark", "causal", "true", "causal" },
        { "radixark", "full_attention_causal", "true", "causal" },
        { "radixark", "use_sliding_window", "true", "use_sliding_window" },
        { "radixark", "attention_bias", "true", "attention_bias" },
        { "inferact", "mla_use_nope", "true", "mla_use_nope" },
        { "inferact", "mla_use_output_gate", "true", "mla_use_output_gate" },
        { "inferact", "draft_vocab_size", "320", "draft_vocab_size" },
        { "radixark", "speculators_model_type", "\"x\"", "speculators" },
        { "radixark", "block_size", "5", "block_size" },
        { "radixark", "num_target_layers", "12", "num_target_layers" },
        { "inferact", "target_num_hidden_layers", "12", "target_num_hidden" },
        { "radixark", "hidden_size", "64", "hidden_size" },
        { "radixark", "vocab_size", "641", "vocab_size" },
        { "inferact", "target_layer_ids", "[1,2,5,11,8]", "target_layer_ids" },
        { "inferact", "target_layer_ids", "[1,2,5,8,13]", "target_layer_ids" },
        { "inferact", "target_layer_ids", "[1,2,5,8]", "context_proj" },
        { "inferact", "mask_token_id", "640", "mask_token_id" },
        { "radixark", "head_dim", "15", "head_dim" },
        { "radixark", "num_key_value_heads", "4", "num_attention_heads" },
        { "radixark", "num_attention_heads", "8", "self_attn" },
        { "radixark", "rms_norm_eps", "0", "rms_norm_eps" },
        { "radixark", "rope_parameters", "{\"rope_type\":\"llama3\"}",
          "llama3" },
        { "radixark", "aux_hidden_stream", "\"other\"", "aux_hidden_stream" },
        { "radixark", "num_hidden_layers", "4", "layers.4" },
        { "radixark", "num_hidden_layers", "6", "layers.5" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char path[128];
        copy_drafter(c[i].drafter);
        snprintf(path, sizeof path, "%s/config.json", dir);
        json_t *root = json_load_file(path, 0, NULL);
        if (c[i].value)
            json_object_set_new(root, c[i].field,
                                json_loads(c[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(root, c[i].field);
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_decref(root);
        refused(c[i].word);
    }
}

/* The first occurrence of a text in the file becomes another one. */
static void replace(const char *from, const char *to)
{
    char path[128], head[8192];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int fd = open(path, O_RDWR);
    ssize_t n = pread(fd, head, sizeof head - 1, 8);
    assert_true(n > 0);
    head[n] = 0;
    char *at = strstr(head, from);
    assert_non_null(at);
    assert_int_equal(pwrite(fd, to, strlen(to), 8 + (at - head)), strlen(to));
    close(fd);
}

static void headers(void **state)
{
    char path[128];
    struct stat st;
    (void)state;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    copy_drafter("radixark");
    replace("\"norm.weight\"", "\"nora.weight\"");
    refused("nora.weight");
    copy_drafter("radixark");
    replace("layers.0.mlp.up_proj", "layers.9.mlp.up_proj");
    refused("layers.9.mlp.up_proj");
    copy_drafter("radixark");
    replace("\"BF16\"", "\"U8\"  ");
    refused("model.safetensors");
    copy_drafter("radixark");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    refused("model.safetensors");
    assert_int_equal(truncate(path, 100), 0);
    refused("model.safetensors");
    assert_int_equal(remove(path), 0);
    refused("model.safetensors");
    copy_drafter("inferact"); /* its tensors under the other's config */
    snprintf(path, sizeof path,
             "cp -f " DRAFTERS "radixark/config.json %s/", dir);
    assert_int_equal(system(path), 0);
    refused("tensor");
}

/* Something that is not a number, in turn in every tensor that is read. */
static void no_numbers(void **state)
{
    const struct way w = { .drafter = dir, .drafts = 7, .threads = 2,
                           .sequences = 2 };
    struct answers want = answer(&plain);
    struct safetensors file;
    struct error error = { 0 };
    char path[128];
    uint32_t noticed = 0, every = getenv("ALL") ? 1 : 11;
    (void)state;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    copy_drafter("radixark");
    assert_int_equal(safetensors_open(&file, path, 1 << 20, &error), 0);
    for (uint32_t i = 0; i < file.count; i += every) {
        static const uint8_t nan[2] = { 0xc0, 0x7f };
        const struct safetensors_entry *t = &file.entry[i];
        uint8_t was[2];
        int fd = open(path, O_RDWR);
        off_t at = (off_t)(t->offset_bytes + t->length_bytes / 4 * 2);
        if (t->length_bytes == 2)
            at = (off_t)t->offset_bytes;
        assert_int_equal(pread(fd, was, 2, at), 2);
        assert_int_equal(pwrite(fd, nan, 2, at), 2);
        struct answers got = answer(&w);
        same(&want, &got);
        noticed += got.note[0] != 0;
        /* A row of W1 may never be looked at. */
        if (!got.note[0] && !strstr(t->name, "markov_w1"))
            fail_msg("NaN in %s was not noticed", t->name);
        if (got.note[0])
            assert_non_null(strstr(got.note, "going on without it"));
        assert_int_equal(pwrite(fd, was, 2, at), 2);
        close(fd);
    }
    safetensors_close(&file);
    assert_true(noticed > 5);
}

static void cut_off(void **state)
{
    const struct way w = { .drafter = dir, .drafts = 7, .threads = 2,
                           .sequences = 1, .memory = 3 << 20, .cut = true };
    struct answers want = answer(&plain);
    (void)state;
    copy_drafter("radixark");
    struct answers got = answer(&w);
    assert_false(got.resident);
    same(&want, &got);
    if (!strstr(got.note, dir) || !strstr(got.note, "going on without it"))
        fail_msg("the note is \"%s\"", got.note);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sluice-drafter-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids),   cmocka_unit_test(configs),
        cmocka_unit_test(headers),    cmocka_unit_test(no_numbers),
        cmocka_unit_test(cut_off),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
