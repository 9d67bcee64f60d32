#include "bin/serve/net/system.h"

#ifdef HAVE_SYSTEMD

#include <fcntl.h>
#include <systemd/sd-daemon.h>

int system_sockets(int *fds, int most)
{
    int n = sd_listen_fds(1);
    for (int i = 0; i < n && i < most; i++)
        fds[i] = SD_LISTEN_FDS_START + i;
    return n < 0 ? 0 : n < most ? n : most;
}

void system_notify(const char *state)
{
    sd_notify(0, state);
}

#else

int system_sockets(int *fds, int most)
{
    (void)fds, (void)most;
    return 0;
}

void system_notify(const char *state)
{
    (void)state;
}

#endif
