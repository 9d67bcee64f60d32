/* saved.c - sluice.h: states of requests in files, and in a prefix cache. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "model/decode/prefix_cache.h"
#include "model/k3/sequence.h"
#include "model/session_internal.h"

enum {
    CACHE_CHUNK = 512, /* rows of a prompt after which it is worth an entry */
    CACHE_MIN = 16,    /* positions of the shortest entry */
    ROLE_AT = 4,       /* ids of a message before that of its role */
};

/* ---- the session's ---- */

static int know_owner(struct sluice *s, struct error *error)
{
    int err = s->owner_known ? 0 : k3_state_owner(&s->owner, s->k, error);
    s->owner_known = !err;
    return err;
}

int saved_open(struct sluice *s, const char *cache, uint64_t bytes,
               struct error *error)
{
    if (!cache)
        return 0;
    int err = know_owner(s, error);
    if (err)
        return err;
    if (s->text && sluice_tokenize(s->text, "user", 4, &s->user))
        return error_set(error, -ENOMEM, "no memory for a prefix cache");
    return prefix_cache_open(&s->cache, cache,
                             bytes ? bytes : SLUICE_PREFIX_CACHE_BYTES,
                             &s->owner, error);
}

void saved_close(struct sluice *s)
{
    prefix_cache_close(s->cache);
    sluice_ids_free(&s->user);
}

/* ---- what a request was ---- */

static uint32_t prompt_of(const struct request *q)
{
    return q->r.count - q->r.given;
}

static void add(EVP_MD_CTX *h, const void *bytes, size_t n)
{
    EVP_DigestUpdate(h, bytes, n);
}

/* All that new ids depend on, beside the prompt. */
static bool how_made(const struct sluice_request *r,
                     uint8_t out[STATE_HOW_BYTES])
{
    const double real[] = { r->temperature, r->top_p, r->min_p,
                            r->presence_penalty, r->frequency_penalty,
                            r->repetition_penalty };
    const uint64_t whole[] = { r->seed, r->top_k, r->ignore_end,
                               (uint64_t)r->form, r->form_bytes, r->biases };
    uint8_t digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *h = EVP_MD_CTX_new();
    bool good = h && EVP_DigestInit_ex(h, EVP_sha256(), NULL);
    if (good) {
        add(h, real, sizeof real);
        add(h, whole, sizeof whole);
        if (r->form_bytes)
            add(h, r->form_text, r->form_bytes);
        if (r->tools) {
            add(h, &r->must_call, sizeof r->must_call);
            add(h, r->tools, r->tools_bytes);
        }
        for (uint32_t i = 0; i < r->biases; i++) {
            add(h, &r->bias[i].id, sizeof r->bias[i].id);
            add(h, &r->bias[i].add, sizeof r->bias[i].add);
        }
        good = EVP_DigestFinal_ex(h, digest, NULL);
    }
    EVP_MD_CTX_free(h);
    memset(out, 0, STATE_HOW_BYTES);
    if (good)
        memcpy(out, digest, STATE_HOW_BYTES);
    return good;
}

int saved_request(struct request *q, const struct sluice_request *from,
                  struct error *error)
{
    if (!from->state)
        return 0;
    q->saving.path = strdup(from->state);
    if (!q->saving.path || !how_made(from, q->saving.how))
        return error_set(error, -ENOMEM, "no memory for a request");
    return 0;
}

void saved_free(struct request *q)
{
    free(q->saving.path);
}

static void note(const struct request *q, const struct error *e, bool lost)
{
    if (q->r.note)
        q->r.note(q->r.arg, e->text, lost);
}

/* ---- before the first row ---- */

/* Where the prompt's rows end so that the state is kept: before the first
 * message of a user, for other conversations; and before the last id, for this
 * one's next turn and for the same prompt, whose last row has the logits. */
static void set_marks(struct sluice *s, struct request *q)
{
    uint32_t n = prompt_of(q), room = (uint32_t)s->user.count, begin = 0;
    q->saving.mark[1] = n - 1;
    for (uint32_t i = 0; i < n && !q->saving.mark[0] && room; i++) {
        if (!session_is_end(s, q->ids[i]))
            continue;
        const uint32_t *role = q->ids + begin + ROLE_AT;
        if (i - begin >= ROLE_AT + room &&
            !memcmp(role, s->user.ids, room * sizeof *role)) {
            q->saving.mark[0] = begin;
            return;
        }
        begin = i + 1;
    }
}

