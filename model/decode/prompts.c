/* prompts.c - where the prompts of a batch begin, who reads them, and who gets
 * a copy of the state. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/decode/batch_internal.h"
#include "model/k3/sequence.h"

/* ---- before a pass ---- */

/* The longest held beginning of a request's ids, not all of them; NULL: none.
 */
static struct held *find_held(const struct batch *b,
                              const struct batch_request *r)
{
    struct held *best = NULL;
    for (uint32_t i = 0; i < b->o.held; i++) {
        struct held *h = &b->held[i];
        if (h->count && h->count < r->prompt_count + r->given &&
            (!best || h->count > best->count) &&
            !memcmp(h->ids, r->ids, h->count * sizeof *h->ids))
            best = h;
    }
    return best;
}

void prompt_begin(struct batch *b, uint32_t index)
{
    struct slot *s = &b->slot[index];
    struct held *h = find_held(b, &s->r);
    k3_reset(b->k, index);
    uint32_t from = b->o.sequences + (uint32_t)(h ? h - b->held : 0);
    if (h) {
        k3_copy(b->k, index, from);
        h->used = b->counts.passes;
        s->position = h->count;
    }
    uint32_t have = s->position;
    if (b->o.begin)
        s->position = b->o.begin(b->o.arg, s->r.tag, index, have);
    assert(s->position < s->known);
    assert(s->position == k3_positions(b->k, index));
    if (b->o.drafter && h && s->position == have)
        dspark_copy(b->o.drafter, index, from);
    else if (b->o.drafter) /* what a file had, it has not seen */
        dspark_begin(b->o.drafter, index, s->position);
    if (s->position > have)
        b->counts.loaded_ids += s->position;
    else
        b->counts.copied_ids += s->position;
}

/* Is there a place for states of common beginnings? */
static bool keeps(const struct batch *b)
{
    return b->o.share && (b->o.held || b->o.parted);
}

/* The state of just these first ids. */
static bool is_held(const struct batch *b, const struct batch_request *r,
                    uint32_t count)
{
    for (uint32_t i = 0; i < b->o.held; i++)
        if (b->held[i].count == count &&
            !memcmp(b->held[i].ids, r->ids, count * sizeof *r->ids))
            return true;
    return false;
}

void prompts_decide(struct batch *b, uint32_t rows)
{
    for (uint32_t i = 0; i < b->slots; i++) {
        const struct slot *s = &b->slot[i];
        struct share_prompt *p = &b->prompt[i];
        *p = (struct share_prompt){ .leader = SHARE_ALONE,
                                    .until = s->known };
        if (s->state == SLOT_PROMPT)
            *p = (struct share_prompt){ s->r.ids, s->known, s->position,
                                        SHARE_ALONE, s->known };
    }
    struct share_prompt *last = &b->prompt[b->slots];
    *last = (struct share_prompt){ .leader = SHARE_ALONE };
    if (b->waits && keeps(b)) { /* a state is kept for it */
        const struct batch_request *r = &b->waiting;
        const struct held *h = find_held(b, r);
        *last = (struct share_prompt){ r->ids, r->prompt_count + r->given,
                                       h ? h->count : 0, SHARE_ALONE, 0 };
    }
    if (b->o.share)
        share_decide(b->prompt, b->slots + 1, b->slots, rows);
    for (uint32_t i = 0; i < b->slots; i++) {
        struct share_prompt *p = &b->prompt[i];
        const struct batch_request *r = &b->slot[i].r;
        uint32_t pause = UINT32_MAX;
        if (!p->ids || p->leader != SHARE_ALONE)
            continue;
        if (b->o.pause)
            pause = b->o.pause(b->o.arg, r->tag, p->position);
        assert(pause > p->position);
        p->until = pause < p->until ? pause : p->until;
        if (keeps(b) && r->common > p->position && r->common < p->until &&
            !is_held(b, r, r->common))
            p->until = r->common;
    }
}

bool prompt_is_read(const struct batch *b, uint32_t index)
{
    return b->slot[index].state == SLOT_PROMPT &&
           b->prompt[index].leader == SHARE_ALONE;
}

static uint64_t passes_for_rows(const struct batch *b, uint64_t rows)
{
    return (rows + k3_rows(b->k) - 1) / k3_rows(b->k);
}

