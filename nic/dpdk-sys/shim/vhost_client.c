/* DPDK's virtio-user asks its server by a socket, and waits for every answer without limit (22.11: vhost_user_read). When it closes, that
 * is so that the server writes no more to the memory that both share, which is then somebody else's (virtio_user_stop_device). So we ask
 * before, with a limit. From a server that does not answer nothing is taken away: port and memory stay as they are until the process
 * ends, and the server reads that its client has gone, and what that had sent, when it goes on.
 *
 * Where a device could not be made, virtio-user does not close the socket either (virtio_user_dev_init), and the server has a client that
 * it never hears of.
 *
 * It tells the number of its socket by rte_intr_fd_set, which this object defines too. The loader finds ours first (memif.c). */
#define _GNU_SOURCE
#include "vhost_client.h"
#include "hear.h"
#include "memif.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_interrupts.h>

#define EXPORT __attribute__((visibility("default")))

/* The environment's own function. */
static __typeof__(rte_intr_fd_set) *real_fd_set;

/* A socket to a server. */
struct client {
	/* The number may be another's by now, and this is not. */
	ino_t inode;
	int fd;
	uint8_t is_there;
};
static struct client clients[RTE_MAX_ETHPORTS];
/* This thread makes a device, which has this socket. */
static __thread int attaching;
static __thread struct client attached;

static int is_still(const struct client *client)
{
	struct stat now;

	return client->is_there && fstat(client->fd, &now) == 0 && now.st_ino == client->inode;
}

EXPORT int rte_intr_fd_set(struct rte_intr_handle *handle, int fd)
{
	struct sockaddr at;
	socklen_t len = sizeof(at);
	struct stat now;

	if (attaching && getpeername(fd, &at, &len) == 0 && at.sa_family == AF_UNIX && fstat(fd, &now) == 0)
		attached = (struct client){ .inode = now.st_ino, .fd = fd, .is_there = 1 };
	memif_has(fd, __builtin_return_address(0));
	return real_fd_set(handle, fd);
}

int vhost_client_up(void)
{
	Dl_info info;
	void *eal;

	if (dladdr((void *)rte_eal_init, &info) == 0)
		return -ENOENT;
	eal = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (eal == NULL)
		return -ENOENT;
	real_fd_set = dlsym(eal, "rte_intr_fd_set");
	return real_fd_set == NULL ? -ENOENT : 0;
}

void vhost_client_attach_begins(void)
{
	attached.is_there = 0;
	attaching = 1;
}

void vhost_client_attach_ends(int port)
{
	attaching = 0;
	if (port >= 0)
		clients[port] = attached;
	else if (is_still(&attached))
		close(attached.fd);
}

/* What the protocol has before every message. */
struct header {
	uint32_t request;
	uint32_t flags;
	uint32_t len;
};
enum { GET_FEATURES = 1, VERSION = 1 };

/* Asks what changes nothing, and may be asked at any time. Answers come in order, so all that the driver did not wait for come before. */
static enum heard ask(int fd)
{
	struct header header = { GET_FEATURES, VERSION, 0 };
	int64_t give_up = now_ms() + PATIENCE_MS;
	char body[256];

	if (send(fd, &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(header))
		return errno == EAGAIN ? SILENT : GONE;
	do {
		enum heard heard = hear(fd, &header, sizeof(header), give_up);

		if (heard != HEARD)
			return heard;
		/* Not of this protocol: nothing is known of it. */
		if (header.len > sizeof(body))
			return SILENT;
		heard = hear(fd, body, header.len, give_up);
		if (heard != HEARD)
			return heard;
	} while (header.request != GET_FEATURES);
	return HEARD;
}

int vhost_client_may_go(uint16_t port)
{
	const struct client *client = &clients[port];

	if (!is_still(client) || ask(client->fd) != SILENT)
		return 1;
	/* All that it will read, once it goes on, is our end. */
	shutdown(client->fd, SHUT_WR);
	return 0;
}

void vhost_client_forget(uint16_t port)
{
	clients[port].is_there = 0;
}
