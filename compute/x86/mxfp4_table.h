/* mxfp4_table.h - element times scale, as constants.
 *
 * MXFP4_BITS(e, code) is the upper half of the float32 that element `code` is
 * worth under scale byte e: an integer constant, 0 <= e < 256, 0 <= code < 16.
 * The lower half is zero. The product is exact, rounds to infinity at the top,
 * and is 0x7fc0 for e = 255.
 *
 * MXFP4_TABLE(ROW) is ROW(0), ROW(1), ..., ROW(255), for an initializer.
 */
#ifndef COMPUTE_X86_MXFP4_TABLE_H
#define COMPUTE_X86_MXFP4_TABLE_H

/* The element's magnitude: (1 + MANTISSA / 2) * 2^POWER, or zero for k = 0. */
#define MXFP4_POWER(k)    ((k) >= 2 ? ((k) >> 1) - 1 : -1)
#define MXFP4_MANTISSA(k) ((k) >= 2 ? (k)&1 : 0)
/* Its bits under exponent field x: infinite, normal or subnormal. */
#define MXFP4_AT(x, k)                                                       \
    ((x) >= 255 ? 0x7f80                                                     \
     : (x) >= 1 ? (x) * 128 + MXFP4_MANTISSA(k) * 64                         \
                : (0x80 + MXFP4_MANTISSA(k) * 64) >> ((x) < 1 ? 1 - (x) : 0))
#define MXFP4_MAGNITUDE(e, k)                                                \
    ((k) == 0 ? 0 : MXFP4_AT((e) + MXFP4_POWER(k), k))
#define MXFP4_BITS(e, code)                                                  \
    ((e) == 255 ? 0x7fc0                                                     \
                : ((code)&8) << 12 | MXFP4_MAGNITUDE(e, (code)&7))

#define MXFP4_4(ROW, e)   ROW((e)), ROW((e) + 1), ROW((e) + 2), ROW((e) + 3)
#define MXFP4_16(ROW, e)                                                     \
    MXFP4_4(ROW, (e)), MXFP4_4(ROW, (e) + 4), MXFP4_4(ROW, (e) + 8),         \
        MXFP4_4(ROW, (e) + 12)
#define MXFP4_64(ROW, e)                                                     \
    MXFP4_16(ROW, (e)), MXFP4_16(ROW, (e) + 16), MXFP4_16(ROW, (e) + 32),    \
        MXFP4_16(ROW, (e) + 48)
#define MXFP4_TABLE(ROW)                                                     \
    MXFP4_64(ROW, 0), MXFP4_64(ROW, 64), MXFP4_64(ROW, 128),                 \
        MXFP4_64(ROW, 192)

/* F(e, 0), ..., F(e, 15) */
#define MXFP4_CODES(F, e)                                                    \
    F(e, 0), F(e, 1), F(e, 2), F(e, 3), F(e, 4), F(e, 5), F(e, 6), F(e, 7),  \
        F(e, 8), F(e, 9), F(e, 10), F(e, 11), F(e, 12), F(e, 13), F(e, 14),  \
        F(e, 15)

#endif
