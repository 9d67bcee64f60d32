/* auth.h - the keys that open a server.
 *
 * The file has one key a line; blank lines and those that begin with # are
 * passed over. Keys are kept as SHA-256 digests, and all of them are compared,
 * in constant time: how long that takes says nothing about a key.
 *
 * Threads  any number after auth_open.
 */
#ifndef BIN_SERVE_NET_AUTH_H
#define BIN_SERVE_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"

enum { AUTH_DIGEST = 32 };

struct auth {
    uint8_t (*digest)[AUTH_DIGEST]; /* [count] */
    uint32_t count; /* 0: everybody may */
};

/* -EINVAL: it has no key; -EACCES: others may read it. */
int  auth_open(struct auth *a, const char *path, struct error *error);
void auth_close(struct auth *a);
/* The number of a key, from 1; 0: none of them. `header` is the value of
 * Authorization ("Bearer KEY"), or the key alone; NULL is fine. */
uint32_t auth_find(const struct auth *a, const char *header);
/* SHA-256 of parts, each with its length before it. NULL parts are empty. */
void auth_digest(uint8_t out[AUTH_DIGEST], const void *const *part,
                 const size_t *bytes, uint32_t parts);

#endif
