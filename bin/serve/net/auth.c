#include "bin/serve/net/auth.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { KEY_MAX = 1024 };

void auth_digest(uint8_t out[AUTH_DIGEST], const void *const *part,
                 const size_t *bytes, uint32_t parts)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    memset(out, 0, AUTH_DIGEST);
    if (!ctx)
        return;
    EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t n = part[i] ? bytes[i] : 0;
        EVP_DigestUpdate(ctx, &n, sizeof n);
        if (n)
            EVP_DigestUpdate(ctx, part[i], n);
    }
    EVP_DigestFinal_ex(ctx, out, NULL);
    EVP_MD_CTX_free(ctx);
}

static void digest_key(uint8_t out[AUTH_DIGEST], const char *key, size_t n)
{
    const void *part[1] = { key };
    auth_digest(out, part, &n, 1);
}

static int read_keys(struct auth *a, FILE *f, const char *path,
                     struct error *error)
{
    char line[KEY_MAX + 2];
    while (fgets(line, sizeof line, f)) {
        size_t n = strcspn(line, "\r\n");
        if (n > KEY_MAX)
            return error_set(error, -EINVAL, "%s: a key has more than %d "
                             "bytes", path, KEY_MAX);
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\t'))
            n--;
        if (!n || *line == '#')
            continue;
        void *more = realloc(a->digest, (a->count + 1) * sizeof *a->digest);
        if (!more)
            return error_set(error, -ENOMEM, "no memory for keys");
        a->digest = more;
        digest_key(a->digest[a->count++], line, n);
    }
    OPENSSL_cleanse(line, sizeof line);
    if (!a->count)
        return error_set(error, -EINVAL, "%s has no key", path);
    return 0;
}

int auth_open(struct auth *a, const char *path, struct error *error)
{
    struct stat st;
    *a = (struct auth){ 0 };
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    int err = 0;
    if (!fstat(fileno(f), &st) && (st.st_mode & 077))
        err = error_set(error, -EACCES, "%s can be read by others: chmod 600",
                        path);
    if (!err)
        err = read_keys(a, f, path, error);
    fclose(f);
    return err;
}

void auth_close(struct auth *a)
{
    free(a->digest);
    *a = (struct auth){ 0 };
}

uint32_t auth_find(const struct auth *a, const char *header)
{
    uint8_t mine[AUTH_DIGEST];
    uint32_t found = 0;
    if (!header)
        return 0;
    if (!strncasecmp(header, "Bearer ", 7))
        header += 7;
    digest_key(mine, header, strlen(header));
    for (uint32_t i = 0; i < a->count; i++)
        found |= CRYPTO_memcmp(mine, a->digest[i], AUTH_DIGEST) ? 0 : i + 1;
    return found;
}
