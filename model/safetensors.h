/* safetensors.h - the header of one safetensors file, as hostile input.
 *
 * What comes back holds: every tensor has a known dtype, as many bytes as its
 * shape says, lies inside the file after the header, and overlaps no other.
 * Names and shapes still mean nothing; that is for ckpt.c to judge.
 *
 *     safetensors_open -> { entry[0..count-1] } -> safetensors_close
 *
 * Bytes    entries and names live until safetensors_close. No descriptor stays
 *          open.
 * Errors   -ENODATA for a truncated file; -EBADMSG for any other bytes that
 *          are not the format's; errnos of the file; -ENOMEM. The sentence
 *          names the path, and the tensor where there is one.
 * Cost     the header, parsed: about 1.2 KB of memory a tensor.
 */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stdint.h>

#include "model/tensors.h"
#include "model/why.h"

#define SAFETENSORS_HEADER_MAX (128u << 20)

struct safetensors_entry {
    const char        *name;
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
    struct json_t            *root;
};

/* `header_max_bytes` refuses headers that are longer than what the caller could
 * have a use for, before memory is taken for them. On failure *out is empty. */
int safetensors_open(struct safetensors *out, const char *path,
                     uint64_t header_max_bytes, struct why *why);
void safetensors_close(struct safetensors *s);
/* Parse a header that is in memory, of a file with `file_bytes`: what open
 * does after reading. `text` is the JSON without the 8 bytes before it. */
int safetensors_parse(struct safetensors *out, const char *text, size_t length,
                      uint64_t file_bytes, const char *path, struct why *why);

#endif
