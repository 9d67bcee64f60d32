#include "bin/batch/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/batch/in.h"
#include "bin/batch/said.h"
#include "bin/cli/session.h"

enum { SEEN = 1, ANSWERED = 2 };

static int add(struct batch_check *c, const struct batch_job *j)
{
    if (c->requests == c->capacity) {
        uint64_t more = c->capacity ? c->capacity * 2 : 1024;
        struct batch_check_request *r = realloc(c->request, more * sizeof *r);
        if (!r)
            return -ENOMEM;
        c->request = r;
        c->capacity = more;
    }
    c->request[c->requests++] =
        (struct batch_check_request){ j->prompt_count, j->r.max_ids };
    c->prompt_ids += j->prompt_count;
    c->max_ids += j->r.max_ids;
    return 0;
}

static void refused(struct batch_check *c, uint64_t line,
                    const struct batch_job *j, const char *sentence)
{
    c->refused++;
    printf("line %" PRIu64 "%s%.*s: %s\n", line,
           j && j->id_text.count ? ", " : "",
           j ? (int)j->id_text.count : 0, j ? j->id_text.bytes : "",
           sentence);
}

/* A line whose id was read. */
static int check_job(struct batch_check *c, struct batch_keys *keys,
                     struct batch_job *j, const struct batch_rules *rules)
{
    struct error said = { 0 };
    struct batch_key *key = batch_key_of_id(keys, j->id);
    if (!key)
        return -ENOMEM;
    if (key->value & SEEN) {
        refused(c, j->line, j, "an earlier line has this custom_id");
        return 0;
    }
    bool answered = key->value & ANSWERED;
    key->value |= SEEN;
    c->answered += answered;
    if (answered)
        return 0;
    int err = batch_job_body(j, rules, &said);
    if (err == -EINVAL) {
        refused(c, j->line, j, said.text);
        return 0;
    }
    for (const struct batch_job *k = j; k && !err; k = k->next)
        err = add(c, k);
    while (j->next) {
        struct batch_job *other = j->next;
        j->next = other->next;
        batch_job_free(other);
        free(other);
    }
    return err;
}

static int check_line(struct batch_check *c, struct batch_keys *keys,
                      uint64_t line, const char *text, size_t bytes,
                      const struct batch_rules *rules)
{
    struct batch_job j;
    struct error said = { 0 };
    if (batch_is_blank(text, bytes)) {
        c->blank++;
        return 0;
    }
    c->lines++;
    int err = batch_job_read(&j, line, text, bytes, &said);
    if (err == -EINVAL)
        refused(c, line, &j, said.text);
    else if (!err)
        err = check_job(c, keys, &j, rules);
    batch_job_free(&j);
    return err == -EINVAL ? 0 : err;
}

/* Lines of the output that is continued. */
static int take_answer(struct batch_keys *keys, const char *text,
                       size_t bytes)
{
    struct batch_said s;
    int err = batch_said_read(&s, text, bytes);
    if (err)
        return err == -ENOMEM ? err : 0;
    struct batch_key *key = batch_said_key(keys, &s);
    batch_said_free(&s);
    if (!key)
        return -ENOMEM;
    key->value |= ANSWERED;
    return 0;
}

static int each_line(struct batch_check *c, struct batch_keys *keys,
                     const char *path, const struct batch_rules *rules,
                     struct error *error)
{
    struct batch_in in;
    const char *text;
    size_t bytes;
    int got = batch_in_open(&in, path, error);
    while (got >= 0) {
        got = session_signal() ? -ECANCELED
                               : batch_in_next(&in, true, &text, &bytes);
        if (got == 1)
            got = rules ? check_line(c, keys, in.line, text, bytes, rules)
                        : take_answer(keys, text, bytes);
        else if (got == -EMSGSIZE && rules)
            refused(c, in.line, NULL, "the line is too long");
        if (got == -EMSGSIZE)
            got = 0;
    }
    if (got != -ENODATA && got != -ECANCELED && !error->code)
        error_set(error, got, "%s: %s", path,
                  in.what ? in.what : strerror(-got));
    batch_in_close(&in);
    return got == -ENODATA ? 0 : got;
}

int batch_check_lines(struct batch_check *c, const char *in, const char *out,
                      const struct batch_rules *rules, struct error *error)
{
    struct batch_keys keys = { 0 };
    int err = out ? each_line(c, &keys, out, NULL, error) : 0;
    if (err == -ENOENT) { /* it begins */
        *error = (struct error){ 0 };
        err = 0;
    }
    if (!err)
        err = each_line(c, &keys, in, rules, error);
    batch_keys_free(&keys);
    return err;
}

/* ---- passes ---- */

struct place {
    uint32_t prompt, left; /* ids to read; to make */
};

/* One pass: as batch.h has it, every place that decodes has a row, and prompts
 * share the others. Returns its rows. */
static uint32_t pass(struct place *p, uint32_t n, uint32_t rows)
{
    uint32_t used = 0, open = 0;
    for (uint32_t i = 0; i < n; i++) {
        used += !p[i].prompt && p[i].left;
        open += p[i].prompt > 0;
        p[i].left -= !p[i].prompt && p[i].left;
    }
    for (uint32_t i = 0; i < n && open; i++) {
        if (!p[i].prompt)
            continue;
        uint32_t room = rows > used ? rows - used : 0;
        uint32_t part = room / open ? room / open : 1;
        part = part < p[i].prompt ? part : p[i].prompt;
        p[i].prompt -= part;
        used += part;
        open--;
        p[i].left -= !p[i].prompt && p[i].left; /* its first id */
    }
    return used;
}

uint64_t batch_check_passes(const struct batch_check *c, uint32_t sequences,
                            uint32_t rows, double (*cost)(void *, uint32_t),
                            void *arg, double *weight, struct error *error)
{
    struct place *p = calloc(sequences, sizeof *p);
    uint64_t passes = 0, next = 0;
    *weight = 0;
    if (!p) {
        error_set(error, -ENOMEM, "no memory for a forecast");
        return 0;
    }
    for (;;) {
        bool any = false;
        for (uint32_t i = 0; i < sequences; i++) {
            if (!p[i].prompt && !p[i].left && next < c->requests) {
                p[i] = (struct place){ c->request[next].prompt,
                                       c->request[next].max };
                next++;
            }
            any |= p[i].prompt || p[i].left;
        }
        if (!any)
            break;
        *weight += cost(arg, pass(p, sequences, rows));
        passes++;
    }
    free(p);
    return passes;
}

void batch_check_free(struct batch_check *c)
{
    free(c->request);
    *c = (struct batch_check){ 0 };
}
