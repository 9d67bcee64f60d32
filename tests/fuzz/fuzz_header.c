/* Goal    no safetensors header and no config.json crashes the reader: it is
 *         refused with a sentence that names the file, or what it says holds.
 * Method  LLVMFuzzerTestOneInput takes a kind in the first byte and the text
 *         in the rest. Without libFuzzer, main feeds it mutations of a small
 *         corpus: bytes changed, numbers exchanged for awkward ones, pieces
 *         removed, doubled and moved. The round of a failure is the seed.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ckpt/safetensors.h"
#include "model/tools/synth_internal.h"
#include "tests/fuzz/damage.h"

enum { ROUNDS = 12000, ROOM = 1 << 16 };
enum kind { HEADER, CONFIG };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "# does not hold: %s\n", what);
    abort();
}

static unsigned accepted[2]; /* by kind: a corpus that is all refused tests
                                little */

/* Inside the file, ascending, apart, as long as the shape says. */
static void take_header(const char *text, size_t length)
{
    struct safetensors s;
    struct error error = { 0 };
    uint64_t file_bytes = 8 + length + (1u << 20);
    int code =
        safetensors_parse(&s, text, length, file_bytes, "a-shard", &error);
    check(!code == !error.code, "error and sentence together");
    check(!code || strstr(error.text, "a-shard"), "sentence names the file");
    uint64_t last = 8 + length;
    for (uint32_t i = 0; !code && i < s.count; i++) {
        const struct safetensors_entry *e = &s.entry[i];
        uint64_t bytes = tensor_dtype_bytes(e->dtype);
        for (uint32_t d = 0; d < e->dims.count; d++)
            bytes *= e->dims.size[d];
        check(e->offset_bytes >= last, "apart");
        check(e->length_bytes == bytes, "length of the shape");
        last = e->offset_bytes + e->length_bytes;
    }
    check(code || last <= file_bytes, "inside the file");
    accepted[HEADER] += !code;
    safetensors_close(&s);
}

/* What is accepted can be multiplied without overflow. */
static void take_config(const char *text, size_t length)
{
    struct config c;
    struct error error = { 0 };
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return;
    int code = config_parse(&c, root, "a-config", &error);
    check(!code == !error.code, "error and sentence together");
    check(!code || strstr(error.text, "a-config"), "sentence names the file");
    uint64_t sum = 0;
    for (int64_t l = TENSOR_MODEL_LEVEL; !code && l < c.layers; l++)
        for (int r = 0; r < T_COUNT; r++) {
            uint32_t rows, cols;
            if (!tensor_in_layer((enum tensor_role)r, &c, l))
                continue;
            tensor_shape((enum tensor_role)r, &c, l, &rows, &cols);
            check(rows && cols, "no empty tensor");
            check(!__builtin_add_overflow(sum, 4ull * rows * cols, &sum),
                  "sum of all tensors");
        }
    accepted[CONFIG] += !code;
    if (!code)
        config_free(&c);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] % 2 == HEADER)
        take_header((const char *)data + 1, size - 1);
    else
        take_config((const char *)data + 1, size - 1);
    return 0;
}

#ifndef LIBFUZZER

static uint64_t random_state;

static size_t below(size_t limit)
{
    random_state = synth_mix(random_state);
    return (size_t)((random_state >> 32) * limit >> 32);
}

static size_t mutate(char *text, size_t length)
{
    static const char *const words[] = {
        "0", "-1", "1", "4", "18446744073709551615", "9223372036854775807",
        "4294967296", "65536", "1e308", "0.5", "null", "true", "[]", "{}",
        "\"\"", "\"BF16\"", "\"U8\"", "\"F32\"", "[0,0]", ",", "]", "}",
        "\"shape\":[]", "\\u0000", "\xff",
    };
    size_t at = below(length), n = 1 + below(24);
    if (n > length - at)
        n = length - at;
    switch (below(6)) {
    case 0:
        text[at] = (char)below(256);
        return length;
    case 1:
        return damage_splice(text, length, ROOM, at, n, "", 0);
    case 2:
        return damage_splice(text, length, ROOM, below(length), 0, text + at,
                             n);
    case 3: {
        const char *word = words[below(sizeof words / sizeof *words)];
        return damage_splice(text, length, ROOM, at, n, word, strlen(word));
    }
    default: { /* a number, whole, for another */
        const char *word = words[below(10)];
        while (at < length && (text[at] < '0' || text[at] > '9'))
            at++;
        for (n = 0; at + n < length && text[at + n] >= '0' &&
                    text[at + n] <= '9';)
            n++;
        return at == length ? length
                            : damage_splice(text, length, ROOM, at, n, word,
                                            strlen(word));
    }
    }
}

/* The header of the model level or a config, with its kind in front. */
static size_t corpus(char *out, enum kind kind)
{
    struct synth_options o = { .dir = "-", .preset = "tiny" };
    struct error error = { 0 };
    struct config c;
    json_t *root;
    size_t length;
    check(!synth_config(&root, &c, &o, 0, &error), "synth_config");
    out[0] = (char)kind;
    if (kind == HEADER) {
        struct published_shard s;
        check(!published_shard_init(&s, &c, c.layers), "published_shard_init");
        char *header = published_shard_header(&s);
        length = s.header_bytes - 8;
        memcpy(out + 1, header + 8, length);
        free(header);
        published_shard_free(&s);
    } else {
        char *text = json_dumps(root, JSON_COMPACT);
        length = strlen(text);
        memcpy(out + 1, text, length);
        free(text);
    }
    config_free(&c);
    json_decref(root);
    return length + 1;
}

int main(void)
{
    static char good[2][ROOM + 1], text[ROOM + 1];
    size_t length[2];
    printf("1..1\n");
    for (int kind = 0; kind < 2; kind++) {
        length[kind] = corpus(good[kind], (enum kind)kind);
        LLVMFuzzerTestOneInput((uint8_t *)good[kind], length[kind]);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        int kind = round % 2;
        random_state = round;
        memcpy(text, good[kind], length[kind]);
        size_t n = length[kind] - 1;
        for (size_t i = 1 + below(4); i > 0 && n > 0; i--)
            n = mutate(text + 1, n);
        fflush(stdout);
        LLVMFuzzerTestOneInput((uint8_t *)text, n + 1);
    }
    check(accepted[HEADER] > ROUNDS / 100 && accepted[CONFIG] > ROUNDS / 100,
          "some mutations are accepted");
    printf("ok 1 - headers and configs, %d mutations\n", ROUNDS);
    return 0;
}

#endif
