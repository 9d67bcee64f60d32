#include "bin/batch_partial.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bin/batch_keys.h"
#include "sched/stream.h"

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
    FILE *f = fopen(p->path, "r");
    p->written = f != NULL;
    if (f && !read_entries(p, f))
        forget(p);
    if (f)
        fclose(f);
}

/* ---- giving ---- */

static void name_job(struct batch_job *j, const struct batch_rules *rules,
                     double latent_eps)
{
    /* What the text depends on, and the id; `most` and stops only end it. */
    char *id = json_dumps(j->id, JSON_ENCODE_ANY | JSON_COMPACT);
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    j->name[0] = j->name[1] = 0;
    if (f && id) {
        fprintf(f, "%s|%s|%" PRIu32 "|%a|%a|%a|%" PRIu64 "|%d|", rules->model,
                id, rules->vocab, latent_eps, j->r.sample.temperature,
                j->r.sample.top_p, j->r.sample.seed, j->r.ignore_end);
        fwrite(j->r.ids, sizeof *j->r.ids, j->r.prompt_count, f);
    }
    if (f && !fclose(f) && id)
        batch_keys_hash(text, bytes, j->name);
    free(text);
    free(id);
}

/* Say again what was said; false if that would have been the end. */
static bool replay(struct batch_job *j, const struct batch_partial_entry *e,
                   const struct batch_rules *rules)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->ids[i] >= rules->vocab || reply_push(&j->reply, e->ids[i]))
            return false;
    return true;
}

void batch_partial_give(struct batch_partial *p, struct batch_job *j,
                        const struct batch_rules *rules, double latent_eps)
{
    if (!p->path[0])
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
    struct reply fresh = j->reply;
    if (e.count < j->r.most && replay(j, &e, rules)) {
        memcpy(j->r.ids + j->r.prompt_count, e.ids, e.count * sizeof *e.ids);
        j->r.given = j->count = e.count;
    } else {
        reply_free(&j->reply);
        j->reply = fresh; /* it had no text yet */
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
static int write_all(const struct batch_partial *p,
                     const struct batch_job *jobs)
{
    char path[4100];
    snprintf(path, sizeof path, "%s.new", p->path);
    FILE *f = fopen(path, "w");
    if (!f)
        return -errno;
    fputs(head, f);
    for (const struct batch_job *j = jobs; j; j = j->after)
        if (j->count && j->name[0])
            write_entry(f, j->name, j->r.ids + j->r.prompt_count, j->count);
    for (uint32_t i = 0; i < p->count; i++)
        write_entry(f, p->entry[i].name, p->entry[i].ids, p->entry[i].count);
    fputs(".\n", f);
    errno = 0;
    int err = fflush(f) || ferror(f) || fsync(fileno(f)) ? -errno : 0;
    if (fclose(f) && !err)
        err = -errno;
    if (!err && rename(path, p->path))
        err = -errno;
    if (err)
        remove(path);
    return err;
}

void batch_partial_save(struct batch_partial *p, const struct batch_job *jobs,
                        bool now)
{
    int64_t begin = stream_clock_ns();
    if (!p->path[0] || p->failed || (!now && begin < p->next_ns))
        return;
    if (!p->next_ns && !now) { /* nothing is worth a file in the first second */
        p->next_ns = begin + SAVE_NS;
        return;
    }
    int err = write_all(p, jobs);
    int64_t end = stream_clock_ns(), pause = (end - begin) * COST_SHARE;
    p->next_ns = end + (pause > SAVE_NS ? pause : SAVE_NS);
    p->written |= !err;
    p->failed = err;
    if (err)
        fprintf(stderr, "sluice: %s: %s; unfinished answers are not kept\n",
                p->path, strerror(-err));
}

void batch_partial_close(struct batch_partial *p, bool complete)
{
    if (complete && p->written)
        unlink(p->path);
    forget(p);
}
