#include "bin/batch/alike.h"

#include "model/decode/share.h"

enum { IDS_MIN = 32 }; /* for which a state is kept */

/* The last id of a prompt is read by itself: it has the logits. */
static uint32_t common(const struct batch_job *a, const struct batch_job *b)
{
    uint32_t n = share_common(a->ids, a->prompt_count - 1, b->ids,
                              b->prompt_count - 1);
    return n < IDS_MIN ? 0 : n;
}

uint32_t alike_common(const struct batch_job *j, const struct batch_job *list)
{
    uint32_t best = 0;
    uint64_t saved = 0;
    for (const struct batch_job *a = list; a; a = a->after) {
        uint32_t n = common(j, a);
        uint64_t rows = 0;
        for (const struct batch_job *b = list; n && b; b = b->after)
            rows += common(j, b) >= n ? n : 0;
        if (rows > saved) {
            saved = rows;
            best = n;
        }
    }
    return best;
}

uint32_t alike_count(const struct batch_job *list)
{
    uint32_t n = 0;
    uint64_t ids = 0;
    for (const struct batch_job *j = list; j; j = j->after) {
        n++;
        ids += j->prompt_count;
    }
    return ids > ALIKE_IDS && n ? ALIKE_AHEAD : n;
}

/* Does one of the list before `end` begin as `j` does? */
static bool begins_before(const struct batch_job *list,
                          const struct batch_job *end,
                          const struct batch_job *j)
{
    while (list != end && !common(list, j))
        list = list->after;
    return list != end;
}

uint32_t alike_held(const struct batch_job *list)
{
    uint32_t most = 0;
    /* At each place: beginnings that were there before and come again. */
    for (const struct batch_job *at = list; at; at = at->after) {
        uint32_t open = 0;
        for (const struct batch_job *j = list; j != at; j = j->after) {
            bool again = false;
            for (const struct batch_job *b = at; b && !again; b = b->after)
                again = common(j, b);
            open += again && !begins_before(list, j, j);
        }
        most = open > most ? open : most;
    }
    return most < ALIKE_HELD_MAX ? most : ALIKE_HELD_MAX;
}
