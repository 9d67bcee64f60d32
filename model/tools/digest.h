/* digest.h - the sum of a file's bytes, by OpenSSL's libcrypto.
 *
 *     digest_open -> { digest_add } -> digest_end
 *
 * Threads  one digest, one thread at a time.
 * Errors   open: -ENOMEM, or -ENOTSUP where the library refuses the algorithm.
 * Cost     SHA-256 with the processor's instructions: 1.5 to 2 GB/s a core.
 */
#ifndef MODEL_TOOLS_DIGEST_H
#define MODEL_TOOLS_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum digest_kind {
    DIGEST_SHA256,
    DIGEST_GIT, /* a blob's name in git: SHA-1 of "blob BYTES", 0, the bytes */
};
enum { DIGEST_HEX = 65 };

struct digest;

/* `file_bytes` is how many will be added. */
int digest_open(struct digest **out, enum digest_kind kind,
                uint64_t file_bytes);
void digest_add(struct digest *d, const void *bytes, size_t length);
/* Write the sum in small letters and free `d`. NULL: `hex` becomes "". */
void digest_end(struct digest *d, char hex[DIGEST_HEX]);

#endif
