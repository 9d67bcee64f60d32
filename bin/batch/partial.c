#include "bin/batch/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/batch/keys.h"
#include "bin/cli/outputs.h"
#include "io/clock.h"

enum { SAVE_NS = 1000000000, COST_SHARE = 50 };

static const char head[] = "sluice batch: unfinished answers, version 1\n";

/* ---- reading ---- */

static bool read_ids(FILE *f, struct batch_partial_entry *e)
{
    e->ids = calloc(e->count + 1, sizeof *e->ids);
    for (uint32_t i = 0; e->ids && i < e->count; i++)
        if (fscanf(f, " %" SCNu32, &e->ids[i]) != 1)
            return false;
    return e->ids;
}

/* Entries, then a full stop: a file that was cut has none. */
static bool read_entries(struct batch_partial *p, FILE *f)
{
    char word[sizeof head];
    if (!fgets(word, sizeof word, f) || strcmp(word, head))
        return false;
    for (;;) {
        struct batch_partial_entry e = { .ids = NULL };
        int n = fscanf(f, "%16" SCNx64 "%16" SCNx64 " %" SCNu32, &e.name[0],
                       &e.name[1], &e.count);
        if (n != 3)
            return n == 0 && fgetc(f) == '.';
        struct batch_partial_entry *larger =
            e.count > 1u << 24 ? NULL
                               : realloc(p->entry,
                                         (p->count + 1) * sizeof *larger);
        if (!larger)
            return false;
        p->entry = larger;
        bool good = read_ids(f, &e);
        p->entry[p->count++] = e;
        if (!good)
            return false;
    }
}

static void forget(struct batch_partial *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        free(p->entry[i].ids);
    free(p->entry);
    p->entry = NULL;
    p->count = 0;
}

static void say(const struct batch_partial *p, const char *why)
{
    fprintf(stderr, "sluice: %s: %s; unfinished answers are not kept\n",
            p->path, why);
}

/* Ours: empty, or with our first line. */
static bool is_ours(FILE *f)
{
    char begin[sizeof head];
    size_t got = fread(begin, 1, sizeof head - 1, f);
    rewind(f);
    return !got || (got == sizeof head - 1 && !memcmp(begin, head, got));
}

static FILE *open_ours(struct batch_partial *p)
{
    struct stat st;
    int fd = open(p->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return NULL;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f && !fstat(fd, &st) && S_ISREG(st.st_mode) && is_ours(f)) {
        p->dev = st.st_dev;
        p->ino = st.st_ino;
        return f;
    }
    p->foreign = true;
    say(p, "is not a file of sluice batch, and is left as it is");
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return NULL;
}

void batch_partial_open(struct batch_partial *p, const char *out)
{
    struct stat st;
    memset(p, 0, sizeof *p);
    if (!strcmp(out, "-") || stat(out, &st) || !S_ISREG(st.st_mode) ||
        snprintf(p->path, sizeof p->path, "%s.partial", out) >=
            (int)sizeof p->path - 4) {
        p->path[0] = 0;
        return;
    }
    FILE *f = open_ours(p);
    p->written = f != NULL;
    if (f && !read_entries(p, f))
        forget(p);
    if (f)
        fclose(f);
}

/* Is what has the name now what we left there? */
static bool is_as_left(const struct batch_partial *p)
{
    struct stat st;
    if (lstat(p->path, &st))
        return errno == ENOENT;
    return p->written && st.st_dev == p->dev && st.st_ino == p->ino;
}

/* ---- giving ---- */

static void name_job(struct batch_job *j, const struct batch_rules *rules,
                     double latent_eps)
{
    /* What the text depends on, and the id; `max` and stops only end it. */
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    j->name[0] = j->name[1] = 0;
    if (f) {
        const struct sluice_request *r = &j->r;
        fprintf(f, "%s|%s|%" PRIu32 "|%a|%a|%a|%" PRIu64 "|%d|", rules->model,
                j->id_text.bytes, rules->vocab, latent_eps, r->temperature,
                r->top_p, r->seed, r->ignore_end);
        fprintf(f, "%" PRIu32 "|%a|%a|%a|%a|%d|%zu|", r->top_k, r->min_p,
                r->presence_penalty, r->frequency_penalty,
                r->repetition_penalty, (int)r->form, r->form_bytes);
        for (uint32_t i = 0; i < r->biases; i++)
            fprintf(f, "%" PRIu32 "=%a|", r->bias[i].id,
                    (double)r->bias[i].add);
        fwrite(r->form_text ? r->form_text : "", 1, r->form_bytes, f);
        if (r->tools)
            fprintf(f, "|tools %d|%s|", r->must_call, r->tools);
        fwrite(j->ids, sizeof *j->ids, j->prompt_count, f);
    }
    if (f && !fclose(f))
        batch_keys_hash(text, bytes, j->name);
    free(text);
}

