/* folder.c - the model's folder: what is there, what is missing, and whether
 * the machine has the memory for its floor. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "bin/cli/opt.h"
#include "bin/doctor/doctor.h"
#include "model/ckpt/ckpt.h"
#include "model/ckpt/download.h"
#include "model/ckpt/figure.h"
#include "model/ckpt/layout.h"
#include "model/ckpt/safetensors.h"
#include "model/ckpt/shards.h"
#include "model/pack/sidecars.h"
#include "model/sim/token_cost.h"
#include "model/text/tok.h"

#define GIB 0x1p30
#define VISION_BYTES 894737680ull /* the two published files after the text */
#define FULL_BYTES (64ull << 20)
#define REPOSITORY "moonshotai/Kimi-K3"

enum { SAMPLES_A_SHARD = 48 }; /* misses an eighth of zeros once in 600 */
enum { NAMED_MAX = 3, NAME_BYTES = 48, FIX_BYTES = 1200 };

/* The result of checking every shard. */
struct scan {
    uint32_t of, whole, bad; /* shards: of the set, complete, not */
    uint32_t empty; /* synthetic, and not written everywhere */
    uint64_t whole_bytes, missing_bytes;
    char     names[400];   /* the first bad ones, with the reason */
    char     include[200]; /* the same as options of a download */
    uint32_t unread;           /* of the bad ones: nothing is wrong but that */
    char     unread_fix[240];
    struct error first;    /* of the first damaged one */
};

static void shard_name(char *out, uint32_t index, uint32_t of)
{
    snprintf(out, NAME_BYTES, "model-%05u-of-%06u.safetensors", index, of);
}

/* How many shards there should be, by the names of those that are there. */
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
    if (download_is_synthetic(d->model)) {
        snprintf(out, FIX_BYTES, "%s synth DIR --preset ... makes a new one; "
                 "this one was made by it, and is nowhere to be downloaded",
                 opt_program);
        return;
    }
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

static void add_bad(struct scan *s, const char *name, const char *error)
{
    char text[192];
    if (s->bad++ >= NAMED_MAX)
        return;
    snprintf(text, sizeof text, "%s (%s)", name, error);
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

/* What cannot be read is not damaged, and not to be downloaded again. */
static bool take_unread(struct scan *s, const char *path, int err)
{
    if (err != -EACCES && err != -EPERM && err != -EIO)
        return false;
    if (!s->unread++)
        snprintf(s->unread_fix, sizeof s->unread_fix,
                 err == -EIO ? "dmesg | tail; smartctl -a on the drive of "
                               "'%.120s'"
                             : "chmod u+r '%.160s', and its folders u+x", path);
    return true;
}

/* Its full length, but a control file beside it, or zeros in it. */
static bool is_unfinished(struct doctor *d, struct scan *s, const char *name,
                          const char *path)
{
    char control[4096], text[96];
    uint64_t at;
    if (download_unfinished(control, sizeof control, path)) {
        snprintf(text, sizeof text, "its download has not ended: %.48s is "
                 "there", strrchr(control, '/') + 1);
        add_bad(s, name, text);
        return true;
    }
    if (!download_has_zeros(path, SAMPLES_A_SHARD, &at))
        return false;
    if (download_is_synthetic(d->model)) { /* synth --sparse */
        s->empty++;
        return false;
    }
    snprintf(text, sizeof text, "64 KiB of zeros at %" PRIu64 ", never written",
             at);
    add_bad(s, name, text);
    return true;
}

static void scan_one(struct doctor *d, struct scan *s,
                     const struct layout *l, uint32_t index)
{
    char name[NAME_BYTES], path[4096], text[80];
    struct stat st;
    struct safetensors header;
    struct error error = { 0 };
    uint64_t wanted = wanted_bytes(l, index, s->of);
    int err;
    shard_name(name, index, s->of);
    snprintf(path, sizeof path, "%s/%s", d->model, name);
    if (stat(path, &st)) {
        err = -errno;
        if (err != -ENOENT)
            take_unread(s, path, err);
        add_bad(s, name, err == -ENOENT ? "missing" : strerror(-err));
        s->missing_bytes += err == -ENOENT ? wanted : 0;
        return;
    }
    err = safetensors_open(&header, path, SAFETENSORS_HEADER_MAX, &error);
    if (!err && header.file_bytes != header.end_bytes)
        err = error_set(&error, -EBADMSG,
                        "%s: has %llu bytes, its tensors end at "
                        "%llu",
                        path, (unsigned long long)header.file_bytes,
                        (unsigned long long)header.end_bytes);
    if (header.root && err)
        safetensors_close(&header);
    if (!err) {
        safetensors_close(&header);
        if (is_unfinished(d, s, name, path))
            return;
        s->whole++;
        s->whole_bytes += (uint64_t)st.st_size;
        keep_path(d, path);
        return;
    }
    uint64_t size = (uint64_t)st.st_size;
    s->missing_bytes += err == -ENODATA && wanted > size ? wanted - size : 0;
    if (take_unread(s, path, err))
        snprintf(text, sizeof text, "%s", strerror(-err));
    else if (err == -ENODATA && wanted)
        snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " bytes", size,
                 wanted);
    else
        snprintf(text, sizeof text, "%s",
                 err == -ENODATA ? "truncated" : "damaged");
    if (err == -EBADMSG)
        error_set(&s->first, err, "%s", error.text);
    add_bad(s, name, text);
}

