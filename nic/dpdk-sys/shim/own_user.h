/* Whose process is at the other end of a socket. */
#ifndef SIDELANE_OWN_USER_H
#define SIDELANE_OWN_USER_H

#include <sys/socket.h>
#include <unistd.h>

/* Whether that is our own user's. One that listens has itself there. */
static inline int is_own_user(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

#endif
