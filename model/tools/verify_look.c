/* verify_look.c - a shard's bytes in their order: values that cannot be, long
 * runs of zeros, the digest; and at the end what that says. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tools/verify_internal.h"

enum {
    ZERO_RUN = 64 << 10, /* zero bytes in a row that no trained weights have */
    EDGE_BYTES = 16,     /* of a tensor beside a run: zeros by chance */
};

/* What was found in a tensor so far. */
struct tally {
    uint64_t bad, first_bad; /* number of values, index of the first */
    uint64_t zero_bytes;     /* in runs of ZERO_RUN or more */
    uint64_t lost_bytes;     /* that could not be read */
    int      lost_code;
};

static enum scan_kind kind_of(const struct safetensors_entry *e)
{
    static const char scale[] = ".weight_scale";
    size_t n = strlen(e->name), m = sizeof scale - 1;
    if (e->dtype == DTYPE_BF16)
        return SCAN_BF16;
    if (e->dtype == DTYPE_F32)
        return SCAN_F32;
    return n > m && !strcmp(e->name + n - m, scale) ? SCAN_SCALE : SCAN_BYTES;
}

int verify_file_open(struct verify_file **out, struct verify *v,
                     const char *path)
{
    struct error error = { 0 };
    struct verify_file *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return -ENOMEM;
    f->path = path;
    f->came = VERIFY_NO_SLOT;
    int err = stat(path, &f->before)
                  ? error_set(&error, -errno, "%s: %s", path, strerror(errno))
                  : safetensors_open(&f->header, path, SAFETENSORS_HEADER_MAX,
                                     &error);
    if (!err)
        err = digest_open(&f->sha256, DIGEST_SHA256, 0);
    if (!err && !(f->tally = calloc(f->header.count + 1, sizeof *f->tally)))
        err = -ENOMEM;
    if (err && error.code) /* it was right when headers were checked */
        verify_problem(v, NULL, NULL, "%s", error.text);
    if (err) {
        verify_file_free(f);
        return err;
    }
    *out = f;
    return 0;
}

void verify_file_free(struct verify_file *f)
{
    char hex[DIGEST_HEX];
    if (!f)
        return;
    digest_end(f->sha256, hex);
    safetensors_close(&f->header);
    free(f->tally);
    free(f);
}

/* ---- a chunk ---- */

static void look_at_values(struct verify_file *f, const struct verify_chunk *c)
{
    uint64_t begin = c->offset_bytes, end = begin + c->length_bytes;
    const uint8_t *bytes = c->base + begin % READER_PAGE;
    for (uint32_t i = f->tensor; i < f->header.count; i++) {
        const struct safetensors_entry *e = &f->header.entry[i];
        struct tally *t = &f->tally[i];
        uint64_t first = e->offset_bytes > begin ? e->offset_bytes : begin;
        uint64_t last = e->offset_bytes + e->length_bytes;
        last = last < end ? last : end;
        if (e->offset_bytes >= end)
            break;
        f->tensor = i;
        if (first >= last)
            continue;
        if (c->code) {
            t->lost_bytes += last - first;
            t->lost_code = c->code;
            continue;
        }
        struct scan s;
        enum scan_kind kind = kind_of(e);
        scan_bytes(&s, kind, bytes + (first - begin), (size_t)(last - first));
        if (s.bad && !t->bad)
            t->first_bad = (first - e->offset_bytes) / scan_width(kind) +
                           s.first;
        t->bad += s.bad;
    }
}

/* Zeros in [begin, end): to the tensors that they are in. */
static void take_run(struct verify_file *f, uint64_t begin, uint64_t end)
{
    f->run_bytes += end - begin;
    for (uint32_t i = 0; i < f->header.count; i++) {
        const struct safetensors_entry *e = &f->header.entry[i];
        uint64_t first = e->offset_bytes > begin ? e->offset_bytes : begin;
        uint64_t last = e->offset_bytes + e->length_bytes;
        last = last < end ? last : end;
        if (first < last && (last - first >= EDGE_BYTES ||
                             last - first == e->length_bytes))
            f->tally[i].zero_bytes += last - first;
    }
}

static void look_for_zeros(struct verify_file *f, const struct verify_chunk *c)
{
    const uint8_t *bytes = c->base + c->offset_bytes % READER_PAGE;
    for (size_t at = 0; at < c->length_bytes;) {
        at += scan_zeros(&f->zero_bytes, bytes + at, c->length_bytes - at,
                         ZERO_RUN);
        if (at == c->length_bytes)
            return;
        uint64_t end = c->offset_bytes + at;
        take_run(f, end - f->zero_bytes, end);
        f->zero_bytes = 0;
    }
}

