/* shared.c - an engine whose weights other processes share: gathers, what rank
 * 0 says to the others, and how they follow. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/crc32c.h"
#include "compute/pack.h"
#include "model/ckpt/identity.h"
#include "model/k3/k3_internal.h"
#include "model/k3/limits.h"
#include "model/k3/sequence.h"
#include "model/k3/shared.h"

struct said {
    struct saying list[K3_SAYINGS];
    uint32_t count;
};

int k3_shared_open(struct k3 *k, struct error *error)
{
    if (!k->o.peers)
        return 0;
    k->said = calloc(1, sizeof *k->said);
    k->machine = calloc(k->o.peers->count, sizeof *k->machine);
    return k->said && k->machine
               ? 0
               : error_set(error, -ENOMEM, "no memory for the other ranks");
}

void k3_shared_close(struct k3 *k)
{
    if (k->said)
        k3_say(k, SAID_CLOSE, 0, 0, NULL);
    free(k->said);
    free(k->machine);
}

/* ---- what rank 0 says ---- */

static int flush(struct k3 *k, const struct k3_row *rows, uint32_t n,
                 struct error *error)
{
    const struct peers *p = k->o.peers;
    struct said_head head = { .count = k->said->count, .rows = n };
    int err = p->tell(p->arg, &head, sizeof head, error);
    if (!err && head.count)
        err = p->tell(p->arg, k->said->list,
                      head.count * sizeof *k->said->list, error);
    if (!err && n)
        err = p->tell(p->arg, (void *)(uintptr_t)rows, n * sizeof *rows,
                      error);
    k->said->count = 0;
    return err;
}

int k3_say(struct k3 *k, enum said_op op, uint64_t a, uint64_t b,
           struct error *error)
{
    struct error unheard = { 0 };
    bool pass = op == SAID_PASS;
    if (!k->open || !k->said || k->o.peers->rank)
        return 0;
    if (!error)
        error = &unheard;
    k->said->list[k->said->count++] =
        (struct saying){ .op = op, .a = a, .b = pass ? 0 : b };
    if (pass)
        return flush(k, (const struct k3_row *)(uintptr_t)b, (uint32_t)a,
                     error);
    if (op >= SAID_PASS || k->said->count == K3_SAYINGS)
        return flush(k, NULL, 0, error);
    return 0;
}

/* ---- together ---- */

int k3_meet(struct k3 *k, int err, uint64_t value, const char *what,
            struct error *error)
{
    const struct peers *p = k->o.peers;
    if (!p || k->told)
        return err;
    err = p->meet(p->arg, err, value, what, error);
    k->told = err;
    return err;
}

uint64_t k3_hash(const struct k3 *k)
{
    const struct flow *f = &k->flow;
    uint32_t ids = 0, values = 0;
    if (!k->o.peers)
        return 0;
    for (uint32_t r = 0; r < f->rows; r++)
        ids = crc32c(ids, &f->row[r].id, sizeof f->row[r].id);
    values = crc32c(values, k->s.sum,
                    (size_t)f->rows * k->c.hidden * sizeof(float));
    values = crc32c(values, k->s.logits,
                    (size_t)k->logit_rows * k->c.vocab * sizeof(float));
    return (uint64_t)ids << 32 | values;
}

struct columns {
    struct row_range of[CUTS_PARTS_MAX];
    size_t width;
};

/* Get the columns of the others, for rows of `ld` floats: as many rows at one
 * time as there is room for. */
static int gather_columns(struct k3 *k, float *y, size_t rows,
                          const struct columns *c)
{
    const struct peers *p = k->o.peers;
    size_t width = c->width, most = k->s.gather_floats / width;
    for (size_t first = 0; first < rows; first += most) {
        size_t n = rows - first < most ? rows - first : most;
        float *base = y + first * width, *block = n > 1 ? k->s.gather : base;
        uint64_t end[CUTS_PARTS_MAX];
        for (uint32_t r = 0; r < p->count; r++)
            end[r] = n * c->of[r].end * sizeof(float);
        struct row_range own = c->of[p->rank];
        size_t cols = own.end - own.begin;
        for (size_t i = 0; i < n && n > 1; i++)
            memcpy(block + n * own.begin + i * cols,
                   base + i * width + own.begin, cols * sizeof *y);
        int err = p->gather(p->arg, block, end, k->error);
        if (err)
            return err;
        for (uint32_t r = 0; r < p->count && n > 1; r++) {
            struct row_range of = c->of[r];
            cols = of.end - of.begin;
            for (size_t i = 0; i < n && r != p->rank; i++)
                memcpy(base + i * width + of.begin,
                       block + n * of.begin + i * cols, cols * sizeof *y);
        }
    }
    return 0;
}

