#include "compute/crc32c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* Bit 31 of a word is the coefficient of x^0, as in the instruction. */
#define POLYNOMIAL 0x82f63b78u

/* byte[k][b]: the state that byte b, followed by k zero bytes, leaves behind.
 * With eight of them a step takes eight bytes. */
struct steps {
    uint32_t byte[8][256];
};

static void fill(struct steps *t)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t state = b;
        for (int i = 0; i < 8; i++)
            state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
        t->byte[0][b] = state;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t state = t->byte[k - 1][b];
            t->byte[k][b] = state >> 8 ^ t->byte[0][state & 255];
        }
}

/* Filled by whoever comes first; others wait the few microseconds. */
static const struct steps *steps(void)
{
    static struct steps table;
    static atomic_int state; /* 0: empty, 1: being filled, 2: there */
    int empty = 0;
    if (atomic_load(&state) == 2)
        return &table;
    if (atomic_compare_exchange_strong(&state, &empty, 1)) {
        fill(&table);
        atomic_store(&state, 2);
    }
    while (atomic_load(&state) != 2)
        ;
    return &table;
}

uint32_t crc32c_plain(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    const struct steps *t = steps();
    crc = ~crc;
    for (; bytes >= 8; from += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= t->byte[7 - k][word >> 8 * k & 255];
    }
    for (; bytes; from++, bytes--)
        crc = crc >> 8 ^ t->byte[0][(crc ^ *from) & 255];
    return ~crc;
}

/* a * b modulo the polynomial. */
static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (int i = 31; i >= 0; i--) {
        sum ^= b >> i & 1 ? a : 0;
        a = a >> 1 ^ (a & 1 ? POLYNOMIAL : 0);
    }
    return sum;
}

uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t b_bytes)
{
    uint32_t power = UINT32_C(1) << 31, step = UINT32_C(1) << 23; /* 1, x^8 */
    for (; b_bytes; b_bytes >>= 1) {
        if (b_bytes & 1)
            power = product(power, step);
        step = product(step, step);
    }
    return product(a, power) ^ b;
}

#ifdef KERN_X86
uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t bytes);

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return crc32c_sse42(crc, data, bytes);
    return crc32c_plain(crc, data, bytes);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_plain(crc, data, bytes);
}
#endif
