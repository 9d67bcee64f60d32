/* session.c - sluice.h: open and close, passes by hand, numbers. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/k3/limits.h"
#include "model/k3/shape.h"
#include "model/memory.h"
#include "model/session_internal.h"

enum { ROWS_DEFAULT = 256, CONTEXT_MAX = 1 << 24, THREADS_MAX = 1024 };

const char *sluice_version(void)
{
    return SLUICE_VERSION;
}

/* ---- from the caller ---- */

int session_copy(void *out, size_t size, const void *from)
{
    size_t theirs;
    memcpy(&theirs, from, sizeof theirs);
    memset(out, 0, size);
    if (theirs < sizeof theirs || theirs > 1 << 16)
        return -EINVAL;
    for (size_t i = size; i < theirs; i++)
        if (((const char *)from)[i])
            return -EINVAL;
    memcpy(out, from, theirs < size ? theirs : size);
    return 0;
}

int knobs_error(struct sluice_error *to, const struct error *from)
{
    if (to) {
        to->code = from->code;
        snprintf(to->text, sizeof to->text, "%s", from->text);
    }
    return from->code;
}

int knobs_error_back(struct error *to, const struct sluice_error *from)
{
    return error_set(to, from->code, "%s", from->text);
}

static int check_options(const struct sluice_options *o, struct error *error)
{
    if (o->threads > THREADS_MAX)
        return error_set(error, -EINVAL, "threads is at most %d", THREADS_MAX);
    if (o->context > CONTEXT_MAX)
        return error_set(error, -EINVAL, "context is at most %d", CONTEXT_MAX);
    if (o->rows > K3_ROWS_MAX)
        return error_set(error, -EINVAL, "rows is at most %d", K3_ROWS_MAX);
    if (o->sequences > K3_ROWS_MAX)
        return error_set(error, -EINVAL, "sequences is at most %d",
                         K3_ROWS_MAX);
    if (o->held > K3_ROWS_MAX || (o->held && !o->share))
        return error_set(error, -EINVAL, "held is at most %d, and for share",
                         K3_ROWS_MAX);
    if (o->drafts > DRAFT_FIXED_MAX && o->drafts != SLUICE_DRAFTS_AUTO)
        return error_set(error, -EINVAL, "drafts is at most %d",
                         DRAFT_FIXED_MAX);
    return 0;
}

static struct draft_options draft_of(const struct sluice_options *o)
{
    if (o->drafts == SLUICE_DRAFTS_AUTO)
        return (struct draft_options){ DRAFT_AUTO_MAX, true };
    return (struct draft_options){ o->drafts, false };
}

/* Bytes of the ids of running requests, beyond those that the plan's
 * program_bytes have room for. */
static uint64_t ids_heap(const struct k3_options *k)
{
    enum { IN_PROGRAM = 16384 };
    uint64_t ids = (uint64_t)k->sequences * k->context;
    return ids > IN_PROGRAM ? (ids - IN_PROGRAM) * sizeof(uint32_t) : 0;
}

/* For each option: the caller's, else the engine's (knobs.h), else the default.
 */
static void merge(struct k3_options *k, const struct sluice_options *o,
                  bool knobs)
{
    if (o->memory_bytes)
        k->memory_bytes = o->memory_bytes;
    if (!k->memory_bytes)
        k->memory_bytes = memory_default();
    if (o->threads)
        k->threads = o->threads;
    if (o->context)
        k->context = o->context;
    if (o->sequences)
        k->sequences = o->sequences;
    if (o->rows)
        k->rows = o->rows;
    if (!k->rows)
        k->rows = ROWS_DEFAULT;
    if (o->realtime)
        k->realtime = true;
    if (o->packed)
        k->packed = o->packed;
    if (!k->packed)
        k->packed = "auto";
    if (o->progress) {
        k->progress = o->progress;
        k->progress_arg = o->progress_arg;
    }
    k3_option_defaults(k);
    if (o->forms)
        k->heap_bytes += FORMS_BYTES + (uint64_t)FORM_BYTES * k->sequences;
    if (knobs)
        return;
    k->drafts = draft_of(o).max * k->sequences;
    k->logits = o->logits ? 0 /* as many as rows */ : k->sequences;
    k->heap_bytes += ids_heap(k);
}

/* ---- open and close ---- */

static int on_planned(void *arg, const struct k3 *k, struct error *error)
{
    const struct sluice *s = arg;
    const struct plan *p = k3_plan_of(k);
    int err = memory_fits(p->total_bytes - p->program_bytes, error);
    return !err && s->planned ? s->planned(s->planned_arg, k, error) : err;
}

static int open_text(struct sluice *s, const char *folder, struct error *error)
{
    struct stat st;
    char path[PATH_MAX];
    struct sluice_error why = { 0 };
    snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    if (s->text || stat(path, &st))
        return 0;
    s->own_text = true;
    return sluice_text_open(&s->text, folder, &why)
               ? knobs_error_back(error, &why)
               : 0;
}

