#include "model/batch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/*  state    has                              leaves by
 *  FREE     nothing                          a request
 *  PROMPT   rows of the prompt to go         the last of them
 *  DECODE   an id that is not in the model   finished
 */
enum slot_state { SLOT_FREE, SLOT_PROMPT, SLOT_DECODE };

struct slot {
    enum slot_state state;
    struct batch_request r;
    uint32_t position; /* of its next row */
    uint32_t known;    /* ids to read before there is a new one */
    uint32_t count;    /* new ids */
    uint32_t rows;     /* in this pass, drafts included */
    uint32_t drafts;
    struct draft draft;
};

struct batch {
    struct k3 *k;
    const struct batch_options *o;
    struct batch_counts *counts;
    struct why *why;
    struct slot *slot;
    uint32_t slots;
    struct batch_request waiting; /* for a place */
    bool     waits, over;
    struct k3_row *row;
    uint32_t rows;     /* of the pass */
    uint32_t most;     /* draft rows of a sequence */
    bool     decoding; /* the pass has a decode row */
    struct draft_ask *ask; /* [slots] */
    struct draft_cost cost;
    void    *scratch; /* of the sampler */
};

/* ---- who is there ---- */

static int fetch(struct batch *b, bool wait)
{
    while (!b->waits && !b->over) {
        int got = b->o->next(b->o->arg, wait, &b->waiting);
        if (got < 0)
            return why_set(b->why, got, "the next request is missing");
        b->waits = got == BATCH_TAKEN;
        b->over = got == BATCH_OVER;
        if (!wait)
            break;
    }
    return 0;
}

/* Give free places to requests. One more is fetched, so that it is known
 * whether there will be further passes. */
static int admit(struct batch *b)
{
    uint32_t i = 0;
    for (;;) {
        int err = fetch(b, !b->counts->running);
        if (err || !b->waits)
            return err;
        while (i < b->slots && b->slot[i].state != SLOT_FREE)
            i++;
        if (i == b->slots)
            return 0;
        struct slot *s = &b->slot[i];
        *s = (struct slot){ .state = SLOT_PROMPT, .r = b->waiting };
        assert(s->r.prompt_count >= 1 && s->r.given < s->r.most);
        s->known = s->r.prompt_count + s->r.given;
        s->count = s->r.given;
        draft_init(&s->draft);
        k3_reset(b->k, i);
        b->waits = false;
        b->counts->running++;
    }
}

/* ---- the rows of a pass ---- */

/* Divide `left` rows over the prompts, each an equal share as far as it has use
 * for it. There is at least one row for each. */
static uint32_t share_prompts(struct batch *b, uint32_t left)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < b->slots; i++)
        open += b->slot[i].state == SLOT_PROMPT;
    while (open && left) {
        uint32_t each = left / open ? left / open : 1, still = 0;
        for (uint32_t i = 0; i < b->slots && left; i++) {
            struct slot *s = &b->slot[i];
            if (s->state != SLOT_PROMPT)
                continue;
            uint32_t need = s->known - s->position - s->rows;
            uint32_t part = need < each ? need : each;
            part = part < left ? part : left;
            s->rows += part;
            left -= part;
            still += need > part;
        }
        open = still;
    }
    return left;
}

static void choose_drafts(struct batch *b, uint32_t rows, uint32_t room)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        uint32_t left = s->r.most - s->count;
        if (s->state != SLOT_DECODE)
            continue;
        draft_look(&s->draft, s->r.ids, s->r.prompt_count + s->count);
        b->ask[n++] = (struct draft_ask){
            .draft = &s->draft,
            .most = b->most < left - 1 ? b->most : left - 1 };
    }
    if (b->o->draft.adaptive)
        draft_spread(&b->cost, b->ask, n, rows, room);
    n = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        if (s->state != SLOT_DECODE)
            continue;
        struct draft_ask *a = &b->ask[n++];
        if (!b->o->draft.adaptive)
            a->width = !s->draft.match ? 0 : a->most < room ? a->most : room;
        room -= a->width;
        s->drafts = a->width;
        s->rows += a->width;
    }
}

