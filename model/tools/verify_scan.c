/* verify_scan.c - is a range of bytes what its kind allows?
 *
 * Many values at a time. An exponent of all ones, plus one in its lowest bit,
 * carries into the sign's place and no further; a byte of 255 is one whose
 * complement is zero. */
#include <string.h>

#include "model/tools/verify_internal.h"

enum { BLOCK_BYTES = 16 << 10, RUN_BLOCK = 4 << 10 };

/* Of the compiler's own vectors: two words on every machine. */
typedef uint64_t words __attribute__((vector_size(16)));

#define REPEAT16(x) ((uint64_t)(x) * UINT64_C(0x0001000100010001))
#define REPEAT32(x) ((uint64_t)(x) * UINT64_C(0x0000000100000001))
#define REPEAT8(x)  ((uint64_t)(x) * UINT64_C(0x0101010101010101))

uint32_t scan_width(enum scan_kind kind)
{
    return kind == SCAN_F32 ? 4 : kind == SCAN_BF16 ? 2 : 1;
}

/* Nonzero in the place of each bad value; for scales it may be nonzero above a
 * bad one, too, so that only zero is exact. */
static inline words suspects(enum scan_kind kind, words w)
{
    switch (kind) {
    case SCAN_BF16:
        return ((w & REPEAT16(0x7f80)) + REPEAT16(0x0080)) & REPEAT16(0x8000);
    case SCAN_F32:
        return ((w & REPEAT32(0x7f800000)) + REPEAT32(0x00800000)) &
               REPEAT32(0x80000000);
    case SCAN_SCALE:
        return (~w - REPEAT8(1)) & w & REPEAT8(0x80);
    case SCAN_BYTES:
        break;
    }
    return w & 0;
}

static bool is_bad(enum scan_kind kind, const uint8_t *at)
{
    uint32_t f32;
    uint16_t bf16;
    switch (kind) {
    case SCAN_BF16:
        memcpy(&bf16, at, sizeof bf16);
        return (bf16 & 0x7f80) == 0x7f80;
    case SCAN_F32:
        memcpy(&f32, at, sizeof f32);
        return (f32 & 0x7f800000) == 0x7f800000;
    case SCAN_SCALE:
        return *at == 255;
    case SCAN_BYTES:
        break;
    }
    return false;
}

/* Value by value, where something is wrong or a few bytes are left over. */
static void count(struct scan *s, enum scan_kind kind, const uint8_t *bytes,
                  size_t begin, size_t end)
{
    uint32_t width = scan_width(kind);
    for (size_t i = begin; i < end; i += width)
        if (is_bad(kind, bytes + i) && !s->bad++)
            s->first = i / width;
}

static inline bool block(enum scan_kind kind, const uint8_t *bytes)
{
    words suspect = { 0 };
    for (size_t i = 0; i < BLOCK_BYTES; i += sizeof suspect) {
        words w;
        memcpy(&w, bytes + i, sizeof w);
        suspect |= suspects(kind, w);
    }
    return (suspect[0] | suspect[1]) != 0;
}

/* With the kind a constant in each call, the loop has no branch. */
static bool block_of(enum scan_kind kind, const uint8_t *bytes)
{
    switch (kind) {
    case SCAN_BF16:
        return block(SCAN_BF16, bytes);
    case SCAN_F32:
        return block(SCAN_F32, bytes);
    case SCAN_SCALE:
        return block(SCAN_SCALE, bytes);
    case SCAN_BYTES:
        break;
    }
    return false;
}

void scan_bytes(struct scan *out, enum scan_kind kind, const void *bytes,
                size_t length)
{
    size_t at = 0;
    *out = (struct scan){ 0 };
    if (kind == SCAN_BYTES)
        return;
    for (; length - at >= BLOCK_BYTES; at += BLOCK_BYTES)
        if (block_of(kind, (const uint8_t *)bytes + at))
            count(out, kind, bytes, at, at + BLOCK_BYTES);
    count(out, kind, bytes, at, length);
}

static bool all_zero(const uint8_t *bytes, size_t length)
{
    words any = { 0 };
    size_t i = 0;
    uint8_t rest = 0;
    for (; length - i >= sizeof any; i += sizeof any) {
        words w;
        memcpy(&w, bytes + i, sizeof w);
        any |= w;
    }
    for (; i < length; i++)
        rest |= bytes[i];
    return !(any[0] | any[1] | rest);
}

/* Between two blocks that are not empty no run is long enough, so only the
 * edges of blocks are looked at byte by byte. */
size_t scan_zeros(uint64_t *zeros, const void *bytes, size_t length,
                  uint64_t min)
{
    const uint8_t *b = bytes;
    for (size_t at = 0; at < length;) {
        size_t size = length - at < RUN_BLOCK ? length - at : RUN_BLOCK, n = 0;
        if (all_zero(b + at, size)) {
            *zeros += size;
            at += size;
            continue;
        }
        while (*zeros && !b[at + n])
            n++;
        *zeros += n;
        if (*zeros >= min)
            return at + n;
        at += size;
        for (*zeros = 0; !b[at - 1 - *zeros];)
            ++*zeros;
    }
    return length;
}