static int open_drafter(struct sluice *s, const char *folder,
                        const struct sluice_options *from,
                        struct k3_options *k, struct error *error)
{
    struct config c;
    struct dspark_options o = { .context = k->context, .threads = k->threads,
                                .sequences = k->sequences };
    if (dspark_stream_named(&o.stream, from->drafter_taps))
        return error_set(error, -EINVAL,
                         "drafter_taps is prefix or attn_res");
    int err = config_load(&c, folder, error);
    if (err)
        return err;
    err = dspark_open(&s->drafter, from->drafter, &c, &o, error);
    config_free(&c);
    if (!err)
        k->guest = dspark_guest(s->drafter);
    return err;
}

static int open_session(struct sluice *s, const char *folder,
                        const struct sluice_options *options,
                        const struct k3_options *engine, struct error *error)
{
    struct sluice_options o = { .size = sizeof o };
    struct k3_options k = { 0 };
    if (options && session_copy(&o, sizeof o, options))
        return error_set(error, -EINVAL,
                         "the options have a size of %zu bytes, or fields "
                         "that sluice %s does not know",
                         options->size, SLUICE_VERSION);
    int err = check_options(&o, error);
    if (err)
        return err;
    if (engine)
        k = *engine;
    merge(&k, &o, engine);
    s->all_logits = !k.logits;
    k.sequences += o.held;
    k.heap_bytes += (uint64_t)o.held * k.context * sizeof(uint32_t);
    s->planned = k.planned;
    s->planned_arg = k.planned_arg;
    k.planned = on_planned;
    k.planned_arg = s;
    s->text = o.text;
    err = open_text(s, folder, error);
    if (!err && o.drafter)
        err = open_drafter(s, folder, &o, &k, error);
    if (!err)
        err = k3_open(&s->k, folder, &k, error);
    if (!err && s->drafter)
        err = dspark_start(s->drafter, s->k, error);
    if (err)
        return err;
    download_note(s->download_note, folder);
    s->sequences = k3_plan_of(s->k)->sequences - o.held;
    s->position = calloc(s->sequences, sizeof *s->position);
    if (!s->position)
        return error_set(error, -ENOMEM, "no memory for the sequences");
    if (o.forms && s->text)
        err = forms_open(&s->forms, s->text->tok, k3_config(s->k)->vocab,
                         session_is_end, s, error);
    if (!err)
        err = saved_open(s, o.prefix_cache, o.prefix_cache_bytes, error);
    struct batch_options b = { .draft = draft_of(&o), .share = o.share,
                               .held = o.held, .drafter = s->drafter };
    return err ? err : requests_open(s, &b, error);
}

int knobs_open(struct sluice **out, const char *folder,
               const struct sluice_options *options,
               const struct k3_options *engine, struct sluice_error *error)
{
    struct error e = { 0 };
    pthread_condattr_t attr;
    assert(out && folder);
    *out = NULL;
    struct sluice *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(&e, -ENOMEM, "no memory for a session");
        return knobs_error(error, &e);
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->news, &attr);
    pthread_condattr_destroy(&attr);
    s->waiting.end = &s->waiting.first;
    s->running.end = &s->running.first;
    if (open_session(s, folder, options, engine, &e)) {
        sluice_close(s);
        return knobs_error(error, &e);
    }
    k3_facts(s->k, &s->opened);
    requests_count(s);
    *out = s;
    return 0;
}

int sluice_open(struct sluice **out, const char *folder,
                const struct sluice_options *options,
                struct sluice_error *error)
{
    return knobs_open(out, folder, options, NULL, error);
}

void sluice_close(struct sluice *s)
{
    if (!s)
        return;
    assert(!s->stepping);
    requests_close(s);
    forms_close(s->forms);
    k3_close(s->k);
    dspark_close(s->drafter);
    saved_close(s);
    if (s->own_text)
        sluice_text_close(s->text);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    free(s->position);
    free(s);
}

void sluice_interrupt(struct sluice *s)
{
    k3_cancel(s->k);
}

struct k3 *knobs_engine(const struct sluice *s)
{
    return s->k;
}

const struct batch_counts *knobs_counts(const struct sluice *s)
{
    return batch_counts(s->batch);
}

const struct dspark *knobs_drafter(const struct sluice *s)
{
    return s->drafter;
}

struct sluice_text *sluice_text_of(const struct sluice *s)
{
    return s->text;
}

void session_say_drafter(struct sluice *s)
{
    const char *why = s->drafter ? dspark_failure(s->drafter) : NULL;
    char text[600];
    if (!why || s->drafter_said)
        return;
    for (struct request *q = s->running.first; q; q = q->after) {
        if (!q->r.note)
            continue;
        snprintf(text, sizeof text, "%s; going on without it", why);
        q->r.note(q->r.arg, text, false);
        s->drafter_said = true;
        return;
    }
}

/* ---- passes by hand ---- */

