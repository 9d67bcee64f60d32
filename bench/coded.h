/* coded.h - blocks of compute/u3.h to multiply with. */
#ifndef BENCH_CODED_H
#define BENCH_CODED_H

#include <stddef.h>
#include <stdint.h>

/* One block of weights like a language model's, over and over: gaussian rows,
 * each of its own scale exp(.3 N), one weight in twenty four times as large. */
struct coded {
    uint8_t *at;
    uint32_t rows, cols; /* of a block */
    size_t   bytes;      /* of a block */
    size_t   blocks;
    double   ratio;      /* stored by raw */
};

/* Fill `room` (at a multiple of 64) with blocks of `cols` columns. Leaves on an
 * error, with a message. */
void coded_make(struct coded *out, uint8_t *room, size_t bytes, uint32_t cols);

#endif
