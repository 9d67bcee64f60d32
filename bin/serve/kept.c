#include "bin/serve/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/serve/store/store.h"

enum { UNFINISHED = -1 };

/* What a job has so far; false: it has probabilities, which are not kept. */
static bool add(struct store_answer *a, const struct batch_job *j, int finish)
{
    a->choice[a->choices++] = (struct store_choice){
        .index = j->index, .count = j->count, .finish = finish,
        .ids = j->ids + j->prompt_count };
    return !j->score;
}

static void save(struct room *r, const struct work *w)
{
    struct store_answer a = { .created = w->created };
    struct error error = { 0 };
    uint32_t count = 0;
    const struct batch_job *part = w->whole ? batch_job_parts(w->whole, &count)
                                            : NULL;
    a.choice = calloc(w->choices, sizeof *a.choice);
    if (!a.choice)
        return;
    bool good = true;
    for (uint32_t i = 0; i < count; i++)
        good &= add(&a, &part[i], (int)part[i].finish);
    for (const struct batch_job *j = w->job; j; j = j->next)
        good &= add(&a, j, UNFINISHED);
    snprintf(a.id, sizeof a.id, "%s", w->id);
    if (good && a.choices == w->choices &&
        store_answer_keep(r->store, w->name, &a, &error))
        fprintf(stderr, "sluice: %s\n", error.text);
    free(a.choice);
}

void kept_save(struct room *r)
{
    for (struct work *w = r->kept; w && r->store; w = w->kept_after)
        if (!w->cancel && w->state != WORK_FAILED && (w->keep || !w->delivered))
            save(r, w);
}

static const struct store_choice *choice_of(const struct store_answer *a,
                                            uint32_t index)
{
    for (uint32_t i = 0; i < a->choices; i++)
        if (a->choice[i].index == index)
            return &a->choice[i];
    return NULL;
}

/* Say its ids again, as when they were made. */
static void replay(struct work *w, struct batch_job *j,
                   const struct store_choice *c, const struct room *r)
{
    uint32_t n = c->count < j->r.max_ids ? c->count : j->r.max_ids;
    for (uint32_t i = 0; i < n && c->ids[i] < r->rules.vocab; i++) {
        j->ids[j->prompt_count + i] = c->ids[i];
        j->count = i + 1;
        w->broken |= batch_job_push(j, c->ids[i]) < 0;
        work_say(w, j);
        w->new_ids++;
    }
}

bool kept_take(struct room *r, struct work *w)
{
    struct store_answer a;
    struct batch_job *next;
    if (!r->store || !store_answer_take(r->store, w->name, &a))
        return false;
    snprintf(w->id, sizeof w->id, "%s", a.id);
    w->created = a.created;
    w->state = WORK_RUNNING;
    for (struct batch_job *j = w->job; j; j = next) {
        const struct store_choice *c = choice_of(&a, j->index);
        next = j->next;
        if (!c || j->score)
            continue;
        replay(w, j, c, r);
        if (c->finish != UNFINISHED && j->count == c->count)
            work_job_end(w, j, j->count, (enum sluice_finish)c->finish);
    }
    store_answer_free(&a);
    if (work_over(w))
        return true;
    w->state = WORK_QUEUED;
    return false;
}