static uint32_t from_file(struct sluice *s, struct request *q,
                          uint32_t sequence, uint32_t have)
{
    struct error e = { 0 };
    struct state_info info;
    const struct state_shape *shape = k3_state_shape(s->k);
    const char *path = q->saving.path;
    int err = know_owner(s, &e);
    if (!err)
        err = state_peek(&info, path, shape, &s->owner, &e);
    if (err) {
        if (err != -ENOENT)
            note(q, &e, false);
        return have;
    }
    uint32_t n = info.positions;
    bool fits = n < q->r.count && !memcmp(info.ids, q->ids, n * sizeof *q->ids);
    free(info.ids);
    if (!fits) {
        error_set(&e, -EINVAL, "%s: holds other ids than this prompt begins "
                  "with, or all of them; the prompt is read from its "
                  "beginning", path);
        note(q, &e, false);
        return have;
    }
    if (n > have) {
        k3_reset(s->k, sequence);
        have = n;
        if (state_load(k3_state(s->k, sequence), path, shape, &s->owner, &e)) {
            note(q, &e, false);
            have = 0;
        }
    }
    q->saving.kept = have == n ? n : 0;
    return have;
}

static uint32_t from_cache(struct sluice *s, struct request *q,
                           uint32_t sequence, uint32_t have)
{
    struct error e = { 0 };
    set_marks(s, q);
    uint32_t n = prefix_cache_find(s->cache, q->ids, q->r.count - 1);
    if (n <= have)
        return have;
    k3_reset(s->k, sequence);
    n = prefix_cache_load(s->cache, k3_state(s->k, sequence),
                          k3_state_shape(s->k), q->ids, q->r.count - 1, &e);
    if (e.code)
        note(q, &e, false);
    q->saving.cached = n;
    return n;
}

uint32_t saved_begin(void *arg, uint64_t tag, uint32_t sequence, uint32_t have)
{
    struct sluice *s = arg;
    struct request *q = (struct request *)(uintptr_t)tag;
    if (q->saving.path)
        have = from_file(s, q, sequence, have);
    if (s->cache)
        have = from_cache(s, q, sequence, have);
    q->saving.begun = have;
    q->saving.begin_ns = q->saving.kept_ns = clock_ns();
    return have;
}

/* A request for no ids is kept before its last: the next one needs its logits.
 */
static uint32_t file_mark(const struct request *q)
{
    return q->saving.path && !q->r.max_ids ? q->r.count - 1 : 0;
}

uint32_t saved_pause(void *arg, uint64_t tag, uint32_t position)
{
    const struct request *q = (const struct request *)(uintptr_t)tag;
    const uint32_t mark[] = { q->saving.mark[0], q->saving.mark[1],
                              file_mark(q) };
    uint32_t next = UINT32_MAX;
    (void)arg;
    for (size_t i = 0; i < sizeof mark / sizeof *mark; i++)
        if (mark[i] > position && mark[i] < next)
            next = mark[i];
    return next;
}

/* ---- after a pass ---- */

static void to_file(struct sluice *s, struct request *q, uint32_t sequence,
                    uint32_t n, bool over)
{
    struct saving *v = &q->saving;
    const struct sluice_request *r = &q->r;
    struct error e = { 0 };
    int64_t now = clock_ns();
    bool due = over || n == r->count ||
               (r->state_every && n - v->kept >= r->state_every) ||
               (r->state_seconds > 0 &&
                (double)(now - v->kept_ns) >= r->state_seconds * 1e9);
    if (!r->max_ids)
        due = n < r->count && (due || n == file_mark(q));
    if (!due || n == v->kept)
        return;
    uint32_t room = prompt_of(q) + r->max_ids;
    struct state_after after = { .prompt = prompt_of(q),
                                 .next = n < room ? q->ids[n] : SLUICE_NO_ID };
    memcpy(after.how, v->how, sizeof after.how);
    int err = know_owner(s, &e);
    if (!err)
        err = state_save(v->path, k3_state(s->k, sequence),
                         k3_state_shape(s->k), q->ids, &after, &s->owner, true,
                         &e);
    if (err)
        note(q, &e, true);
    else
        v->kept = n;
    v->kept_ns = clock_ns();
}

