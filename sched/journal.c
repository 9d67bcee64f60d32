#include "sched/journal.h"

#include <errno.h>
#include <stdlib.h>

struct lane {
    struct journal_event *event;
    uint32_t count;
    uint64_t dropped;
};

struct journal {
    uint32_t    capacity;
    struct lane lane[JOURNAL_LANES];
};

int journal_open(struct journal **out, uint32_t capacity)
{
    *out = NULL;
    struct journal *j = calloc(1, sizeof *j);
    if (!j)
        return -ENOMEM;
    j->capacity = capacity;
    for (int l = 0; l < JOURNAL_LANES; l++) {
        j->lane[l].event = malloc(capacity * sizeof *j->lane[l].event);
        if (!j->lane[l].event) {
            journal_close(j);
            return -ENOMEM;
        }
    }
    *out = j;
    return 0;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    for (int l = 0; l < JOURNAL_LANES; l++)
        free(j->lane[l].event);
    free(j);
}

uint64_t journal_bytes(uint32_t capacity)
{
    return (uint64_t)capacity * JOURNAL_LANES * sizeof(struct journal_event);
}

void journal_add(struct journal *j, enum journal_lane lane,
                 const struct journal_event *event)
{
    if (!j)
        return;
    struct lane *l = &j->lane[lane];
    if (l->count == j->capacity)
        l->dropped++;
    else
        l->event[l->count++] = *event;
}

const struct journal_event *journal_events(const struct journal *j,
                                           enum journal_lane lane,
                                           uint32_t *count, uint64_t *dropped)
{
    *count = j->lane[lane].count;
    *dropped = j->lane[lane].dropped;
    return j->lane[lane].event;
}
