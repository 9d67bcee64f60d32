/* batch_internal.h - a batch's places, and where their prompts stand. */
#ifndef MODEL_DECODE_BATCH_INTERNAL_H
#define MODEL_DECODE_BATCH_INTERNAL_H

#include "model/decode/batch.h"
#include "model/decode/proposal.h"
#include "model/decode/share.h"

/*  state    has                              leaves by
 *  FREE     nothing                          a request
 *  PROMPT   rows of the prompt to read       the last of them, finish
 *  DECODE   ids that were not read yet       finish
 */
enum slot_state { SLOT_FREE, SLOT_PROMPT, SLOT_DECODE };

/* Drafts of the form of a text, and how often those at each place were right.
 */
struct formed {
    uint32_t ids[DRAFT_AUTO_MAX], count;
    uint32_t at; /* ids of the text when they were found */
    double   each[DRAFT_AUTO_MAX];
    float    tried[DRAFT_AUTO_MAX], right[DRAFT_AUTO_MAX];
};

struct slot {
    enum slot_state state;
    struct batch_request r;
    uint32_t position; /* of its next row */
    uint32_t known;    /* ids to read before there is a new one */
    uint32_t count;    /* new ids */
    uint32_t rows;     /* in this pass, drafts included */
    uint32_t drafts;   /* draft rows in this pass */
    bool     over;     /* it has ended in this pass */
    enum batch_reason reason;
    struct draft draft;
    struct proposal proposal; /* of the drafter */
    bool     trained; /* this pass's drafts are from it */
    struct formed form;
    bool     formed;  /* this pass's drafts are from the form */
};

/* The state of a common beginning, behind the places. */
struct held {
    uint32_t *ids;  /* [context] */
    uint32_t count; /* 0: nothing */
    uint64_t used;  /* the last pass that needed it */
};

struct batch {
    struct k3 *k;
    struct batch_options o;
    struct batch_counts counts;
    struct slot *slot; /* [slots] */
    uint32_t slots;
    struct held *held; /* [o.held] */
    struct share_prompt *prompt; /* [slots + 1]: of this pass; the last is
                                  * that of the request that waits */
    struct batch_request waiting; /* for a place */
    bool     waits; /* there is such a request */
    bool     failed; /* a pass did */
    struct k3_row *row; /* [k3_rows] */
    uint32_t rows;       /* of the pass */
    uint32_t drafts_max; /* draft rows of a sequence */
    bool     decoding; /* the pass has a decode row */
    struct draft_ask *ask; /* [slots] */
    struct draft_cost cost;
    struct proposal_record record;
    double   draft_s; /* what a draft of the drafter adds; 0: none was made */
    double   since_s; /* passes since the last one */
    double   beside_s, beside_bytes; /* of the draft for this pass */
    double   rate;    /* bytes a second of late */
    uint32_t turn;    /* the slot that is asked about first */
    void    *scratch; /* of the sampler */
};

/* New ids that were not read yet. */
static inline uint32_t slot_unread(const struct slot *s)
{
    return s->r.prompt_count + s->count - s->position;
}

/* drafts.c */
/* Give sequences that decode draft rows, `room` at most, in a pass that has
 * `rows` other rows. */
void drafts_choose(struct batch *b, uint32_t rows, uint32_t room);
/* A pass is over: count what it took; `prompts`: it had rows of prompts. */
void drafts_time(struct batch *b, bool prompts);
/* A pass is over: a slot's new ids are in its text, and `accepted` of its draft
 * rows were right. And: its rows from `row` on, from `position` on, count. */
void drafts_learn(struct batch *b, uint32_t index, uint32_t accepted);
void drafts_keep(struct batch *b, uint32_t index, uint32_t position,
                 uint32_t row);

/* prompts.c */
int  prompts_open(struct batch *b); /* 0 or -ENOMEM */
void prompts_close(struct batch *b);
/* A request has the place: begin where a state is known, or empty. */
void prompt_begin(struct batch *b, uint32_t index);
/* Which prompts are read in a pass that has `rows` for them, and how far. */
void prompts_decide(struct batch *b, uint32_t rows);
/* Does it have rows in this pass? */
bool prompt_is_read(const struct batch *b, uint32_t index);
/* After a pass: copy the states of leaders that have come to their end. */
void prompts_copy(struct batch *b);
/* Passes for the rest of a prompt after this one, at least; and for that of the
 * request that waits. */
uint64_t prompt_passes(const struct batch *b, uint32_t index);
uint64_t prompt_passes_waiting(const struct batch *b);

#endif
