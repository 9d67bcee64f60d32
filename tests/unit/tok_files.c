#include "tests/unit/tok_files.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_base64(FILE *f, const unsigned char *s, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        size_t n = bytes - i < 3 ? bytes - i : 3;
        unsigned bits = (unsigned)s[i] << 16;
        bits |= n > 1 ? (unsigned)s[i + 1] << 8 : 0;
        bits |= n > 2 ? s[i + 2] : 0u;
        for (size_t k = 0; k < 4; k++)
            putc(k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=', f);
    }
}

char *tok_files_ranks(const char *const *more, size_t count)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; i < 256 + count; i++) {
        unsigned char byte = (unsigned char)i;
        if (i < 256)
            put_base64(f, &byte, 1);
        else
            put_base64(f, (const unsigned char *)more[i - 256],
                       strlen(more[i - 256]));
        fprintf(f, " %zu\n", i);
    }
    fclose(f);
    return text;
}

char *tok_files_config(uint32_t first)
{
    static const struct {
        uint32_t    at;
        const char *text;
    } names[] = {
        { 0, "[BOS]" },
        { 1, "[EOS]" },
        { 2, "<|end_of_msg|>" },
        { 3, "<|open|>" },
        { 4, "<|close|>" },
        { 5, "<|sep|>" },
        { 65, "<osagent_mode>" },
        { 254, "[UNK]" },
        { 255, "[PAD]" },
    };
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fputs("{\"added_tokens_decoder\":{", f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fprintf(f, "%s\n\"%u\":{\"content\":\"%s\",\"special\":true}",
                i ? "," : "", first + names[i].at, names[i].text);
    fputs("},\n\"eos_token\":\"[EOS]\"}\n", f);
    fclose(f);
    return text;
}

static void path_of(char *path, size_t room, const char *dir, const char *name)
{
    int length = snprintf(path, room, "%s/%s", dir, name);
    assert(length > 0 && (size_t)length < room);
}

void tok_files_write(const char *dir, const char *name, const char *bytes,
                     size_t count)
{
    char path[200];
    path_of(path, sizeof path, dir, name);
    unlink(path); /* ext4 waits for the drive when a file is overwritten */
    FILE *f = fopen(path, "w");
    assert(f);
    fwrite(bytes, 1, count, f);
    int err = fclose(f);
    assert(!err);
}

char *tok_files_make(const char *const *more, size_t count)
{
    char *dir = strdup("/tmp/sluice-tok-XXXXXX");
    char *made = mkdtemp(dir);
    assert(made);
    char *ranks = tok_files_ranks(more, count);
    char *config = tok_files_config((uint32_t)(256 + count));
    tok_files_write(dir, "tiktoken.model", ranks, strlen(ranks));
    tok_files_write(dir, "tokenizer_config.json", config, strlen(config));
    free(ranks);
    free(config);
    return dir;
}

void tok_files_remove(char *dir)
{
    char path[200];
    path_of(path, sizeof path, dir, "tiktoken.model");
    unlink(path);
    path_of(path, sizeof path, dir, "tokenizer_config.json");
    unlink(path);
    rmdir(dir);
    free(dir);
}

struct tok *tok_files_open(const char *const *more, size_t count)
{
    struct tok *t;
    struct error error = { 0 };
    char *dir = tok_files_make(more, count);
    if (tok_open(&t, dir, &error))
        fprintf(stderr, "%s\n", error.text);
    tok_files_remove(dir);
    assert(t);
    return t;
}

uint32_t tok_files_random(uint64_t *state, uint32_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * below >> 32);
}
