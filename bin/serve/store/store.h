/* store.h - files and batches of clients, in a folder, through any crash.
 *
 *     DIR/files/ID        the bytes
 *     DIR/files/ID.json   the object that the API shows
 *     DIR/batches/ID.json the same of a batch; ID.in its lines, a second name
 *                         of the input file; ID.out and ID.out.partial the
 *                         journal that sluice batch keeps (bin/batch/out.h)
 *     DIR/answers/NAME    the ids of an answer that nobody has fetched
 *     DIR/responses/ID    a response, and the conversation before it
 *
 * A file is written beside its place, forced to the drive and renamed: it is
 * there whole, or not at all. An object is known once its .json is there.
 *
 *     store_open -> { store_... } -> store_close
 *
 * Bytes    about a KiB of memory an object.
 * Threads  any; a lock of its own, which is held while objects are written.
 * Errors   struct api_error for clients; struct error at open.
 */
#ifndef BIN_SERVE_STORE_STORE_H
#define BIN_SERVE_STORE_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bin/serve/api/api_error.h"
#include "model/json/jv.h"

enum { STORE_ID = 64, STORE_PATH = 4096 };

struct store_file {
    struct store_file *after;
    char     id[STORE_ID], name[256], purpose[32];
    int64_t  created, expires; /* seconds since 1970 */
    uint64_t bytes;
};

enum batch_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_COMPLETED,
    BATCH_IS_FAILED,
    BATCH_CANCELLING,
    BATCH_IS_CANCELLED,
    BATCH_STATUSES
};

struct store_batch {
    struct store_batch *after;
    char     id[STORE_ID], input[STORE_ID], output[STORE_ID], errors[STORE_ID];
    char     endpoint[64], window[16], message[480];
    char    *metadata; /* JSON, or NULL */
    enum batch_status status;
    int64_t  at[BATCH_STATUSES]; /* when it became so; 0: never */
    int64_t  expires;
    uint64_t total, completed, failed; /* lines */
};

struct store_response {
    struct store_response *after;
    char     id[STORE_ID];
    int64_t  expires;
    uint64_t bytes;
};

struct store {
    pthread_mutex_t lock;
    char     dir[STORE_PATH - 256];
    int      lock_fd;
    uint64_t most_bytes, bytes; /* of files and responses; most 0: no limit */
    int64_t  seconds;           /* how long objects stay */
    uint64_t boot, numbers;     /* for ids */
    struct store_file  *files;   /* the newest first */
    struct store_batch *batches; /* the same */
    struct store_response *responses, **responses_end; /* the oldest first */
    bool     news; /* a batch was made or is to be cancelled */
};

int  store_open(struct store **out, const char *dir, uint64_t most_bytes,
                int64_t seconds, struct error *error);
void store_close(struct store *s); /* NULL is fine */

/* ---- files ---- */

/* A file that is being received. */
struct store_upload {
    struct store *store;
    struct store_file file;
    char  path[STORE_PATH]; /* of what is written beside its place */
    int   fd;
};
int  store_upload_begin(struct store *s, struct store_upload *u,
                        struct api_error *e);
int  store_upload_put(struct store_upload *u, const char *bytes, size_t n,
                      struct api_error *e);
/* Known from now on; its object as JSON. */
int  store_upload_end(struct store_upload *u, struct buffer *json,
                      struct api_error *e);
void store_upload_drop(struct store_upload *u);

int  store_file_json(struct store *s, const char *id, struct buffer *out,
                     struct api_error *e);
/* An open file, the caller's; or -1. */
int  store_file_read(struct store *s, const char *id, uint64_t *bytes,
                     struct api_error *e);
int  store_file_delete(struct store *s, const char *id, struct buffer *out,
                       struct api_error *e);
/* A page of them: those behind `behind` (""), at most `most`. */
int  store_file_list(struct store *s, const char *purpose, const char *behind,
                     uint32_t most, struct buffer *out, struct api_error *e);

/* ---- batches ---- */

/* What a client asked for: the body of the request. */
int  store_batch_make(struct store *s, const struct jv *body,
                      struct buffer *out, struct api_error *e);
int  store_batch_json(struct store *s, const char *id, struct buffer *out,
                      struct api_error *e);
int  store_batch_cancel(struct store *s, const char *id, struct buffer *out,
                        struct api_error *e);
int  store_batch_list(struct store *s, const char *behind, uint32_t most,
                      struct buffer *out, struct api_error *e);

/* ---- for the engine ---- */

/* The path of a batch's file: ".in", ".out". */
void store_batch_path(const struct store *s, const char *id, const char *end,
                      char path[STORE_PATH]);
/* A copy of a batch that is not at its end and comes behind `behind` ("": the
 * oldest). False: there is none. The copy has no metadata. */
bool store_batch_next(struct store *s, const char *behind,
                      struct store_batch *out);
/* Its lines so far; in memory. */
void store_batch_count(struct store *s, const char *id, uint64_t total,
                       uint64_t completed, uint64_t failed);
/* A step of its life, written down. 0 or an error. */
int  store_batch_turn(struct store *s, const char *id, enum batch_status to,
                      const char *message, struct error *error);
/* All its lines have answers, or it was cancelled: make the files for the
 * client, write down that it is over, remove the journal. A crash in the middle
 * of it repeats it. */
int  store_batch_finish(struct store *s, const char *id, struct error *error);

/* ---- answers that nobody has fetched ---- */

struct store_choice {
    uint32_t  index, count;
    int       finish;
    uint32_t *ids; /* [count] */
};
struct store_answer {
    char     id[36];
    int64_t  created;
    uint32_t choices;
    struct store_choice *choice; /* [choices] */
};
int  store_answer_keep(struct store *s, const uint8_t name[32],
                       const struct store_answer *a, struct error *error);
/* False: there is none, or none that is whole. It is not kept any more. */
bool store_answer_take(struct store *s, const uint8_t name[32],
                       struct store_answer *out);
void store_answer_free(struct store_answer *a);
/* Remove those from before then. */
void store_expire_answers(struct store *s, int64_t before);

/* ---- responses ---- */

/* Keep a response under its id: the object, and what was said before its
 * output, as the inside of a list; each is one line of JSON. The oldest ones
 * make room for it. 0 if it is there already. */
int  store_response_keep(struct store *s, const char *id, uint64_t owner,
                         const struct buffer *object,
                         const struct buffer *turns, struct error *error);
/* The same two; either may be NULL. 404, also for another owner. */
int  store_response_read(struct store *s, const char *id, uint64_t owner,
                         struct buffer *object, struct buffer *turns,
                         struct api_error *e);
int  store_response_delete(struct store *s, const char *id, uint64_t owner,
                           struct buffer *out, struct api_error *e);

/* Remove what has expired. */
void store_expire(struct store *s, int64_t now);

#endif