static uint32_t owner_of(const struct columns *c, uint32_t id)
{
    uint32_t r = 0;
    while (id >= c->of[r].end)
        r++;
    return r;
}

/* Whole rows, each from the rank that has its id. */
static int gather_embedding(struct k3 *k, const struct columns *c)
{
    const struct peers *p = k->o.peers;
    const struct flow *f = &k->flow;
    size_t width = k->c.hidden, most = k->s.gather_floats / width;
    for (size_t first = 0; first < f->rows; first += most) {
        size_t last = f->rows - first < most ? f->rows : first + most;
        uint64_t end[CUTS_PARTS_MAX], at[CUTS_PARTS_MAX] = { 0 };
        for (size_t i = first; i < last; i++)
            at[owner_of(c, f->row[i].id)] += width;
        for (uint32_t r = 0, sum = 0; r < p->count; r++) {
            uint64_t n = at[r];
            at[r] = sum;
            sum += (uint32_t)n;
            end[r] = sum * sizeof(float);
        }
        uint64_t own = at[p->rank];
        for (size_t i = first; i < last; i++)
            if (owner_of(c, f->row[i].id) == p->rank) {
                memcpy(k->s.gather + own, k->s.sum + i * width,
                       width * sizeof(float));
                own += width;
            }
        int err = p->gather(p->arg, k->s.gather, end, k->error);
        if (err)
            return err;
        for (size_t i = first; i < last; i++) {
            uint64_t *from = &at[owner_of(c, f->row[i].id)];
            memcpy(k->s.sum + i * width, k->s.gather + *from,
                   width * sizeof(float));
            *from += width;
        }
    }
    return 0;
}

int k3_gather(struct k3 *k, const struct step *s)
{
    const struct peers *p = k->o.peers;
    uint32_t rows = s->flags & STEP_LOGIT_ROWS ? k->logit_rows : k->flow.rows;
    struct columns c = { .width = s->width };
    int err = k3_meet(k, 0, 0, NULL, k->error);
    for (uint32_t r = 0; r < p->count && !err; r++)
        c.of[r] = cuts_rows(&k->o.owned->cuts, r, (enum tensor_role)s->role,
                            &k->c, s->layer);
    if (err)
        return err;
    err = s->role == T_EMBED
              ? gather_embedding(k, &c)
              : gather_columns(k, k->s.buffer[s->in], rows, &c);
    if (!err && s->out != BUFFER_NONE)
        k3_pack(k, k->s.buffer[s->out], k->s.buffer[s->in], rows, s->width);
    k->told = k->told ? k->told : err;
    return err;
}

int k3_gather_experts(struct k3 *k, uint32_t rows)
{
    struct columns c = { .width = k->c.moe_inter };
    int err = k3_meet(k, 0, 0, NULL, k->error);
    for (uint32_t r = 0; r < k->o.peers->count; r++)
        c.of[r] = cuts_expert_rows(&k->o.owned->cuts, r, 0, &k->c);
    if (!err)
        err = gather_columns(k, k->s.expert_g, rows, &c);
    if (!err)
        k3_pack(k, k->s.expert_a, k->s.expert_g, rows, c.width);
    k->told = k->told ? k->told : err;
    return err;
}

/* ---- what each has done ---- */

