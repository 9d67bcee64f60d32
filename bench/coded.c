#include "bench/coded.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/kern.h"
#include "compute/u3.h"
#include "compute/u3_encode.h"

static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 33) + 0.5) / 2147483648.0;
}

static double gauss(uint64_t *seed)
{
    double r = sqrt(-2 * log(uniform(seed)));
    return r * cos(6.283185307179586 * uniform(seed));
}

static void *room_for(size_t bytes)
{
    void *p = malloc(bytes);
    if (p)
        return p;
    fprintf(stderr, "bench: no memory for coded weights\n");
    exit(1);
}

void coded_make(struct coded *out, uint8_t *room, size_t bytes, uint32_t cols)
{
    struct kern kern;
    uint64_t seed = 1;
    uint32_t rows = u3_block_rows(cols);
    uint16_t *src = room_for((size_t)rows * cols * sizeof *src);
    struct u3_scratch *scratch = room_for(sizeof *scratch);
    kern_init(&kern, ISA_COUNT - 1);
    for (uint32_t r = 0; r < rows; r++) {
        double scale = 0.02 * exp(0.3 * gauss(&seed));
        for (uint32_t c = 0; c < cols; c++) {
            double w = scale * gauss(&seed);
            float x = (float)(uniform(&seed) < 0.05 ? 4 * w : w);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            src[(size_t)r * cols + c] = (uint16_t)(bits >> 16);
        }
    }
    size_t n = u3_encode(&kern, room, src, rows, cols, scratch);
    *out = (struct coded){ .at = room, .rows = rows, .cols = cols, .bytes = n,
                           .blocks = bytes / n,
                           .ratio = (double)n / (2.0 * rows * cols) };
    for (size_t i = 1; i < out->blocks; i++)
        memcpy(room + i * n, room, n);
    free(src);
    free(scratch);
}
