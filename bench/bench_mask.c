/* bench_mask - what a mask of a grammar costs: time to fill one that is not in
 * the cache, over the whole vocabulary, in typical places.
 *
 *     make bench-mask ARGS=FOLDER     a folder with tiktoken.model
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "io/clock.h"
#include "model/grammar/mask.h"
#include "model/text/tok.h"

enum { ROUNDS = 21 };

static const struct place {
    const char *name, *schema, *text; /* where: behind this text */
} places[] = {
    { "value begins", "true", "" },
    { "key begins", "{\"type\":\"object\"}", "{" },
    { "in a free key", "{\"type\":\"object\"}", "{\"na" },
    { "in a free string", "{\"type\":\"string\"}", "\"Once upon a ti" },
    { "string with maxLength", "{\"type\":\"string\",\"maxLength\":200}",
      "\"Once upon a ti" },
    { "pattern ^[a-z]+$", "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}",
      "\"abc" },
    { "pattern x (searched)", "{\"type\":\"string\",\"pattern\":\"x\"}",
      "\"abc" },
    { "one of three names", "{\"type\":\"object\",\"properties\":{\"name\":"
      "{},\"place\":{},\"time\":{}},\"additionalProperties\":false}", "{\"" },
    { "in a number", "{\"type\":\"number\"}", "12" },
    { "one of four words",
      "{\"enum\":[\"alpha\",\"beta\",\"gamma\",\"delta\"]}", "\"" },
};

static const char *bytes_of(void *tok, uint32_t id, size_t *bytes)
{
    const char *text = "";
    *bytes = tok_piece(tok, id, &text);
    return text;
}

static int measure(const struct vocabulary *v, const struct place *p,
                   json_t *all)
{
    struct jv_doc doc;
    struct grammar *g;
    struct match *m;
    double ms[ROUNDS];
    uint32_t count = 0;
    struct error error = { 0 };
    if (jv_parse(&doc, p->schema, strlen(p->schema), JV_STRICT, NULL) ||
        grammar_schema(&g, doc.root, &error) || match_open(&m, g) ||
        match_push(m, p->text, strlen(p->text)) != 1) {
        fprintf(stderr, "bench: %s: %s\n", p->name, error.text);
        return 1;
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct mask_cache *c;
        if (mask_cache_open(&c, v, 1))
            return 1;
        int64_t begin = clock_ns();
        mask_fill(c, m, &count);
        ms[i] = (double)(clock_ns() - begin) / 1e6;
        mask_cache_close(c);
    }
    struct bench_spread s = bench_spread(ms, ROUNDS);
    printf("%-24s %8u %9.3f [%.3f %.3f]\n", p->name, count, s.median, s.min,
           s.max);
    json_array_append_new(all, json_pack("{s:s, s:i, s:f}", "place", p->name,
                                         "allowed", (int)count, "ms",
                                         s.median));
    match_close(m);
    grammar_free(g);
    jv_free(&doc);
    return 0;
}

int main(int argc, char **argv)
{
    struct tok *tok;
    struct vocabulary *v;
    struct error error = { 0 };
    json_t *all = json_array();
    int bad = 0;
    if (argc != 2) {
        fputs("usage: bench_mask FOLDER (with tiktoken.model)\n", stderr);
        return 2;
    }
    if (tok_open(&tok, argv[1], &error)) {
        fprintf(stderr, "bench: %s\n", error.text);
        return 1;
    }
    int64_t begin = clock_ns();
    if (vocabulary_open(&v, tok_vocab(tok), bytes_of, tok))
        return 1;
    printf("%u ids, their tree in %.0f ms\n\n%-24s %8s %9s\n", tok_vocab(tok),
           (double)(clock_ns() - begin) / 1e6, "place", "allowed",
           "ms [min max]");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        bad |= measure(v, &places[i], all);
    vocabulary_close(v);
    tok_close(tok);
    return bench_json("mask", all) || bad;
}
