/* subject.h - requests of sluice.h with known answers.
 *
 * subjects_make makes a small random model and asks it each question in a
 * session of its own: what comes is the truth.
 */
#ifndef TESTS_PROPERTY_SUBJECT_H
#define TESTS_PROPERTY_SUBJECT_H

#include "model/sluice.h"
#include "tests/property/small_model.h"

enum { REQUESTS = 12, VOCAB = 512, PROMPT_MAX = 24, NEW_MAX = 10,
       TEXT_MAX = 4096 };

struct subject {
    uint32_t prompt[PROMPT_MAX], count, max;
    uint32_t ids[NEW_MAX], made;
    char     text[TEXT_MAX];
    size_t   bytes;
    enum sluice_finish finish;
    int      finished; /* times */
    uint64_t id;
    struct sluice *s;  /* to cancel `victim` in, at the first id; or NULL */
    struct subject *victim;
};

extern struct small_model subject_model;
extern struct subject truth[REQUESTS];

/* cmocka's set-up and tear-down of a group. */
int subjects_make(void **state);
int subjects_remove(void **state);

/* Question i without its answer. */
struct subject subject_fresh(uint32_t i);
struct sluice_request subject_request(struct subject *x);
/* It was answered, once, and as in truth[i]. */
void subject_check(const struct subject *x, uint32_t i);

/* A gigabyte, two threads, room for 64 positions. */
struct sluice_options subject_options(uint32_t sequences);
struct sluice *subject_open_with(const struct sluice_options *o);
struct sluice *subject_open(uint32_t sequences);

/* Is the text JSON of the schema, and is the schema one. */
bool subject_is_of(const char *schema, const char *text, size_t bytes);

#endif
