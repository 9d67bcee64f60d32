/* session_internal.h - what the files of sluice.h share: the session and its
 * requests.
 *
 *  state      is in                      leaves by
 *  waiting    session.waiting            a place in the batch, cancel, failure
 *  running    session.running            the batch's finished()
 *  finished   nowhere: it is freed
 *
 * Threads  `lock` guards the two lists, the counters and the flags beside it;
 *          it is never held during a callback. A request in `running` belongs
 *          to the thread that steps, except for its cancelled flag.
 */
#ifndef MODEL_SESSION_INTERNAL_H
#define MODEL_SESSION_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "model/chat/reply.h"
#include "model/ckpt/download.h"
#include "model/constraint.h"
#include "model/decode/batch.h"
#include "model/knobs.h"
#include "model/state/state_file.h"
#include "model/text/tok_stream.h"

struct sluice_text {
    struct tok *tok;
};

/* The file of a request's state, and what of it is saved. */
struct saving {
    char    *path; /* NULL: none */
    uint8_t  how[STATE_HOW_BYTES];
    uint32_t kept, cached; /* positions in the file; of the last entry */
    uint32_t begun;        /* positions that nobody had to read */
    uint32_t mark[2];      /* where the prompt is saved for others */
    int64_t  begin_ns, kept_ns;
};

struct prefix_cache;

struct request {
    struct request *after; /* in its list */
    struct sluice_request r; /* r.ids is not kept */
    uint64_t  id;
    uint32_t *ids; /* the prompt, then new ids */
    _Atomic bool cancelled, suspended;
    struct reply reply;       /* of a chat */
    struct tok_stream stream; /* of text that is none */
    bool   done;   /* the reply is, before an end id */
    bool   broken; /* there was no memory for its text */
    struct constraint *form; /* NULL: the text is free */
    struct sample_bias *bias;
    struct sluice_logprob *top; /* [logprobs - 1] of the id at hand */
    uint32_t tops;
    double   logprob;
    struct saving saving;
};

struct request_list {
    struct request *first, **end;
};

struct sluice {
    struct k3    *k;
    struct batch *batch;
    struct dspark *drafter; /* NULL: none */
    bool   drafter_said;    /* that it has failed */
    struct sluice_text *text; /* NULL: none */
    bool   own_text, all_logits;
    struct forms *forms; /* NULL: no request has a form */
    uint32_t sequences;
    uint32_t *position; /* [sequences] next one, of passes by hand */
    struct k3_facts opened; /* as of open */
    char download_note[DOWNLOAD_NOTE_BYTES]; /* what looks unfinished, or "" */
    bool   stepping;    /* callbacks may come */
    int  (*planned)(void *arg, const struct k3 *k, struct error *error);
    void  *planned_arg;
    pthread_mutex_t lock;
    pthread_cond_t  news;
    struct request_list waiting, running;
    struct state_owner owner;   /* of saved states, when it is known */
    bool     owner_known;
    struct prefix_cache *cache; /* NULL: none */
    struct sluice_ids user;     /* a role; with a cache */
    uint64_t ids; /* numbers given to requests */
    uint64_t unplaced; /* finished without the batch */
    bool     woken;
    int      failed; /* the errno of a pass, or 0 */
    struct sluice_counters counters;
};

/* What the session's texts end with. */
bool session_is_end(void *session, uint32_t id);

/* Say once, to a request that runs, that there is no drafter any more. */
void session_say_drafter(struct sluice *s);

/* sampling.c: what a request asks of its ids. */
int  sampling_check(const struct sluice *s, const struct sluice_request *r,
                    struct error *error);
/* Make the copies and the constraint of a request; its given ids are pushed. */
int  sampling_open(struct request *q, const struct sluice *s,
                   const struct sluice_request *r, struct error *error);
void sampling_close(struct request *q);
struct sample_options sampling_options(const struct request *q);
/* The probabilities of the id that was chosen. */
void sampling_chosen(struct request *q, uint32_t id, const float *logits,
                     uint32_t vocab);

/* requests.c */
/* `o` has what does not follow from the session; it is filled. */
int  requests_open(struct sluice *s, struct batch_options *o,
                   struct error *error);
/* Finish all requests with SLUICE_CANCELLED and free what open made. */
void requests_close(struct sluice *s);
bool requests_any(struct sluice *s);
/* A pass has failed: no request is taken any more, and none is left. */
void requests_fail(struct sluice *s, int code);
/* After a pass: what everybody may see. */
void requests_count(struct sluice *s);

/* saved.c: batch_options.begin, pause, passed, parted and leaves; arg is the
 * session. */
int  saved_open(struct sluice *s, const char *cache, uint64_t bytes,
                struct error *error);
void saved_close(struct sluice *s);
int  saved_request(struct request *q, const struct sluice_request *from,
                   struct error *error);
void saved_free(struct request *q);
uint32_t saved_begin(void *arg, uint64_t tag, uint32_t sequence, uint32_t have);
uint32_t saved_pause(void *arg, uint64_t tag, uint32_t position);
void saved_passed(void *arg, uint64_t tag, uint32_t sequence, uint32_t count,
                  bool over);
void saved_parted(void *arg, uint64_t tag, uint32_t sequence);
void saved_leaves(void *arg, uint64_t tag, uint32_t sequence);
/* It ended without a pass: its state has the whole answer. */
void saved_whole(const struct request *q);

/* A struct of the caller's that begins with its size: copy what both know to
 * `out`, and 0 for the rest. -EINVAL: it has something set that is newer. */
int session_copy(void *out, size_t size, const void *from);

#endif