void k3_gather_machines(struct k3 *k)
{
    const struct peers *p = k->o.peers;
    struct error error = { 0 };
    struct peers_facts f;
    if (!k->machine)
        return;
    p->facts(p->arg, &f);
    struct k3_machine *m = &k->machine[p->rank];
    *m = (struct k3_machine){
        .wait_ns = f.wait_ns, .gather_ns = f.gather_ns, .gathers = f.gathers,
        .sent_bytes = f.sent_bytes, .received_bytes = f.received_bytes,
        .resident_bytes = k->flow.plan.resident_payload_bytes,
        .budget_bytes = k->flow.plan.budget_bytes,
        .planned_bytes = k->flow.plan.total_bytes,
        .bytes_per_s = k->flow.bytes_per_s };
    for (int i = 0; i < K3_PHASES; i++) {
        const struct k3_totals *t = &k->flow.totals[i];
        m->passes += t->passes;
        m->rows += t->rows;
        m->pass_ns += t->ns;
        m->wait_drive_ns += t->wait_trunk_ns + t->wait_expert_ns;
        m->trunk_bytes += t->trunk_bytes;
        m->expert_bytes += t->demand_bytes + t->prefetch_bytes;
        m->read_bytes += k3_read_bytes(t);
    }
    snprintf(m->host, sizeof m->host, "%s", p->host(p->arg, p->rank));
    uint64_t end[CUTS_PARTS_MAX];
    for (uint32_t r = 0; r < p->count; r++)
        end[r] = (r + 1) * sizeof *m;
    p->gather(p->arg, k->machine, end, &error);
}

const struct k3_machine *k3_machines(const struct k3 *k, uint32_t *count)
{
    *count = k->machine ? k->o.peers->count : 1;
    return k->machine;
}

enum { NAME_BYTES = 64, PATH_BYTES = 4096 };

/* What is the same in all processes. */
struct opening {
    uint32_t opens; /* 0: no engine comes any more */
    uint32_t context, rows, logits, sequences, drafts, check_reads;
    float    latent_eps;
    char     policy[NAME_BYTES], prefetch[NAME_BYTES], pin_file[PATH_BYTES];
};

/* ---- opening ---- */

int k3_announce(const struct k3 *k, struct error *error)
{
    const struct k3_options *o = &k->o;
    const struct peers *p = o->peers;
    struct opening all = {
        .opens = 1, .context = o->context, .rows = o->rows,
        .logits = o->logits, .sequences = o->sequences, .drafts = o->drafts,
        .check_reads = o->check_reads, .latent_eps = o->mla_latent_eps };
    if (!p || p->rank)
        return 0;
    snprintf(all.policy, sizeof all.policy, "%s", o->policy);
    snprintf(all.prefetch, sizeof all.prefetch, "%s", o->prefetch);
    snprintf(all.pin_file, sizeof all.pin_file, "%s",
             o->pin_file ? o->pin_file : "");
    return p->tell(p->arg, &all, sizeof all, error);
}

int k3_dismiss(const struct peers *p, struct error *error)
{
    struct opening none = { 0 };
    return p->tell(p->arg, &none, sizeof none, error);
}

int k3_agree_model(struct k3 *k, int err, struct error *error)
{
    const struct peers *p = k->o.peers;
    struct identity id = { 0 };
    if (!p)
        return err;
    if (!err)
        err = weights_identity(&id, &k->weights, error);
    err = k3_meet(k, err, err ? 0 : p->program, "program", error);
    uint64_t value = crc32c(0, id.byte, sizeof id.byte);
    if (!err)
        err = k3_meet(k, 0, value, "config or checkpoint", error);
    float eps = k->c.mla_latent_eps;
    if (!err)
        err = k3_meet(k, 0, crc32c(0, &eps, sizeof eps), "--mla-latent-eps",
                      error);
    value = crc32c(0, &k->o.owned->cuts, sizeof k->o.owned->cuts);
    if (!err)
        err = k3_meet(k, 0, value, "division of the weights", error);
    if (!err && !owned_by_all(&k->o.owned->cuts, &k->c))
        err = error_set(error, -ENOTSUP,
                        "the experts of this model have too few rows for "
                        "%u processes of these weights", p->count);
    return err;
}

int k3_agree_plan(struct k3 *k, struct k3_shape *s, int err,
                  struct error *error)
{
    const struct peers *p = k->o.peers;
    uint32_t granted[2 * CUTS_PARTS_MAX];
    uint64_t end[CUTS_PARTS_MAX];
    if (!p)
        return err;
    err = k3_meet(k, err, 0, NULL, error);
    if (err)
        return err;
    for (uint32_t r = 0; r < p->count; r++)
        end[r] = (r + 1) * 2 * sizeof *granted;
    granted[2 * p->rank] = s->plan.rows;
    granted[2 * p->rank + 1] = s->drafts;
    err = p->gather(p->arg, granted, end, error);
    struct k3_options least = k->o;
    least.rows = s->plan.rows;
    least.drafts = s->drafts;
    for (uint32_t r = 0; r < p->count && !err; r++) {
        uint32_t rows = granted[2 * r], drafts = granted[2 * r + 1];
        least.rows = rows < least.rows ? rows : least.rows;
        least.drafts = drafts < least.drafts ? drafts : least.drafts;
    }
    if (!err && (least.rows < s->plan.rows || least.drafts < s->drafts))
        err = k3_shape_plan(s, &k->c, &least, team_threads(k->team));
    return k3_meet(k, err, (uint64_t)s->plan.rows << 32 | s->drafts,
                   "number of rows in a pass", error);
}

