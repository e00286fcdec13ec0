/* DPDK's memif driver takes its shared memory down, and sets it up, in handlers of its control sockets, which run on the
 * environment's interrupt thread with no lock against bursts (22.11 and 23.11: memif_intr_handler -> memif_disconnect ->
 * memif_free_regions -> munmap). A burst that copies a frame at that moment reads memory that is gone.
 *
 * So its handlers go through us: memif registers them by rte_intr_callback_register, which this object defines too. The
 * loader finds ours first, since this object is in the global scope before drivers are loaded. Around each handler
 * bursts are shut out (guard.h).
 *
 * The same lists tell which listening socket is whose. memif never closes it, and frees what its handler refers to
 * (memif_socket_remove_device); we close it first.
 *
 * They are also where somebody else's process is turned away, at ports that only those of our own user may come to: a
 * socket that is refused here is one that memif closes, before a word is said. */
#define _GNU_SOURCE
#include "memif.h"
#include "guard.h"
#include "hear.h"
#include "lending.h"
#include "lives.h"
#include "own_user.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_interrupts.h>

#define EXPORT __attribute__((visibility("default")))

/* The environment's own functions. */
static __typeof__(rte_intr_callback_register) *real_register;
static __typeof__(rte_intr_callback_unregister) *real_unregister;
static __typeof__(rte_intr_callback_unregister_pending) *real_unregister_pending;

/* memif's two handlers, in the order in which they come. */
#define HANDLERS 2
static rte_intr_callback_fn handlers[HANDLERS];

