/* rates.h - weights a second that the product kernels get through on this
 * machine: a short timing, on weights that are made up for it.
 *
 *     rates_open -> { rates_of ... } -> rates_close
 *
 * Bytes    memory_bytes, and 2 MiB more while it opens; rates_close gives all
 *          back.
 * Threads  those of the team; not inside team_run.
 * Errors   -ENOMEM.
 * Cost     rates_open writes its memory once. rates_of takes 20 ms the first
 *          time and 10 ms after that, less where the memory is small.
 */
#ifndef MODEL_K3_RATES_H
#define MODEL_K3_RATES_H

#include <stdbool.h>
#include <stdint.h>

struct kern;
struct team;
struct rates;

enum { RATES_ROWS_MAX = 32 };

/* CODED multiplies from coded blocks; CODED_ROWS decodes their rows first, as
 * steps do whose kernels take bf16 only. */
enum rates_form {
    RATES_BF16, RATES_CODED, RATES_CODED_ROWS, RATES_MXFP4, RATES_FORMS
};

/* `coded`: the two coded forms will be asked for too. The team is kept. */
int  rates_open(struct rates **out, const struct kern *kern, struct team *team,
                uint64_t memory_bytes, bool coded);
void rates_close(struct rates *r);
/* Bytes of weights a second, times 1 .. RATES_ROWS_MAX rows. Coded weights
 * count as what they stand for. */
double rates_of(struct rates *r, enum rates_form form, uint32_t rows);

/* What coded weights cost: the seconds of a kernel with them, for a second with
 * raw ones. */
struct decode_time {
    double product; /* products of one row */
    double many;    /* of RATES_ROWS_MAX rows */
    double rows;    /* one row, decoded first */
};

/* Measure them, in interleaved rounds of which the best count. -ENOMEM. */
int decode_time_measure(struct decode_time *out, const struct kern *kern,
                        struct team *team, uint64_t memory_bytes);
/* The same with threads of its own, for plans without a session; 0 threads: one
 * a physical core. -ENOMEM, or what team_open returns. */
int decode_time_here(struct decode_time *out, uint32_t threads);
/* For a pass of so many rows. `first`: rows are decoded first. */
double decode_time_of(const struct decode_time *t, bool first, uint32_t rows);

#endif
