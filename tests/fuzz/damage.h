/* damage.h - coded files of a small checkpoint, and ways to damage files. */
#ifndef TESTS_FUZZ_DAMAGE_H
#define TESTS_FUZZ_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

/* A tiny checkpoint with eight experts a layer, in a folder of this name, which
 * ends in XXXXXX. A failure ends the test. */
void damage_checkpoint(char *dir);
void damage_store(const char *path, const uint8_t *bytes, size_t n);

/* Where the tables of a coded file begin; and its checksums of head and tables
 * made good again. */
uint64_t damage_tables_at(const uint8_t *file);
void damage_seal(uint8_t *file, size_t bytes);

/* A number below `below`; the same sequence from the same seed. */
extern uint64_t damage_seed;
uint64_t damage_draw(uint64_t below);
/* MUTATIONS of the environment, or as many as usual. */
uint32_t damage_rounds(uint32_t usual);

/* Put `n` bytes of `what`, which may be of the text, in place of `cut` bytes at
 * `at`; returns how long the text then is, at most `room`. */
size_t damage_splice(char *text, size_t bytes, size_t room, size_t at,
                     size_t cut, const char *what, size_t n);

#endif
