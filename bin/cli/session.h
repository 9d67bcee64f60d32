/* session.h - what run and batch share: options, a session from them, the
 * progress line, interrupts, and the files that a run leaves behind.
 *
 * Threads  one caller; signals may come on any thread.
 * Errors   a sentence to print; session_failed prints it.
 */
#ifndef BIN_CLI_SESSION_H
#define BIN_CLI_SESSION_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bin/cli/names.h"
#include "bin/cli/opt.h"
#include "bin/cli/outputs.h"
#include "bin/cli/parts.h"
#include "bin/cli/samplers.h"
#include "model/decode/draft.h"
#include "model/knobs.h"

enum { SESSION_DRIVES_MAX = DRIVES_MAX, SESSION_ROWS = 256,
       SESSION_OWN_MAX = 8, SESSION_CONTEXT = 4096,
       SESSION_CONTEXT_MAX = 1 << 24,
       SESSION_MIRRORS_MAX = 16 };

struct session_args {
    const char *packed, *check_reads;
    enum k3_resident resident;
    struct parts_args parts;
    uint64_t memory, threads, context, rows;
    bool     context_said; /* else it is the default, and may grow */
    const char *io, *policy, *prefetch, *draft;
    const char *report, *trace, *timeline, *logits;
    const char *mirror[SESSION_MIRRORS_MAX];
    uint32_t mirrors;
    struct paced_drive drive[SESSION_DRIVES_MAX];
    uint32_t drives;
    double   mla_latent_eps;
    struct samplers_args samplers;
    const char *drafter, *drafter_taps;
    char     prefix_cache_path[PATH_MAX];
    const char *prefix_cache; /* NULL, or the path */
    uint64_t prefix_cache_bytes; /* 0: the default */
};

/* Rows of an option table; `a` is a struct session_args *. Those of the engine,
 * for a command that leaves no files behind, and all. */
#define SESSION_ENGINE_OPTIONS(a) \
    { "memory", 'm', OPT_SIZE, &(a)->memory, "SIZE", \
      "memory that the process may use, like 32G; default: what is free, " \
      "less a sixteenth and at least 256 MiB for everybody else, and " \
      "fifteen sixteenths of what its cgroup leaves", \
      NULL }, \
    { "threads", 't', OPT_UINT, &(a)->threads, "N", \
      "compute threads; default: one a physical core", NULL }, \
    { "context", 'c', OPT_CALL, (a), "N", \
      "the longest sequence, prompt and new tokens; default 4096, or more " \
      "where the requests need it and the memory has room", session_context }, \
    { "rows", 0, OPT_UINT, &(a)->rows, "N", \
      "max rows in a pass over the weights, a row being a token of any " \
      "sequence; default: chosen to suit the memory", NULL }, \
    { "io", 0, OPT_TEXT, &(a)->io, "METHOD", \
      "how to read: auto, uring (io_uring) or pread (threads); default auto", \
      NULL }, \
    { "policy", 0, OPT_TEXT, &(a)->policy, "NAME", \
      "which experts stay in memory, see below; default dhd", NULL }, \
    { "prefetch", 0, OPT_TEXT, &(a)->prefetch, "NAME", \
      "which experts are read ahead, see below; default auto", NULL }, \
    { "mirror", 0, OPT_CALL, (a), "DIR", \
      "a folder with copies of shards, all or some, on another drive: each " \
      "read goes to the drive that will have it first; repeat for more", \
      session_mirror }, \
    { "simulate-drive", 0, OPT_CALL, (a), "GBPS[,US]", \
      "slow reads down to a drive of GBPS GB/s and US microseconds of " \
      "latency; the real drive must be faster; repeat for more drives", \
      session_drive }, \
    { "rank-weights", 0, OPT_CALL, (a), "W,W,...", \
      "the share of the weights that each process of mpirun has; default " \
      "equal", machines_weights }, \
    { "device", 0, OPT_CALL, (a), "GBPS[,US]", NULL, session_drive }, \
    { "draft", 0, OPT_TEXT, &(a)->draft, "off|auto|N", \
      "draft ids from the text so far and verify them in the same pass: N, " \
      "or with auto as many as save time; the text stays the same; default " \
      "off", NULL }, \
    { "mla-latent-eps", 0, OPT_REAL, &(a)->mla_latent_eps, "E", \
      "epsilon of the two latent norms of MLA, which the config lacks; " \
      "default 1e-6", NULL }, \
    { "prefix-cache", 0, OPT_CALL, (a), "DIR[,SIZE]", \
      "keep states of prompts and answers in this folder, and begin at the " \
      "longest that fits; SIZE is the most they take, default 32G", \
      session_prefix_cache }, \
    { "packed", 0, OPT_TEXT, &(a)->packed, "auto|off|require|DIR", \
      "coded weights (sluice pack) to read instead of the shards: auto, " \
      "those beside the model if there are any; off, none; require, fail " \
      "if a shard has none; DIR, those in this folder; default auto", \
      NULL }, \
    { "resident", 0, OPT_CALL, (a), "auto|coded|decoded", \
      "keep resident coded weights as they are read, or decoded, which takes " \
      "half as much memory again; auto: decoded where that computes much " \
      "faster and the memory holds all of the trunk; default auto", \
      session_resident }, \
    PARTS_OPTION(&(a)->parts), \
    { "check-reads", 0, OPT_TEXT, &(a)->check_reads, "first|always|off", \
      "compare checksums of coded weights at their first use, at every one, " \
      "or never; default first", NULL }

