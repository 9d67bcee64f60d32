/* u3_ref.c - the decoder that u3.h describes, bit by bit. */
#include "compute/u3.h"

static unsigned bit(const uint8_t *from, uint64_t at)
{
    return from[at / 8] >> at % 8 & 1;
}

void u3_row_ref(uint8_t *dst, const struct u3 *u, uint32_t r)
{
    struct u3_row row;
    uint64_t b = 0, c = 0, d = 0; /* bits taken so far */
    u3_row_at(&row, u, r);
    for (uint32_t at = 0; at < u->width; at++) {
        uint32_t group = at / U3_GROUP, p = at % U3_GROUP, j = p % 16;
        uint32_t column = group * U3_GROUP + 8 * (p / 16) +
                          (j < 8 ? j : 24 + j);
        const uint8_t *planes = row.planes + 16 * (size_t)group;
        unsigned index = 0;
        if (bit(planes + 8, p)) {
            index = 1;
            if (bit(row.b, b++)) {
                index = 2;
                if (bit(row.c, c++)) {
                    index = 4 + bit(row.d0, d) + 2 * bit(row.d1, d);
                    d++;
                }
            }
        }
        if (column >= u->cols)
            continue;
        dst[2 * (size_t)column] = row.low[at];
        dst[2 * (size_t)column + 1] =
            (uint8_t)(row.table[index] | bit(planes, p) << 7);
    }
    for (uint32_t i = 0; i < row.patches; i++)
        dst[2 * (size_t)u3_get16(row.column + 2 * (size_t)i) + 1] = row.high[i];
}

void u3_rows_ref(void *dst, const void *block, uint32_t begin, uint32_t end)
{
    struct u3 u;
    u3_open(&u, block);
    size_t row_bytes = (size_t)u.cols * 2;
    for (uint32_t r = begin; r < end; r++) {
        uint8_t *to = (uint8_t *)dst + (r - begin) * row_bytes;
        if (u.mode == U3_RAW)
            memcpy(to, u.raw + r * row_bytes, row_bytes);
        else
            u3_row_ref(to, &u, r);
    }
}
