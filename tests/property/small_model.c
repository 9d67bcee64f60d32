#include "tests/property/small_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tools/synth.h"

static void demand(int err, const struct error *error)
{
    if (!err)
        return;
    printf("Bail out! %s\n", error->text);
    exit(1);
}

static void make(struct small_model *m, struct synth_options o)
{
    struct synth_facts facts;
    struct error error = { 0 };
    strcpy(m->dir, "/tmp/sluice-small-XXXXXX");
    if (!mkdtemp(m->dir))
        demand(-1, &error);
    o.dir = m->dir;
    o.preset = "tiny";
    demand(synth_write(&o, &facts, &error), &error);
}

void small_model_make(struct small_model *m, uint32_t echo)
{
    static const struct synth_setting setting[] = {
        { "num_hidden_layers", "5" },
        { "num_experts", "16" },
        { "hidden_size", "64" },
        { "vocab_size", "512" },
        { "intermediate_size", "8192" }, /* a trunk to stream */
    };
    make(m, (struct synth_options){
                .echo = echo, .seed = 7, .setting = setting,
                .settings = sizeof setting / sizeof *setting });
}

void small_model_make_wide(struct small_model *m)
{
    static const struct synth_setting setting[] = {
        { "num_hidden_layers", "5" },
        { "full_attn_layers", "3,5" },
        { "num_experts", "12" },
        { "num_experts_per_token", "3" },
        { "hidden_size", "320" },
        { "vocab_size", "512" },
        { "intermediate_size", "4096" },
        { "moe_intermediate_size", "512" },
        { "routed_expert_hidden_size", "512" },
        { "kv_lora_rank", "96" },
    };
    make(m, (struct synth_options){
                .llm = true, .setting = setting,
                .settings = sizeof setting / sizeof *setting });
}

void small_model_remove(struct small_model *m)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", m->dir);
    if (system(command))
        printf("# %s is left behind\n", m->dir);
}

struct k3_options small_model_options(uint64_t memory_bytes)
{
    return (struct k3_options){
        .memory_bytes = memory_bytes, .threads = 2, .context = 256,
        .rows = 32, .sequences = 1, .io = "pread",
    };
}

uint64_t small_model_floor(const struct small_model *m, struct k3_options o)
{
    struct k3 *k;
    struct error error = { 0 };
    char *end;
    o.memory_bytes = 1;
    if (!k3_open(&k, m->dir, &o, &error))
        demand(-1, &error);
    /* "... is below the floor of N bytes ..." */
    const char *at = strstr(error.text, "floor of ");
    if (!at)
        demand(-1, &error);
    return strtoull(at + 9, &end, 10);
}

struct k3 *small_model_open(const struct small_model *m,
                            const struct k3_options *o)
{
    struct k3 *k;
    struct error error = { 0 };
    demand(k3_open(&k, m->dir, o, &error), &error);
    return k;
}

int small_model_logits(float *logits, uint32_t vocab, struct k3 *k,
                       const uint32_t *ids, uint32_t count, uint32_t rows,
                       struct error *error)
{
    struct k3_row row[SMALL_MODEL_ROWS];
    uint32_t own = k3_config(k)->vocab, at = 0;
    int err = 0;
    rows = rows < k3_rows(k) ? rows : k3_rows(k); /* what the plan gave */
    while (at < count && !err) {
        uint32_t n = count - at < rows ? count - at : rows;
        for (uint32_t i = 0; i < n; i++)
            row[i] = (struct k3_row){ .position = at + i, .id = ids[at + i],
                                      .logits = true, .phase = K3_DECODE };
        err = k3_pass(k, row, n, error);
        for (uint32_t i = 0; i < n && !err; i++)
            memcpy(logits + (size_t)(at + i) * vocab, k3_logits(k, i),
                   (own < vocab ? own : vocab) * sizeof *logits);
        at += n;
    }
    return err;
}

uint32_t small_model_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
