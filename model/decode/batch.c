#include "model/decode/batch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "model/decode/batch_internal.h"

/* ---- who takes part ---- */

static void finish(struct batch *b, struct slot *s, enum batch_reason reason)
{
    assert(s->state != SLOT_FREE);
    s->state = SLOT_FREE;
    b->counts.running--;
    b->counts.finished++;
    b->o.finished(b->o.arg, s->r.tag, s->count, reason);
}

static void finish_waiting(struct batch *b, enum batch_reason reason)
{
    b->waits = false;
    b->counts.finished++;
    b->o.finished(b->o.arg, b->waiting.tag, b->waiting.given, reason);
}

static void finish_all(struct batch *b, enum batch_reason reason)
{
    for (uint32_t i = 0; i < b->slots; i++)
        if (b->slot[i].state != SLOT_FREE)
            finish(b, &b->slot[i], reason);
    if (b->waits)
        finish_waiting(b, reason);
}

/* Between two passes a sequence can leave without a trace. */
static void remove_cancelled(struct batch *b)
{
    const struct batch_options *o = &b->o;
    if (!o->cancelled)
        return;
    for (uint32_t i = 0; i < b->slots; i++)
        if (b->slot[i].state != SLOT_FREE &&
            o->cancelled(o->arg, b->slot[i].r.tag)) {
            if (o->leaves)
                o->leaves(o->arg, b->slot[i].r.tag, i);
            finish(b, &b->slot[i], BATCH_CANCELLED);
        }
    if (b->waits && o->cancelled(o->arg, b->waiting.tag))
        finish_waiting(b, BATCH_CANCELLED);
}

static void place(struct batch *b, uint32_t index)
{
    struct slot *s = &b->slot[index];
    *s = (struct slot){ .state = SLOT_PROMPT, .r = b->waiting };
    assert(s->r.prompt_count >= 1);
    assert(!s->r.given || s->r.given < s->r.max);
    s->known = s->r.prompt_count + s->r.given;
    s->count = s->r.given;
    draft_init(&s->draft);
    proposal_init(&s->proposal);
    prompt_begin(b, index);
    b->waits = false;
    b->counts.running++;
}

/* Give free places to requests. One more is asked for, so that it is known
 * whether further passes will come. */
static void admit(struct batch *b)
{
    uint32_t i = 0;
    for (;;) {
        if (!b->waits)
            b->waits = b->o.next(b->o.arg, &b->waiting);
        while (i < b->slots && b->slot[i].state != SLOT_FREE)
            i++;
        if (!b->waits || i == b->slots)
            return;
        place(b, i);
    }
}

/* ---- the rows of a pass ---- */

/* Divide `left` rows over the prompts, each an equal share as far as it has use
 * for it. There is at least one row for each. */
