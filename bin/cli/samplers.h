/* samplers.h - options that say how ids are chosen and what the text has to be:
 * of run, batch and chat.
 *
 *     session_defaults -> options -> samplers_check -> samplers_load ->
 *     samplers_free
 *
 * What the command line does not say is greedy, or what generation_config.json
 * says with --generation-config; a request of a batch goes before both.
 *
 * Errors   samplers_load: the file's, with a sentence.
 */
#ifndef BIN_CLI_SAMPLERS_H
#define BIN_CLI_SAMPLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bin/cli/opt.h"
#include "model/chat/request.h"
#include "model/ckpt/error.h"
#include "model/sluice.h"

enum { SAMPLERS_BIASES_MAX = 64 };

struct samplers_args {
    /* As typed; NAN, UINT64_MAX and NULL: not said. */
    double   temperature, top_p, min_p, presence, frequency, repetition;
    uint64_t top_k, seed;
    bool     ignore_eos, generation_config, json;
    const char *schema_file, *regex;
    struct sluice_bias bias[SAMPLERS_BIASES_MAX];
    uint32_t biases;
    const char *stop[REQUEST_STOPS_MAX]; /* none empty */
    uint32_t stops;
    /* After samplers_load. */
    struct request_sampling chosen;
    enum sluice_form form;
    char    *schema;  /* ours */
    const char *form_text; /* the schema or the pattern */
    size_t   form_bytes;
};

/* The rows of an option table; `a` is a struct samplers_args *. */
#define SAMPLERS_OPTIONS(a) \
    { "temperature", 0, OPT_REAL, &(a)->temperature, "T", \
      "temperature of sampling; default 0: the most likely id", NULL }, \
    { "top-p", 0, OPT_REAL, &(a)->top_p, "P", \
      "sample from the most likely ids whose chances add up to P; default 1", \
      NULL }, \
    { "top-k", 0, OPT_UINT, &(a)->top_k, "K", \
      "sample from the K most likely ids; default 0: all", NULL }, \
    { "min-p", 0, OPT_REAL, &(a)->min_p, "P", \
      "no id that is less likely than P times the likeliest; default 0", \
      NULL }, \
    { "presence-penalty", 0, OPT_REAL, &(a)->presence, "F", \
      "taken off the logits of new ids that came already; default 0", NULL }, \
    { "frequency-penalty", 0, OPT_REAL, &(a)->frequency, "F", \
      "the same, for each time that they came; default 0", NULL }, \
    { "repetition-penalty", 0, OPT_REAL, &(a)->repetition, "F", \
      "divides the logits of ids that came already, prompt included; " \
      "default 1", NULL }, \
    { "logit-bias", 0, OPT_CALL, (a), "ID=F", \
      "add F to the logit of an id; repeat for more", samplers_bias }, \
    { "stop", 0, OPT_CALL, (a), "TEXT", \
      "end before this text; repeat for more", samplers_stop }, \
    { "seed", 0, OPT_UINT, &(a)->seed, "N", "seed of sampling; default 0", \
      NULL }, \
    { "generation-config", 0, OPT_FLAG, &(a)->generation_config, NULL, \
      "sample as the model's generation_config.json says, where no option " \
      "says otherwise", NULL }, \
    { "json", 0, OPT_FLAG, &(a)->json, NULL, "the text is a JSON object", \
      NULL }, \
    { "json-schema", 0, OPT_TEXT, &(a)->schema_file, "FILE", \
      "the text is JSON of this schema (draft 2020-12)", NULL }, \
    { "regex", 0, OPT_TEXT, &(a)->regex, "P", \
      "the whole text matches this regular expression", NULL }, \
    { "ignore-eos", 0, OPT_FLAG, &(a)->ignore_eos, NULL, \
      "go on after an end id", NULL }

opt_call_fn samplers_bias, samplers_stop;

void samplers_defaults(struct samplers_args *a);
/* Check what the option table cannot; NULL or what is wrong. */
const char *samplers_check(const struct samplers_args *a);
/* Read the files that the options name, and settle what they leave open. */
int  samplers_load(struct samplers_args *a, const char *model,
                   struct error *error);
void samplers_free(struct samplers_args *a);
/* The samplers of a request, biases left out. */
void samplers_request(struct sluice_request *r,
                      const struct request_sampling *s);
/* All of the options: samplers, biases, form, end ids. The request borrows
 * from `a`. */
void samplers_ask(struct sluice_request *r, const struct samplers_args *a);

#endif
