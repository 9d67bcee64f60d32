/* doctor_folder.c - the model's folder: what is there, what is missing, and
 * whether its floor fits. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "bin/doctor.h"
#include "model/ckpt.h"
#include "model/layout.h"
#include "model/safetensors.h"
#include "model/shards.h"
#include "model/tok.h"
#include "model/token_cost.h"

#define GIB 0x1p30
#define VISION_BYTES 894737680ull /* the two published files after the text */
#define FULL_BYTES (64ull << 20)
#define REPOSITORY "moonshotai/Kimi-K3"

enum { NAMED_MAX = 3, NAME_BYTES = 48, FIX_BYTES = 1200 };

/* What a look at every shard says. */
struct scan {
    uint32_t of, whole, bad;
    uint64_t whole_bytes, missing_bytes;
    char     names[200];       /* of the first bad ones, and why */
    char     include[200];     /* the same as options of a download */
    struct why first;          /* the first that is damaged */
};

static void shard_name(char *out, uint32_t index, uint32_t of)
{
    snprintf(out, NAME_BYTES, "model-%05u-of-%06u.safetensors", index, of);
}

/* How many shards there should be: as the names of those that are there say,
 * else a file a layer and one. */
static uint32_t count_wanted(struct doctor *d)
{
    uint32_t index, of, wanted = 0;
    struct dirent *entry;
    DIR *dir = opendir(d->model);
    while (dir && (entry = readdir(dir)))
        if (!shards_parse(entry->d_name, &index, &of) && of <= SHARDS_MAX &&
            of > wanted)
            wanted = of;
    if (dir)
        closedir(dir);
    return wanted;
}

static void say_download(char *out, const struct doctor *d,
                         const char *include)
{
    snprintf(out, FIX_BYTES, "hf download " REPOSITORY " --local-dir '%.800s'"
             "%s%s", d->model, include[0] ? " " : "", include);
}

static void append(char *text, size_t size, const char *separator,
                   const char *more)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? separator : "", more);
}

