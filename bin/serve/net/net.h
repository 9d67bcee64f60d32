/* net.h - listening sockets.
 */
#ifndef BIN_SERVE_NET_NET_H
#define BIN_SERVE_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "model/ckpt/error.h"

/* Of a host's first address; port 0 takes a free one. */
int  net_listen(int *fd, const char *host, uint16_t port, struct error *error);
/* A socket in the file system; one that nobody listens to any more is replaced.
 * Its mode is 0600. */
int  net_listen_unix(int *fd, const char *path, struct error *error);
/* Is it an address of this machine that others do not reach? Of sockets in the
 * file system, too. */
bool net_is_local(int fd);
/* "http://127.0.0.1:8080", "unix:/run/sluice". */
void net_url(int fd, const char *scheme, char *out, size_t room);
/* An address without its port. */
void net_address(const struct sockaddr *a, char *out, size_t room);

#endif
