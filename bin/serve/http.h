/* http.h - the server's sockets, and what comes in through them: libmicrohttpd
 * with our limits, keys and access log.
 *
 *     http_open -> http_start -> ... -> http_quiesce -> http_close
 *
 * Threads  of its own: one for each socket, in an epoll loop.
 */
#ifndef BIN_SERVE_HTTP_H
#define BIN_SERVE_HTTP_H

#include "bin/serve/net/auth.h"
#include "bin/serve/room.h"

enum { HTTP_SOCKETS_MAX = 8 };

struct http_connection;

struct http {
    struct room *room;
    struct auth  auth;
    int      socket[HTTP_SOCKETS_MAX];
    struct MHD_Daemon *daemon[HTTP_SOCKETS_MAX];
    uint32_t sockets, daemons;
    char     url[HTTP_SOCKETS_MAX][128]; /* as people type them */
    char    *cert, *key; /* of TLS, PEM */
    int      log_fd;     /* access log; -1: none */
    bool     local;      /* no socket but of this machine */
    dev_t    unix_dev;   /* of the socket with a path, */
    ino_t    unix_ino;   /* 0: there is none of ours */
    pthread_mutex_t lock; /* of the connections */
    struct http_connection *connections;
    uint32_t connected;
};

/* Bind the sockets: of the service manager, if it has any for us; else of the
 * options. Nothing is answered yet. */
int  http_open(struct http *h, struct room *r, struct error *error);
int  http_start(struct http *h, struct error *error);
/* Close connections that take too long to say what they want. */
void http_tick(struct http *h, int64_t now_ns);
/* No new connections. */
void http_quiesce(struct http *h);
void http_close(struct http *h);

#endif
