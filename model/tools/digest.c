#include "model/tools/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct digest {
    EVP_MD_CTX *context;
    bool        failed;
};

int digest_open(struct digest **out, enum digest_kind kind,
                uint64_t file_bytes)
{
    struct digest *d = calloc(1, sizeof *d);
    *out = NULL;
    if (d)
        d->context = EVP_MD_CTX_new();
    if (!d || !d->context) {
        free(d);
        return -ENOMEM;
    }
    if (!EVP_DigestInit_ex(d->context,
                           kind == DIGEST_GIT ? EVP_sha1() : EVP_sha256(),
                           NULL)) {
        EVP_MD_CTX_free(d->context);
        free(d);
        return -ENOTSUP;
    }
    if (kind == DIGEST_GIT) {
        char blob[32];
        int n = snprintf(blob, sizeof blob, "blob %" PRIu64, file_bytes);
        digest_add(d, blob, (size_t)n + 1);
    }
    *out = d;
    return 0;
}

void digest_add(struct digest *d, const void *bytes, size_t length)
{
    d->failed |= !EVP_DigestUpdate(d->context, bytes, length);
}

void digest_end(struct digest *d, char hex[DIGEST_HEX])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    hex[0] = 0;
    if (!d)
        return;
    if (!d->failed && EVP_DigestFinal_ex(d->context, sum, &length))
        for (unsigned i = 0; i < length && 2 * i + 2 < DIGEST_HEX; i++)
            snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    EVP_MD_CTX_free(d->context);
    free(d);
}
