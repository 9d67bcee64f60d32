#include "bin/serve/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

union address {
    struct sockaddr a;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
    struct sockaddr_storage any;
};

int net_listen(int *fd, const char *host, uint16_t port, struct error *error)
{
    char number[8];
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *found;
    snprintf(number, sizeof number, "%u", port);
    int wrong = getaddrinfo(host, number, &hints, &found);
    if (wrong)
        return error_set(error, -EINVAL, "--host %s: %s", host,
                         gai_strerror(wrong));
    int s = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (s >= 0)
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    int err = s < 0 || bind(s, found->ai_addr, found->ai_addrlen) ||
                      listen(s, BACKLOG)
                  ? -errno
                  : 0;
    freeaddrinfo(found);
    *fd = s;
    if (!err)
        return 0;
    if (s >= 0)
        close(s);
    *fd = -1;
    return error_set(error, err, "%s port %u: %s", host, port, strerror(-err));
}

/* Somebody answers there. */
static bool is_alive(const struct sockaddr_un *a)
{
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = s >= 0 && !connect(s, (const struct sockaddr *)a, sizeof *a);
    if (s >= 0)
        close(s);
    return alive;
}

int net_listen_unix(int *fd, const char *path, struct error *error)
{
    union address a = { .un.sun_family = AF_UNIX };
    struct stat st;
    *fd = -1;
    if (strlen(path) >= sizeof a.un.sun_path)
        return error_set(error, -ENAMETOOLONG, "--unix %s: the path is too "
                         "long", path);
    memcpy(a.un.sun_path, path, strlen(path));
    if (!lstat(path, &st)) {
        if (!S_ISSOCK(st.st_mode))
            return error_set(error, -EEXIST, "--unix %s: there is a file",
                             path);
        if (is_alive(&a.un))
            return error_set(error, -EADDRINUSE, "--unix %s: another server "
                             "listens there", path);
        unlink(path);
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t mask = umask(0177);
    int err = s < 0 || bind(s, &a.a, sizeof a.un) || listen(s, BACKLOG)
                  ? -errno
                  : 0;
    umask(mask);
    *fd = s;
    return err ? error_set(error, err, "--unix %s: %s", path, strerror(-err))
               : 0;
}

static bool is_loopback(const union address *a)
{
    if (a->a.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    if (a->a.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
    return a->a.sa_family == AF_UNIX;
}

bool net_is_local(int fd)
{
    union address a;
    socklen_t n = sizeof a;
    return !getsockname(fd, &a.a, &n) && is_loopback(&a);
}

void net_address(const struct sockaddr *from, char *out, size_t room)
{
    const union address *a = (const union address *)from;
    snprintf(out, room, "unix");
    if (from && from->sa_family == AF_INET)
        inet_ntop(AF_INET, &a->in.sin_addr, out, (socklen_t)room);
    else if (from && from->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &a->in6.sin6_addr, out, (socklen_t)room);
}

void net_url(int fd, const char *scheme, char *out, size_t room)
{
    union address a;
    socklen_t n = sizeof a;
    char text[64];
    memset(&a, 0, sizeof a);
    snprintf(out, room, "?");
    if (getsockname(fd, &a.a, &n))
        return;
    net_address(&a.a, text, sizeof text);
    if (a.a.sa_family == AF_UNIX)
        snprintf(out, room, "unix:%.100s", a.un.sun_path);
    else if (a.a.sa_family == AF_INET6)
        snprintf(out, room, "%s://[%s]:%u", scheme, text,
                 ntohs(a.in6.sin6_port));
    else
        snprintf(out, room, "%s://%s:%u", scheme, text, ntohs(a.in.sin_port));
}
