/* call.h - one HTTP request, as the routes see it.
 *
 * A route is called once its whole body is there, and answers with exactly one
 * of call_json, call_error, call_text, call_file and call_follow.
 *
 * Threads  one of those of HTTP.
 */
#ifndef BIN_SERVE_CALL_H
#define BIN_SERVE_CALL_H

#include "bin/serve/follow.h"
#include "bin/serve/room.h"
#include "bin/serve/store/store.h"

struct MHD_Connection;
struct MHD_Response;
struct http;
struct route;

struct call {
    struct http *http;
    struct room *room;
    struct MHD_Connection *connection;
    const struct route *route;
    enum api api;          /* of its errors */
    char     method[16], path[512];
    char     id[STORE_ID]; /* the part of the path where the route has {id} */
    struct buffer body;
    struct upload *upload; /* of a multipart body */
    struct buffer turns, echo; /* of a response: work.h */
    bool     store;        /* the same */
    struct api_error error; /* found before the body was there */
    uint64_t owner;    /* hash of the client: its key, or its address */
    int      key;      /* the number of its key, from 1; 0: none */
    char     address[64];
    int64_t  begin_ns;
    int      status;   /* of the answer; 0: none yet */
    uint64_t sent;     /* bytes of its body */
    struct follow *follow;
};

/* A header or an argument of the query; NULL: there is none. */
const char *call_header(const struct call *c, const char *name);
const char *call_argument(const struct call *c, const char *name);

/* Both take the buffer. */
void call_json(struct call *c, int status, struct buffer *json);
void call_buffer(struct call *c, const char *type, struct buffer *text);
void call_error(struct call *c, const struct api_error *e);
/* `text` stays where it is. */
void call_text(struct call *c, const char *type, const char *text, size_t n);
/* Takes the file. */
void call_file(struct call *c, int fd, uint64_t bytes);
/* Answer with what is said of `w`. The lock is not held; takes the caller's
 * reference. */
void call_follow(struct call *c, struct work *w, enum api api, bool stream);

#endif