static void report_bad(struct doctor *d, const struct scan *s)
{
    char fix[FIX_BYTES], more[32] = "";
    if (s->bad > NAMED_MAX)
        snprintf(more, sizeof more, " and %u more", s->bad - NAMED_MAX);
    say_download(fix, d, s->bad > NAMED_MAX ? "" : s->include);
    if (s->unread)
        snprintf(fix, sizeof fix, "%s", s->unread_fix);
    doctor_add(d, DOCTOR_FAIL, "shards", fix,
               "%u of %u are missing or damaged: "
               "%s%s%s%s",
               s->bad, s->of, s->names, more, s->first.code ? "; " : "",
               s->first.text);
}

struct packed_notes {
    uint32_t count;
    char first[400];
};

static void note_packed(void *arg, const char *text)
{
    struct packed_notes *n = arg;
    if (!n->count++)
        snprintf(n->first, sizeof n->first, "%s", text);
}

/* Coded weights beside the model: whole, partial, stale or of another. */
static void check_packed(struct doctor *d, const struct ckpt *k)
{
    char fix[FIX_BYTES];
    struct sidecars s;
    struct error error = { 0 };
    struct packed_notes notes = { 0 };
    if (sidecars_open(&s, "auto", d->model, &d->config, k, note_packed, &notes,
                      &error)) {
        doctor_add(d, DOCTOR_WARN, "packed", NULL, "%s", error.text);
        return;
    }
    uint32_t all = s.used + s.absent + s.refused;
    snprintf(fix, sizeof fix, "sluice pack '%.800s'", d->model);
    if (s.used == all)
        doctor_add(d, DOCTOR_OK, "packed", NULL, "coded weights of all %u "
                   "shards in %s%s", all, s.dir,
                   s.moved ? "; some times differ, their samples agree" : "");
    else if (!s.used && !s.refused)
        doctor_add(d, DOCTOR_OK, "packed", NULL, "no coded weights; a token "
                   "would read a quarter less with them (%s)", fix);
    else if (notes.count)
        doctor_add(d, DOCTOR_WARN, "packed", fix, "coded weights of %u of %u "
                   "shards are used; %s", s.used, all, notes.first);
    sidecars_close(&s);
}

/* Complete files can still belong to another model. */
static void check_tensors(struct doctor *d, uint64_t bytes, uint32_t files,
                          bool empty)
{
    struct error error = { 0 };
    struct ckpt *k;
    if (!d->has_config) {
        doctor_add(d, DOCTOR_WARN, "shards", NULL, "%u are complete; without "
                   "a config they cannot be checked", files);
        return;
    }
    int err = ckpt_open(&k, d->model, &d->config, &error);
    if (err) {
        doctor_add(d, DOCTOR_FAIL, "shards",
                   "sluice verify lists all problems; "
                   "download those files again",
                   "%s", error.text);
        return;
    }
    d->complete = true;
    for (uint32_t i = 0; !d->paths && i < ckpt_files(k); i++)
        if (keep_path(d, ckpt_path(k, i)) < 0)
            break;
    doctor_add(d, empty ? DOCTOR_WARN : DOCTOR_OK, "shards", NULL,
               "all %u, %s GB, with every tensor of the config%s",
               ckpt_files(k), figure((double)bytes / 1e9).text,
               empty ? "; synth left them empty" : "");
    check_packed(d, k);
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
    /* Other names: check_tensors checks the set. */
    if (shards_list(&other, d->model, NULL)) {
        s->missing_bytes = all_bytes(l);
        return;
    }
    s->whole = other.count;
    for (uint32_t i = 0; i < other.count; i++) {
        s->whole_bytes += stat(other.path[i], &st) ? 0 : (uint64_t)st.st_size;
        if (is_unfinished(d, s, strrchr(other.path[i], '/') + 1,
                          other.path[i]))
            s->of = other.count;
    }
    shards_free(&other);
}

static void report_shards(struct doctor *d, const struct scan *s,
                          const struct layout *l)
{
    char fix[FIX_BYTES];
    if (s->bad) {
        report_bad(d, s);
    } else if (s->whole) {
        check_tensors(d, s->whole_bytes, s->whole, s->empty > 0);
    } else {
        say_download(fix, d, "");
        doctor_add(d, DOCTOR_FAIL, "shards", fix,
                   "none is here; %s GB in %u files are to come",
                   figure((double)s->missing_bytes / 1e9).text,
                   l ? layout_files(l) : 0);
    }
}