#define SESSION_OPTIONS(a) \
    SESSION_ENGINE_OPTIONS(a), \
    { "drafter", 0, OPT_TEXT, &(a)->drafter, "DIR", \
      "a trained drafter for this model (DSpark): its ids compete with those " \
      "from the text; --draft is then auto, unless told; the text stays the " \
      "same", NULL }, \
    { "drafter-taps", 0, OPT_TEXT, &(a)->drafter_taps, "prefix|attn_res", \
      "which hidden states the drafter reads; default: as its config says", \
      NULL }, \
    SAMPLERS_OPTIONS(&(a)->samplers), \
    { "report", 0, OPT_TEXT, &(a)->report, "FILE", \
      "write times, bytes and counts as JSON; bin/report/report.h explains " \
      "the fields", NULL }, \
    { "trace", 0, OPT_TEXT, &(a)->trace, "FILE", \
      "record which experts were chosen, for sluice replay and profile", \
      NULL }, \
    { "timeline", 0, OPT_TEXT, &(a)->timeline, "FILE", \
      "write a timeline for ui.perfetto.dev", NULL }, \
    { "logits", 0, OPT_TEXT, &(a)->logits, "FILE", \
      "write the logits of every position, float32", NULL }, \
    NAMES_RUN

/* How often a state is saved, as --state-every says; 0: not. */
struct state_pace {
    uint32_t ids;
    double   seconds;
};
opt_call_fn state_pace;
/* --prefix-cache DIR[,SIZE]. */
opt_call_fn session_prefix_cache;
/* --resident auto|coded|decoded. */
opt_call_fn session_resident;
/* --context N. */
opt_call_fn session_context;
/* --mirror DIR. */
opt_call_fn session_mirror;
/* --simulate-drive GBPS[,US], whose old name is --device. */
opt_call_fn session_drive;
/* --rank-weights W,W,... (machines.h). */
opt_call_fn machines_weights;

void session_defaults(struct session_args *a);
/* Check what the option table cannot; NULL or what is wrong. Fills the parts of
 * *o that follow from the arguments alone. */
const char *session_options(const struct session_args *a,
                            struct k3_options *o);
/* What --draft says, or its default. */
const char *session_draft_said(const struct session_args *a);
/* What --draft says, which session_options has checked. */
struct draft_options session_draft(const struct session_args *a);
/* Drafts, drafter and prefix cache, as options of sluice_open; it keeps the
 * pointers. */
struct sluice_options session_sluice(const struct session_args *a);

/* outputs_check for the files of these options and some of the command's own.
 * `numbered`: --logits names files PREFIX.N. */
int session_files(const struct session_args *a, const char *model,
                  const struct output_file *own, size_t count, bool numbered,
                  struct error *error);
/* Print "sluice: SENTENCE" and, for some errors, a hint (hint.h); returns 1.
 * `model` may be NULL. */
int session_failed(const char *model, const struct error *error);
/* A line on stderr for each thing that the system refused. */
void session_notes(const struct sluice *s);

/* From now on SIGINT, SIGTERM and SIGHUP are noted, unless they are ignored,
 * and interrupt the session (NULL: none); SIGINT says so; a second one ends the
 * process. SIGPIPE is ignored: the write fails.
 * One session at a time. */
void session_catch(struct sluice *s);
/* What the first signal says at once on stderr, if something is to be said; a
 * constant. */
void session_announce(const char *text);
/* The handlers as they were. */
void session_release(void);
/* 0, or the signal that came. */
int  session_signal(void);

/* The progress line, on a terminal only. */
struct progress {
    bool     on;
    struct sluice *session; /* NULL: not open yet */
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
