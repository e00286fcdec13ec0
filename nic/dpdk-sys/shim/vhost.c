/* When a client goes, DPDK's vhost library tells its driver and unmaps the client's memory, with the frames in it that nobody has
 * received yet, on a thread of its own (22.11: vhost_user_read_cb, vhost_user_get_vring_base). It does not lend them any more by then: a
 * client that closes has its queues disabled first. So they are read from the ring, which is the standard's (virtio 1.2, 2.7).
 *
 * For that the driver's callbacks go through us: it registers them by rte_vhost_driver_callback_register, which this object defines too.
 * The loader finds ours first (memif.c). The library itself is that of the driver, which is there only where it is installed.
 *
 * The library lets a second client in, and the driver takes it for the first. Here it is turned away when it comes, and so is another
 * user's, who may have come before the socket had its mode. */
#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API
#include "vhost.h"
#include "guard.h"
#include "lives.h"
#include "own_user.h"

/* It is a library that a distribution may leave out. */
#if __has_include(<rte_vhost.h>)

#include <rte_vhost.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>

#include <rte_mbuf.h>

#define EXPORT __attribute__((visibility("default")))

/* The library's own functions. */
static __typeof__(rte_vhost_driver_callback_register) *real_register;
static __typeof__(rte_vhost_get_ifname) *real_get_ifname;
static __typeof__(rte_vhost_get_negotiated_features) *real_get_features;
static __typeof__(rte_vhost_get_vhost_vring) *real_get_vring;
static __typeof__(rte_vhost_get_vring_base) *real_get_base;
static __typeof__(rte_vhost_get_mem_table) *real_get_memory;

/* A server's end. */
struct server {
	struct server *next;
	/* As the library names it. */
	char path[PATH_MAX];
	/* The driver's callbacks, and what is called instead. */
	const struct rte_vhost_device_ops *driver;
	struct rte_vhost_device_ops ops;
	void *pool;
	uint16_t port;
	/* The library's number of the client that is there; NOBODY: none. */
	int client;
};
#define NOBODY (-1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct server *servers;
/* Held while a server's port starts or a client comes. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
/* This thread configures this port, with this pool. */
static __thread int configuring = -1;
static __thread void *pool_of_it;

/* Whose client it is. It stays as long as its callbacks may come. */
static struct server *server_of(int client)
{
	struct server *server = NULL;
	char path[PATH_MAX];

	if (real_get_ifname(client, path, sizeof(path)) != 0)
		return NULL;
	pthread_mutex_lock(&lock);
	for (server = servers; server != NULL && strcmp(server->path, path) != 0; server = server->next)
		;
	pthread_mutex_unlock(&lock);
	return server;
}

/* A client's ring of frames for us, and its memory. */
struct ring {
	struct rte_vhost_vring vring;
	struct rte_vhost_memory *memory;
	/* Bytes before a frame. */
	uint32_t header;
};

/* Where memory of the client's is here; NULL: not all of it is anywhere. */
static const uint8_t *translate(const struct ring *ring, uint64_t at, uint64_t len)
{
	for (uint32_t number = 0; number < ring->memory->nregions; number++) {
		const struct rte_vhost_mem_region *region = &ring->memory->regions[number];
		uint64_t offset = at - region->guest_phys_addr;

		if (at >= region->guest_phys_addr && offset < region->size && len <= region->size - offset)
			return (const uint8_t *)(uintptr_t)(region->host_user_addr + offset);
	}
	return NULL;
}

/* Copies the frame whose first descriptor that is. 0: it is none. */
static int copy(const struct ring *ring, uint16_t descriptor, struct rte_mbuf *into)
{
	uint32_t skip = ring->header;

	/* A chain has no more of them than the ring. */
	for (uint32_t count = 0; count < ring->vring.size && descriptor < ring->vring.size; count++) {
		/* Once: the client may change it. */
		const struct vring_desc piece = *(volatile struct vring_desc *)&ring->vring.desc[descriptor];
		uint32_t head = RTE_MIN(skip, piece.len), len = piece.len - head;
		const uint8_t *bytes = translate(ring, piece.addr, piece.len);
		char *room;

		/* Ours make no tables of descriptors: those would be of queues that are not in order. */
		if (bytes == NULL || piece.flags & VRING_DESC_F_INDIRECT || len > rte_pktmbuf_tailroom(into))
			return 0;
		room = rte_pktmbuf_append(into, len);
		memcpy(room, bytes + head, len);
		skip -= head;
		if (!(piece.flags & VRING_DESC_F_NEXT))
			return rte_pktmbuf_pkt_len(into) > 0;
		descriptor = piece.next;
	}
	return 0;
}

