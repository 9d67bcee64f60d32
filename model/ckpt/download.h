/* download.h - is what a download left whole, and if not, what is it?
 *
 * A file of its full length is not yet a whole one: some downloaders make it
 * that long at once and fill it in any order. Beside it they keep a control
 * file, and what is not yet written reads as zeros.
 *
 * Threads  any.
 * Errors   a file that cannot be read has nothing wrong with it here; whoever
 *          opens it says why.
 */
#ifndef MODEL_CKPT_DOWNLOAD_H
#define MODEL_CKPT_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The control file of an unfinished download of the file `path`, or of the
 * folder `path`: one in it, or in the places where the hub's client keeps them.
 * False, with "" in `out`: there is none. */
bool download_unfinished(char *out, size_t size, const char *path);

/* Read `samples` pieces of 64 KiB from random places of a file. True, with the
 * place of one in *offset_bytes: it is all zeros, as in trained weights none
 * is. */
bool download_has_zeros(const char *path, uint32_t samples,
                        uint64_t *offset_bytes);

enum { DOWNLOAD_NOTE_BYTES = 400 };

/* A sentence about the first shard in a folder that does not look whole, by its
 * control file or a few samples; "" when all do or synth made them. Cost: four
 * reads a shard. */
void download_note(char out[DOWNLOAD_NOTE_BYTES], const char *dir);

/* `dir` is a hub cache, or a model in one: the newest folder below it that has
 * a config.json. False: there is none. */
bool download_snapshot(char *out, size_t size, const char *dir);

/* The folder was written by sluice synth: nothing can be downloaded for it. */
bool download_is_synthetic(const char *dir);

#endif
