/* sluice.h - Kimi K3 inside another program: text in, text out, within one
 * memory budget. This is the whole library; it needs no other header of ours.
 *
 *     struct sluice_options options = { .size = sizeof options,
 *                                       .memory_bytes = 64ull << 30 };
 *     sluice_open -> { sluice_submit, sluice_step } -> sluice_close
 *
 * A request is a prompt and what to do with it. Many run together: each step is
 * one pass over the weights for all of them, and they join and leave between
 * steps. The ids of a request depend on its prompt and its sampling and on
 * nothing else: not on company, memory, threads, drafts or processor.
 *
 * Bytes    sluice_open allocates memory_bytes, or less if the model needs less;
 *          24 MiB of it are for code, stacks and small tables. After that only
 *          a submitted request allocates: 4 bytes for each id of its prompt and
 *          its max_ids, and for a chat its text twice. The prompt is copied.
 * Threads  Calls marked "any thread" may come from any thread at any time
 *          between open and close, also from a callback. All others belong to
 *          one thread at a time, which is the one that callbacks come from, and
 *          may not be made from a callback. Sessions share nothing: two can be
 *          open at once, each with its own thread. No signal handler is set,
 *          and no priority is raised unless options.realtime asks for it.
 * Errors   0, a count, or a negative errno, with a sentence in *error that
 *          names the file, the tensor or the argument; `error` may be NULL.
 *          Nothing is printed and nothing ends the process. After a pass that
 *          failed there is no further one: close the session.
 * Version  Structs that the caller fills begin with their size. A program
 *          compiled with an older header works with a newer library: the fields
 *          that it did not know are 0, and 0 is always the default.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define SLUICE_VERSION "0.1.0"

struct sluice;      /* a session: one model, one budget */
struct sluice_text; /* a tokenizer */
struct sluice_ids;  /* a list, see below */

struct sluice_error {
    int  code;      /* the negative errno that was returned */
    char text[480]; /* one line */
};

/* The version of the library that is linked. Any thread. */
const char *sluice_version(void);

/* ---- a session ---- */

#define SLUICE_DRAFTS_AUTO UINT32_MAX
#define SLUICE_PREFIX_CACHE_BYTES (32ull << 30)

struct sluice_options {
    size_t   size;         /* sizeof(struct sluice_options) */
    uint64_t memory_bytes; /* the budget; 0: what is free, less a reserve */
    uint32_t threads;      /* compute threads; 0: one a physical core */
    uint32_t context;      /* max positions of a request; 0: 4096 */
    uint32_t sequences;    /* max requests in a pass; 0: 1 */
    uint32_t rows;         /* max positions in a pass, of all requests; 0:
                            * 256. Lowered where memory is short */
    uint32_t drafts;       /* max ids of a request that are drafted from its
                            * text and verified in the same pass; 0: none;
                            * SLUICE_DRAFTS_AUTO: as many as save time */
    bool     logits;       /* requests may ask for logits of each position */
    bool     realtime;     /* ask for SCHED_FIFO for the reader's thread */
    struct sluice_text *text; /* a tokenizer of the caller's, which stays open
                               * until sluice_close; NULL: that of the folder,
                               * if it has one */
    /* Called by a step at every layer, or NULL. */
    void   (*progress)(void *arg, uint32_t layer, uint32_t layers);
    void    *progress_arg;
    /* Coded weights (sluice pack) to read instead of the shards: "auto" or NULL
     * uses those in FOLDER.packed that were made from these shards, "off" none;
     * "require" fails where a shard has none; anything else is the path of
     * another folder of coded weights. */
    const char *packed;
    bool     forms;        /* requests may have a form; takes 24 MiB of the
                            * budget, and 1.5 MiB for each of `sequences` */
    bool     share;        /* a common beginning of prompts is read once and its
                            * state copied: same ids, fewer rows. `logits` of a
                            * request gets only the rows that were read */
    uint32_t held;         /* with share: how many states of common beginnings
                            * are kept for later requests; each takes the memory
                            * of a sequence */
    /* A folder where states of prompts are kept as files, which several
     * processes may share; NULL: none. A request continues from the longest
     * beginning of its prompt that is there. Kept are the states before the
     * first user message, before the last id of the prompt, every 512 rows
     * between, and at the end of the answer. */
    const char *prefix_cache;
    uint64_t prefix_cache_bytes; /* max; 0: SLUICE_PREFIX_CACHE_BYTES */
    /* A folder with a trained drafter (DSpark: RadixArk's or Inferact's for
     * Kimi K3): with `drafts`, its ids compete with those from the text. If it
     * fails in a session, a request's `note` says so and it goes on without.
     * NULL: none. */
    const char *drafter;
    /* Which hidden states it reads: "prefix", the running sum after a layer;
     * "attn_res", what the next layer reads; NULL: those it was trained on, as
     * far as its config says. */
    const char *drafter_taps;
};