/* Keeps all frames from `next` on. */
static void keep_from(const struct server *server, const struct ring *ring, uint16_t next)
{
	uint16_t mask = ring->vring.size - 1, end = __atomic_load_n(&ring->vring.avail->idx, __ATOMIC_ACQUIRE);

	if ((uint16_t)(end - next) > ring->vring.size)
		return;
	for (; next != end; next++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(server->pool);

		if (mbuf == NULL)
			return lives_lose(server->port, (uint16_t)(end - next));
		mbuf->port = server->port;
		if (copy(ring, ring->vring.avail->ring[next & mask], mbuf)) {
			lives_keep(server->port, mbuf);
		} else {
			rte_pktmbuf_free(mbuf);
			lives_lose(server->port, 1);
		}
	}
}

struct end {
	const struct server *server;
	int client;
};

/* Takes all out of the ring of a client that goes. */
static void take_out(void *arg)
{
	/* Of a pair's two rings, the one by which the client sends (virtio 1.2, 5.1.2). */
	enum { CLIENT_SENDS = 1 };
	const struct end *end = arg;
	struct ring ring;
	uint64_t features;
	uint16_t next, used;

	memset(&ring, 0, sizeof(ring));
	if (real_get_features(end->client, &features) != 0 || features & 1ULL << VIRTIO_F_RING_PACKED ||
	    real_get_vring(end->client, CLIENT_SENDS, &ring.vring) != 0 || ring.vring.desc == NULL || ring.vring.avail == NULL ||
	    real_get_base(end->client, CLIENT_SENDS, &next, &used) != 0 || real_get_memory(end->client, &ring.memory) != 0)
		return;
	ring.header = features & (1ULL << VIRTIO_NET_F_MRG_RXBUF | 1ULL << VIRTIO_F_VERSION_1) ?
			      sizeof(struct virtio_net_hdr_mrg_rxbuf) :
			      sizeof(struct virtio_net_hdr);
	keep_from(end->server, &ring, next);
	free(ring.memory);
}

/* Its memory and what it is woken by, which came from the client, are not kept by programs that we start. */
static void look_after_rings(int client)
{
	struct rte_vhost_memory *memory;
	struct rte_vhost_vring vring;

	for (uint16_t ring = 0; ring < 2; ring++) {
		if (real_get_vring(client, ring, &vring) != 0)
			continue;
		fcntl(vring.kickfd, F_SETFD, FD_CLOEXEC);
		fcntl(vring.callfd, F_SETFD, FD_CLOEXEC);
	}
	if (real_get_memory(client, &memory) != 0)
		return;
	for (uint32_t number = 0; number < memory->nregions; number++)
		fcntl(memory->regions[number].fd, F_SETFD, FD_CLOEXEC);
	free(memory);
}

static int new_device(int client)
{
	struct server *server = server_of(client);
	int result;

	if (server == NULL)
		return -1;
	look_after_rings(client);
	vhost_lock();
	result = server->driver->new_device(client);
	vhost_unlock();
	return result;
}

static void destroy_device(int client)
{
	struct server *server = server_of(client);
	struct end end = { server, client };

	if (server == NULL)
		return;
	guard_shut_out();
	server->driver->destroy_device(client);
	lives_over(server->port, take_out, &end);
	guard_let_in();
}

/* Closes a server's sockets, of which the library does not tell the numbers, in programs that we start: one that outlives us must not keep
 * the other end waiting for our end, nor the place. 0: another user's process is at one of them. */
static int look_after_sockets(const struct server *server)
{
	DIR *numbers = opendir("/proc/self/fd");
	struct dirent *number;
	int are_own = 1;

	while (numbers != NULL && (number = readdir(numbers)) != NULL) {
		struct sockaddr_un at;
		socklen_t len = sizeof(at);
		int fd = atoi(number->d_name);

		memset(&at, 0, sizeof(at));
		if (getsockname(fd, (struct sockaddr *)&at, &len) != 0 || at.sun_family != AF_UNIX ||
		    strncmp(at.sun_path, server->path, sizeof(at.sun_path)) != 0)
			continue;
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		are_own = are_own && is_own_user(fd);
	}
	if (numbers != NULL)
		closedir(numbers);
	return are_own;
}