static void keep(struct sluice *s, struct request *q, uint32_t sequence,
                 uint32_t n)
{
    struct saving *v = &q->saving;
    struct error e = { 0 };
    if (n < CACHE_MIN || n <= v->cached)
        return;
    /* What all n rows would take, as fast as those since the beginning. */
    double seconds = (double)(clock_ns() - v->begin_ns) / 1e9 * n /
                     (n > v->begun ? n - v->begun : 1);
    v->cached = n;
    if (prefix_cache_save(s->cache, k3_state(s->k, sequence),
                          k3_state_shape(s->k), q->ids, n, seconds, &e))
        note(q, &e, false);
}

static void to_cache(struct sluice *s, struct request *q, uint32_t sequence,
                     uint32_t n, bool over)
{
    const struct saving *v = &q->saving;
    if (over || n == v->mark[0] || n == v->mark[1] ||
        (n < q->r.count && n - v->cached >= CACHE_CHUNK))
        keep(s, q, sequence, n);
}

void saved_parted(void *arg, uint64_t tag, uint32_t sequence)
{
    struct sluice *s = arg;
    keep(s, (struct request *)(uintptr_t)tag, sequence,
         k3_positions(s->k, sequence));
}

void saved_leaves(void *arg, uint64_t tag, uint32_t sequence)
{
    const struct request *q = (const struct request *)(uintptr_t)tag;
    if (atomic_load(&q->suspended))
        saved_parted(arg, tag, sequence);
}

void saved_whole(const struct request *q)
{
    struct error e = { 0 };
    if (!q->saving.path)
        return;
    error_set(&e, -EALREADY, "%s: holds the whole answer; nothing is read",
              q->saving.path);
    note(q, &e, false);
}

void saved_passed(void *arg, uint64_t tag, uint32_t sequence, uint32_t count,
                  bool over)
{
    struct sluice *s = arg;
    struct request *q = (struct request *)(uintptr_t)tag;
    uint32_t n = k3_positions(s->k, sequence);
    (void)count;
    if (q->saving.path)
        to_file(s, q, sequence, n, over);
    if (s->cache)
        to_cache(s, q, sequence, n, over);
}

/* ---- what a file has ---- */

static int append(struct sluice_ids *out, const uint32_t *ids, uint32_t n,
                  uint32_t next)
{
    size_t room = out->count + n + 1;
    uint32_t *larger = realloc(out->ids, room * sizeof *larger);
    if (!larger)
        return -ENOMEM;
    out->ids = larger;
    out->capacity = room;
    memcpy(larger + out->count, ids, n * sizeof *ids);
    out->count += n;
    if (next != SLUICE_NO_ID)
        larger[out->count++] = next;
    return 0;
}

static int peek(struct sluice *s, const char *path, struct state_info *info,
                struct error *e)
{
    int err = know_owner(s, e);
    return err ? err
               : state_peek(info, path, k3_state_shape(s->k), &s->owner, e);
}

int sluice_state_ids(struct sluice *s, const char *path,
                     struct sluice_ids *out, struct sluice_error *error)
{
    struct error e = { 0 };
    struct state_info info;
    int err = peek(s, path, &info, &e);
    if (err)
        return knobs_error(error, &e);
    if (append(out, info.ids, info.positions, info.after.next))
        err = error_set(&e, -ENOMEM, "no memory for the ids of %s", path);
    free(info.ids);
    return err ? knobs_error(error, &e) : 0;
}

int sluice_state_given(struct sluice *s, const struct sluice_request *request,
                       struct sluice_ids *out, struct sluice_error *error)
{
    struct error e = { 0 };
    struct state_info info;
    struct sluice_request r;
    uint8_t how[STATE_HOW_BYTES];
    if (session_copy(&r, sizeof r, request) || !r.state || r.given)
        return knobs_error(error, &(struct error){ -EINVAL, "no request with "
                                                   "a state" });
    r.top_p = r.top_p == 0 ? 1 : r.top_p;
    if (peek(s, r.state, &info, &e))
        return 0; /* said when the request begins */
    uint32_t n = info.positions;
    bool same = n >= r.count && info.after.prompt == r.count &&
                info.after.next != SLUICE_NO_ID && r.max_ids &&
                how_made(&r, how) &&
                !memcmp(how, info.after.how, sizeof how) &&
                !memcmp(info.ids, r.ids, r.count * sizeof *r.ids);
    uint32_t made = n - r.count; /* and info.after.next */
    int err = 0;
    if (same && append(out, info.ids + r.count,
                       made < r.max_ids ? made : r.max_ids,
                       made < r.max_ids ? info.after.next : SLUICE_NO_ID))
        err = error_set(&e, -ENOMEM, "no memory for ids");
    free(info.ids);
    return err ? knobs_error(error, &e) : 0;
}
