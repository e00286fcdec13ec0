/* A port's start and its end, around which some drivers need something of their own. */
#include "running.h"
#include "lives.h"
#include "memif.h"
#include "vhost.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>

uint8_t pairs[RTE_MAX_ETHPORTS];

static int is_of(uint16_t port, const char *driver)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 && strcmp(info.driver_name, driver) == 0;
}

static int is_memif(uint16_t port)
{
	return is_of(port, "net_memif");
}

void running_watch(uint16_t port)
{
	if (is_memif(port))
		lives_begin(port, LIVES_BY_HANDLERS);
	else if (pairs[port])
		lives_begin(port, is_of(port, "net_vhost") ? LIVES_BY_SERVER : LIVES_BY_LINK);
}

int running_begin(uint16_t port)
{
	int serves_vhost = is_of(port, "net_vhost"), result;

	memif_start_begins(port, pairs[port]);
	/* A client's start waits for its server, which may be of this process. */
	if (serves_vhost)
		vhost_lock();
	result = rte_eth_dev_start(port);
	if (serves_vhost)
		vhost_unlock();
	memif_start_ends();
	return result;
}

/* A virtio-user's port, with nothing to lend its server. Where it lends its ring, it throws away what has come in it a moment later
 * (22.11: virtio_dev_start, virtqueue_rxvq_flush). Its first burst lends it, too. Nobody has frames of the pool yet. */
static int begin_without_frames(uint16_t port, void *pool)
{
	unsigned int count = rte_mempool_avail_count(pool);
	void **frames = calloc(count, sizeof(*frames));
	int result = -ENOMEM;

	if (frames != NULL && rte_mempool_generic_get(pool, frames, count, NULL) == 0) {
		result = running_begin(port);
		rte_mempool_generic_put(pool, frames, count, NULL);
	}
	free(frames);
	return result;
}

int running_begin_first(uint16_t port, void *pool)
{
	return pairs[port] && is_of(port, "net_virtio_user") ? begin_without_frames(port, pool) : running_begin(port);
}

/* A stop, to be done on the environment's interrupt thread. */
struct stop {
	uint16_t port;
	int for_good;
	int result;
	int done;
	pthread_mutex_t lock;
	pthread_cond_t ended;
};

static void stop_now(void *arg)
{
	struct stop *stop = arg;
	int result = rte_eth_dev_stop(stop->port);

	lives_end(stop->port);
	if (stop->for_good)
		memif_close_listener(stop->port);
	pthread_mutex_lock(&stop->lock);
	stop->result = result;
	stop->done = 1;
	pthread_cond_signal(&stop->ended);
	pthread_mutex_unlock(&stop->lock);
}

/* memif's stop frees what its interrupt handler frees too when the peer goes at the same moment, with no lock between
 * them (rte_eth_memif.c, memif_disconnect): on the handler's own thread they come one after the other. So does what a look at a
 * virtio-user's link leaves to that thread where its server is gone, with the device that is freed then (22.11:
 * vhost_user_update_link_state). */
int running_end(uint16_t port, int for_good)
{
	struct stop stop = { .port = port, .for_good = for_good,
			     .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };

	if (!(is_memif(port) || is_of(port, "net_virtio_user")) || rte_eal_alarm_set(1, stop_now, &stop) != 0) {
		int result = rte_eth_dev_stop(port);

		lives_end(port);
		return result;
	}
	pthread_mutex_lock(&stop.lock);
	while (!stop.done)
		pthread_cond_wait(&stop.ended, &stop.lock);
	pthread_mutex_unlock(&stop.lock);
	return stop.result;
}
