/* drafts.c - whose drafts a pass verifies, and how many.
 *
 * Before each pass: what would the text's own drafts give, in ids a second?
 * What would the drafter's, as often as they were right so far, with the time
 * that a draft takes? It is run where it gives more. Then its proposals compete
 * with the text's, sequence by sequence, and the rows go where they gain most.
 *
 * A drafter that does not pay is still tried now and then, for half a hundredth
 * of the time: its proposals are compared with what comes, without a row.
 *
 * What a draft takes. Where drives bind, it is its bytes at the rate of late:
 * while the drafter computes, the drives read on for the next pass, which then
 * is shorter. So the rest of the time that a draft was seen to take counts with
 * the pass that it was made for, and the two together are as long as they were.
 * Without bytes it is the mean of what drafts took.
 */
#include <string.h>

#include "io/clock.h"
#include "model/decode/batch_internal.h"

static const double pays = 1.02;     /* by which a draft must raise the ids */
static const double try_share = 0.005;
static const double form_chance = 0.8, form_tries = 2; /* of a form's first */
static const float form_decay = 0.95f;

/* ---- who asks ---- */

static bool has_drafter(const struct batch *b)
{
    return b->o.drafter && !dspark_failure(b->o.drafter);
}

/* The ids that drafts of an ask are expected to add, with all of them. */
static double worth(const struct draft_ask *a)
{
    double sum = 0, chance = 1;
    for (uint32_t i = 0; i < a->max; i++) {
        chance *= draft_ask_chance(a, i);
        sum += chance;
    }
    return sum;
}

/* What the form of a text goes on with, where that is better than what the text
 * itself does. */
static void ask_form(const struct batch *b, struct slot *s,
                     struct draft_ask *a)
{
    struct formed *f = &s->form;
    struct draft_ask other = *a;
    uint32_t most = a->max < DRAFT_AUTO_MAX ? a->max : DRAFT_AUTO_MAX;
    s->formed = false;
    f->count = 0;
    if (!s->r.masked || !b->o.likely || !most)
        return;
    f->count = b->o.likely(b->o.arg, s->r.tag, f->ids, most);
    f->at = s->r.prompt_count + s->count;
    for (uint32_t i = 0; i < f->count; i++)
        f->each[i] = ((double)f->right[i] + form_chance * form_tries) /
                     ((double)f->tried[i] + form_tries);
    other.each = f->each;
    other.max = f->count;
    other.formed = true;
    s->formed = f->count && worth(&other) > worth(a);
    if (s->formed)
        *a = other;
}

static void learn_form(struct slot *s)
{
    struct formed *f = &s->form;
    uint32_t count = s->r.prompt_count + s->count;
    bool right = true;
    for (uint32_t i = 0; i < f->count && f->at + i < count && right; i++) {
        right = s->r.ids[f->at + i] == f->ids[i];
        f->tried[i] = f->tried[i] * form_decay + 1;
        f->right[i] = f->right[i] * form_decay + right;
    }
    f->count = 0;
}

static uint32_t list_asks(struct batch *b)
{
    uint32_t n = 0, max = b->drafts_max;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        uint32_t left = s->r.max - s->count;
        s->trained = false;
        if (s->state != SLOT_DECODE)
            continue;
        if (s->rows < slot_unread(s))
            left = 1; /* there is no row with logits to draft behind */
        draft_look(&s->draft, s->r.ids, s->r.prompt_count + s->count);
        b->ask[n] =
            (struct draft_ask){ .draft = &s->draft,
                                .max = max < left - 1 ? max : left - 1 };
        ask_form(b, s, &b->ask[n++]);
    }
    return n;
}

/* Its context reaches up to the known id, and there is a use for drafts. */
static bool may_propose(const struct batch *b, uint32_t index)
{
    const struct slot *s = &b->slot[index];
    return s->state == SLOT_DECODE && slot_unread(s) == 1 &&
           s->r.max - s->count > 1 &&
           dspark_position(b->o.drafter, index) == s->position;
}

/* ---- a draft ---- */

/* Rows that a drafter gets of which little is known: one, then more. */
static uint32_t unknown(const struct batch *b)
{
    return 1 + (uint32_t)b->record.tried[0];
}

/* Let sequences ask with the drafter's chances where those are better: of
 * proposals that were made, or of those that a draft would make. */
static void choose_source(struct batch *b, bool made)
{
    uint32_t n = 0, rows = dspark_rows(b->o.drafter);
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        if (s->state != SLOT_DECODE)
            continue;
        struct draft_ask *text = &b->ask[n++], other = *text;
        if (s->formed)
            continue;
        bool there = made ? s->proposal.count &&
                                s->proposal.at ==
                                    s->r.prompt_count + s->count
                          : may_propose(b, i);
        text->each = NULL;
        if (!there)
            continue;
        proposal_chances(&s->proposal, &b->record, made);
        other.each = s->proposal.each;
        other.max = other.max < rows ? other.max : rows;
        if (b->o.draft.adaptive && other.max > unknown(b))
            other.max = unknown(b);
        if (b->o.draft.adaptive && worth(&other) <= worth(text))
            continue;
        *text = other;
        s->trained = made;
    }
}

static void count_draft(struct batch *b, double seconds, double bytes)
{
    double by_bytes = b->rate > 0 ? bytes / b->rate : 0;
    double mean = b->draft_s > 0 ? (b->draft_s + seconds) / 2 : seconds;
    b->draft_s = by_bytes > mean / 4 && by_bytes < seconds ? by_bytes : mean;
    b->beside_s = seconds;
    b->beside_bytes = bytes;
    b->since_s = 0;
}