/* What is registered. */
struct socket {
	struct socket *next;
	const struct rte_intr_handle *handle;
	rte_intr_callback_fn guarded;
	void *arg;
	/* The listening socket that it came by; NULL: none. */
	const struct socket *parent;
	/* Where it listens for a port; -1: not that. */
	int port;
	/* The port that it is there for. */
	int of;
	/* Those who come by it are of our own user. */
	int own_user;
	/* Of who came by a listening socket. */
	int fd;
	ino_t inode;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct socket *sockets;
/* The socket whose handler runs. Interrupt thread only. */
static const struct socket *running;
/* Who came by it, and is greeted now. Interrupt thread only. */
static struct socket *coming;
/* This thread makes a device, and has registered this. */
static __thread int attaching;
static __thread struct socket *attached;
/* This thread makes or starts a device to which only our own user may come. */
static __thread int for_own_user;
/* This thread starts this port; LIVES_ALL: none. */
static __thread int starting = LIVES_ALL;

/* Forgets a socket. Under the lock. */
static void forget(rte_intr_callback_fn guarded, const void *arg)
{
	for (struct socket **at = &sockets; *at != NULL; at = &(*at)->next) {
		struct socket *socket = *at;

		if (socket->guarded != guarded || socket->arg != arg)
			continue;
		*at = socket->next;
		free(socket);
		return;
	}
}

/* Registers who came by a listening socket and has been greeted. Where it had gone, memif has closed the descriptor and freed the
 * handler's argument without taking the handler back (22.11: memif_listener_handler): registered before, it would have the
 * environment abort at a closed descriptor. */
static void admit(struct socket *socket)
{
	struct stat now;
	int greeted = fstat(socket->fd, &now) == 0 && now.st_ino == socket->inode;

	if (greeted && real_register(socket->handle, socket->guarded, socket->arg) >= 0)
		return;
	if (greeted)
		close(socket->fd);
	pthread_mutex_lock(&lock);
	forget(socket->guarded, socket->arg);
	pthread_mutex_unlock(&lock);
}

/* False: a handler would wait in its socket, for ever, with all bursts shut out. The environment asks for the news of all sockets at
 * once, knows them by their descriptors, and runs no handler under its lock. So one that was closed meanwhile by who ends its
 * port, and whose number was given again, has the news of the one before it (22.11: eal_intr_process_interrupts). */
static int has_news(const struct socket *socket)
{
	struct pollfd look = { .fd = rte_intr_fd_get(socket->handle), .events = POLLIN };

	/* A signal is no news: what is there comes again. */
	return poll(&look, 1, 0) > 0;
}

int is_of_memif(const void *code)
{
	Dl_info info;

	return dladdr(code, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "librte_net_memif") != NULL;
}

/* It may have come from the other end, and then a program that we start would keep it. */
void memif_has(int fd, const void *code)
{
	if (fd >= 0 && is_of_memif(code))
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Memory that it shares, made here or there (22.11: memif_region_init_shm), or the environment's own (eal_legacy_hugepage_init,
 * get_seg_memfd): likewise, and found by its name. */
static int is_shared_memory(int folder, const char *number)
{
	static const char *const names[] = { "/memfd:memif_region_", "/memfd:nohuge", "/memfd:seg_" };
	char target[32];
	ssize_t len = readlinkat(folder, number, target, sizeof(target) - 1);

	target[RTE_MAX(len, 0)] = 0;
	for (size_t at = 0; at < RTE_DIM(names); at++)
		if (strncmp(target, names[at], strlen(names[at])) == 0)
			return 1;
	return 0;
}

static void look_after_memory(void)
{
	DIR *numbers = opendir("/proc/self/fd");
	struct dirent *number;

	while (numbers != NULL && (number = readdir(numbers)) != NULL)
		if (is_shared_memory(dirfd(numbers), number->d_name))
			fcntl(atoi(number->d_name), F_SETFD, FD_CLOEXEC);
	if (numbers != NULL)
		closedir(numbers);
}

static void run_guarded(int which, void *arg)
{
	struct socket *socket;
	int ending, met;

	pthread_mutex_lock(&lock);
	for (socket = sockets; socket != NULL && socket->arg != arg; socket = socket->next)
		;
	/* One that is forgotten is about to be taken back, while its device may be at its end. */
	if (socket == NULL || !has_news(socket)) {
		pthread_mutex_unlock(&lock);
		return;
	}
	running = socket;
	/* Where one only comes, nobody goes. */
	ending = socket->port >= 0 ? LIVES_NONE : socket->of;
	pthread_mutex_unlock(&lock);
	guard_shut_out();
	lives_before_handler(ending);
	coming = NULL;
	handlers[which](arg);
	if (coming != NULL)
		admit(coming);
	met = lives_after_handler();
	guard_let_in();
	if (met)
		look_after_memory();
	running = NULL;
}

static void guarded_first(void *arg)
{
	run_guarded(0, arg);
}

static void guarded_second(void *arg)
{
	run_guarded(1, arg);
}

static const rte_intr_callback_fn guarded[HANDLERS] = { guarded_first, guarded_second };

/* The guarded form of a handler of memif's; any other stays as it is. Under the lock. */
static rte_intr_callback_fn guard(rte_intr_callback_fn handler)
{
	for (int at = 0; at < HANDLERS; at++) {
		if (handlers[at] == handler)
			return guarded[at];
		if (handlers[at] != NULL)
			continue;
		if (!is_of_memif((void *)handler))
			return handler;
		handlers[at] = handler;
		return guarded[at];
	}
	return handler;
}

EXPORT int rte_intr_callback_register(const struct rte_intr_handle *handle, rte_intr_callback_fn handler, void *arg)
{
	rte_intr_callback_fn through;
	struct socket *socket = NULL;
	int result;

	pthread_mutex_lock(&lock);
	through = guard(handler);
	if (through != handler) {
		socket = malloc(sizeof(*socket));
		if (socket == NULL) {
			pthread_mutex_unlock(&lock);
			return -ENOMEM;
		}
		*socket = (struct socket){ sockets, handle, through, arg, running, -1, starting, for_own_user, -1, 0 };
		if (!rte_thread_is_intr())
			socket->parent = NULL;
		if (socket->parent != NULL) {
			socket->own_user = socket->parent->own_user;
			socket->of = socket->parent->of;
		}
		/* A program that we start and that outlives us must not keep the other end waiting for our end. */
		fcntl(rte_intr_fd_get(handle), F_SETFD, FD_CLOEXEC);
		if (socket->own_user && !is_own_user(rte_intr_fd_get(handle))) {
			free(socket);
			pthread_mutex_unlock(&lock);
			return -EPERM;
		}
		if (socket->parent != NULL) {
			struct stat now;

			socket->fd = rte_intr_fd_get(handle);
			if (fstat(socket->fd, &now) != 0) {
				free(socket);
				pthread_mutex_unlock(&lock);
				return -EBADF;
			}
			socket->inode = now.st_ino;
			coming = sockets = socket;
			pthread_mutex_unlock(&lock);
			/* By `admit`, when it is greeted. */
			return 0;
		}
		if (attaching) {
			attached = socket;
			/* memif lets one wait there; a second client's connect(2), which has no time limit, would stand still
			 * with a server that is stopped for a while. */
			listen(rte_intr_fd_get(handle), SOMAXCONN);
		}
		sockets = socket;
	}
	pthread_mutex_unlock(&lock);
	result = real_register(handle, through, arg);
	if (socket != NULL && result < 0) {
		pthread_mutex_lock(&lock);
		forget(through, arg);
		attached = NULL;
		pthread_mutex_unlock(&lock);
	}
	return result;
}

EXPORT int rte_intr_callback_unregister(const struct rte_intr_handle *handle, rte_intr_callback_fn handler, void *arg)
{
	rte_intr_callback_fn through;
	int result;

	pthread_mutex_lock(&lock);
	through = guard(handler);
	result = real_unregister(handle, through, arg);
	if (through != handler && result > 0)
		forget(through, arg);
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT int rte_intr_callback_unregister_pending(const struct rte_intr_handle *handle, rte_intr_callback_fn handler,
						void *arg, rte_intr_unregister_callback_fn last)
{
	rte_intr_callback_fn through;
	int result;

	pthread_mutex_lock(&lock);
	through = guard(handler);
	result = real_unregister_pending(handle, through, arg, last);
	if (through != handler && result > 0)
		forget(through, arg);
	pthread_mutex_unlock(&lock);
	return result;
}

int memif_up(void)
{
	Dl_info info;
	void *eal;

	if (dladdr((void *)rte_eal_init, &info) == 0)
		return -ENOENT;
	eal = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (eal == NULL)
		return -ENOENT;
	real_register = dlsym(eal, "rte_intr_callback_register");
	real_unregister = dlsym(eal, "rte_intr_callback_unregister");
	real_unregister_pending = dlsym(eal, "rte_intr_callback_unregister_pending");
	if (real_register == NULL || real_unregister == NULL || real_unregister_pending == NULL)
		return -ENOENT;
	return lending_up(eal);
}

void memif_attach_begins(int own_user)
{
	attaching = 1;
	attached = NULL;
	for_own_user = own_user;
}

void memif_attach_ends(int port)
{
	if (attached != NULL)
		attached->port = attached->of = port;
	attaching = 0;
	attached = NULL;
	for_own_user = 0;
}

void memif_start_begins(uint16_t port, int own_user)
{
	for_own_user = own_user;
	starting = port;
}

void memif_start_ends(void)
{
	for_own_user = 0;
	starting = LIVES_ALL;
}

int memif_handled(void)
{
	return rte_thread_is_intr() && running != NULL ? running->of : -1;
}

/* A client's socket to its server, if it has one. Under the lock. */
static const struct socket *client_of(uint16_t port)
{
	const struct socket *socket;

	for (socket = sockets; socket != NULL; socket = socket->next)
		if (socket->of == port && socket->port < 0 && socket->parent == NULL)
			break;
	return socket;
}

int memif_dialling(uint16_t port)
{
	int dialling;

	pthread_mutex_lock(&lock);
	dialling = client_of(port) != NULL;
	pthread_mutex_unlock(&lock);
	return dialling;
}

int memif_keep_line(uint16_t port)
{
	const struct socket *client;
	int line = -1;

	if (!lending_is_on(port))
		return -1;
	pthread_mutex_lock(&lock);
	client = client_of(port);
	if (client != NULL)
		line = fcntl(rte_intr_fd_get(client->handle), F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&lock);
	return line;
}

int memif_hang_up(uint16_t port, int line)
{
	int64_t give_up = now_ms() + PATIENCE_MS;
	enum heard heard = lending_has_begun(port) ? HEARD : GONE;
	char said;

	if (line < 0)
		return 1;
	/* Behind the goodbye, if there was one. */
	shutdown(line, SHUT_WR);
	/* It may say much, and is gone when it hangs up. */
	while (heard == HEARD && now_ms() < give_up)
		heard = hear(line, &said, 1, give_up);
	close(line);
	return heard == GONE;
}

/* Ends one socket. Under the lock, on the interrupt thread: no handler runs. */
static void end(struct socket *socket)
{
	int fd = rte_intr_fd_get(socket->handle);

	if (real_unregister(socket->handle, socket->guarded, socket->arg) > 0)
		close(fd);
	forget(socket->guarded, socket->arg);
}

void memif_close_listener(uint16_t port)
{
	struct socket *listener, *next;

	pthread_mutex_lock(&lock);
	for (listener = sockets; listener != NULL && listener->port != port; listener = listener->next)
		;
	for (struct socket *socket = sockets; listener != NULL && socket != NULL; socket = next) {
		next = socket->next;
		if (socket->parent == listener)
			end(socket);
	}
	if (listener != NULL)
		end(listener);
	pthread_mutex_unlock(&lock);
}