static void fill_rows(struct batch *b)
{
    b->rows = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        const struct slot *s = &b->slot[i];
        bool decode = s->state == SLOT_DECODE;
        for (uint32_t j = 0; j < s->rows; j++) {
            uint32_t at = s->position + j;
            struct k3_row *row = &b->row[b->rows++];
            *row = (struct k3_row){
                .sequence = i, .position = at,
                .phase = decode ? K3_DECODE : K3_PREFILL,
                .draft = decode && j > 0,
                .logits = decode || b->o->logits ||
                          at + 1 == s->known,
                .id = decode && j ? draft_guess(&s->draft, s->r.ids, j - 1)
                                  : s->r.ids[at] };
        }
    }
}

static void lay_out(struct batch *b)
{
    uint32_t left = k3_rows(b->k), all = left;
    b->decoding = false;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        s->rows = s->state == SLOT_DECODE;
        s->drafts = 0;
        left -= s->rows;
        b->decoding |= s->rows;
    }
    left = share_prompts(b, left);
    if (b->most && b->decoding)
        choose_drafts(b, all - left,
                      left < k3_drafts(b->k) ? left : k3_drafts(b->k));
    fill_rows(b);
}

/* Passes that so many ids more take if every draft comes true. */
static uint64_t for_ids(const struct batch *b, uint64_t ids)
{
    return (ids + b->most) / (1 + b->most);
}

static uint64_t for_prompt(const struct batch *b, uint64_t rows)
{
    return (rows + k3_rows(b->k) - 1) / k3_rows(b->k);
}

/* Passes that are sure to come, this one included, unless end ids or stops make
 * them fewer: those of the sequence that needs most, or those after which the
 * request that waits can begin, and its own. */
static uint64_t sure_passes(const struct batch *b)
{
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < b->slots; i++) {
        const struct slot *s = &b->slot[i];
        uint64_t passes = 1;
        if (s->state == SLOT_FREE)
            continue;
        if (s->state == SLOT_DECODE)
            passes += for_ids(b, s->r.most - s->count - s->rows);
        else
            passes += for_prompt(b, s->known - s->position - s->rows) +
                      for_ids(b, s->r.most - s->count - 1);
        most = passes > most ? passes : most;
        least = passes < least ? passes : least;
    }
    if (b->waits) {
        const struct batch_request *r = &b->waiting;
        uint64_t passes = least + for_prompt(b, r->prompt_count + r->given) +
                          for_ids(b, r->most - r->given - 1);
        most = passes > most ? passes : most;
    }
    return most;
}

/* ---- after a pass ---- */

static int finish(struct batch *b, struct slot *s, enum batch_reason reason)
{
    s->state = SLOT_FREE;
    b->counts->running--;
    b->counts->finished++;
    int err = b->o->finished(b->o->arg, s->r.tag, s->count, reason);
    return err ? why_set(b->why, err, "a result could not be kept") : 0;
}

/* Take a sampled id. Returns whether the sequence goes on. */
static bool take(struct batch *b, struct slot *s, uint32_t id, int *err)
{
    const struct batch_options *o = b->o;
    b->counts->ids++;
    b->counts->decode_ids += b->decoding;
    s->r.ids[s->r.prompt_count + s->count] = id;
    if (!s->r.ignore_end && o->is_end && o->is_end(o->arg, id)) {
        *err = finish(b, s, BATCH_END);
        return false;
    }
    s->count++;
    if (o->token && o->token(o->arg, s->r.tag, id))
        *err = finish(b, s, BATCH_STOPPED);
    else if (s->count == s->r.most)
        *err = finish(b, s, BATCH_LENGTH);
    return s->state != SLOT_FREE;
}

static int hand_logits(struct batch *b, const struct slot *s, uint32_t index)
{
    if (!b->o->logits)
        return 0;
    int err = b->o->logits(b->o->arg, s->r.tag, k3_logits(b->k, index));
    return err ? why_set(b->why, err, "the logits could not be written") : 0;
}

/* The prompt rows of a slot are in the model; with the last of them comes its
 * first id. `index` is of its first row of logits. */
