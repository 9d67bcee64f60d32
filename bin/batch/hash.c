#include "bin/batch/hash.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/k3/weights.h"

enum { SHORT_DIGITS = 16 };

static void add_number(struct batch_hash *h, uint64_t n)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(n >> 8 * i);
    digest_add(h->d, bytes, sizeof bytes);
}

static void add_real(struct batch_hash *h, double x)
{
    uint64_t bits;
    x += 0.0; /* -0 is 0 */
    memcpy(&bits, &x, sizeof bits);
    add_number(h, bits);
}

/* With its length: "ab", "c" is not "a", "bc". */
static void add_text(struct batch_hash *h, const void *text, size_t bytes)
{
    add_number(h, bytes);
    digest_add(h->d, text, bytes);
}

int batch_hash_model(char out[IDENTITY_TEXT_BYTES], const char *dir,
                     const struct parts_args *parts, const struct config *c,
                     struct error *error)
{
    struct weights w = { .c = c };
    struct identity id;
    struct ckpt *k = NULL;
    struct parts *p = NULL;
    if (out[0])
        return 0;
    int err = parts->count ? parts_find(&p, parts, c, error)
                           : ckpt_open(&k, dir, c, error);
    w.ckpt = k;
    w.parts = p;
    if (!err)
        err = weights_identity(&id, &w, error);
    ckpt_close(k);
    parts_close(p);
    if (!err)
        identity_text(out, &id);
    return err;
}

int batch_hash_open(struct batch_hash *h, const struct batch_rules *rules)
{
    static const char kind[] = "sluice answer 1";
    assert(rules->identity);
    int err = digest_open(&h->d, DIGEST_SHA256, 0);
    if (err) {
        h->d = NULL;
        return err;
    }
    digest_add(h->d, kind, sizeof kind);
    add_text(h, rules->identity, strlen(rules->identity));
    add_real(h, rules->latent_eps);
    return 0;
}

/* What of a request can change an id. At temperature 0 the likeliest
 * id is taken, whatever the seed and the limits of the sample. */
static void add_request(struct batch_hash *h, const struct sluice_request *r)
{
    bool sampled = r->temperature > 0;
    add_number(h, r->max_ids);
    add_number(h, r->ignore_end);
    add_real(h, sampled ? r->temperature : 0);
    add_real(h, sampled ? r->top_p : 0);
    add_real(h, sampled ? r->min_p : 0);
    add_number(h, sampled ? r->top_k : 0);
    add_number(h, sampled ? r->seed : 0);
    add_real(h, r->presence_penalty);
    add_real(h, r->frequency_penalty);
    add_real(h, r->repetition_penalty == 1 ? 0 : r->repetition_penalty);
    add_number(h, r->biases);
    for (uint32_t i = 0; i < r->biases; i++) {
        add_number(h, r->bias[i].id);
        add_real(h, (double)r->bias[i].add);
    }
    add_number(h, (uint64_t)r->form);
    if (r->form)
        add_text(h, r->form_text ? r->form_text : "", r->form_bytes);
    if (r->tools) { /* whose calls are kept to their schemas */
        add_number(h, r->must_call);
        add_text(h, r->tools, r->tools_bytes);
    }
}

void batch_hash_add(struct batch_hash *h, const struct batch_job *j)
{
    if (!h->d)
        return;
    add_number(h, j->prompt_count);
    for (uint32_t i = 0; i < j->prompt_count; i++)
        add_number(h, j->ids[i]);
    add_request(h, &j->r);
    /* Where a reply ends. */
    add_number(h, j->stop_ids);
    for (uint32_t i = 0; i < j->stop_ids; i++)
        add_number(h, j->stop_id[i]);
    add_number(h, j->chat);
    add_number(h, j->chat && j->reply.options.one_call);
    add_number(h, j->reply.stops);
    for (uint32_t i = 0; i < j->reply.stops; i++)
        add_text(h, j->reply.stop[i].text, j->reply.stop[i].bytes);
}

void batch_hash_end(struct batch_hash *h, char out[BATCH_HASH_TEXT])
{
    char hex[DIGEST_HEX] = "";
    if (h->d)
        digest_end(h->d, hex);
    h->d = NULL;
    snprintf(out, BATCH_HASH_TEXT, "%.*s", BATCH_HASH_TEXT - 1, hex);
}

uint64_t batch_hash_error(char out[BATCH_HASH_TEXT],
                          const struct batch_rules *rules, const char *line,
                          size_t bytes)
{
    static const char kind[] = "sluice error 1 " SLUICE_VERSION;
    struct batch_hash h;
    char text[BATCH_HASH_TEXT] = "";
    if (!digest_open(&h.d, DIGEST_SHA256, 0)) {
        digest_add(h.d, kind, sizeof kind);
        add_text(&h, rules->model, strlen(rules->model));
        add_number(&h, rules->vocab);
        add_number(&h, rules->tok != NULL);
        add_number(&h, rules->context);
        add_number(&h, rules->lenient);
        add_number(&h, rules->one_prompt);
        add_text(&h, line, bytes);
        batch_hash_end(&h, text);
    }
    if (out)
        strcpy(out, text);
    return batch_hash_short(text, strlen(text));
}

uint64_t batch_hash_short(const char *text, size_t bytes)
{
    uint64_t value = 0;
    if (bytes != BATCH_HASH_TEXT - 1)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, text[i]);
        if (!text[i] || !at)
            return 0;
        if (i < SHORT_DIGITS)
            value = value << 4 | (uint64_t)(at - digits);
    }
    return value;
}
