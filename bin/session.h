/* session.h - what run and batch share: options, a session from them, the
 * progress line, interrupts, and the files that a run leaves behind. */
#ifndef BIN_SESSION_H
#define BIN_SESSION_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bin/opt.h"
#include "bin/outputs.h"
#include "model/generate.h"
#include "model/k3.h"

enum { SESSION_DRIVES_MAX = 64 };

struct session_args {
    uint64_t memory, threads, context, rows, seed;
    const char *io, *policy, *prefetch, *draft;
    const char *report, *trace, *timeline, *logits;
    struct paced_drive drive[SESSION_DRIVES_MAX];
    uint32_t drives;
    double   temperature, top_p, mla_latent_eps;
    bool     ignore_eos;
};

/* The rows of an option table; `a` is a struct session_args *. */
#define SESSION_OPTIONS(a) \
    { "memory", 'm', OPT_SIZE, &(a)->memory, "SIZE", \
      "the budget; default: what is free", NULL }, \
    { "threads", 't', OPT_UINT, &(a)->threads, "N", \
      "threads that compute; default: the physical cores", NULL }, \
    { "context", 'c', OPT_UINT, &(a)->context, "N", \
      "positions a sequence may have; default 4096", NULL }, \
    { "rows", 0, OPT_UINT, &(a)->rows, "N", \
      "most rows in a pass; default: planned", NULL }, \
    { "io", 0, OPT_TEXT, &(a)->io, "METHOD", \
      "how to read: auto, uring or pread", NULL }, \
    { "policy", 0, OPT_TEXT, &(a)->policy, "NAME", \
      "which experts memory keeps; default dhd", NULL }, \
    { "prefetch", 0, OPT_TEXT, &(a)->prefetch, "NAME", \
      "how to guess experts ahead; default auto", NULL }, \
    { "device", 0, OPT_CALL, (a), "GBPS[,US]", \
      "simulate a drive of this rate and latency; repeat for more", \
      session_device }, \
    { "draft", 0, OPT_TEXT, &(a)->draft, "off|auto|N", \
      "guess ids from the text so far and verify them in the same pass: as " \
      "many as pay, or N; default off", NULL }, \
    { "temperature", 0, OPT_REAL, &(a)->temperature, "T", \
      "of sampling; default 0, the most likely id", NULL }, \
    { "top-p", 0, OPT_REAL, &(a)->top_p, "P", \
      "sample from the likeliest ids of this sum; default 1", NULL }, \
    { "seed", 0, OPT_UINT, &(a)->seed, "N", "of sampling; default 0", \
      NULL }, \
    { "ignore-eos", 0, OPT_FLAG, &(a)->ignore_eos, NULL, \
      "do not stop at an end id", NULL }, \
    { "mla-latent-eps", 0, OPT_REAL, &(a)->mla_latent_eps, "E", \
      "epsilon of the two latent norms; default 1e-6", NULL }, \
    { "report", 0, OPT_TEXT, &(a)->report, "FILE", \
      "write what happened as JSON; read_bytes is all that a phase read: " \
      "trunk, embed, expert_demand, expert_guess (guessed and used) and " \
      "wasted_bytes (guessed or read ahead, and not used)", NULL }, \
    { "trace", 0, OPT_TEXT, &(a)->trace, "FILE", \
      "record the routing for sluice replay", NULL }, \
    { "timeline", 0, OPT_TEXT, &(a)->timeline, "FILE", \
      "write a timeline that Perfetto opens", NULL }, \
    { "logits", 0, OPT_TEXT, &(a)->logits, "FILE", \
      "write the logits of every position, float32", NULL }

opt_call_fn session_device;

void session_defaults(struct session_args *a);
/* Check what the option table cannot; NULL or what is wrong. Fills the parts of
 * *o that follow from the arguments alone. */
const char *session_options(const struct session_args *a,
                            struct k3_options *o);
/* What --draft says, which session_options has checked. */
struct draft_options session_draft(const struct session_args *a);

/* outputs_check of the files of these options and of two that the command has
 * beside them. */
int session_files(const struct session_args *a, const char *model,
                  const struct output_file two[2], struct why *why);
/* Print "sluice: <why>" and, where there is one, a hint; returns 1. A `model`
 * that is not all there (NULL: none) is a case for the doctor. */
int session_failed(const char *model, const struct why *why);
/* Is the memory of the plan there? 0 or -ENOMEM. Asked before it is taken: what
 * takes more than there is gets killed, without a sentence. */
int session_fits(const struct plan *plan, struct why *why);
/* One line on stderr for each thing that was refused by the system. */
void session_notes(struct k3 *k);

/* SIGINT and SIGTERM cancel the session; a second one ends the process. A pipe
 * that nobody reads is an error of the write. */
void session_catch(struct k3 *k);
void session_release(void);
/* 0, or the signal that came. */
int  session_signal(void);

/* The progress line, on a terminal only. */
struct progress {
    bool     on;
    struct k3 *k;
    const char *phase;
    uint64_t done, all; /* tokens of the phase */
    int64_t  begin_ns, shown_ns;
    uint32_t layer, layers;
};
void progress_begin(struct progress *p, const char *phase, uint64_t all);
void progress_step(struct progress *p, uint64_t done);
void progress_layer(void *progress, uint32_t layer, uint32_t layers);
void progress_clear(struct progress *p);

#endif
