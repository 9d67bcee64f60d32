/* share.h - prompts that begin alike are read once: who reads, who waits.
 *
 * A leader reads up to the position where its followers' ids part from its own;
 * there its state is copied to them. All of it is decided anew before every
 * pass, from ids and positions alone: when a leader leaves, another one leads.
 * After a copy the same rule finds the next, longer beginning among those that
 * have it in common.
 *
 * A copy ends a pass for the leader. So a group is formed only where its
 * prompts then take no more passes than without it.
 *
 * Threads  one. Cost: for each group, its members' ids compared once.
 */
#ifndef MODEL_DECODE_SHARE_H
#define MODEL_DECODE_SHARE_H

#include <stdint.h>

enum { SHARE_ALONE = UINT32_MAX };

struct share_prompt {
    const uint32_t *ids; /* [known]; NULL: takes no part */
    uint32_t known;
    uint32_t position;   /* ids that were read */
    /* What share_prompts decides. */
    uint32_t leader;     /* whom it waits for, or SHARE_ALONE: it reads */
    uint32_t until;      /* where the copy is made; of a leader, its next end
                          * of rows; else known */
};

/* `rows`: what a pass has for prompts, >= 1. The last prompt but `follows` can
 * only follow: those from there on have no place yet. */
void share_decide(struct share_prompt *p, uint32_t n, uint32_t follows,
                  uint32_t rows);
/* How many ids two lists have in common at their beginning. */
uint32_t share_common(const uint32_t *a, uint32_t a_count, const uint32_t *b,
                      uint32_t b_count);

#endif