static uint32_t share_prompts(struct batch *b, uint32_t left)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < b->slots; i++)
        open += prompt_is_read(b, i);
    while (open && left) {
        uint32_t each = left / open ? left / open : 1, still = 0;
        for (uint32_t i = 0; i < b->slots && left; i++) {
            struct slot *s = &b->slot[i];
            if (!prompt_is_read(b, i))
                continue;
            uint32_t need = b->prompt[i].until - s->position - s->rows;
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

/* Rows for ids that came without a pass; one of the `left` rows stays for each
 * prompt. */
static uint32_t add_forced(struct batch *b, uint32_t left)
{
    uint32_t prompts = 0;
    for (uint32_t i = 0; i < b->slots; i++)
        prompts += b->slot[i].state == SLOT_PROMPT;
    for (uint32_t i = 0; i < b->slots && left > prompts; i++) {
        struct slot *s = &b->slot[i];
        if (s->state != SLOT_DECODE)
            continue;
        uint32_t more = slot_unread(s) - 1;
        more = more < left - prompts ? more : left - prompts;
        s->rows += more;
        left -= more;
    }
    return left;
}

static void fill_rows(struct batch *b)
{
    b->rows = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        const struct slot *s = &b->slot[i];
        bool decode = s->state == SLOT_DECODE;
        uint32_t kept = s->rows - s->drafts;
        uint32_t last = s->r.prompt_count + s->count - 1; /* known id */
        for (uint32_t j = 0; j < s->rows; j++) {
            uint32_t position = s->position + j;
            struct k3_row *row = &b->row[b->rows++];
            *row = (struct k3_row){
                .sequence = i,
                .position = position,
                .phase = decode ? K3_DECODE : K3_PREFILL,
                .draft = j >= kept,
                .logits = (decode && position >= last) || s->r.logits ||
                          (!decode && position + 1 == s->known),
                .id = j < kept    ? s->r.ids[position]
                      : s->formed  ? s->form.ids[j - kept]
                      : s->trained ? s->proposal.ids[j - kept]
                                   : draft_propose(&s->draft, s->r.ids,
                                                   j - kept)
            };
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
    left = add_forced(b, left);
    prompts_decide(b, left ? left : 1);
    left = share_prompts(b, left);
    if (b->drafts_max && b->decoding)
        drafts_choose(b, all - left,
                      left < k3_drafts(b->k) ? left : k3_drafts(b->k));
    fill_rows(b);
}

/* Passes for a number of further ids, if every draft is right. */
static uint64_t passes_for_ids(const struct batch *b, uint64_t ids)
{
    return (ids + b->drafts_max) / (1 + b->drafts_max);
}

/* The first new id comes with the last row of the prompt. */
static uint64_t passes_after_prompt(const struct batch *b,
                                    const struct batch_request *r)
{
    return r->max ? passes_for_ids(b, r->max - r->given - 1) : 0;
}

/* Passes that come, this one included, unless end ids or stops make them fewer:
 * those of the sequence that needs most, or those after which the request that
 * waits can begin, and its own. */
static uint64_t passes_to_come(const struct batch *b)
{
    uint64_t max = 0, min = UINT64_MAX;
    for (uint32_t i = 0; i < b->slots; i++) {
        const struct slot *s = &b->slot[i];
        uint64_t passes = 1;
        if (s->state == SLOT_FREE)
            continue;
        if (s->state == SLOT_DECODE)
            passes += passes_for_ids(b, s->r.max - s->count - 1 - s->drafts);
        else
            passes += prompt_passes(b, i) + passes_after_prompt(b, &s->r);
        max = passes > max ? passes : max;
        min = passes < min ? passes : min;
    }
    if (b->waits) {
        const struct batch_request *r = &b->waiting;
        uint64_t passes = min + prompt_passes_waiting(b) +
                          passes_after_prompt(b, r);
        max = passes > max ? passes : max;
    }
    return max;
}

/* ---- after a pass ---- */

static void end(struct slot *s, enum batch_reason reason)
{
    s->over = true;
    s->reason = reason;
}

/* Take a sampled id. The sequence may be over with it. */
static void take(struct batch *b, struct slot *s, uint32_t id)
{
    const struct batch_options *o = &b->o;
    b->counts.ids++;
    b->counts.decode_ids += b->decoding;
    s->r.ids[s->r.prompt_count + s->count] = id;
    if (!s->r.ignore_end && o->is_end && o->is_end(o->arg, id)) {
        end(s, BATCH_END);
        return;
    }
    s->count++;
    if (o->token && o->token(o->arg, s->r.tag, id))
        end(s, BATCH_STOPPED);
    else if (s->count == s->r.max)
        end(s, BATCH_LENGTH);
}

/* Hand out a row of logits. Returns whether the sequence goes on. */
static bool hand_logits(struct batch *b, struct slot *s, uint32_t index)
{
    if (!s->r.logits || !b->o.logits ||
        !b->o.logits(b->o.arg, s->r.tag, k3_logits(b->k, index)))
        return true;
    end(s, BATCH_STOPPED);
    return false;
}

static uint32_t sample_row(struct batch *b, const struct slot *s,
                           uint32_t index)
{
    const struct batch_options *o = &b->o;
    const float *logits = k3_logits(b->k, index);
    struct sample_context c = { .ids = s->r.ids, .prompt = s->r.prompt_count,
                                .fresh = s->count };
    if (s->r.masked)
        c.mask = o->mask(o->arg, s->r.tag);
    uint32_t id = sample(logits, k3_config(b->k)->vocab, &s->r.sample, &c, 0,
                         s->position, b->scratch);
    if (s->r.chosen)
        o->chosen(o->arg, s->r.tag, id, logits);
    return id;
}

/* Say the ids that have to come, as long as there is one only. */
static void take_forced(struct batch *b, struct slot *s)
{
    uint32_t id;
    bool may = s->r.masked && b->o.only && !s->r.chosen && !s->r.logits;
    while (may && !s->over && b->o.only(b->o.arg, s->r.tag, &id)) {
        b->counts.forced++;
        take(b, s, id);
    }
}

/* The prompt rows of a slot were read; with the last of them comes its first
 * id. `index` is of its first row of logits. */
static void after_prompt(struct batch *b, struct slot *s, uint32_t index)
{
    if (s->r.logits) {
        for (uint32_t j = 0; j < s->rows; j++)
            if (!hand_logits(b, s, index + j))
                return;
        index += s->rows - 1;
    }
    s->position += s->rows;
    b->counts.prompt_ids += s->rows;
    if (s->position < s->known)
        return;
    s->state = SLOT_DECODE;
    if (s->r.max) {
        take(b, s, sample_row(b, s, index));
        take_forced(b, s);
    } else {
        end(s, BATCH_LENGTH);
    }
}

/* Rows of known ids, the last of them with logits unless there are more, and
 * its drafts: take what is sampled until a draft turns out wrong. */
static void after_decode(struct batch *b, struct slot *s, uint32_t index,
                         const struct k3_row *row)
{
    uint32_t accepted = 0, kept = s->rows - s->drafts;
    if (kept < slot_unread(s)) {
        s->position += kept;
        return;
    }
    s->position += kept - 1;
    for (uint32_t j = 0; j <= s->drafts; j++) {
        if (!hand_logits(b, s, index + j))
            break;
        s->position++;
        uint32_t id = sample_row(b, s, index + j);
        bool right = j < s->drafts && id == row[kept + j].id;
        accepted += right;
        take(b, s, id);
        if (s->over || !right)
            break;
    }
    if (s->drafts)
        k3_accept(b->k, row->sequence, accepted);
    take_forced(b, s);
    drafts_learn(b, row->sequence, accepted);
}

/* The slot has what the pass gave it. */
static void after_rows(struct batch *b, uint32_t index)
{
    struct slot *s = &b->slot[index];
    if (b->o.passed)
        b->o.passed(b->o.arg, s->r.tag, index, s->count, s->over);
    if (s->over)
        finish(b, s, s->reason);
}

static void take_results(struct batch *b)
{
    uint32_t row = 0, index = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        uint32_t rows = s->rows, logits = 0, position = s->position;
        for (uint32_t j = row; j < row + rows; j++)
            logits += b->row[j].logits;
        if (s->state == SLOT_PROMPT)
            after_prompt(b, s, index);
        else if (s->state == SLOT_DECODE)
            after_decode(b, s, index, &b->row[row]);
        drafts_keep(b, i, position, row);
        row += rows;
        index += logits;
        if (rows)
            after_rows(b, i);
    }
    prompts_copy(b);
}

int batch_step(struct batch *b, struct error *error)
{
    assert(!b->failed);
    remove_cancelled(b);
    admit(b);
    if (!b->counts.running)
        return 0;
    lay_out(b);
    k3_set_readahead(b->k, passes_to_come(b));
    int err = k3_pass(b->k, b->row, b->rows, error);
    if (err) {
        b->failed = true;
        finish_all(b, BATCH_FAILED);
        return err;
    }
    b->counts.passes++;
    bool prompts = false;
    for (uint32_t i = 0; i < b->slots; i++)
        prompts |= b->slot[i].state == SLOT_PROMPT;
    drafts_time(b, prompts);
    take_results(b);
    return 1;
}

/* ---- open and close ---- */

int batch_check(const struct k3 *k, const struct batch_request *r,
                struct error *error)
{
    const struct config *c = k3_config(k);
    uint32_t context = k3_options_of(k)->context;
    uint64_t positions = (uint64_t)r->prompt_count + r->max - (r->max > 0);
    if (!r->prompt_count)
        return error_set(error, -EINVAL, "the prompt is empty");
    for (uint32_t i = 0; i < r->prompt_count + r->given; i++)
        if (r->ids[i] >= c->vocab)
            return error_set(error, -EINVAL,
                             "token id %" PRIu32 " is out of range"
                             ", the vocabulary has %" PRIu32,
                             r->ids[i], c->vocab);
    if (positions > context)
        return error_set(error, -EINVAL,
                         "a prompt of %" PRIu32 " ids and %" PRIu32
                         " new ones do not fit the context of %" PRIu32
                         " positions",
                         r->prompt_count, r->max, context);
    if (r->given && r->given >= r->max)
        return error_set(error, -EINVAL,
                         "%" PRIu32 " ids are given, and no more than %" PRIu32
                         " wanted",
                         r->given, r->max);
    return 0;
}

int batch_open(struct batch **out, struct k3 *k, const struct batch_options *o,
               struct error *error)
{
    assert(o->sequences && o->next && o->finished);
    *out = NULL;
    struct batch *b = calloc(1, sizeof *b);
    if (!b)
        return error_set(error, -ENOMEM, "no memory for a batch");
    uint32_t rows = k3_rows(k), drafts = k3_drafts(k);
    b->k = k;
    b->o = *o;
    b->slots = o->sequences < rows ? o->sequences : rows;
    b->drafts_max = o->draft.max < drafts ? o->draft.max : drafts;
    draft_cost_init(&b->cost, draft_weights_share(k));
    proposal_record_init(&b->record);
    b->slot = calloc(b->slots, sizeof *b->slot);
    b->ask = calloc(b->slots, sizeof *b->ask);
    b->row = calloc(rows, sizeof *b->row);
    b->scratch = malloc((size_t)k3_config(k)->vocab * SAMPLE_ID_BYTES);
    if (b->slot && b->ask && b->row && b->scratch &&
        !prompts_open(b)) {
        *out = b;
        return 0;
    }
    batch_close(b);
    return error_set(error, -ENOMEM, "no memory for the rows of a pass");
}

void batch_close(struct batch *b)
{
    if (!b)
        return;
    if (b->slot)
        finish_all(b, BATCH_CANCELLED);
    prompts_close(b);
    free(b->slot);
    free(b->ask);
    free(b->row);
    free(b->scratch);
    free(b);
}

const struct batch_counts *batch_counts(const struct batch *b)
{
    return &b->counts;
}
