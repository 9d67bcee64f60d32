/* knobs.h - what our own program, benches and tests need of a session beyond
 * sluice.h: the engine's own options, and the engine for its reports.
 *
 * The line: whatever makes ids goes through sluice.h. The engine from here is
 * looked at between steps (facts, plan, totals), never told to do anything,
 * except to quiesce when no step follows.
 */
#ifndef MODEL_KNOBS_H
#define MODEL_KNOBS_H

#include "model/decode/batch.h"
#include "model/dspark/dspark.h"
#include "model/k3/k3.h"
#include "model/sluice.h"
#include "model/text/tok.h"

/* As sluice_open. `engine` holds what `options` has no field for; a field of
 * `options` that is not 0 goes before the engine's, and an engine option that
 * is not 0 before a default of sluice.h. engine->heap_bytes counts the ids of
 * the requests, and engine->planned is called when the plan is known to fit
 * into the memory that is free. */
int knobs_open(struct sluice **out, const char *folder,
               const struct sluice_options *options,
               const struct k3_options *engine, struct sluice_error *error);
struct k3 *knobs_engine(const struct sluice *s);
/* Its drafts by source, and its drafter; NULL: none. */
const struct batch_counts *knobs_counts(const struct sluice *s);
const struct dspark *knobs_drafter(const struct sluice *s);
/* What is inside a text. */
const struct tok *knobs_tok(const struct sluice_text *t);

/* Between the two kinds of sentences. Returns error->code. */
int knobs_error(struct sluice_error *to, const struct error *from);
int knobs_error_back(struct error *to, const struct sluice_error *from);

#endif