/* ---- following ---- */

static void obey(struct k3 *k, const struct saying *s)
{
    switch (s->op) {
    case SAID_RESET:
        k3_reset(k, (uint32_t)s->a);
        return;
    case SAID_COPY:
        k3_copy(k, (uint32_t)s->a, (uint32_t)s->b);
        return;
    case SAID_ACCEPT:
        k3_accept(k, (uint32_t)s->a, (uint32_t)s->b);
        return;
    case SAID_READAHEAD:
        k3_set_readahead(k, s->a);
        return;
    case SAID_SAVE:
    case SAID_LOAD:
        k3_share_obey(k, (uint32_t)s->a, s->op == SAID_LOAD, (uint32_t)s->b);
        return;
    case SAID_QUIESCE:
        k3_quiesce(k);
        return;
    }
}

/* Do what rank 0 says with this engine, until it is closed. An error of a pass
 * is known to all: rank 0 closes the engine next. A rank that is lost ends
 * it. */
static int obey_all(struct k3 *k, struct saying *list, struct k3_row *row,
                    struct error *error)
{
    const struct peers *p = k->o.peers;
    for (int failed = 0;;) {
        struct said_head head = { 0 };
        struct error *to = failed ? &(struct error){ 0 } : error;
        int err = p->tell(p->arg, &head, sizeof head, to);
        if (!err && head.count)
            err = p->tell(p->arg, list, head.count * sizeof *list, to);
        if (!err && head.rows)
            err = p->tell(p->arg, row, head.rows * sizeof *row, to);
        if (err)
            return failed ? failed : err;
        for (uint32_t i = 0; i < head.count; i++) {
            if (list[i].op == SAID_CLOSE)
                return failed;
            if (list[i].op == SAID_PASS)
                failed = k3_pass(k, row, head.rows, error);
            else
                obey(k, &list[i]);
        }
    }
}

int k3_refuse(const struct peers *p, int why, const char *sentence,
              struct error *error)
{
    struct opening *all = calloc(1, sizeof *all);
    int err = all ? 0 : error_set(error, -ENOMEM, "no memory");
    while (!err) {
        struct error said = { 0 };
        err = p->tell(p->arg, all, sizeof *all, error);
        if (err || !all->opens)
            break;
        error_set(&said, why, "%s", sentence);
        err = p->meet(p->arg, why, 0, NULL, &said);
        err = err == -ECONNABORTED ? err : 0;
    }
    free(all);
    return err;
}

int k3_follow(const char *dir, const struct k3_options *local,
              struct error *error)
{
    const struct peers *p = local->peers;
    struct opening *all = calloc(1, sizeof *all);
    struct saying *list = calloc(K3_SAYINGS, sizeof *list);
    struct k3_row *row = calloc(K3_ROWS_MAX, sizeof *row);
    int ended = 0, err = 0;
    if (!all || !list || !row)
        err = error_set(error, -ENOMEM, "no memory to follow rank 0");
    while (!err) {
        struct error why = { 0 };
        struct k3 *k;
        err = p->tell(p->arg, all, sizeof *all, error);
        if (err || !all->opens)
            break;
        struct k3_options o = *local;
        o.context = all->context;
        o.rows = all->rows;
        o.logits = all->logits;
        o.sequences = all->sequences;
        o.drafts = all->drafts;
        o.check_reads = (enum k3_check)all->check_reads;
        o.mla_latent_eps = all->latent_eps;
        o.policy = all->policy;
        o.prefetch = all->prefetch;
        o.pin_file = all->pin_file[0] ? all->pin_file : NULL;
        ended = k3_open(&k, dir, &o, &why);
        if (!ended) {
            ended = obey_all(k, list, row, &why);
            k3_close(k);
        }
        *error = why;
    }
    free(all);
    free(list);
    free(row);
    return err ? err : ended;
}