/* Rows of a sequence together, in order, from its next position on. */
static int check_rows(const struct sluice *s, const struct sluice_row *rows,
                      uint32_t count, struct error *error)
{
    uint32_t max = k3_rows(s->k), logits = 0;
    if (!count || count > max)
        return error_set(error, -EINVAL,
                         "%" PRIu32 " rows: a pass has 1 to %" PRIu32, count,
                         max);
    for (uint32_t i = 0; i < count; i++) {
        const struct sluice_row *r = &rows[i];
        bool goes_on = i && rows[i - 1].sequence == r->sequence;
        if (r->sequence >= s->sequences)
            return error_set(error, -EINVAL,
                             "row %" PRIu32 ": sequence %" PRIu32
                             ", there are %" PRIu32,
                             i, r->sequence, s->sequences);
        for (uint32_t j = 0; j + 1 < i && !goes_on; j++)
            if (rows[j].sequence == r->sequence)
                return error_set(error, -EINVAL,
                                 "row %" PRIu32 ": the rows of sequence "
                                 "%" PRIu32 " are not together",
                                 i, r->sequence);
        uint32_t next = goes_on ? rows[i - 1].position + 1
                                : s->position[r->sequence];
        if (r->position != next)
            return error_set(error, -EINVAL,
                             "row %" PRIu32 ": position %" PRIu32
                             ", the next of sequence %" PRIu32 " is %" PRIu32,
                             i, r->position, r->sequence, next);
        logits += r->logits;
    }
    if (!s->all_logits && logits > s->sequences)
        return error_set(error, -EINVAL,
                         "%" PRIu32 " rows want logits: without options.logits "
                         "there are %" PRIu32,
                         logits, s->sequences);
    return 0;
}

static int pass(struct sluice *s, const struct sluice_row *rows,
                uint32_t count, struct error *error)
{
    struct k3_row *row = calloc(count, sizeof *row);
    if (!row)
        return error_set(error, -ENOMEM, "no memory for the rows");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sequence = rows[i].sequence;
        bool alone = (!i || rows[i - 1].sequence != sequence) &&
                     (i + 1 == count || rows[i + 1].sequence != sequence);
        if (!rows[i].position)
            k3_reset(s->k, sequence); /* a request may have had it */
        row[i] = (struct k3_row){
            .sequence = sequence, .position = rows[i].position,
            .id = rows[i].id, .logits = rows[i].logits,
            .phase = alone ? K3_DECODE : K3_PREFILL };
    }
    k3_set_readahead(s->k, 1);
    int err = k3_pass(s->k, row, count, error);
    if (err && err != -EINVAL) /* that is said before the pass begins */
        requests_fail(s, err);
    for (uint32_t i = 0; i < count && !err; i++)
        s->position[rows[i].sequence] = rows[i].position + 1;
    free(row);
    return err;
}

int sluice_pass(struct sluice *s, const struct sluice_row *rows,
                uint32_t count, struct sluice_error *error)
{
    struct error e = { 0 };
    assert(!s->stepping);
    if (s->failed)
        error_set(&e, -ESHUTDOWN, "a pass has failed");
    else if (requests_any(s))
        error_set(&e, -EBUSY, "there are requests");
    else if (!check_rows(s, rows, count, &e))
        pass(s, rows, count, &e);
    requests_count(s);
    return knobs_error(error, &e);
}

const float *sluice_logits(const struct sluice *s, uint32_t i)
{
    return k3_logits(s->k, i);
}

void sluice_reset(struct sluice *s, uint32_t sequence)
{
    assert(sequence < s->sequences && !requests_any(s));
    k3_reset(s->k, sequence);
    s->position[sequence] = 0;
}

/* ---- numbers ---- */

static void copy_out(void *out, size_t size, const void *from, size_t bytes)
{
    memset(out, 0, size);
    memcpy(out, from, size < bytes ? size : bytes);
}

void sluice_info(const struct sluice *s, struct sluice_info *out, size_t size)
{
    const struct k3_options *o = k3_options_of(s->k);
    const struct plan *p = k3_plan_of(s->k);
    const struct k3_facts *f = &s->opened;
    struct sluice_info info = {
        .vocab = k3_config(s->k)->vocab, .context = o->context,
        .sequences = s->sequences, .rows = k3_rows(s->k),
        .threads = f->threads, .drafts = k3_drafts(s->k) / s->sequences,
        .budget_bytes = p->budget_bytes, .planned_bytes = p->total_bytes,
        .io = f->reader.method, .isa = f->isa, .policy = f->policy,
        .prefetch = f->prefetch };
    copy_out(out, size, &info, sizeof info);
}

const char *sluice_note(const struct sluice *s, uint32_t i)
{
    const struct k3_facts *f = &s->opened;
    if (i < f->coded_notes)
        return f->coded_note[i];
    i -= f->coded_notes;
    if (i < f->reader.notes)
        return f->reader.note[i];
    bool arena = f->arena_note;
    for (uint32_t j = 0; j < f->reader.notes && arena; j++)
        arena = strcmp(f->arena_note, f->reader.note[j]); /* else: twice */
    i -= f->reader.notes;
    if (arena && i == 0)
        return f->arena_note;
    return i == arena && s->download_note[0] ? s->download_note : NULL;
}

void sluice_counters(struct sluice *s, struct sluice_counters *out,
                     size_t size)
{
    pthread_mutex_lock(&s->lock);
    copy_out(out, size, &s->counters, sizeof s->counters);
    pthread_mutex_unlock(&s->lock);
}