static int keep_path(struct doctor *d, const char *path)
{
    char **more = realloc(d->path, (d->paths + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    d->path = more;
    d->path[d->paths] = strdup(path);
    return d->path[d->paths] ? (int)d->paths++ : -ENOMEM;
}

static void add_bad(struct scan *s, const char *name, const char *why)
{
    char text[128];
    if (s->bad++ >= NAMED_MAX)
        return;
    snprintf(text, sizeof text, "%s (%s)", name, why);
    append(s->names, sizeof s->names, ", ", text);
    snprintf(text, sizeof text, "--include '%s'", name);
    append(s->include, sizeof s->include, " ", text);
}

static uint64_t wanted_bytes(const struct layout *l, uint32_t index,
                             uint32_t of)
{
    if (l && index <= layout_files(l))
        return layout_file_bytes(l, index - 1);
    return l && of == layout_files(l) + 2 ? VISION_BYTES / 2 : 0;
}

static void scan_one(struct doctor *d, struct scan *s,
                     const struct layout *l, uint32_t index)
{
    char name[NAME_BYTES], path[4096], text[80];
    struct stat st;
    struct safetensors header;
    struct why why = { 0 };
    uint64_t wanted = wanted_bytes(l, index, s->of);
    shard_name(name, index, s->of);
    snprintf(path, sizeof path, "%s/%s", d->model, name);
    if (stat(path, &st)) {
        add_bad(s, name, errno == ENOENT ? "missing" : strerror(errno));
        s->missing_bytes += wanted;
        return;
    }
    int err = safetensors_open(&header, path, SAFETENSORS_HEADER_MAX, &why);
    if (!err && header.file_bytes != header.end_bytes)
        err = why_set(&why, -EBADMSG, "%s: has %llu bytes, its tensors end at "
                      "%llu", path, (unsigned long long)header.file_bytes,
                      (unsigned long long)header.end_bytes);
    if (!err) {
        s->whole++;
        s->whole_bytes += (uint64_t)st.st_size;
        keep_path(d, path);
        safetensors_close(&header);
        return;
    }
    uint64_t size = (uint64_t)st.st_size;
    s->missing_bytes += err == -ENODATA && wanted > size ? wanted - size : 0;
    if (err == -ENODATA && wanted)
        snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " bytes", size,
                 wanted);
    else
        snprintf(text, sizeof text, "%s",
                 err == -ENODATA ? "truncated" : "damaged");
    if (err != -ENODATA)
        why_set(&s->first, err, "%s", why.text);
    add_bad(s, name, text);
}

static void report_bad(struct doctor *d, const struct scan *s)
{
    char fix[FIX_BYTES], more[32] = "";
    if (s->bad > NAMED_MAX)
        snprintf(more, sizeof more, " and %u more", s->bad - NAMED_MAX);
    say_download(fix, d, s->bad > NAMED_MAX ? "" : s->include);
    doctor_add(d, DOCTOR_FAIL, "shards", fix, "%u of %u are not whole: "
               "%s%s%s%s", s->bad, s->of, s->names, more,
               s->first.error ? "; " : "", s->first.text);
}

/* Whole files can still be of another model. */
static void check_tensors(struct doctor *d, uint64_t bytes, uint32_t files)
{
    struct why why = { 0 };
    struct ckpt *k;
    if (!d->has_config) {
        doctor_add(d, DOCTOR_WARN, "shards", NULL, "%u are whole; without a "
                   "config they mean nothing", files);
        return;
    }
    int err = ckpt_open(&k, d->model, &d->config, &why);
    if (err) {
        doctor_add(d, DOCTOR_FAIL, "shards", "sluice verify names them all; "
                   "download them again", "%s", why.text);
        return;
    }
    d->complete = true;
    for (uint32_t i = 0; !d->paths && i < ckpt_files(k); i++)
        if (keep_path(d, ckpt_path(k, i)) < 0)
            break;
    doctor_add(d, DOCTOR_OK, "shards", NULL,
               "all %u, %.3f GB; every tensor is where it should be",
               ckpt_files(k), (double)bytes / 1e9);
    ckpt_close(k);
}

static uint64_t all_bytes(const struct layout *l)
{
    uint64_t bytes = 0;
    for (uint32_t f = 0; l && f < layout_files(l); f++)
        bytes += layout_file_bytes(l, f);
    return bytes;
}

static void look_at_shards(struct doctor *d, struct scan *s,
                           const struct layout *l)
{
    struct shards other;
    struct stat st;
    s->of = count_wanted(d);
    for (uint32_t i = 1; i <= s->of; i++)
        scan_one(d, s, l, i);
    if (s->of)
        return;
    /* Files of other names, which are judged as a whole. */
    if (shards_list(&other, d->model, NULL)) {
        s->missing_bytes = all_bytes(l);
        return;
    }
    s->whole = other.count;
    for (uint32_t i = 0; i < other.count; i++)
        s->whole_bytes += stat(other.path[i], &st) ? 0 : (uint64_t)st.st_size;
    shards_free(&other);
}

static void report_shards(struct doctor *d, const struct scan *s,
                          const struct layout *l)
{
    char fix[FIX_BYTES];
    if (s->bad) {
        report_bad(d, s);
    } else if (s->whole) {
        check_tensors(d, s->whole_bytes, s->whole);
    } else {
        say_download(fix, d, "");
        doctor_add(d, DOCTOR_FAIL, "shards", fix,
                   "none is here; %.3f GB in %u files are to come",
                   (double)s->missing_bytes / 1e9, l ? layout_files(l) : 0);
    }
}

static void check_config(struct doctor *d)
{
    char fix[FIX_BYTES];
    struct why why = { 0 };
    struct tok *tok;
    say_download(fix, d, "--include '*.json' --include tiktoken.model");
    if (config_load(&d->config, d->model, &why)) {
        doctor_add(d, DOCTOR_FAIL, "config", fix, "%s", why.text);
        return;
    }
    d->has_config = true;
    const struct config *c = &d->config;
    doctor_add(d, DOCTOR_OK, "config", NULL,
               "%u layers, %u experts a layer, %u of them a token",
               c->layers, c->experts, c->top_k);
    int err = tok_open(&tok, d->model, &why);
    if (err)
        doctor_add(d, DOCTOR_WARN, "tokenizer", fix,
                   "%s; only --ids works without it", why.text);
    else if (tok_vocab(tok) != c->vocab)
        doctor_add(d, DOCTOR_WARN, "tokenizer", NULL,
                   "%u ids, the model has %u", tok_vocab(tok), c->vocab);
    else
        doctor_add(d, DOCTOR_OK, "tokenizer", NULL, "%u ids",
                   tok_vocab(tok));
    d->has_tokenizer = !err;
    if (!err)
        tok_close(tok);
}

static void check_floor(struct doctor *d)
{
    struct token_cost t;
    struct why why = { 0 };
    struct k3_options o = { .threads = d->threads, .logits = 1 };
    if (!d->has_config)
        return;
    if (token_cost(&t, &d->config, &o, &why)) {
        doctor_add(d, DOCTOR_FAIL, "floor", NULL, "%s", why.text);
        return;
    }
    uint64_t floor_bytes = t.plan.floor_bytes;
    o.memory_bytes = d->budget_bytes;
    if (d->budget_bytes < floor_bytes)
        doctor_add(d, DOCTOR_FAIL, "floor",
                   "free -h; raise the limit (docker --memory, systemd "
                   "MemoryMax) or give -c less than 4096",
                   "%.2f GiB are needed, a run may take %.2f",
                   (double)floor_bytes / GIB, (double)d->budget_bytes / GIB);
    else if (!token_cost(&t, &d->config, &o, &why))
        doctor_add(d, DOCTOR_OK, "floor", NULL,
                   "%.3f GiB; with %.2f GiB a token reads %.3f GB (see sluice "
                   "plan)", (double)floor_bytes / GIB,
                   (double)d->budget_bytes / GIB, (double)t.read_bytes / 1e9);
}

static void check_space(struct doctor *d, uint64_t missing_bytes)
{
    struct statvfs fs;
    char fix[FIX_BYTES];
    if (statvfs(d->model, &fs))
        return;
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    snprintf(fix, sizeof fix, "df -h '%.800s'; make room, or move the folder",
             d->model);
    if (left < missing_bytes)
        doctor_add(d, DOCTOR_FAIL, "free space", fix,
                   "%.3f GB, and %.3f GB are still to come",
                   (double)left / 1e9, (double)missing_bytes / 1e9);
    else if (left < FULL_BYTES)
        doctor_add(d, DOCTOR_WARN, "free space", fix,
                   "%.3f GB: write reports and traces elsewhere",
                   (double)left / 1e9);
    else
        doctor_add(d, DOCTOR_OK, "free space", NULL, "%.3f GB",
                   (double)left / 1e9);
}

void doctor_folder(struct doctor *d)
{
    DIR *dir = opendir(d->model);
    if (!dir) {
        doctor_add(d, DOCTOR_FAIL, "folder", NULL, "%s: %s", d->model,
                   strerror(errno));
        return;
    }
    closedir(dir);
    struct layout *l = NULL;
    struct scan s = { .of = 0 };
    check_config(d);
    check_floor(d);
    if (d->has_config && layout_open(&l, &d->config))
        l = NULL; /* sizes are then not known */
    look_at_shards(d, &s, l);
    check_space(d, s.missing_bytes);
    report_shards(d, &s, l);
    layout_close(l);
}
