/* system.h - the service manager: sockets that it opened for us, and what it is
 * told. Without libsystemd nothing of that is there.
 */
#ifndef BIN_SERVE_NET_SYSTEM_H
#define BIN_SERVE_NET_SYSTEM_H

/* How many sockets it has for us; their descriptors. */
int  system_sockets(int *fds, int most);
/* "READY=1", "STOPPING=1", "STATUS=...". */
void system_notify(const char *state);

#endif
