/* constraint.h - which ids may come next in a reply that has a form.
 *
 *     forms_open, of a session
 *     -> constraint_open, of a request -> { constraint_mask, constraint_push }
 *     -> constraint_close -> forms_close
 *
 * A plain text has the form from its first id on, and may end where it is
 * whole. In a chat reply the thoughts are free; then the answer is led to the
 * response channel, has the form there, and is closed where it is whole. Calls
 * of tools may follow, also after an empty answer. They are free, unless a tool
 * is strict or a call is required: then every call is one of a tool that is
 * offered, with arguments of its schema.
 *
 * Bytes    the tree of the vocabulary, FORMS_BYTES for K3's; a request 1.5 MB
 *          of masks.
 * Threads  forms are read-only; a constraint has one caller.
 * Errors   -ENOMEM; a grammar's sentences.
 */
#ifndef MODEL_CONSTRAINT_H
#define MODEL_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ckpt/error.h"
#include "model/text/tok.h"

enum { FORMS_BYTES = 24 << 20, FORM_BYTES = 3 << 19 };

struct forms;
struct constraint;
struct grammar;

/* `vocab` ids of logits; `is_end` says which ids end a text. */
int  forms_open(struct forms **out, const struct tok *tok, uint32_t vocab,
                bool (*is_end)(void *arg, uint32_t id), void *arg,
                struct error *error);
void forms_close(struct forms *f);

enum form_kind { FORM_FREE, FORM_JSON, FORM_SCHEMA, FORM_PATTERN };

struct form {
    enum form_kind kind;
    const char *text; /* a schema, or a pattern; else not looked at */
    size_t bytes;
    bool   chat;      /* a chat reply */
    bool   in_answer; /* that begins in the response */
    bool   calls;     /* and may call tools */
    const char *tools; /* a JSON list of them, as chat requests have it; NULL:
                        * calls are free */
    size_t tools_bytes;
    bool   must_call; /* the reply has a call; needs tools */
};

/* Does the form ask for anything. */
bool form_is_free(const struct form *form);
/* The grammar of calls of these tools. `must`: also of those that are not
 * strict the schema holds, where it is supported. */
int  form_calls(struct grammar **out, const char *tools, size_t bytes,
                bool must, struct error *error);

/* -EINVAL, -ENOTSUP, -ENOENT, -E2BIG: what is wrong with the form. */
int  constraint_open(struct constraint **out, const struct forms *f,
                     const struct form *form, struct error *error);
void constraint_close(struct constraint *c);
/* The ids that may come, as sample_context.mask; NULL: every id may, or there
 * was no memory (`failed`). Good until the next call. */
const uint64_t *constraint_mask(struct constraint *c, bool *failed);
/* An id came. 0 or -ENOMEM. */
int  constraint_push(struct constraint *c, uint32_t id);
/* Is the text whole: valid as it stands. */
bool constraint_whole(const struct constraint *c);
/* Ids that probably come, since the form has no other text: at most `max`, to
 * `ids`. What is drafted, not what must come. Their number; 0 also without
 * memory. */
uint32_t constraint_likely(struct constraint *c, uint32_t *ids, uint32_t max);
/* How many ids may come, if few: 1 is an id that must. UINT32_MAX: any. */
uint32_t constraint_choices(struct constraint *c, uint32_t *only);

#endif