static int new_connection(int client)
{
	struct server *server = server_of(client);
	int is_first = 0;

	if (server == NULL || !look_after_sockets(server))
		return -1;
	pthread_mutex_lock(&lock);
	if (server->client == NOBODY) {
		server->client = client;
		is_first = 1;
	}
	pthread_mutex_unlock(&lock);
	if (!is_first)
		return -1;
	return server->driver->new_connection == NULL ? 0 : server->driver->new_connection(client);
}

static void destroy_connection(int client)
{
	struct server *server = server_of(client);

	if (server == NULL)
		return;
	if (server->driver->destroy_connection != NULL)
		server->driver->destroy_connection(client);
	pthread_mutex_lock(&lock);
	if (server->client == client)
		server->client = NOBODY;
	pthread_mutex_unlock(&lock);
}

/* Finds the library of the driver that has this code. */
static void find_library(const void *code)
{
	Dl_info info;
	void *driver;

	if (dladdr(code, &info) == 0 || info.dli_fname == NULL)
		return;
	driver = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (driver == NULL)
		return;
	real_register = dlsym(driver, "rte_vhost_driver_callback_register");
	real_get_ifname = dlsym(driver, "rte_vhost_get_ifname");
	real_get_features = dlsym(driver, "rte_vhost_get_negotiated_features");
	real_get_vring = dlsym(driver, "rte_vhost_get_vhost_vring");
	real_get_base = dlsym(driver, "rte_vhost_get_vring_base");
	real_get_memory = dlsym(driver, "rte_vhost_get_mem_table");
}

static int can_take_out(void)
{
	return real_get_ifname != NULL && real_get_features != NULL && real_get_vring != NULL && real_get_base != NULL &&
	       real_get_memory != NULL;
}

EXPORT int rte_vhost_driver_callback_register(const char *path, struct rte_vhost_device_ops const *const driver)
{
	struct server *server;

	if (real_register == NULL)
		find_library(__builtin_return_address(0));
	if (real_register == NULL)
		return -1;
	if (configuring < 0)
		return real_register(path, driver);
	if (!can_take_out() || strlen(path) >= sizeof(server->path))
		return -1;
	server = calloc(1, sizeof(*server));
	if (server == NULL)
		return -1;
	strcpy(server->path, path);
	server->driver = driver;
	server->ops = *driver;
	server->ops.new_device = new_device;
	server->ops.destroy_device = destroy_device;
	server->ops.new_connection = new_connection;
	server->ops.destroy_connection = destroy_connection;
	server->pool = pool_of_it;
	server->port = configuring;
	server->client = NOBODY;
	pthread_mutex_lock(&lock);
	server->next = servers;
	servers = server;
	pthread_mutex_unlock(&lock);
	return real_register(path, &server->ops);
}

void vhost_begins(uint16_t port, void *pool)
{
	configuring = port;
	pool_of_it = pool;
}

void vhost_ends(void)
{
	pthread_mutex_lock(&lock);
	for (struct server *server = servers; server != NULL; server = server->next)
		if (server->port == configuring)
			look_after_sockets(server);
	pthread_mutex_unlock(&lock);
	configuring = -1;
	pool_of_it = NULL;
}

void vhost_lock(void)
{
	pthread_mutex_lock(&starting);
}

void vhost_unlock(void)
{
	pthread_mutex_unlock(&starting);
}

void vhost_forget(uint16_t port)
{
	struct server *server;

	pthread_mutex_lock(&lock);
	for (struct server **at = &servers; (server = *at) != NULL;) {
		if (server->port == port) {
			*at = server->next;
			free(server);
		} else {
			at = &server->next;
		}
	}
	pthread_mutex_unlock(&lock);
}

int vhost_is_known(void)
{
	return 1;
}

#else

int vhost_is_known(void)
{
	return 0;
}

void vhost_begins(uint16_t port, void *pool)
{
	(void)port, (void)pool;
}

void vhost_ends(void)
{
}

void vhost_lock(void)
{
}

void vhost_unlock(void)
{
}

void vhost_forget(uint16_t port)
{
	(void)port;
}

#endif
