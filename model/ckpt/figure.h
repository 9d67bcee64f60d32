/* figure.h - numbers as people read them, the same in all commands.
 *
 *     printf("%s GB at %s GB/s", figure(bytes / 1e9).text, ...);
 *
 * Three significant digits, without exponents from 0.0001 to 1e15; what is not
 * zero is never shown as zero, and zero is "0". Memory is in GiB, bytes that
 * are read or lie on a drive in GB. JSON and CSV have numbers of their own.
 *
 * Errors  none. Threads  any. The text lives as long as the struct: to the end
 * of the full expression where it was not stored.
 */
#ifndef MODEL_CKPT_FIGURE_H
#define MODEL_CKPT_FIGURE_H

#include <stdint.h>

struct figure {
    char text[32];
};

struct figure figure(double value);
/* What somebody chose: without zeros at the end: "32", "0.25". */
struct figure figure_chosen(double value);
/* Of a share of 1, in percent, for tables: three digits, or one below 0.1. */
struct figure figure_points(double share);
/* For sentences: whole from 1 to 99: "0.3", "91", "99.8". */
struct figure figure_percent(double share);
/* With its unit: "340 µs", "12.3 ms", "9.81 s", "45.0 min", "3.20 h". */
struct figure figure_span(double seconds);
/* "1 row", "2 rows", "3 passes"; nouns of at most 9 letters. */
struct figure figure_count(uint64_t n, const char *noun);
/* With its unit: "12.0 GiB", "350 MiB". */
struct figure figure_memory(double bytes);

#endif
