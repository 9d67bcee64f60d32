#include "model/decode/prefix_cache.h"

#define OPENSSL_SUPPRESS_DEPRECATED /* the plain functions need no memory */

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/decode/prefix_index.h"

struct prefix_cache {
    char *dir;
    struct state_owner owner;
    uint64_t max_bytes;
    int      lock; /* descriptor of the folder's lock file */
    struct prefix_cache_counts counts;
};

/* ---- keys ---- */

/* The keys of growing prefixes of one list of ids. */
struct keys {
    SHA256_CTX chain;
    const uint32_t *ids;
    uint32_t done;
};

static void begin_keys(struct keys *k, const struct prefix_cache *p,
                       const uint32_t *ids)
{
    static const char kind[] = "sluice prefix 1";
    k->ids = ids;
    k->done = 0;
    SHA256_Init(&k->chain);
    SHA256_Update(&k->chain, kind, sizeof kind);
    SHA256_Update(&k->chain, p->owner.model.byte, sizeof p->owner.model.byte);
    SHA256_Update(&k->chain, &p->owner.mla_latent_eps,
                  sizeof p->owner.mla_latent_eps);
}

/* The key of the first n ids; n grows from call to call. */
static void key_of(struct keys *k, uint32_t n, uint8_t key[PREFIX_KEY_BYTES])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256_Update(&k->chain, k->ids + k->done,
                  (n - k->done) * sizeof *k->ids);
    k->done = n;
    SHA256_CTX so_far = k->chain;
    SHA256_Final(digest, &so_far);
    memcpy(key, digest, PREFIX_KEY_BYTES);
}

/* The longest entry that the ids begin with, with at most n positions. */
static struct prefix_entry *longest(const struct prefix_cache *p,
                                    const struct prefix_index *x,
                                    const uint32_t *ids, uint32_t n)
{
    struct prefix_entry *found = NULL;
    struct keys keys;
    uint8_t key[PREFIX_KEY_BYTES];
    uint32_t at = 0;
    begin_keys(&keys, p, ids);
    for (uint32_t i = x->count; i-- > 0;) { /* shortest first */
        struct prefix_entry *e = &x->entry[i];
        if (e->positions > n)
            break;
        if (e->positions != at)
            key_of(&keys, at = e->positions, key);
        if (!memcmp(e->key, key, sizeof key))
            found = e;
    }
    return found;
}

/* ---- the folder ---- */

int prefix_cache_open(struct prefix_cache **out, const char *dir,
                      uint64_t max_bytes, const struct state_owner *owner,
                      struct error *error)
{
    struct prefix_cache *p = calloc(1, sizeof *p);
    char *path = NULL;
    *out = NULL;
    if (!p || !(p->dir = strdup(dir)) || asprintf(&path, "%s/lock", dir) < 0) {
        if (p)
            free(p->dir);
        free(p);
        return error_set(error, -ENOMEM, "%s: no memory", dir);
    }
    p->owner = *owner;
    p->max_bytes = max_bytes;
    p->lock = -1;
    int err = mkdir(dir, 0777) && errno != EEXIST ? -errno : 0;
    if (!err)
        p->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (!err && p->lock < 0)
        err = -errno;
    free(path);
    if (err) {
        prefix_cache_close(p);
        return error_set(error, err, "%s: no prefix cache can be kept there: "
                         "%s", dir, strerror(-err));
    }
    *out = p;
    return 0;
}

void prefix_cache_close(struct prefix_cache *p)
{
    if (!p)
        return;
    if (p->lock >= 0)
        close(p->lock);
    free(p->dir);
    free(p);
}

static int lock(struct prefix_cache *p)
{
    int err;
    do
        err = flock(p->lock, LOCK_EX) ? -errno : 0;
    while (err == -EINTR);
    /* A file system without locks: entries are whole all the same. */
    return err == -ENOLCK || err == -ENOTSUP || err == -EINVAL ||
                   err == -EPERM || err == -ENOSYS
               ? 0
               : err;
}

static void unlock(struct prefix_cache *p)
{
    flock(p->lock, LOCK_UN);
}

static char *path_of(const struct prefix_cache *p,
                     const struct prefix_entry *e)
{
    char name[PREFIX_NAME_BYTES], *path;
    prefix_entry_name(name, e);
    return asprintf(&path, "%s/%s", p->dir, name) < 0 ? NULL : path;
}

static void drop(struct prefix_cache *p, struct prefix_index *x,
                 struct prefix_entry *e)
{
    char *path = path_of(p, e);
    if (path)
        unlink(path);
    free(path);
    prefix_index_remove(x, e);
}

static int failed(const struct prefix_cache *p, int err, struct error *error)
{
    return error_set(error, err, "%s: the prefix cache is not used: %s",
                     p->dir, strerror(-err));
}