/* Open the model in a folder: config.json, *.safetensors and, for text,
 * tiktoken.model and tokenizer_config.json. NULL options are all defaults.
 *   -EINVAL   an option is out of range, or this library is too old for it
 *   -ENOBUFS  the budget is below what one row of every sequence needs
 *   -ENOMEM   the machine, or the cgroup, has less free than the plan takes
 *   -ENOENT, -EBADMSG, -ENODATA, -ENOTSUP ...   what is wrong with a file
 * On an error *out is NULL. */
int  sluice_open(struct sluice **out, const char *folder,
                 const struct sluice_options *options,
                 struct sluice_error *error);
/* NULL is fine. Requests that are not finished are finished first, with
 * SLUICE_CANCELLED. */
void sluice_close(struct sluice *s);

/* ---- requests ---- */

enum sluice_finish {
    SLUICE_LENGTH,    /* max_ids were generated */
    SLUICE_END,       /* the model ended its text, or reply.one_call its call */
    SLUICE_STOPPED,   /* a callback returned true */
    SLUICE_CANCELLED, /* sluice_cancel or sluice_close */
    SLUICE_FAILED     /* a pass failed, and sluice_step returned its error; or
                       * there was no memory for the text */
};

/* How ids become text: sluice_chat fills it. All false: every id is text. */
struct sluice_reply {
    bool chat;      /* a reply in the form that the model was trained on */
    bool in_answer; /* it begins in the answer, not in the thoughts */
    bool calls;     /* tools were offered; false: tool calls are dropped */
    bool one_call;  /* it ends after its first tool call */
};

/* What a piece of text belongs to. */
enum sluice_kind {
    SLUICE_CONTENT,  /* the answer */
    SLUICE_THOUGHTS,
    SLUICE_CALL,     /* a tool call begins: the tool's name */
    SLUICE_ARGUMENTS /* a part of that call's arguments, which are JSON */
};

#define SLUICE_NO_ID UINT32_MAX
#define SLUICE_LOGPROBS_MAX 20

struct sluice_bias {
    uint32_t id;
    float    add; /* is added to its logit */
};

/* What the text of a request has to be. */
enum sluice_form {
    SLUICE_FREE,   /* anything */
    SLUICE_JSON,   /* a JSON object */
    SLUICE_SCHEMA, /* JSON of a JSON Schema (draft 2020-12) */
    SLUICE_PATTERN /* a text that a regular expression matches as a whole */
};

struct sluice_logprob {
    uint32_t id;
    double   logprob; /* natural, of the logits as the model gives them */
};

struct sluice_token {
    uint64_t    request; /* its number, as in sluice_submit */
    uint32_t    id;    /* SLUICE_NO_ID: more text of earlier ids */
    enum sluice_kind kind;
    uint32_t    call;  /* CALL, ARGUMENTS: number of the tool call, from 0 */
    const char *text;  /* valid until the callback returns; whole UTF-8
                        * characters, unless the model wrote a broken one; not
                        * terminated */
    size_t      bytes; /* of text; often 0 */
    /* With request.logprobs, where `id` is an id: its own, and those of the
     * likeliest ids, best first. Else 0. */
    double      logprob;
    const struct sluice_logprob *top; /* [tops]; valid as `text` is */
    uint32_t    tops;
};

struct sluice_result {
    uint64_t request;
    enum sluice_finish finish;
    const uint32_t *ids; /* [count] new ids without an end id; valid until the
                          * callback returns */
    uint32_t count;
};

/* The callbacks may be NULL. sluice_step calls them, in the order of the text;
 * `finished` is the last and is called exactly once. */