static void check_config(struct doctor *d)
{
    char fix[FIX_BYTES], other[1000];
    struct error error = { 0 };
    struct tok *tok;
    say_download(fix, d, "--include '*.json' --include tiktoken.model");
    int code = config_load(&d->config, d->model, &error);
    if (code == -ENOENT && download_snapshot(other, sizeof other, d->model))
        snprintf(fix, sizeof fix, "%s doctor '%s'", opt_program, other);
    else if (code == -EACCES || code == -EPERM)
        snprintf(fix, sizeof fix, "chmod u+r '%.800s/config.json'", d->model);
    if (code) {
        doctor_add(d, DOCTOR_FAIL, "config", fix, "%s", error.text);
        return;
    }
    d->has_config = true;
    const struct config *c = &d->config;
    doctor_add(d, DOCTOR_OK, "config", NULL,
               "%u layers, %u experts a layer, %u of them a token",
               c->layers, c->experts, c->top_k);
    int err = tok_open(&tok, d->model, &error);
    if (err)
        doctor_add(d, DOCTOR_WARN, "tokenizer", fix,
                   "%s; only --ids works without it", error.text);
    else if (tok_vocab(tok) != c->vocab)
        doctor_add(d, DOCTOR_WARN, "tokenizer", NULL,
                   "it has %u ids, the model %u", tok_vocab(tok), c->vocab);
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
    struct error error = { 0 };
    struct k3_options o = { .threads = d->threads, .logits = 1,
                            .parts = d->opened,
                            .layout = d->opened ? K3_PARTS : K3_SHARDS };
    if (!d->has_config)
        return;
    if (token_cost(&t, &d->config, &o, &error)) {
        doctor_add(d, DOCTOR_FAIL, "floor", NULL, "%s", error.text);
        return;
    }
    uint64_t floor_bytes = t.plan.floor_bytes;
    o.memory_bytes = d->budget_bytes;
    if (d->budget_bytes < floor_bytes)
        doctor_add(d, DOCTOR_FAIL, "floor",
                   "free -h; raise the limit (docker --memory, systemd "
                   "MemoryMax) or give -c less than 4096",
                   "a run needs %s GiB and may take %s",
                   figure((double)floor_bytes / GIB).text,
                   figure((double)d->budget_bytes / GIB).text);
    else if (!token_cost(&t, &d->config, &o, &error))
        doctor_add(d, DOCTOR_OK, "floor", NULL,
                   "%s GiB; with %s GiB a token reads %s GB (see sluice "
                   "plan)", figure((double)floor_bytes / GIB).text,
                   figure((double)d->budget_bytes / GIB).text,
                   figure((double)t.read_bytes / 1e9).text);
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
                   "%s GB, but %s GB are still to be downloaded",
                   figure((double)left / 1e9).text,
                   figure((double)missing_bytes / 1e9).text);
    else if (left < FULL_BYTES)
        doctor_add(d, DOCTOR_WARN, "free space", fix,
                   "%s GB: write reports and traces elsewhere",
                   figure((double)left / 1e9).text);
    else
        doctor_add(d, DOCTOR_OK, "free space", NULL, "%s GB",
                   figure((double)left / 1e9).text);
}

/* Control files of other files than the shards that are there. */
static void check_unfinished(struct doctor *d)
{
    char control[4096];
    if (download_unfinished(control, sizeof control, d->model))
        doctor_add(d, DOCTOR_WARN, "download", "let it end, or begin it again",
                   "%.400s is there: a download has not ended", control);
}

/* Parts instead of shards: all of them, of one model, complete. */
static void check_parts(struct doctor *d)
{
    struct error error = { 0 };
    struct parts *p;
    uint64_t bytes = 0;
    if (!d->has_config)
        return;
    if (parts_find(&p, &d->parts, &d->config, &error)) {
        doctor_add(d, DOCTOR_FAIL, "parts", "sluice spread goes on where it "
                   "stopped; sluice verify --parts reads all", "%s",
                   error.text);
        return;
    }
    d->complete = true;
    for (uint32_t f = 0; f < p->files; f++) {
        bytes += (uint64_t)p->file[f].was.st_size;
        if (keep_path(d, parts_path(p, f)) < 0)
            break;
    }
    doctor_add(d, DOCTOR_OK, "parts", NULL, "%u parts of %u files, %s GB, "
               "with every row of every tensor of the config", p->cuts.parts,
               p->shards, figure((double)bytes / 1e9).text);
    d->opened = p;
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
    if (d->parts.count)
        check_parts(d);
    check_floor(d);
    if (d->parts.count)
        return;
    if (d->has_config && layout_open(&l, &d->config))
        l = NULL; /* then sizes are not known */
    look_at_shards(d, &s, l);
    check_unfinished(d);
    check_space(d, s.missing_bytes);
    report_shards(d, &s, l);
    layout_close(l);
}
