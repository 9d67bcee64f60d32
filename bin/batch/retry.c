#include "bin/batch/retry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bin/batch/hash.h"
#include "bin/batch/in.h"
#include "bin/batch/said.h"
#include "bin/cli/outputs.h"
#include "bin/cli/session.h"

enum { FAILED = 1, AGAIN = 2 }; /* of an error's key */

struct retry {
    struct batch_keys keys; /* of errors */
    const struct batch_rules *rules;
    bool all;
    uint64_t count; /* of those to be asked again */
};

/* ---- lines of an output ---- */

/* 1: more; 0: the end, or a line that a crash cut off. */
typedef int line_fn(struct retry *r, void *arg, const char *text,
                    size_t bytes);

static int each_line(struct retry *r, const char *path, line_fn *each,
                     void *arg, struct error *error)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t got = 0;
    FILE *f = fopen(path, "re");
    int err = f ? 0 : -errno;
    if (err == -ENOENT)
        return 0; /* nothing is held */
    while (!err && (errno = 0, got = getline(&text, &room, f)) > 0) {
        if (text[got - 1] != '\n')
            break;
        err = session_signal() ? -ECANCELED : each(r, arg, text, (size_t)got);
    }
    if (!err && got < 0 && errno)
        err = -errno;
    free(text);
    if (f)
        fclose(f);
    return !err || err == -ECANCELED
               ? err
               : error_set(error, err, "%s: %s", path, strerror(-err));
}

/* The key of the error that a line is; NULL: it is none. */
static struct batch_key *error_of(struct retry *r, const char *text,
                                  size_t bytes, uint64_t *hash, int *err)
{
    struct batch_said s;
    struct batch_key *key = NULL;
    *err = batch_said_read(&s, text, bytes - 1);
    if (*err) {
        *err = *err == -ENOMEM ? *err : 0; /* whatever it is, it stays */
        return NULL;
    }
    if (s.failed && !s.answers)
        key = batch_said_key(&r->keys, &s);
    *hash = s.hash;
    batch_said_free(&s);
    return key;
}

static int collect(struct retry *r, void *arg, const char *text, size_t bytes)
{
    uint64_t hash;
    int err;
    struct batch_key *key = error_of(r, text, bytes, &hash, &err);
    (void)arg;
    if (!key)
        return err;
    key->value = r->all && !r->rules ? FAILED | AGAIN : FAILED;
    key->asked = hash;
    return 0;
}

/* ---- lines of the input ---- */

static void decide(struct retry *r, struct batch_key *key, const char *text,
                   size_t bytes)
{
    if (!key || !(key->value & FAILED))
        return;
    uint64_t hash = key->asked ? batch_hash_error(NULL, r->rules, text, bytes)
                               : 0;
    if (r->all || hash != key->asked)
        key->value |= AGAIN;
}

static int look_at_input(struct retry *r, const char *path,
                         struct error *error)
{
    struct batch_in in;
    const char *text;
    size_t bytes;
    int got = batch_in_open(&in, path, error);
    r->keys.limit = r->keys.count; /* nothing is added */
    while (!got && in.lines) {
        struct batch_job j;
        got = session_signal() ? -ECANCELED
                               : batch_in_next(&in, true, &text, &bytes);
        if (got == -EMSGSIZE) {
            decide(r, batch_key_of_line(&r->keys, in.line), "", 0);
            got = 0;
        }
        if (got != 1)
            continue;
        decide(r, batch_key_of_line(&r->keys, in.line), text, bytes);
        int err = batch_job_read(&j, in.line, text, bytes, NULL);
        if (!err)
            decide(r, batch_key_of_id(&r->keys, j.id), text, bytes);
        batch_job_free(&j);
        got = err == -ENOMEM ? err : 0;
    }
    batch_in_close(&in);
    return got == -ENODATA || !got || error->code || got == -ECANCELED
               ? (got == -ENODATA ? 0 : got)
               : error_set(error, got, "%s: %s", path, strerror(-got));
}

/* ---- the new files ---- */

struct rewriting {
    struct output *to, *held; /* held NULL: what follows stays in `to` */
    bool dropped; /* something was */
};

static int keep(struct retry *r, void *arg, const char *text, size_t bytes)
{
    struct rewriting *w = arg;
    uint64_t hash;
    int err;
    const struct batch_key *key = error_of(r, text, bytes, &hash, &err);
    if (err)
        return err;
    if (key && key->value & AGAIN) {
        w->dropped = true;
        r->count++;
        return 0;
    }
    FILE *f = (w->dropped && w->held ? w->held : w->to)->f;
    return fwrite(text, 1, bytes, f) == bytes ? 0 : errno ? -errno : -EIO;
}

/* First what is held, so that a crash between the two loses nothing: lines that
 * are in both files count once. */
static int rewrite(struct retry *r, const char *out, bool in_order,
                   struct error *error)
{
    char held[4096 + 8];
    struct output to = { 0 }, aside = { 0 };
    struct rewriting first = { .to = &aside };
    struct rewriting then = { .to = &to, .held = in_order ? &aside : NULL };
    snprintf(held, sizeof held, "%s.held", out);
    int err = output_open(&to, out, "the output", error);
    if (!err)
        err = output_open_beside(&aside, held, "the held output", error);
    if (!err)
        err = each_line(r, held, keep, &first, error);
    if (!err)
        err = each_line(r, out, keep, &then, error);
    bool kept = !err && aside.f && ftell(aside.f) > 0;
    int closed = output_close(&aside, kept, error);
    err = err ? err : closed;
    if (!err && !kept)
        remove(held);
    closed = output_close(&to, !err, error);
    return err ? err : closed;
}

int batch_retry(const char *in, const char *out, bool in_order, bool all,
                const struct batch_rules *rules, uint64_t *count,
                struct error *error)
{
    struct stat st;
    char held[4096 + 8];
    bool file = strcmp(in, "-") && !stat(in, &st) && S_ISREG(st.st_mode);
    struct retry r = { .rules = file ? rules : NULL, .all = all };
    bool any = false;
    snprintf(held, sizeof held, "%s.held", out);
    *count = 0;
    if (!file && !all)
        return 0;
    int err = each_line(&r, out, collect, NULL, error);
    if (!err)
        err = each_line(&r, held, collect, NULL, error);
    if (!err && r.keys.count && file)
        err = look_at_input(&r, in, error);
    r.keys.limit = 0;
    for (size_t i = 0; i < r.keys.capacity && !any; i++)
        any = r.keys.slot[i].hash[0] && r.keys.slot[i].value & AGAIN;
    if (!err && any)
        err = rewrite(&r, out, in_order, error);
    *count = r.count;
    batch_keys_free(&r.keys);
    return err;
}
