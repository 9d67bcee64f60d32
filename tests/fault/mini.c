#include "tests/fault/mini.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/decode/generate.h"

enum { SETTINGS_MAX = 64 };

static const struct synth_setting small[] = {
    { "hidden_size", "64" },
    { "num_hidden_layers", "3" },
    { "vocab_size", "512" },
    { "attn_res_block_size", "2" },
    { "num_attention_heads", "2" },
    { "q_lora_rank", "16" },
    { "kv_lora_rank", "24" },
    { "qk_nope_head_dim", "8" },
    { "qk_rope_head_dim", "8" },
    { "v_head_dim", "8" },
    { "intermediate_size", "64" },
    { "num_experts", "24" },
    { "num_experts_per_token", "3" },
    { "moe_intermediate_size", "32" },
    { "routed_expert_hidden_size", "32" },
    { "num_heads", "2" },
    { "head_dim", "16" },
};

bool mini_make(struct mini *m, const struct synth_setting *setting,
               uint32_t settings)
{
    struct synth_setting all[SETTINGS_MAX];
    uint32_t n = sizeof small / sizeof *small;
    struct synth_facts facts;
    struct error error = { 0 };
    memcpy(all, small, sizeof small);
    for (uint32_t i = 0; i < settings && n < SETTINGS_MAX; i++)
        all[n++] = setting[i];
    strcpy(m->dir, "/tmp/sluice-mini-XXXXXX");
    m->wrong[0] = 0;
    if (!mkdtemp(m->dir)) {
        printf("Bail out! %s: %s\n", m->dir, strerror(errno));
        exit(1);
    }
    struct synth_options o = { .dir = m->dir, .preset = "tiny", .seed = 11,
                               .setting = all, .settings = n };
    if (!synth_write(&o, &facts, &error))
        return true;
    snprintf(m->wrong, sizeof m->wrong, "%s", error.text);
    mini_remove(m);
    return false;
}

void mini_remove(struct mini *m)
{
    DIR *d = opendir(m->dir);
    struct dirent *e;
    while (d && (e = readdir(d)))
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(m->dir);
}

struct k3_options mini_options(uint64_t memory_bytes)
{
    return (struct k3_options){
        .memory_bytes = memory_bytes, .threads = 2, .context = 64, .rows = 3,
        .io = "auto", .policy = "none", .prefetch = "none",
        .in_flight_bytes = 4 << 20,
    };
}

uint64_t mini_floor(struct mini *m, struct k3_options o)
{
    struct k3 *k;
    struct error error = { 0 };
    char *end;
    o.memory_bytes = 1;
    int err = k3_open(&k, m->dir, &o, &error);
    const char *at = strstr(error.text, "floor of ");
    if (err == -ENOBUFS && at)
        return strtoull(at + 9, &end, 10);
    snprintf(m->wrong, sizeof m->wrong, "%s", error.text);
    return 0;
}

static int keep(void *arg, const float *row)
{
    struct mini_run *r = arg;
    memcpy(r->logits + (size_t)r->rows * r->vocab, row,
           r->vocab * sizeof *row);
    r->rows++;
    return 0;
}

int mini_run(const struct mini *m, const struct k3_options *o,
             struct mini_run *run)
{
    static const uint32_t prompt[MINI_PROMPT] = { 3, 500, 77, 3 };
    struct k3 *k;
    struct k3_facts facts;
    memset(run, 0, sizeof *run);
    int err = k3_open(&k, m->dir, o, &run->error);
    if (err)
        return err;
    run->vocab = k3_config(k)->vocab;
    run->logits = malloc((size_t)run->vocab * MINI_ROWS * sizeof(float));
    struct generate_options g = {
        .prompt = prompt,
        .prompt_count = MINI_PROMPT,
        .max = MINI_NEW,
        .sample = { .top_p = 1 },
        .ignore_end = true,
        .logits = keep,
        .arg = run,
    };
    struct generate_result result = { .ids = run->ids };
    err = generate(k, &g, &result, &run->error);
    run->count = result.count;
    k3_facts(k, &facts);
    run->reads = facts.reader.reads;
    run->broken = facts.reader.faults;
    run->failed = facts.reader.failed;
    run->prefetched = facts.experts.prefetched;
    run->late = facts.experts.late;
    k3_close(k);
    return err;
}

void mini_forget(struct mini_run *run)
{
    free(run->logits);
    run->logits = NULL;
}

bool mini_agrees(const struct mini_run *run, const struct mini_run *want)
{
    if (!run->rows)
        return true;
    return run->vocab == want->vocab && run->rows <= want->rows &&
           !memcmp(run->logits, want->logits,
                   (size_t)run->rows * run->vocab * sizeof(float)) &&
           !memcmp(run->ids, want->ids, run->count * sizeof *run->ids);
}