struct sluice_request {
    size_t   size;           /* sizeof(struct sluice_request) */
    const uint32_t *ids;     /* [count] the prompt; copied */
    uint32_t count;          /* >= 1 */
    uint32_t given;          /* this request continues one that was cut off:
                              * its last `given` ids were new ids there. If
                              * they are max_ids, or end with an end id, the
                              * request is finished without a pass */
    uint32_t max_ids;        /* max new ids, including `given`; 0: only read the
                              * prompt */
    double   temperature;    /* 0: always the likeliest id */
    double   top_p;          /* sample from the likeliest ids whose
                              * probabilities add up to this; 0: from all */
    uint64_t seed;
    bool     ignore_end;     /* continue after an end id */
    struct sluice_reply reply; /* how ids become text */
    void    *arg;            /* of the callbacks */
    /* A new id, or more text. True: finish, with SLUICE_STOPPED. */
    bool   (*token)(void *arg, const struct sluice_token *token);
    /* The logits of every position that is read, in order: [vocab], valid until
     * it returns. True: finish, with SLUICE_STOPPED. Needs options.logits. */
    bool   (*logits)(void *arg, uint64_t request, const float *logits);
    void   (*finished)(void *arg, const struct sluice_result *result);
    /* More of sampling; 0: off. Logits are changed in this order: biases,
     * repetition, frequency and presence penalty, temperature; then ids are
     * dropped: min_p, top_k, top_p. */
    uint32_t top_k;          /* keep the top_k likeliest ids */
    double   min_p;          /* keep ids with at least min_p times the
                              * probability of the likeliest */
    double   presence_penalty, frequency_penalty; /* over new ids */
    double   repetition_penalty; /* over prompt and new ids; 1: off, too */
    const struct sluice_bias *bias; /* [biases]; copied */
    uint32_t biases;
    uint32_t logprobs;       /* 0: none; 1 + n: those of each new id and of the
                              * n likeliest, n <= SLUICE_LOGPROBS_MAX */
    enum sluice_form form;   /* needs options.forms */
    const char *form_text;   /* the schema or the pattern; copied */
    size_t   form_bytes;
    const char *state;       /* file of its state: a path; copied. If it holds
                              * the state of a beginning of the prompt, the
                              * request continues from there; if not, `note`
                              * says why. Written at the end of the prompt and
                              * of the answer, whole or not at all */
    uint32_t state_every;    /* also write it every so many new ids; 0: no */
    double   state_seconds;  /* also write it every so many seconds; 0: no */
    bool     say_given;      /* call `token` for the given ids, too */
    /* A sentence: why a state is not used or, with `lost`, was not saved. */
    void   (*note)(void *arg, const char *sentence, bool lost);
    const char *tools;       /* the tools that a chat offers, a JSON list as
                              * chat requests have it; copied. With
                              * reply.calls, if one says strict: true, calls
                              * are of these tools and arguments of those that
                              * say so are of their parameters. Needs
                              * options.forms then */
    size_t   tools_bytes;
    bool     must_call;      /* the reply has a call; parameters count for
                              * tools that are not strict, too, if they are
                              * supported. Needs tools and options.forms */
    uint32_t common;         /* so many first ids begin later requests, too:
                              * with share, their state is kept for those;
                              * 0: not known */
};

/* Queue a request: it joins the next step that has a free sequence. Its number,
 * from 1, goes to *id if that is not NULL. Any thread.
 *   -EINVAL    the prompt is empty, an id is not in the vocabulary, prompt and
 *              max_ids do not fit the context, a field is out of range, or
 *              form_text is no schema or pattern
 *   -ENOTSUP   the form uses a feature that is not supported; error names it
 *   -ENOENT    no text satisfies the form
 *   -E2BIG     the form is too large
 *   -ENOMEM    no memory for the ids
 *   -ESHUTDOWN a pass has failed */
int  sluice_submit(struct sluice *s, const struct sluice_request *request,
                   uint64_t *id, struct sluice_error *error);
/* Finish a request, after the running pass, with SLUICE_CANCELLED. The others
 * are not affected. An unknown number is ignored. Any thread. */
void sluice_cancel(struct sluice *s, uint64_t id);
/* The same, and keep its state in options.prefix_cache: the request that comes
 * again, with what it has as `given` ids, goes on from there. Without a cache
 * its rows are read again. Any thread. */
void sluice_suspend(struct sluice *s, uint64_t id);

/* Append the ids of a saved state and the id after them: the beginning of a
 * prompt that continues from this state. Between steps. An errno of the file;
 * -EBADMSG: it is damaged; -ESTALE: it is of another model. */
int  sluice_state_ids(struct sluice *s, const char *path,
                      struct sluice_ids *out, struct sluice_error *error);
/* Append the new ids that the same request (prompt and sampling) had generated
 * when it saved its state, with the end id if there was one, and at most
 * max_ids: put them after the prompt, as `given`. None if the file is of
 * another request. Between steps. */
int  sluice_state_given(struct sluice *s, const struct sluice_request *request,
                        struct sluice_ids *out, struct sluice_error *error);

/* One pass for all requests. Returns 1; 0 when there is no request; or an
 * error, which ends the session: all requests are finished with SLUICE_FAILED.
 */
int  sluice_step(struct sluice *s, struct sluice_error *error);
/* Step until there is no request. 0 or an error. */
int  sluice_run(struct sluice *s, struct sluice_error *error);
/* Submit one request, and step until it is finished. 0 or an error. */
int  sluice_generate(struct sluice *s, const struct sluice_request *request,
                     struct sluice_error *error);

/* Sleep until there is a request, sluice_wake is called, or timeout_ms have
 * passed; -1: no timeout. Returns whether there is a request. */
bool sluice_wait(struct sluice *s, int timeout_ms);
/* Make a sluice_wait return: the one that sleeps, or else the next. Any
 * thread. */
void sluice_wake(struct sluice *s);
/* Make the pass that is running fail with -ECANCELED, which ends the session.
 * Any thread, and signal handlers. */
