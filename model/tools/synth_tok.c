/* synth_tok.c - a vocabulary of syllables, and the files around it.
 *
 * Ids 0..255 are the single bytes. Each later token joins two earlier ones, and
 * only if byte pair encoding of its text ends with just those two. Later tokens
 * have higher ranks, so merges reach every token. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tools/synth_internal.h"

enum { TOKEN_BYTES = 15, BYTE_TOKENS = 256, NONE = -1 };

struct token {
    uint8_t length;
    char    byte[TOKEN_BYTES];
};

struct words {
    uint32_t      count, room;
    struct token *token; /* [room] */
    int32_t      *slot;  /* [slots] open addressing; NONE: empty */
    uint32_t      slots; /* a power of two */
    uint64_t      random;
};

static uint32_t slot_of(const struct words *w, const char *byte, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)byte[i]) * UINT64_C(0x100000001b3);
    return (uint32_t)(hash ^ hash >> 29) & (w->slots - 1);
}

static int32_t rank_of(const struct words *w, const char *byte, size_t length)
{
    for (uint32_t s = slot_of(w, byte, length);; s = (s + 1) & (w->slots - 1)) {
        int32_t rank = w->slot[s];
        if (rank == NONE)
            return NONE;
        const struct token *t = &w->token[rank];
        if (t->length == length && !memcmp(t->byte, byte, length))
            return rank;
    }
}

static void add(struct words *w, const char *byte, size_t length)
{
    struct token *t = &w->token[w->count];
    t->length = (uint8_t)length;
    memcpy(t->byte, byte, length);
    uint32_t s = slot_of(w, byte, length);
    while (w->slot[s] != NONE)
        s = (s + 1) & (w->slots - 1);
    w->slot[s] = (int32_t)w->count++;
}

