/* u3_block.h - blocks of compute/u3.h, made bit by bit, for tests.
 *
 * No encoder: it does not choose well, it takes what it is told, so that every
 * form that a block may have is met.
 */
#ifndef TESTS_PROPERTY_U3_BLOCK_H
#define TESTS_PROPERTY_U3_BLOCK_H

#include <stdint.h>

#include "compute/u3.h"

/* Code src, bf16 [rows][cols] at any address, with `tables` tables; row r takes
 * table r % tables. Returns the block, at a multiple of 64 and with nothing
 * behind it, for free(); its bytes are in its header. A block may take more
 * than its raw bytes. Entry 3 of a table is not looked at. */
void *u3_block(const void *src, uint32_t rows, uint32_t cols,
               const uint8_t (*table)[8], uint32_t tables);

/* The seven values of |high byte| that are most frequent in rows first, first +
 * step, ..., in order of frequency, as a table. */
void u3_block_table(uint8_t table[8], const void *src, uint32_t rows,
                    uint32_t cols, uint32_t first, uint32_t step);

#endif
