/* s5.h - planes of MXFP4 scales without loss in about a fifth of their bytes.
 *
 * A plane is the scales of one matrix, u8 [rows][n]. Few values occur in it, so
 * that a row takes
 *
 *     mode 5   ceil(n/5) bytes   three values: byte k = sum over i < 5 of
 *                                index[5k+i] * 3^i, 0..242
 *     mode 2   ceil(n/4) bytes   four values: index[4k+i] in bits 2i
 *     mode 4   ceil(n/2) bytes   base + 0..15: column 2k in the low nibble
 *     mode 8   n bytes           as they are
 *
 * and index[i] past the end of a row is 0. The values are palette[index]; of
 * mode 4 palette[0] is the base and the rest is 0, of mode 5 palette[3] is 0,
 * of mode 8 all are. In modes 5 and 2 patches then set single scales, positions
 * ascending:
 *
 *     u32  row * n + k (24 bits) | value << 24
 *
 * Rows begin at bytes, so that any rows of a plane are a plane.
 *
 * Threads  Plain functions of their arguments.
 * Cost     s5_expand writes 15 GB/s; it is bound by its stores.
 */
#ifndef COMPUTE_S5_H
#define COMPUTE_S5_H

#include <stddef.h>
#include <stdint.h>

enum {
    S5_PLANE_MAX = 1 << 24, /* scales of a plane */
    S5_PATCHES_MAX = 65535,
};

/* How one plane is coded. */
struct s5 {
    uint8_t  mode; /* 5, 2, 4 or 8 */
    uint8_t  palette[4];
    uint32_t patches;
};

/* Bytes of a row of n scales; 0: no such mode. */
size_t s5_row_bytes(unsigned mode, size_t n);

/* The way in which a plane takes fewest bytes, patches counted. */
void s5_choose(struct s5 *out, const uint8_t *scale, size_t rows, size_t n);
/* Write rows * s5_row_bytes() and the patches, in that way. */
void s5_code(uint8_t *packed, uint8_t *patch, const struct s5 *s,
             const uint8_t *scale, size_t rows, size_t n);

/* NULL, or what is wrong in a few words: after NULL s5_expand stays inside the
 * plane and gives palette values and patches only. */
const char *s5_check(const struct s5 *s, const uint8_t *packed,
                     const uint8_t *patch, size_t rows, size_t n);
/* scale[rows][n], from a checked plane; written exactly. */
void s5_expand(uint8_t *scale, const struct s5 *s, const uint8_t *packed,
               const uint8_t *patch, size_t rows, size_t n);
/* Its last part: set the scales that patches name. */
void s5_patch(uint8_t *scale, const uint8_t *patch, uint32_t patches);

#endif
