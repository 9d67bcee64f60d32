#include "model/pack/assume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/u3.h"

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static void put32(uint8_t *to, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    memcpy(to, &word, sizeof word);
}

/* Returns the bytes of the block. */
static uint64_t fill_header(uint8_t *header, uint32_t rows, uint32_t cols,
                            double ratio)
{
    uint64_t raw = (uint64_t)rows * cols * 2, width = round_up(cols, U3_GROUP);
    uint64_t p_at = round_up(U3_HEADER + (uint64_t)rows * U3_ROW, U3_ALIGN) +
                    rows * width;
    uint64_t v_at = round_up(p_at + rows * width / 4, U3_ALIGN);
    uint64_t bytes = round_up((uint64_t)((double)raw * ratio), U3_ALIGN);
    memset(header, 0, U3_HEADER);
    if (bytes < v_at + U3_ALIGN)
        bytes = v_at + U3_ALIGN;
    header[0] = U3_CODED;
    header[1] = 1;
    if (bytes > u3_bytes_max(rows, cols)) {
        bytes = u3_bytes_max(rows, cols);
        header[0] = U3_RAW;
        header[1] = 0;
    }
    header[2] = (uint8_t)rows;
    header[3] = (uint8_t)(rows >> 8);
    put32(header + 4, cols);
    put32(header + 8, header[0] == U3_RAW ? 0 : p_at);
    put32(header + 12, header[0] == U3_RAW ? 0 : v_at);
    put32(header + 16, bytes);
    return bytes;
}

int assume_block(struct assumed *a, struct made *out, uint8_t *header,
                 uint32_t rows, uint32_t cols, double ratio)
{
    uint64_t bytes = fill_header(header, rows, cols, ratio);
    for (uint32_t i = 0; i < a->shapes; i++)
        if (a->shape[i].rows == rows && a->shape[i].cols == cols) {
            *out = a->shape[i].made;
            return 0;
        }
    uint64_t raw = (uint64_t)rows * cols * 2;
    uint8_t *whole = calloc(1, bytes > raw ? bytes : raw);
    if (!whole)
        return -ENOMEM;
    *out = (struct made){ .bytes = (uint32_t)bytes,
                          .source_crc = crc32c(0, whole, raw) };
    memcpy(whole, header, U3_HEADER);
    out->crc = crc32c(0, whole, bytes);
    free(whole);
    uint32_t slot = a->shapes % ASSUMED_SHAPES;
    a->shape[slot].rows = rows;
    a->shape[slot].cols = cols;
    a->shape[slot].made = *out;
    a->shapes += a->shapes < ASSUMED_SHAPES;
    return 0;
}

int assume_scales(struct assumed *a, struct sidecar_expert *e,
                  const struct plane_shape shape[SIDECAR_PLANES])
{
    if (!a->expert.mode[0]) {
        uint64_t scales = 0, bytes = 0;
        for (int p = 0; p < SIDECAR_PLANES; p++) {
            scales += (uint64_t)shape[p].rows * shape[p].cols;
            bytes += shape[p].rows * s5_row_bytes(5, shape[p].cols);
            a->expert.mode[p] = 5;
        }
        uint8_t *whole = calloc(1, scales);
        if (!whole)
            return -ENOMEM;
        a->expert.ref.bytes = (uint32_t)bytes;
        a->expert.ref.crc = crc32c(0, whole, bytes);
        a->expert.source_crc = crc32c(0, whole, scales);
        free(whole);
    }
    *e = a->expert;
    return 0;
}
