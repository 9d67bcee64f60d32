/* safetensors.h - the header of one safetensors file, as untrusted input.
 *
 * After safetensors_open every tensor has a known dtype and as many bytes as
 * its shape needs, lies in the file after the header, and overlaps no other.
 * Whether names and shapes are those of the model is checked by ckpt.c.
 *
 *     safetensors_open -> { entry[0..count-1] } -> safetensors_close
 *
 * Bytes    entries and names live until safetensors_close; about 1.2 KB of
 *          memory a tensor. The file does not stay open.
 * Threads  one caller a struct.
 * Errors   -ENODATA: a truncated file; -EBADMSG: anything else against the
 *          format; errnos of the file; -ENOMEM. The sentence names the path,
 *          and the tensor if there is one.
 */
#ifndef MODEL_CKPT_SAFETENSORS_H
#define MODEL_CKPT_SAFETENSORS_H

#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/ckpt/tensors.h"

#define SAFETENSORS_HEADER_MAX (128u << 20)

struct safetensors_entry {
    const char        *name;         /* lives in root */
    enum tensor_dtype  dtype;
    struct tensor_dims dims;
    uint64_t           offset_bytes; /* from the start of the file */
    uint64_t           length_bytes;
};

struct safetensors {
    uint64_t                  file_bytes;
    uint64_t                  header_bytes; /* with the 8 of its length */
    uint64_t                  end_bytes;    /* where the last tensor ends */
    uint32_t                  count;
    struct safetensors_entry *entry; /* [count], ascending by offset */
    struct json_t            *root;         /* the parsed header */
};

/* A header longer than header_max_bytes is refused before memory is taken for
 * it. On failure *out is empty. */
int safetensors_open(struct safetensors *out, const char *path,
                     uint64_t header_max_bytes, struct error *error);
void safetensors_close(struct safetensors *s);
/* The part of safetensors_open after reading: parse `text`, the JSON [length]
 * of the header, of a file of `file_bytes`. */
int safetensors_parse(struct safetensors *out, const char *text, size_t length,
                      uint64_t file_bytes, const char *path,
                      struct error *error);

#endif