/* Say again what was said; false if that would have been the end. */
static bool replay(struct batch_job *j, const struct batch_partial_entry *e,
                   const struct batch_rules *rules)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->ids[i] >= rules->vocab || batch_job_push(j, e->ids[i]))
            return false;
    return true;
}

void batch_partial_give(struct batch_partial *p, struct batch_job *j,
                        const struct batch_rules *rules, double latent_eps)
{
    if (!p->path[0] || j->score) /* logprobs are not kept */
        return;
    name_job(j, rules, latent_eps);
    uint32_t i = 0;
    while (i < p->count && (p->entry[i].name[0] != j->name[0] ||
                            p->entry[i].name[1] != j->name[1]))
        i++;
    if (i == p->count || !j->name[0])
        return;
    struct batch_partial_entry e = p->entry[i];
    p->entry[i] = p->entry[--p->count];
    if (e.count < j->r.max_ids && replay(j, &e, rules)) {
        memcpy(j->ids + j->prompt_count, e.ids, e.count * sizeof *e.ids);
        j->count = e.count;
    } else {
        reply_restart(&j->reply);
    }
    free(e.ids);
}

/* ---- writing ---- */

static void write_entry(FILE *f, const uint64_t name[2], const uint32_t *ids,
                        uint32_t count)
{
    fprintf(f, "%016" PRIx64 "%016" PRIx64 " %" PRIu32, name[0], name[1],
            count);
    for (uint32_t i = 0; i < count; i++)
        fprintf(f, " %" PRIu32, ids[i]);
    fputc('\n', f);
}

/* A new file in the place of the old one, or the old one. */
static int write_all(struct batch_partial *p, const struct batch_job *jobs)
{
    struct output o;
    struct stat st;
    int err = output_open_beside(&o, p->path, "it", NULL);
    if (err)
        return err;
    fputs(head, o.f);
    for (const struct batch_job *j = jobs; j; j = j->after)
        if (j->count && j->name[0])
            write_entry(o.f, j->name, j->ids + j->prompt_count, j->count);
    for (uint32_t i = 0; i < p->count; i++)
        write_entry(o.f, p->entry[i].name, p->entry[i].ids, p->entry[i].count);
    fputs(".\n", o.f);
    errno = 0;
    err = fflush(o.f) || ferror(o.f) ? -errno : 0;
    if (!err && fsync(o.r.fd) && errno != EINVAL && errno != ENOTSUP)
        err = -errno;
    if (!err && fstat(o.r.fd, &st))
        err = -errno;
    if (!err && !is_as_left(p))
        err = -EEXIST;
    int other = output_close(&o, !err, NULL);
    err = err ? err : other;
    if (!err) {
        p->dev = st.st_dev;
        p->ino = st.st_ino;
    }
    return err;
}

void batch_partial_save(struct batch_partial *p, const struct batch_job *jobs,
                        bool now)
{
    int64_t begin = clock_ns();
    if (!p->path[0] || p->failed || p->foreign || (!now && begin < p->next_ns))
        return;
    if (!p->next_ns && !now) { /* nothing is worth a file in the first second */
        p->next_ns = begin + SAVE_NS;
        return;
    }
    int err = write_all(p, jobs);
    int64_t end = clock_ns(), pause = (end - begin) * COST_SHARE;
    p->next_ns = end + (pause > SAVE_NS ? pause : SAVE_NS);
    p->written |= !err;
    p->failed = err;
    if (err)
        say(p, strerror(-err));
}

void batch_partial_close(struct batch_partial *p, bool complete)
{
    if (complete && p->written && !p->foreign && is_as_left(p))
        unlink(p->path);
    forget(p);
}