/* ---- use ---- */

uint32_t prefix_cache_find(struct prefix_cache *p, const uint32_t *ids,
                           uint32_t n)
{
    struct prefix_index x;
    if (prefix_index_read(&x, p->dir))
        return 0;
    const struct prefix_entry *e = longest(p, &x, ids, n);
    uint32_t positions = e ? e->positions : 0;
    prefix_index_free(&x);
    return positions;
}

/* Count a use of the entry. */
static void used(struct prefix_cache *p, const struct prefix_entry *e)
{
    struct prefix_index x;
    if (lock(p))
        return;
    if (!prefix_index_read(&x, p->dir)) {
        struct prefix_entry *now = prefix_index_find(&x, e->key, e->positions);
        if (now) {
            now->uses++;
            prefix_index_value(&x, now);
            (void)prefix_index_write(&x, p->dir); /* only statistics */
        }
        prefix_index_free(&x);
    }
    unlock(p);
}

/* A read that failed says whether the entry is of use to anybody. */
static bool is_damage(int err)
{
    return err == -EBADMSG || err == -ESTALE;
}

uint32_t prefix_cache_load(struct prefix_cache *p, uint8_t *block,
                           const struct state_shape *shape,
                           const uint32_t *ids, uint32_t n,
                           struct error *error)
{
    struct prefix_index x;
    uint32_t positions = 0;
    int err = prefix_index_read(&x, p->dir);
    state_reset(block, shape);
    if (err) {
        p->counts.misses++;
        failed(p, err, error);
        return 0;
    }
    struct prefix_entry *e;
    if (n > shape->context)
        n = shape->context;
    while (!positions && (e = longest(p, &x, ids, n))) {
        char *path = path_of(p, e);
        err = path ? state_load(block, path, shape, &p->owner, error)
                   : -ENOMEM;
        if (!err && state_header(block)->positions == e->positions) {
            positions = e->positions;
            used(p, e);
        } else {
            if (!err || is_damage(err)) {
                unlink(path);
                p->counts.damaged++;
            }
            state_reset(block, shape);
            prefix_index_remove(&x, e); /* a vanished one was evicted */
        }
        free(path);
    }
    prefix_index_free(&x);
    p->counts.hits += positions > 0;
    p->counts.misses += !positions;
    p->counts.positions += positions;
    return positions;
}

/* Make room for an entry: those of least value go. */
static bool make_room(struct prefix_cache *p, struct prefix_index *x,
                      struct prefix_entry *fresh)
{
    if (fresh->bytes > p->max_bytes)
        return false;
    prefix_index_value(x, fresh);
    while (x->bytes + fresh->bytes > p->max_bytes) {
        struct prefix_entry *e = prefix_index_victim(x);
        x->clock = e->value;
        drop(p, x, e);
        p->counts.evicted++;
        prefix_index_value(x, fresh);
    }
    return true;
}

int prefix_cache_save(struct prefix_cache *p, const uint8_t *block,
                      const struct state_shape *shape, const uint32_t *ids,
                      uint32_t n, double seconds, struct error *error)
{
    struct prefix_entry fresh = { .positions = n, .uses = 1,
                                  .seconds = seconds > 0 ? seconds : 0,
                                  .bytes = state_file_bytes(shape, n) };
    struct prefix_index x;
    struct keys keys;
    if (!n)
        return 0;
    begin_keys(&keys, p, ids);
    key_of(&keys, n, fresh.key);
    int err = lock(p);
    if (err)
        return failed(p, err, error);
    err = prefix_index_read(&x, p->dir);
    if (!err && !prefix_index_find(&x, fresh.key, n) &&
        make_room(p, &x, &fresh)) {
        char *path = path_of(p, &fresh);
        err = path ? state_save(path, block, shape, ids, NULL, &p->owner, false,
                                error)
                   : -ENOMEM;
        free(path);
        if (!err && !prefix_index_add(&x, &fresh))
            err = -ENOMEM;
        p->counts.saved += !err;
    }
    if (!err)
        (void)prefix_index_write(&x, p->dir); /* only statistics */
    prefix_index_free(&x);
    unlock(p);
    return err ? failed(p, err, error) : 0;
}

struct prefix_cache_counts prefix_cache_counts(const struct prefix_cache *p)
{
    return p->counts;
}

void prefix_cache_usage(struct prefix_cache *p, uint64_t *bytes,
                        uint32_t *entries)
{
    struct prefix_index x;
    *bytes = *entries = 0;
    if (prefix_index_read(&x, p->dir))
        return;
    *bytes = x.bytes;
    *entries = x.count;
    prefix_index_free(&x);
}
