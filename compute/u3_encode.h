/* u3_encode.h - from bf16 rows to a block of u3.h.
 *
 *     u3_encode (any block, any thread with a scratch of its own)
 *
 * Bytes    A block is a function of its rows alone: the same on every machine
 *          and instruction set. Its tables fit its rows: rows that are alike
 *          share one (k-means, distance = bits of code, on a sixteenth of the
 *          columns).
 * Threads  Plain functions of their arguments.
 * Errors   none: what cannot be made smaller is stored raw.
 * Cost     see bench/results; bound by the planes' extraction.
 */
#ifndef COMPUTE_U3_ENCODE_H
#define COMPUTE_U3_ENCODE_H

#include <stdint.h>

#include "compute/u3.h"

struct kern;

enum {
    U3_SAMPLE_ROWS = 256,
    U3_BINS = 128,
    U3_KINDS = 32,                        /* values of which rows differ */
    U3_STREAM_BYTES = 65536 / 8 + 16,     /* room to store words of 8 */
};

/* The streams of one row on their way into V; counts in bits. */
struct u3_streams {
    uint32_t b_bits, c_bits, d_bits, patches;
    uint8_t  b[U3_STREAM_BYTES], c[U3_STREAM_BYTES];
    uint8_t  d0[U3_STREAM_BYTES], d1[U3_STREAM_BYTES];
    uint16_t column[U3_COLS_MAX];
    uint8_t  high[U3_COLS_MAX];
};

/* What u3_encode works with; no state between calls. About 300 KB. */
struct u3_scratch {
    struct u3_streams streams;
    uint16_t seen[U3_SAMPLE_ROWS][U3_BINS];
    int16_t  kind[U3_SAMPLE_ROWS][U3_KINDS];
    uint8_t  table_of[U3_SAMPLE_ROWS];
};

/* Encode src, bf16 [rows][cols] at any address, into `block`, which has
 * u3_bytes_max(rows, cols) bytes. Returns the bytes of the block.
 * rows <= U3_ROWS_MAX, cols <= U3_COLS_MAX. */
uint32_t u3_encode(const struct kern *kern, void *block, const void *src,
                   uint32_t rows, uint32_t cols, struct u3_scratch *scratch);

#endif
