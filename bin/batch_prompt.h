/* batch_prompt.h - the prompt of a batch line, text, ids or messages, to ids.
 */
#ifndef BIN_BATCH_PROMPT_H
#define BIN_BATCH_PROMPT_H

#include "bin/batch_job.h"

/* Give the line an error for an answer: returns -EINVAL. */
int batch_refuse(struct batch_job *j, const char *code, struct why *why,
                 const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Append the prompt to `out`. *thinking: the reply begins with thoughts. */
int batch_prompt(struct batch_job *j, const struct batch_rules *rules,
                 json_t *body, struct id_list *out, bool *thinking,
                 struct why *why);

#endif