static int after_prompt(struct batch *b, struct slot *s, uint32_t index)
{
    int err = 0;
    for (uint32_t j = 0; j < s->rows && b->o->logits && !err; j++)
        err = hand_logits(b, s, index + j);
    s->position += s->rows;
    b->counts->prompt_ids += s->rows;
    if (err || s->position < s->known)
        return err;
    if (b->o->logits)
        index += s->rows - 1;
    s->state = SLOT_DECODE;
    take(b, s, sample(k3_logits(b->k, index), k3_config(b->k)->vocab,
                      &s->r.sample, 0, s->position, b->scratch), &err);
    return err;
}

/* One sure row and its drafts: take what is sampled until a draft turns out
 * wrong. */
static int after_decode(struct batch *b, struct slot *s, uint32_t index,
                        const struct k3_row *row)
{
    int err = 0;
    uint32_t accepted = 0;
    for (uint32_t j = 0; j < s->rows; j++) {
        err = hand_logits(b, s, index + j);
        if (err)
            return err;
        s->position++;
        uint32_t id = sample(k3_logits(b->k, index + j),
                             k3_config(b->k)->vocab, &s->r.sample, 0,
                             s->position, b->scratch);
        bool right = j + 1 < s->rows && id == row[j + 1].id;
        accepted += right;
        if (!take(b, s, id, &err) || !right)
            break;
    }
    if (s->drafts)
        k3_accept(b->k, row->sequence, accepted);
    if (s->state != SLOT_FREE)
        draft_learn(&s->draft, s->r.ids, s->r.prompt_count + s->count);
    b->counts->drafted += s->drafts;
    b->counts->accepted += accepted;
    return err;
}

static int judge(struct batch *b)
{
    int err = 0;
    uint32_t row = 0, index = 0;
    for (uint32_t i = 0; i < b->slots && !err; i++) {
        struct slot *s = &b->slot[i];
        uint32_t rows = s->rows, logits = 0;
        for (uint32_t j = row; j < row + rows; j++)
            logits += b->row[j].logits;
        if (s->state == SLOT_PROMPT)
            err = after_prompt(b, s, index);
        else if (s->state == SLOT_DECODE)
            err = after_decode(b, s, index, &b->row[row]);
        row += rows;
        index += logits;
    }
    return err;
}

static int one_pass(struct batch *b)
{
    lay_out(b);
    k3_allow(b->k, sure_passes(b));
    int err = k3_pass(b->k, b->row, b->rows, b->why);
    if (err)
        return err;
    b->counts->passes++;
    bool prompts = false;
    for (uint32_t i = 0; i < b->slots; i++)
        prompts |= b->slot[i].state == SLOT_PROMPT;
    if (!prompts)
        draft_cost_add(&b->cost, k3_last(b->k));
    err = judge(b);
    if (err)
        return err;
    err = b->o->pass ? b->o->pass(b->o->arg, b->counts) : 0;
    return err ? why_set(b->why, err, "stopped") : 0;
}

static int set_up(struct batch *b)
{
    b->slots = b->o->sequences < k3_rows(b->k) ? b->o->sequences
                                               : k3_rows(b->k);
    b->most = b->o->draft.most < k3_drafts(b->k) ? b->o->draft.most
                                                 : k3_drafts(b->k);
    draft_cost_init(&b->cost, draft_weights_share(b->k));
    b->slot = calloc(b->slots, sizeof *b->slot);
    b->ask = calloc(b->slots, sizeof *b->ask);
    b->row = calloc(k3_rows(b->k), sizeof *b->row);
    b->scratch = malloc((size_t)k3_config(b->k)->vocab * 16);
    if (b->slot && b->ask && b->row && b->scratch)
        return 0;
    return why_set(b->why, -ENOMEM, "no memory for the rows of a pass");
}

int batch_run(struct k3 *k, const struct batch_options *o,
              struct batch_counts *counts, struct why *why)
{
    struct batch b = { .k = k, .o = o, .counts = counts, .why = why };
    *counts = (struct batch_counts){ 0 };
    int err = set_up(&b);
    while (!err) {
        err = admit(&b);
        if (err || !counts->running)
            break;
        err = one_pass(&b);
    }
    free(b.slot);
    free(b.ask);
    free(b.row);
    free(b.scratch);
    return err;
}
