#include "bin/serve/http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bin/serve/call.h"
#include "bin/serve/net/net.h"
#include "bin/serve/routes.h"
#include "bin/serve/net/system.h"
#include "bin/serve/upload.h"
#include "io/clock.h"

enum {
    HEADER_BYTES = 32768, /* of a connection, its headers in it */
    IDLE_SECONDS = 60,    /* without a byte either way */
    ASK_SECONDS = 60,     /* to say what one wants ... */
    ASK_BYTES = 16384,    /* ... and a second more for each of these */
    DRAIN_BODY = 1 << 20, /* a refused body that is read to its end */
    THREADS = 4,
    SPARE = 64, /* connections that get a 503 */
};

struct http_connection {
    struct http_connection *after;
    int      fd;
    int64_t  since_ns; /* it owes us a request; 0: it does not */
    uint64_t bytes;    /* of that request's body so far */
};

/* ---- connections ---- */

static void on_connection(void *arg, struct MHD_Connection *connection,
                          void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = arg;
    struct http_connection *c = *socket_context;
    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = calloc(1, sizeof *c);
        *socket_context = c;
        if (c) {
            c->fd = info ? info->connect_fd : -1;
            c->since_ns = clock_ns();
            c->after = h->connections;
            h->connections = c;
        }
        h->connected++;
    } else {
        h->connected--;
        struct http_connection **link = &h->connections;
        while (c && *link != c)
            link = &(*link)->after;
        if (c)
            *link = c->after;
        free(c);
        *socket_context = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

static struct http_connection *connection_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* From now on it owes us a request, or does not. */
static void owes(struct http *h, struct MHD_Connection *connection,
                 int64_t since_ns)
{
    struct http_connection *c = connection_of(connection);
    pthread_mutex_lock(&h->lock);
    if (c) {
        c->since_ns = since_ns;
        c->bytes = 0;
    }
    pthread_mutex_unlock(&h->lock);
}

static void came(struct http *h, struct MHD_Connection *connection, size_t n)
{
    struct http_connection *c = connection_of(connection);
    pthread_mutex_lock(&h->lock);
    if (c)
        c->bytes += n;
    pthread_mutex_unlock(&h->lock);
}

void http_tick(struct http *h, int64_t now_ns)
{
    pthread_mutex_lock(&h->lock);
    for (struct http_connection *c = h->connections; c; c = c->after) {
        int64_t seconds = ASK_SECONDS + (int64_t)(c->bytes / ASK_BYTES);
        if (c->since_ns && now_ns - c->since_ns > seconds * 1000000000 &&
            c->fd >= 0)
            shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&h->lock);
}

/* ---- before the body ---- */

static void identify(struct http *h, struct call *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        c->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    uint8_t digest[AUTH_DIGEST];
    net_address(info ? info->client_addr : NULL, c->address,
                sizeof c->address);
    const char *header = call_header(c, "Authorization");
    if (!header)
        header = call_header(c, "x-api-key");
    c->key = (int)auth_find(&h->auth, header);
    /* Of the key itself: its number is another one when the file changes. */
    const void *part[2] = { c->address,
                            c->key ? h->auth.digest[c->key - 1] : NULL };
    size_t bytes[2] = { c->key ? 0 : strlen(c->address), AUTH_DIGEST };
    auth_digest(digest, part, bytes, 2);
    memcpy(&c->owner, digest, sizeof c->owner);
    if (h->auth.count && !c->key && (!c->route || c->route->kind != ROUTE_OPEN))
        api_fail(&c->error, 401, "invalid_api_key",
                 header ? "this API key is not one of those that are let in"
                        : "there is no API key: send Authorization: Bearer "
                          "KEY");
}

/* Is `host` one of this machine's own names; another one was made to lead here
 * by somebody else's page. */
static bool is_own_name(const char *host)
{
    static const char *const own[] = { "localhost", "127.", "[::1]" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strncmp(host, own[i], strlen(own[i])))
            return true;
    return false;
}

/* Pages of other sites do not speak with a server that asks for no key. */
static void check_origin(struct http *h, struct call *c)
{
    const char *origin = call_header(c, "Origin");
    const char *host = call_header(c, "Host"), *cors = c->room->o->cors;
    if (!h->auth.count && h->local && host && strcmp(c->address, "unix") &&
        !is_own_name(host))
        api_fail(&c->error, 403, "wrong_host",
                 "this server is not called so: it answers to localhost");
    if (!origin || (cors && (!strcmp(cors, "*") || !strcmp(cors, origin))))
        return;
    const char *name = strstr(origin, "://");
    if (!name || !host || strcmp(name + 3, host))
        api_fail(&c->error, 403, "wrong_origin",
                 "pages of other sites are not let in (--cors)");
}

static void check_length(struct call *c)
{
    const char *length = call_header(c, "Content-Length");
    bool upload = c->route && c->route->kind == ROUTE_UPLOAD;
    uint64_t max = c->room->o->body_max;
    char *end;
    if (!length || upload)
        return;
    errno = 0;
    unsigned long long n = strtoull(length, &end, 10);
    if (errno || *end || n > max)
        api_fail(&c->error, 413, "body_too_large",
                 "the body has more than %" PRIu64 " bytes", max);
}

static struct call *begin(struct http *h, struct MHD_Connection *connection,
                          const char *url, const char *method)
{
    struct call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->http = h;
    c->room = h->room;
    c->connection = connection;
    c->begin_ns = clock_ns();
    snprintf(c->method, sizeof c->method, "%s", method);
    snprintf(c->path, sizeof c->path, "%s", url);
    struct api_error e = { 0 };
    if (strlen(url) >= sizeof c->path)
        api_fail(&e, 414, "path_too_long", "the path is too long");
    else
        c->route = route_find(method, url, c->id, &c->api, &e);
    identify(h, c);
    if (!c->error.status)
        c->error = e;
    check_origin(h, c);
    check_length(c);
    pthread_mutex_lock(&h->lock);
    uint32_t connected = h->connected;
    pthread_mutex_unlock(&h->lock);
    if (connected > h->room->o->connections_max)
        api_fail(&c->error, 503, "too_many_connections",
                 "there are %" PRIu32 " connections, the most that are let in",
                 connected);
    pthread_mutex_lock(&c->room->lock);
    c->room->counts.http_requests++;
    pthread_mutex_unlock(&c->room->lock);
    if (!c->error.status && c->route->kind == ROUTE_UPLOAD)
        upload_begin(c);
    return c;
}

static void take_body(struct call *c, const char *bytes, size_t n)
{
    came(c->http, c->connection, n);
    if (c->error.status)
        return;
    if (c->upload) {
        upload_put(c, bytes, n);
        return;
    }
    if (c->body.count + n > c->room->o->body_max) {
        api_fail(&c->error, 413, "body_too_large",
                 "the body has more than %" PRIu64 " bytes",
                 c->room->o->body_max);
        return;
    }
    buffer_put(&c->body, bytes, n);
    if (c->body.failed)
        api_fail(&c->error, 503, "no_memory", "no memory for the body");
}

/* ---- a request ---- */

/* A page that asks whether it may ask. */
static bool preflight(struct call *c)
{
    struct buffer json = { 0 };
    const char *cors = c->room->o->cors, *origin = call_header(c, "Origin");
    if (strcmp(c->method, "OPTIONS") || !cors || !origin)
        return false;
    if (strcmp(cors, "*") && strcmp(cors, origin))
        return false;
    buffer_text(&json, "{}");
    call_json(c, 200, &json);
    return true;
}

static void run(struct call *c)
{
    owes(c->http, c->connection, 0);
    if (preflight(c))
        return;
    if (!c->error.status)
        c->route->run(c);
    if (c->error.status && !c->status)
        call_error(c, &c->error);
    buffer_free(&c->body);
}

/* A body that nobody wants and that is long, or of a length that is not said.
 */
static bool is_long(struct call *c)
{
    const char *length = call_header(c, "Content-Length");
    const char *coding = call_header(c, "Transfer-Encoding");
    return coding || (length && strtoull(length, NULL, 10) > DRAIN_BODY);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection,
                                  const char *url, const char *method,
                                  const char *version, const char *data,
                                  size_t *bytes, void **context)
{
    struct http *h = arg;
    struct call *c = *context;
    (void)version;
    if (!c) {
        c = *context = begin(h, connection, url, method);
        if (!c)
            return MHD_NO;
        if (c->error.status && is_long(c))
            run(c);
        return MHD_YES;
    }
    if (c->status)
        return MHD_YES;
    if (*bytes) {
        take_body(c, data, *bytes);
        *bytes = 0;
        return MHD_YES;
    }
    run(c);
    return c->status ? MHD_YES : MHD_NO;
}

/* One line of JSON. The query and the body are not in it, nor any key. */
static void write_log(struct http *h, const struct call *c, bool whole)
{
    struct buffer line = { 0 };
    struct timespec now;
    struct tm day;
    char date[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &day);
    buffer_format(&line, "{\"time\":\"%s.%03ldZ\",\"address\":", date,
                  now.tv_nsec / 1000000);
    api_text(&line, c->address);
    buffer_format(&line, ",\"key\":%d,\"method\":", c->key);
    api_text(&line, c->method);
    buffer_text(&line, ",\"path\":");
    api_text(&line, c->path);
    buffer_format(&line,
                  ",\"status\":%d,\"bytes\":%" PRIu64 ",\"ms\":%.1f,"
                  "\"whole\":%s,\"request\":",
                  c->status, c->follow ? c->follow->sent : c->sent,
                  (double)(clock_ns() - c->begin_ns) / 1e6,
                  whole ? "true" : "false");
    api_text(&line, c->follow ? c->follow->work->id : "");
    buffer_text(&line, "}\n");
    if (!line.failed && write(h->log_fd, line.bytes, line.count) < 0)
        line.failed = true; /* the disk is full: no log */
    buffer_free(&line);
}

static void on_completed(void *arg, struct MHD_Connection *connection,
                         void **context,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = arg;
    struct call *c = *context;
    if (!c)
        return;
    *context = NULL;
    owes(h, connection, clock_ns());
    pthread_mutex_lock(&h->room->lock);
    h->room->counts.http_errors += c->status >= 400 || !c->status;
    pthread_mutex_unlock(&h->room->lock);
    if (h->log_fd >= 0)
        write_log(h, c, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (c->follow)
        follow_close(c->follow);
    upload_free(c);
    buffer_free(&c->body);
    buffer_free(&c->turns);
    buffer_free(&c->echo);
    free(c);
}

/* ---- open and close ---- */

static int read_text(char **out, const char *path, struct error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int err = fd < 0 || fstat(fd, &st) ? -errno : 0;
    size_t n = err ? 0 : (size_t)st.st_size;
    *out = n < 1 << 20 ? calloc(1, n + 1) : NULL;
    if (!err && !*out)
        err = -ENOMEM;
    ssize_t got = err ? 0 : read(fd, *out, n);
    if (!err && got != (ssize_t)n)
        err = got < 0 ? -errno : -ENODATA;
    if (fd >= 0)
        close(fd);
    return err ? error_set(error, err, "%s: %s", path, strerror(-err)) : 0;
}

static int add_socket(struct http *h, int fd)
{
    const char *scheme = h->room->o->tls_cert ? "https" : "http";
    if (fd < 0 || h->sockets == HTTP_SOCKETS_MAX)
        return -EMFILE;
    net_url(fd, scheme, h->url[h->sockets], sizeof h->url[0]);
    h->local &= net_is_local(fd);
    h->socket[h->sockets++] = fd;
    return 0;
}

static int open_sockets(struct http *h, struct error *error)
{
    const struct serve_options *o = h->room->o;
    struct stat st;
    int fds[HTTP_SOCKETS_MAX], fd, err = 0;
    int given = system_sockets(fds, HTTP_SOCKETS_MAX);
    for (int i = 0; i < given; i++)
        add_socket(h, fds[i]);
    if (given)
        return 0;
    if (o->unix_path) {
        err = net_listen_unix(&fd, o->unix_path, error);
        if (!err && !stat(o->unix_path, &st)) {
            h->unix_dev = st.st_dev;
            h->unix_ino = st.st_ino;
        }
        if (!err)
            add_socket(h, fd);
    }
    if (!err && o->host) {
        err = net_listen(&fd, o->host, (uint16_t)o->port, error);
        if (!err)
            add_socket(h, fd);
    }
    return err;
}

static int open_files(struct http *h, struct error *error)
{
    const struct serve_options *o = h->room->o;
    int err = 0;
    if (o->key_file)
        err = auth_open(&h->auth, o->key_file, error);
    if (!err && o->tls_cert)
        err = read_text(&h->cert, o->tls_cert, error);
    if (!err && o->tls_key)
        err = read_text(&h->key, o->tls_key, error);
    if (err || !o->access_log)
        return err;
    bool out = !strcmp(o->access_log, "-");
    h->log_fd = out ? dup(STDOUT_FILENO)
                    : open(o->access_log,
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return h->log_fd < 0 ? error_set(error, -errno, "%s: %s", o->access_log,
                                     strerror(errno))
                         : 0;
}

int http_open(struct http *h, struct room *r, struct error *error)
{
    *h = (struct http){ .room = r, .log_fd = -1, .local = true };
    pthread_mutex_init(&h->lock, NULL);
    int err = open_files(h, error);
    if (!err)
        err = open_sockets(h, error);
    if (!err && !h->local && !h->auth.count && !r->o->no_auth)
        err = error_set(error, -EPERM, "%s can be reached by others: give "
                        "--api-key-file, or --no-auth",
                        h->url[h->sockets - 1]);
    return err;
}

int http_start(struct http *h, struct error *error)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    unsigned most = (unsigned)h->room->o->connections_max + SPARE;
    if (h->cert)
        flags |= MHD_USE_TLS;
    for (uint32_t i = 0; i < h->sockets; i++) {
        const struct MHD_OptionItem tls[] = {
            { MHD_OPTION_HTTPS_MEM_CERT, 0, h->cert },
            { MHD_OPTION_HTTPS_MEM_KEY, 0, h->key },
            { MHD_OPTION_END, 0, NULL },
        };
        h->daemon[i] = MHD_start_daemon(
            flags, 0, NULL, NULL, on_request, h,
            MHD_OPTION_LISTEN_SOCKET, h->socket[i],
            MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
            MHD_OPTION_CONNECTION_LIMIT, most,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
            MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
            MHD_OPTION_ARRAY, h->cert ? tls : tls + 2, MHD_OPTION_END);
        if (!h->daemon[i])
            return error_set(error, -EIO, "%s: the HTTP library does not "
                             "start%s", h->url[i],
                             h->cert ? " (is the certificate its key's?)"
                                     : "");
        h->daemons++;
    }
    return 0;
}

void http_quiesce(struct http *h)
{
    for (uint32_t i = 0; i < h->daemons; i++) {
        int fd = MHD_quiesce_daemon(h->daemon[i]);
        if (fd >= 0)
            close(fd);
    }
}

/* Unless another has its path by now. */
static void remove_socket(const struct http *h)
{
    struct stat st;
    if (!lstat(h->room->o->unix_path, &st) && st.st_dev == h->unix_dev &&
        st.st_ino == h->unix_ino)
        unlink(h->room->o->unix_path);
}

void http_close(struct http *h)
{
    for (uint32_t i = 0; i < h->daemons; i++)
        MHD_stop_daemon(h->daemon[i]);
    if (h->unix_ino)
        remove_socket(h);
    if (h->log_fd >= 0)
        close(h->log_fd);
    auth_close(&h->auth);
    free(h->cert);
    free(h->key);
    pthread_mutex_destroy(&h->lock);
}