void sluice_interrupt(struct sluice *s);

/* ---- passes by hand ---- */

struct sluice_row {
    uint32_t sequence; /* 0 .. sequences - 1 */
    uint32_t position; /* the next of its sequence */
    uint32_t id;
    bool     logits;   /* compute its logits; without options.logits, at most
                        * one row of a sequence */
};

/* One pass for these rows, without requests. The rows of a sequence stand
 * together and in order. -EBUSY: there are requests; -EINVAL: a row breaks one
 * of these rules; or an error of the pass, which ends the session. */
int  sluice_pass(struct sluice *s, const struct sluice_row *rows,
                 uint32_t count, struct sluice_error *error);
/* The logits of the i-th row of the last pass among those with `logits`:
 * [vocab], valid until the next pass or step. */
const float *sluice_logits(const struct sluice *s, uint32_t i);
/* Make a sequence empty. sluice_step empties all. */
void sluice_reset(struct sluice *s, uint32_t sequence);

/* ---- numbers ---- */

struct sluice_info {
    uint32_t vocab, context, sequences, rows, threads;
    uint32_t drafts;        /* max of a request and pass */
    uint64_t budget_bytes;  /* of memory */
    uint64_t planned_bytes; /* of these, used */
    /* What was chosen: how to read, instruction set, policy of the expert
     * cache, prefetcher. Valid until close. */
    const char *io, *isa, *policy, *prefetch;
};
/* What sluice_open has chosen. `size` is sizeof *out. Any thread. */
void sluice_info(const struct sluice *s, struct sluice_info *out, size_t size);
/* The i-th thing that the system refused at open and that the session does
 * without, as a line; NULL after the last. Any thread. */
const char *sluice_note(const struct sluice *s, uint32_t i);

struct sluice_counters {
    uint32_t running, queued;  /* requests now */
    uint64_t finished;         /* requests, with any sluice_finish */
    uint64_t passes;
    uint64_t prompt_ids;       /* read */
    uint64_t new_ids;          /* end ids and forced_ids too */
    uint64_t decode_ids;       /* of these, from decode passes */
    uint64_t drafted, accepted; /* draft ids */
    uint64_t read_bytes;       /* by all passes, without resident_bytes */
    uint64_t wasted_bytes;     /* of these, read ahead and not used */
    uint64_t resident_bytes;   /* read at open */
    /* Time in prefill passes, and in decode passes, in which some request
     * generates. */
    uint64_t prefill_ns, decode_ns;
    uint64_t wait_ns;          /* of both, waiting for reads */
    /* Ids of prompts that were not read, since their state was copied (see
     * share) or loaded from a file. */
    uint64_t copied_ids, loaded_ids;
    uint64_t forced_ids;       /* of the new ones: a form left no other, so
                                * no pass was made for them */
};
/* As of the end of the last step. `size` is sizeof *out. Any thread. */
void sluice_counters(struct sluice *s, struct sluice_counters *out,
                     size_t size);

/* ---- text ---- */

/* A growing list of ids. All zero: empty. */
struct sluice_ids {
    uint32_t *ids;
    size_t    count, capacity;
};
void sluice_ids_free(struct sluice_ids *list);

/* The tokenizer of a folder, without its weights; any number of sessions may
 * share it. All its functions: any thread. */
int  sluice_text_open(struct sluice_text **out, const char *folder,
                      struct sluice_error *error);
void sluice_text_close(struct sluice_text *t);
/* The session's tokenizer: options.text, or its own, valid until sluice_close.
 * NULL: it has none. */
struct sluice_text *sluice_text_of(const struct sluice *s);

/* Append the ids of a text. The names of control tokens in it are plain text.
 * Bytes that are not UTF-8 are kept: sluice_detokenize gives them back. 0 or
 * -ENOMEM. */
int  sluice_tokenize(const struct sluice_text *t, const char *text,
                     size_t bytes, struct sluice_ids *out);
/* Write the text of ids to `out`, at most `room` bytes, not terminated. Returns
 * the bytes of the whole text. */
size_t sluice_detokenize(const struct sluice_text *t, const uint32_t *ids,
                         size_t count, char *out, size_t room);
/* Whether the model ends its text with this id. */
bool sluice_is_end(const struct sluice_text *t, uint32_t id);

/* Append the ids of a conversation's prompt. `json` is the body of an OpenAI
 * chat request, of which messages, tools, tool_choice, response_format and
 * reasoning_effort are used. Copy *reply to sluice_request.reply. -EINVAL: the
 * JSON or a field is wrong; -ENOTSUP: the tokenizer has no control tokens. */
int  sluice_chat(const struct sluice_text *t, const char *json, size_t bytes,
                 struct sluice_ids *out, struct sluice_reply *reply,
                 struct sluice_error *error);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