/* Run the drafter for as many sequences as it takes at a time. */
static bool propose(struct batch *b)
{
    struct dspark_ask ask[DSPARK_BATCH];
    uint32_t slot[DSPARK_BATCH], n = 0;
    for (uint32_t j = 0; j < b->slots && n < DSPARK_BATCH; j++) {
        uint32_t i = (b->turn + j) % b->slots;
        const struct slot *s = &b->slot[i];
        if (!may_propose(b, i))
            continue;
        slot[n] = i;
        ask[n++] = (struct dspark_ask){ .sequence = i,
                                        .id = s->r.ids[s->position] };
    }
    if (!n)
        return false;
    if (n == DSPARK_BATCH) /* others have their turn next time */
        b->turn = (slot[n - 1] + 1) % b->slots;
    struct dspark_facts before, after;
    dspark_facts(b->o.drafter, &before);
    int64_t begin = clock_ns();
    if (dspark_draft(b->o.drafter, ask, n))
        return false;
    dspark_facts(b->o.drafter, &after);
    count_draft(b, (double)(clock_ns() - begin) / 1e9,
                (double)(after.read_bytes - before.read_bytes));
    for (uint32_t j = 0; j < n; j++) {
        struct slot *to = &b->slot[slot[j]];
        uint32_t at = to->r.prompt_count + to->count;
        if (b->o.instead)
            b->o.instead(b->o.arg, to->r.tag, at, ask[j].ids,
                         dspark_rows(b->o.drafter));
        proposal_set(&to->proposal, &ask[j], dspark_rows(b->o.drafter), at);
    }
    return true;
}

/* ---- how many ---- */

static void choose_adaptive(struct batch *b, uint32_t n, uint32_t rows,
                            uint32_t room)
{
    double plain = draft_spread(&b->cost, b->ask, n, rows, room, 0);
    if (!has_drafter(b) || !(b->cost.weight > 0))
        return;
    choose_source(b, false);
    double with = draft_spread(&b->cost, b->ask, n, rows, room, b->draft_s);
    bool due = b->since_s * try_share >= b->draft_s;
    bool drafted = (with > plain * pays || due) && propose(b);
    if (drafted)
        choose_source(b, true);
    for (uint32_t i = 0; i < n && !drafted; i++)
        if (!b->ask[i].formed)
            b->ask[i].each = NULL;
    draft_spread(&b->cost, b->ask, n, rows, room, drafted ? b->draft_s : 0);
}

static void choose_fixed(struct batch *b, uint32_t n, uint32_t room)
{
    if (has_drafter(b) && propose(b))
        choose_source(b, true);
    for (uint32_t i = 0; i < n; i++) {
        struct draft_ask *a = &b->ask[i];
        a->width = !a->each && !a->draft->match ? 0
                   : a->max < room              ? a->max
                                                : room;
        room -= a->width;
    }
}

void drafts_choose(struct batch *b, uint32_t rows, uint32_t room)
{
    uint32_t n = list_asks(b);
    if (b->o.draft.adaptive)
        choose_adaptive(b, n, rows, room);
    else
        choose_fixed(b, n, room);
    n = 0;
    for (uint32_t i = 0; i < b->slots; i++) {
        struct slot *s = &b->slot[i];
        if (s->state != SLOT_DECODE)
            continue;
        s->drafts = b->ask[n].width;
        s->rows += b->ask[n++].width;
    }
}

/* ---- after the pass ---- */

void drafts_time(struct batch *b, bool prompts)
{
    struct k3_totals last = *k3_last(b->k);
    double pass_s = (double)last.ns / 1e9;
    double bytes = (double)k3_read_bytes(&last) + b->beside_bytes;
    double rate = bytes / (pass_s + b->beside_s);
    b->rate = b->rate > 0 ? (3 * b->rate + rate) / 4 : rate;
    b->since_s += pass_s;
    if (b->beside_s > 0)
        last.ns += (int64_t)((b->beside_s - b->draft_s) * 1e9);
    if (!prompts && last.ns > 0)
        draft_cost_add(&b->cost, &last);
    b->beside_s = b->beside_bytes = 0;
}

void drafts_learn(struct batch *b, uint32_t index, uint32_t accepted)
{
    struct slot *s = &b->slot[index];
    uint32_t count = s->r.prompt_count + s->count;
    struct batch_drafts *from =
        &b->counts.source[s->formed    ? BATCH_FROM_FORM
                          : s->trained ? BATCH_FROM_DRAFTER
                                       : BATCH_FROM_TEXT];
    for (uint32_t i = 0; i < s->drafts; i++) {
        from->drafted[i]++;
        from->accepted[i] += i < accepted;
    }
    b->counts.drafted += s->drafts;
    b->counts.accepted += accepted;
    if (!s->over)
        draft_learn(&s->draft, s->r.ids, count);
    learn_form(s);
    proposal_learn(&s->proposal, &b->record, s->r.ids, count);
}

void drafts_keep(struct batch *b, uint32_t index, uint32_t position,
                 uint32_t row)
{
    const struct slot *s = &b->slot[index];
    if (has_drafter(b) && !s->over && s->position > position)
        dspark_keep(b->o.drafter, index, position, row,
                    s->position - position);
}
