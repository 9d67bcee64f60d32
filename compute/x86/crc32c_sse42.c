/* crc32c_sse42.c - CRC-32C in three streams.
 *
 * The instruction takes 8 bytes a cycle and answers after 3, so three streams
 * side by side keep it busy. A state moves over the bytes of the next stream by
 * a product with x^(8 bytes - 33): the instruction reduces and adds the 33. */
#include <nmmintrin.h>
#include <string.h>
#include <wmmintrin.h>

#include "compute/crc32c.h"

/* Bytes of a stream, and x^(8n - 33) and x^(16n - 33) modulo the polynomial. */
enum { LONG = 16384, SHORT = 256 };
#define LONG_ONE 0x1dc403ccu
#define LONG_TWO 0x5ae703abu
#define SHORT_ONE 0xb9e02b86u
#define SHORT_TWO 0xdd7e3b0cu

uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t bytes);

static inline uint64_t word_at(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static inline uint64_t product(uint64_t state, uint32_t by)
{
    __m128i wide = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state),
                                        _mm_cvtsi32_si128((int)by), 0);
    return (uint64_t)_mm_cvtsi128_si64(wide);
}

/* The state after three streams of n bytes, a multiple of 8. */
static inline uint64_t three(uint64_t state, const uint8_t *from, size_t n,
                             uint32_t one, uint32_t two)
{
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < n - 8; i += 8) {
        state = _mm_crc32_u64(state, word_at(from + i));
        second = _mm_crc32_u64(second, word_at(from + n + i));
        third = _mm_crc32_u64(third, word_at(from + 2 * n + i));
    }
    state = _mm_crc32_u64(state, word_at(from + n - 8));
    second = _mm_crc32_u64(second, word_at(from + 2 * n - 8));
    uint64_t moved = product(state, two) ^ product(second, one);
    return _mm_crc32_u64(third, word_at(from + 3 * n - 8) ^ moved);
}

uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    uint64_t state = ~crc;
    for (; bytes >= 3 * LONG; from += 3 * LONG, bytes -= 3 * LONG)
        state = three(state, from, LONG, LONG_ONE, LONG_TWO);
    for (; bytes >= 3 * SHORT; from += 3 * SHORT, bytes -= 3 * SHORT)
        state = three(state, from, SHORT, SHORT_ONE, SHORT_TWO);
    for (; bytes >= 8; from += 8, bytes -= 8)
        state = _mm_crc32_u64(state, word_at(from));
    for (; bytes; from++, bytes--)
        state = _mm_crc32_u8((uint32_t)state, *from);
    return ~(uint32_t)state;
}