void verify_file_look(struct verify *v, struct verify_file *f,
                      const struct verify_chunk *c)
{
    (void)v;
    look_at_values(f, c);
    if (c->code) {
        char hex[DIGEST_HEX];
        f->lost_code = c->code;
        digest_end(f->sha256, hex);
        f->sha256 = NULL;
        f->zero_bytes = 0;
        f->damaged = true;
    } else {
        look_for_zeros(f, c);
        if (f->sha256)
            digest_add(f->sha256, c->base + c->offset_bytes % READER_PAGE,
                       c->length_bytes);
    }
}

/* ---- the end of a file ---- */

static void tell_tensors(struct verify *v, struct verify_file *f)
{
    bool named = false;
    for (uint32_t i = 0; i < f->header.count; i++) {
        const struct safetensors_entry *e = &f->header.entry[i];
        const struct tally *t = &f->tally[i];
        f->damaged |= t->bad > 0;
        named |= t->lost_bytes > 0;
        if (t->lost_bytes)
            verify_problem(v, f->path, e->name, "%" PRIu64 " of its bytes "
                           "could not be read: %s%s", t->lost_bytes,
                           strerror(-t->lost_code),
                           verify_unread(t->lost_code));
        if (t->bad && kind_of(e) == SCAN_SCALE)
            verify_problem(v, f->path, e->name, "%" PRIu64 " scale bytes are "
                           "255, the first at %" PRIu64, t->bad,
                           t->first_bad);
        else if (t->bad)
            verify_problem(v, f->path, e->name, "%" PRIu64 " values are not "
                           "finite, the first at %" PRIu64, t->bad,
                           t->first_bad);
    }
    if (f->lost_code && !named)
        verify_problem(v, f->path, NULL, "a part outside its tensors could "
                       "not be read: %s%s", strerror(-f->lost_code),
                       verify_unread(f->lost_code));
}

/* A file that was never written has thousands of zero tensors: report one. */
static void tell_empty(struct verify *v, struct verify_file *f)
{
    uint32_t count = 0, first = 0;
    char more[64] = "";
    for (uint32_t i = f->header.count; i-- > 0;)
        if (f->tally[i].zero_bytes) {
            count++;
            first = i;
        }
    f->damaged |= f->run_bytes > 0;
    if (!count && f->run_bytes)
        verify_problem(v, f->path, NULL, "%" PRIu64 " of its bytes are zero in "
                       "long runs", f->run_bytes);
    if (!count)
        return;
    const struct safetensors_entry *e = &f->header.entry[first];
    if (count > 1)
        snprintf(more, sizeof more, "; so are %" PRIu32 " more tensors",
                 count - 1);
    verify_problem(v, f->path, e->name, "%" PRIu64 " of its %" PRIu64
                   " bytes are zero in long runs%s: were they ever written?",
                   f->tally[first].zero_bytes, e->length_bytes, more);
}

/* Is the file's digest what the download left? 1: yes; 0: nothing is known. */
static int check_sum(struct verify *v, struct verify_file *f, const char *hex)
{
    struct sum want;
    const char *base = strrchr(f->path, '/');
    if (!hex[0] || !sums_find(v->sums, base ? base + 1 : f->path, &want) ||
        want.kind != DIGEST_SHA256)
        return 0;
    pthread_mutex_lock(&v->lock);
    v->facts->summed++;
    pthread_mutex_unlock(&v->lock);
    if (!strcmp(hex, want.hex))
        return 1;
    f->damaged = true;
    verify_problem(v, f->path, NULL, "its SHA-256 is %.16s..., by %s it should "
                   "be %.16s...", hex, want.source, want.hex);
    return -1;
}

static bool changed(const struct verify_file *f)
{
    struct stat now;
    return stat(f->path, &now) || now.st_ino != f->before.st_ino ||
           now.st_size != f->before.st_size ||
           now.st_mtim.tv_sec != f->before.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != f->before.st_mtim.tv_nsec;
}

void verify_file_end(struct verify *v, struct verify_file *f)
{
    char hex[DIGEST_HEX];
    if (f->zero_bytes >= ZERO_RUN)
        take_run(f, f->seen_bytes - f->zero_bytes, f->seen_bytes);
    digest_end(f->sha256, hex);
    f->sha256 = NULL;
    if (changed(f)) {
        f->damaged = true;
        verify_problem(v, f->path, NULL, "was changed while it was read");
    }
    int known = check_sum(v, f, hex);
    tell_tensors(v, f);
    if (known <= 0) /* else it was published so */
        tell_empty(v, f);
    if (v->list && !f->damaged && hex[0])
        verified_add(v->list, f->path, &f->before, hex);
    verify_file_free(f);
}