/* The number of tokens that byte pair encoding makes of the text. */
static size_t parts_of(const struct words *w, const char *byte, size_t length)
{
    size_t start[TOKEN_BYTES + 1]; /* of part i; the last is the end */
    size_t parts = length;
    for (size_t i = 0; i <= length; i++)
        start[i] = i;
    for (;;) {
        int32_t best = NONE;
        size_t at = 0;
        for (size_t i = 0; i + 2 <= parts; i++) {
            int32_t rank = rank_of(w, byte + start[i],
                                   start[i + 2] - start[i]);
            if (rank != NONE && (best == NONE || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best == NONE)
            return parts;
        memmove(&start[at + 1], &start[at + 2],
                (parts - at - 1) * sizeof *start);
        parts--;
    }
}

static void try_join(struct words *w, const char *a, size_t a_length,
                     const char *b, size_t b_length)
{
    char both[TOKEN_BYTES];
    if (w->count == w->room || a_length + b_length > TOKEN_BYTES)
        return;
    memcpy(both, a, a_length);
    memcpy(both + a_length, b, b_length);
    size_t length = a_length + b_length;
    if (rank_of(w, both, length) == NONE && parts_of(w, both, length) == 2)
        add(w, both, length);
}

static uint32_t below(struct words *w, uint32_t limit)
{
    w->random = synth_mix(w->random);
    return (uint32_t)((w->random >> 32) * limit >> 32);
}

/* Syllables, syllables after a blank, then words made of those, the shorter
 * first. */
static void make_words(struct words *w)
{
    static const char consonants[] = "tnsrhldcmfpgwybvkjxz";
    static const char vowels[] = "eaoiu";
    char syllable[2];
    for (int i = 0; i < BYTE_TOKENS; i++) {
        char byte = (char)i;
        add(w, &byte, 1);
    }
    for (int blank = 0; blank < 2; blank++)
        for (const char *v = vowels; *v; v++)
            for (const char *c = consonants; *c; c++) {
                syllable[0] = *c;
                syllable[1] = *v;
                if (blank)
                    try_join(w, " ", 1, syllable, 2);
                else
                    try_join(w, &syllable[0], 1, &syllable[1], 1);
            }
    while (w->count < w->room) {
        uint32_t made = w->count - BYTE_TOKENS;
        const struct token *a = &w->token[BYTE_TOKENS + below(w, made)];
        const struct token *b = &w->token[BYTE_TOKENS + below(w, made)];
        const char *end = &consonants[below(w, 8)];
        if (below(w, 8) == 0)
            try_join(w, a->byte, a->length, end, 1);
        else if (b->byte[0] != ' ')
            try_join(w, a->byte, a->length, b->byte, b->length);
    }
}

static void base64(char *out, const struct token *t)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    for (size_t i = 0; i < t->length; i += 3) {
        uint32_t bits = 0;
        for (size_t j = i; j < i + 3; j++)
            bits = bits << 8 | (j < t->length ? (unsigned char)t->byte[j] : 0);
        for (size_t j = 0; j < 4; j++)
            out[n++] = i + j > t->length ? '=' : digits[bits >> (18 - 6 * j) &
                                                        63];
    }
    out[n] = 0;
}

static int write_words(const char *dir, const struct words *w,
                       struct error *error)
{
    struct synth_out o;
    char text[TOKEN_BYTES / 3 * 4 + 5];
    int code = synth_out_open(&o, dir, "tiktoken.model", error);
    if (code)
        return code;
    for (uint32_t i = 0; i < w->count; i++) {
        base64(text, &w->token[i]);
        synth_out_text(&o, "%s %u\n", text, i);
    }
    return synth_out_close(&o, false);
}

/* The named ones of the 256 special ids, by distance from the first. */
static const struct {
    uint32_t    above;
    const char *text;
    bool        plain; /* "special": false */
} specials[] = {
    { 0, "[BOS]", false },
    { 1, "[EOS]", false },
    { 2, "<|end_of_msg|>", false },
    { 3, "<|open|>", true },
    { 4, "<|close|>", true },
    { 5, "<|sep|>", true },
    { 6, "[start_header_id]", false },
    { 7, "[end_header_id]", false },
    { 9, "[EOT]", false },
    { 18, "<|media_begin|>", false },
    { 19, "<|media_content|>", false },
    { 20, "<|media_end|>", false },
    { 21, "<|media_pad|>", false },
    { 65, "<osagent_mode>", false },
    { 254, "[UNK]", false },
    { 255, "[PAD]", false },
};

static int write_specials(const char *dir, uint32_t base, struct error *error)
{
    struct synth_out o;
    int code = synth_out_open(&o, dir, "tokenizer_config.json", error);
    if (code)
        return code;
    synth_out_text(&o, "{\n \"added_tokens_decoder\": {\n");
    size_t named = 0;
    for (uint32_t i = 0; i < SYNTH_SPECIALS; i++) {
        char text[64];
        bool plain = false;
        if (specials[named].above == i) {
            snprintf(text, sizeof text, "%s", specials[named].text);
            plain = specials[named++].plain;
        } else {
            snprintf(text, sizeof text, "<|reserved_token_%u|>", base + i);
        }
        synth_out_text(&o,
                       "  \"%u\": {\n   \"content\": \"%s\",\n"
                       "   \"lstrip\": false,\n   \"normalized\": false,\n"
                       "   \"rstrip\": false,\n   \"single_word\": false,\n"
                       "   \"special\": %s\n  }%s\n",
                       base + i, text, plain ? "false" : "true",
                       i + 1 < SYNTH_SPECIALS ? "," : "");
    }
    synth_out_text(&o, " },\n \"bos_token\": \"[BOS]\",\n"
                       " \"eos_token\": \"[EOS]\",\n"
                       " \"pad_token\": \"[PAD]\",\n"
                       " \"unk_token\": \"[UNK]\"\n}\n");
    return synth_out_close(&o, false);
}

static int write_generation(const char *dir, const struct config *c,
                            struct error *error)
{
    struct synth_out o;
    int code = synth_out_open(&o, dir, "generation_config.json", error);
    if (code)
        return code;
    synth_out_text(&o,
                   "{\n \"bos_token_id\": %u,\n \"eos_token_id\": %u,\n"
                   " \"pad_token_id\": %u\n}\n",
                   c->bos_id, c->eos_id, c->pad_id);
    return synth_out_close(&o, false);
}

int synth_tokenizer(const char *dir, const struct config *c, uint64_t seed,
                    struct error *error)
{
    uint32_t base = c->vocab - SYNTH_SPECIALS;
    struct words w = { .room = base, .slots = 1024, .random = synth_mix(seed) };
    while (w.slots < 2 * base)
        w.slots *= 2;
    w.token = calloc(w.room, sizeof *w.token);
    w.slot = malloc(w.slots * sizeof *w.slot);
    int code = 0;
    if (!w.token || !w.slot) {
        code =
            error_set(error, -ENOMEM, "%s: no memory for %u tokens", dir, base);
    } else {
        memset(w.slot, 0xff, w.slots * sizeof *w.slot);
        make_words(&w);
        code = write_words(dir, &w, error);
    }
    free(w.token);
    free(w.slot);
    if (!code)
        code = write_specials(dir, base, error);
    return code ? code : write_generation(dir, c, error);
}