uint64_t prompt_passes(const struct batch *b, uint32_t index)
{
    const struct slot *s = &b->slot[index];
    const struct share_prompt *p = &b->prompt[index];
    uint64_t before = 0;
    if (p->leader != SHARE_ALONE) {
        const struct slot *l = &b->slot[p->leader];
        before = p->until - l->position - l->rows;
    } else if (p->until < s->known) {
        before = p->until - s->position - s->rows;
    } else {
        return passes_for_rows(b, s->known - s->position - s->rows);
    }
    return passes_for_rows(b, before) +
           passes_for_rows(b, s->known - p->until);
}

/* `begin` may know more of it. */
uint64_t prompt_passes_waiting(const struct batch *b)
{
    const struct batch_request *r = &b->waiting;
    const struct share_prompt *p = &b->prompt[b->slots];
    uint32_t have = p->leader != SHARE_ALONE ? p->until : p->position;
    return r->saved ? 1
                      : passes_for_rows(b, r->prompt_count + r->given - have);
}

/* ---- after a pass ---- */

static void copy(struct batch *b, uint32_t to, uint32_t from)
{
    k3_copy(b->k, to, from);
    if (b->o.drafter)
        dspark_copy(b->o.drafter, to, from);
}

/* Keep a leader's state in the place of the one that was not needed for the
 * longest time. */
static void hold(struct batch *b, uint32_t leader, uint32_t count)
{
    struct held *h = &b->held[0];
    for (uint32_t i = 1; i < b->o.held; i++)
        if (b->held[i].count ? b->held[i].used < h->used : h->count)
            h = &b->held[i];
    memcpy(h->ids, b->slot[leader].r.ids, count * sizeof *h->ids);
    h->count = count;
    h->used = b->counts.passes;
    copy(b, b->o.sequences + (uint32_t)(h - b->held), leader);
}

static void keep(struct batch *b, uint32_t leader, uint32_t count)
{
    if (b->o.held)
        hold(b, leader, count);
    if (b->o.parted)
        b->o.parted(b->o.arg, b->slot[leader].r.tag, leader);
}

/* Later requests begin with what a prompt has read. */
static void keep_common(struct batch *b)
{
    for (uint32_t i = 0; i < b->slots && keeps(b); i++) {
        const struct slot *s = &b->slot[i];
        if (s->state == SLOT_PROMPT && s->rows && s->r.common &&
            s->position == s->r.common && !is_held(b, &s->r, s->position))
            keep(b, i, s->position);
    }
}

void prompts_copy(struct batch *b)
{
    bool kept = false;
    keep_common(b);
    for (uint32_t i = 0; i < b->slots + 1; i++) {
        const struct share_prompt *p = &b->prompt[i];
        uint32_t leader = p->leader;
        if (!p->ids || leader == SHARE_ALONE)
            continue;
        const struct slot *l = &b->slot[leader];
        if (l->state != SLOT_PROMPT || l->position != p->until)
            continue;
        if (b->waits && !kept && !is_held(b, &l->r, p->until))
            keep(b, leader, p->until); /* more come than have a place */
        kept = true;
        if (i == b->slots || b->slot[i].state != SLOT_PROMPT)
            continue;
        copy(b, i, leader);
        b->counts.copied_ids += p->until - b->slot[i].position;
        b->slot[i].position = p->until;
    }
}

/* ---- open and close ---- */

int prompts_open(struct batch *b)
{
    uint32_t context = k3_options_of(b->k)->context;
    b->prompt = calloc(b->slots + 1, sizeof *b->prompt);
    if (!b->prompt)
        return -ENOMEM;
    if (!b->o.held)
        return 0;
    assert(b->o.sequences + b->o.held <= k3_plan_of(b->k)->sequences);
    b->held = calloc(b->o.held, sizeof *b->held);
    if (!b->held)
        return -ENOMEM;
    for (uint32_t i = 0; i < b->o.held; i++) {
        b->held[i].ids = malloc(context * sizeof(uint32_t));
        if (!b->held[i].ids)
            return -ENOMEM;
    }
    return 0;
}

void prompts_close(struct batch *b)
{
    for (uint32_t i = 0; b->held && i < b->o.held; i++)
        free(b->held[i].ids);
    free(b->held);
    free(b->prompt);
}
