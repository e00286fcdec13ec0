/* The table of shim.h over libdpdk 22.11 and later. */
#define _GNU_SOURCE
#include "shim.h"
#include "burst.h"
#include "guard.h"
#include "lending.h"
#include "lives.h"
#include "memif.h"
#include "removal.h"
#include "running.h"
#include "start.h"
#include "steering.h"
#include "vhost.h"
#include "vhost_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "libdpdk 22.11 or later is needed"
#endif

static void (*log_to)(const char *, uint64_t);

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	log_to(text, len);
	return (ssize_t)len;
}

static const char *driver_dir(void)
{
	return RTE_EAL_PMD_PATH;
}

static int eal_up(int argc, char **argv, void (*on_log)(const char *, uint64_t))
{
	cookie_io_functions_t io = { .write = log_write };
	FILE *stream;
	int result = memif_up();

	if (result == 0)
		result = vhost_client_up();
	if (result != 0)
		return result;
	guard_up();
	log_to = on_log;
	stream = fopencookie(NULL, "w", io);
	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	rte_openlog_stream(stream);
	return start_eal(argc, argv) < 0 ? -rte_errno : 0;
}

/* Ports of a few drivers are not named after their device, which has two (mlx4) or is none of PCI's (mana): then the device's first. */
static int find_port(const char *device, uint16_t *port)
{
	struct rte_eth_dev_info info;
	uint16_t each;

	if (rte_eth_dev_get_port_by_name(device, port) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(each) {
		if (rte_eth_dev_info_get(each, &info) == 0 && strcmp(rte_dev_name(info.device), device) == 0) {
			*port = each;
			return 0;
		}
	}
	return -ENODEV;
}

/* A virtual device by its bus: the environment's own call copies the arguments for other processes too, into 128 bytes, and refuses
 * more of them (24.11.8: rte_dev_probe). A socket's name alone may have as many. */
static int plug(const char *bus, const char *name, const char *args)
{
	int result;

	if (strcmp(bus, "vdev") != 0)
		return rte_eal_hotplug_add(bus, name, args);
	result = rte_vdev_init(name, args);
	return result > 0 ? -ENODEV : result;
}

/* Ports that could not be put away: a server that is stopped has their packet buffers. */
static uint8_t is_kept[RTE_MAX_ETHPORTS];

static int attach(const char *bus, const char *name, const char *args, int pair, uint16_t *port)
{
	int result = 0;

	if (pair && !vhost_is_known() && strncmp(name, "net_vhost", strlen("net_vhost")) == 0)
		return -ENOSYS;
	/* A PCI device on the environment's own list is there already. */
	if (find_port(name, port) != 0) {
		int plugged;

		memif_attach_begins(pair);
		vhost_client_attach_begins();
		result = plug(bus, name, args);
		plugged = result == 0;
		if (plugged)
			result = find_port(name, port);
		memif_attach_ends(result == 0 ? *port : -1);
		if (result != 0 && plugged)
			rte_eal_hotplug_remove(bus, name);
		vhost_client_attach_ends(result == 0 ? *port : -1);
		if (result != 0)
			return result;
	} else if (is_kept[*port]) {
		return -EBUSY;
	}
	pairs[*port] = pair;
	burst_attach(*port);
	removal_watch(*port, strcmp(bus, "pci") == 0);
	return 0;
}

static int detach(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info), line = memif_keep_line(port);

	removal_unwatch(port);
	running_end(port, 1);
	is_kept[port] = !vhost_client_may_go(port) || !memif_hang_up(port, line);
	if (is_kept[port])
		return -ETIMEDOUT;
	lending_end(port);
	rte_eth_dev_close(port);
	vhost_client_forget(port);
	vhost_forget(port);
	return result != 0 ? result : rte_dev_remove(info.device);
}

static int port_info(uint16_t port, struct sl_port_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	result = rte_eth_macaddr_get(port, &mac);
	if (result != 0)
		return result;
	memset(out, 0, sizeof(*out));
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	/* Devices that have no limit leave UINT16_MAX. */
	out->mtu_max = info.max_mtu;
	out->rx_frame_max = info.max_rx_pktlen;
	out->rx_offloads = info.rx_offload_capa;
	out->tx_offloads = info.tx_offload_capa;
	out->numa_node = rte_eth_dev_socket_id(port);
	out->rx_queues_max = info.max_rx_queues;
	out->tx_queues_max = info.max_tx_queues;
	out->rx_descriptors_min = info.rx_desc_lim.nb_min;
	out->tx_descriptors_min = info.tx_desc_lim.nb_min;
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name);
	return 0;
}

static void *pool_create(const char *name, uint32_t mbufs, uint32_t cache, uint16_t room, int numa_node, int *error)
{
	void *pool = rte_pktmbuf_pool_create(name, mbufs, cache, 0, RTE_PKTMBUF_HEADROOM + room, numa_node);

	if (pool == NULL)
		*error = -rte_errno;
	return pool;
}

static void pool_free(void *pool)
{
	rte_mempool_free(pool);
}

static int configure(uint16_t port, const struct rte_eth_dev_info *info, const struct sl_port_config *config)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	if (config->mtu != 0)
		conf.rxmode.mtu = config->mtu;
	/* All frames come from one pool and have one owner, so mbufs need no look on their way back. */
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	conf.intr_conf.rxq = config->rx_interrupt;
	/* Refused where the driver does not tell of it. */
	conf.intr_conf.rmv = (*info->dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
	return rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
}

static int configure_and_start(uint16_t port, struct sl_port_config *config, void *pool)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	running_watch(port);
	if (pairs[port])
		vhost_begins(port, pool);
	result = configure(port, &info, config);
	vhost_ends();
	if (result != 0)
		return result;
	/* A few drivers take it from here only (mlx5); others have no such order, and took it when they were configured. */
	result = config->mtu == 0 ? 0 : rte_eth_dev_set_mtu(port, config->mtu);
	if (result != 0 && result != -ENOTSUP)
		return result;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &config->rx_descriptors, &config->tx_descriptors);
	if (result != 0)
		return result;
	for (uint16_t queue = 0; queue < config->rx_queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, config->rx_descriptors, rte_eth_dev_socket_id(port), NULL,
						pool);
		if (result != 0)
			return result;
	}
	info.default_txconf.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	for (uint16_t queue = 0; queue < config->tx_queues; queue++) {
		result = rte_eth_tx_queue_setup(port, queue, config->tx_descriptors, rte_eth_dev_socket_id(port),
						&info.default_txconf);
		if (result != 0)
			return result;
	}
	return running_begin_first(port, pool);
}

static int port_start(uint16_t port, struct sl_port_config *config, void *pool)
{
	int result = config->lends ? lending_allow(port, pool) : 0;

	if (config->rx_queues > SL_QUEUES_MAX || config->tx_queues > SL_QUEUES_MAX)
		return -EINVAL;
	if (result != 0)
		return result;
	result = configure_and_start(port, config, pool);
	/* Some drivers refuse interrupts when they are configured, others only when they start (ena, bnxt). */
	if (result != 0 && config->rx_interrupt) {
		config->rx_interrupt = 0;
		result = configure_and_start(port, config, pool);
	}
	if (result != 0)
		return result;
	/* What was reset while it was configured has started since. */
	removal_forget_resets(port);
	if (config->rx_interrupt && rte_eth_dev_rx_intr_ctl_q_get_fd(port, 0) < 0)
		config->rx_interrupt = 0;
	return 0;
}

static int port_restart(uint16_t port)
{
	running_end(port, 0);
	running_watch(port);
	return running_begin(port);
}

static int port_stop(uint16_t port)
{
	return running_end(port, 0);
}

static void link_state(uint16_t port, struct sl_link *out)
{
	struct rte_eth_link link;

	memset(&link, 0, sizeof(link));
	if (rte_eth_link_get_nowait(port, &link) != 0)
		link.link_status = RTE_ETH_LINK_DOWN;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	if (!out->up)
		lives_link_is_down(port);
	out->mbit_per_s = link.link_speed;
}

static const uint32_t *lives_of(uint16_t port)
{
	return &lives[port];
}

static uint32_t left_at(uint16_t port)
{
	return __atomic_load_n(&left[port], __ATOMIC_ACQUIRE);
}

static int stats(uint16_t port, struct sl_stats *out)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result != 0)
		return result;
	*out = (struct sl_stats){
		.rx_frames = stats.ipackets,
		.tx_frames = stats.opackets,
		.rx_missed = stats.imissed,
		.rx_errors = stats.ierrors,
		.rx_no_mbuf = stats.rx_nombuf,
		.tx_errors = stats.oerrors,
		.rx_left = lives_lost(port),
	};
	return 0;
}

static int state(uint16_t port, void *pool, struct sl_state *out)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result != 0)
		return result;
	*out = (struct sl_state){
		.rx_queues = info.nb_rx_queues,
		.tx_queues = info.nb_tx_queues,
		.promiscuous = rte_eth_promiscuous_get(port) == 1,
		.all_multicast = rte_eth_allmulticast_get(port) == 1,
		.mbufs_free = rte_mempool_avail_count(pool),
	};
	return 0;
}

static int xstats(uint16_t port, struct sl_xstat *into, uint32_t max)
{
	int count = rte_eth_xstats_get_names(port, NULL, 0);

	if (count <= 0)
		return count;
	struct rte_eth_xstat_name names[count];
	struct rte_eth_xstat values[count];

	if (rte_eth_xstats_get_names(port, names, count) != count || rte_eth_xstats_get(port, values, count) != count)
		return -EAGAIN;
	/* A large card has more, with many queues. */
	count = RTE_MIN(count, (int)max);
	for (int at = 0; at < count; at++) {
		snprintf(into[at].name, sizeof(into[at].name), "%s", names[values[at].id].name);
		into[at].value = values[at].value;
	}
	return count;
}

static int rx_fd(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

/* vhost's library writes its client's memory there, and frees that with no lock against it (22.11: rte_vhost_enable_guest_notification,
 * vhost_destroy_device). So for the guard these two are bursts. */
static int rx_arm(uint16_t port, uint16_t queue)
{
	uint32_t *under_way = &queues[port][queue].rx;
	int result;

	guard_enter(under_way);
	result = rte_eth_dev_rx_intr_enable(port, queue);
	guard_leave(under_way);
	/* Drivers only store a word for the other side; the look at the ring that follows must not come before that. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return result;
}

static int rx_disarm(uint16_t port, uint16_t queue)
{
	uint32_t *under_way = &queues[port][queue].rx;
	int result;

	guard_enter(under_way);
	result = rte_eth_dev_rx_intr_disable(port, queue);
	guard_leave(under_way);
	return result;
}

_Static_assert(SL_CACHE_NONE == LCORE_ID_ANY, "a thread without a number is one without a cache");

static uint32_t *cache_number(void)
{
	return &RTE_PER_LCORE(_lcore_id);
}

/* By the registration of this thread, which keeps its own number. */
static uint32_t cache_take(void)
{
	uint32_t *number = cache_number(), own = *number, taken;

	*number = SL_CACHE_NONE;
	rte_thread_register();
	taken = *number;
	*number = own;
	return taken;
}

static void cache_give_back(void *pool, uint32_t taken)
{
	uint32_t *number = cache_number(), own = *number;

	if (taken == SL_CACHE_NONE)
		return;
	rte_mempool_cache_flush(rte_mempool_default_cache(pool, taken), pool);
	*number = taken;
	rte_thread_unregister();
	*number = own;
}

const struct sl_dpdk sidelane_dpdk = {
	.size = sizeof(struct sl_dpdk),
	.version = rte_version,
	.driver_dir = driver_dir,
	.eal_up = eal_up,
	.attach = attach,
	.detach = detach,
	.port_info = port_info,
	.pool_create = pool_create,
	.pool_free = pool_free,
	.port_start = port_start,
	.port_restart = port_restart,
	.port_stop = port_stop,
	.rules = steering_supported,
	.rule_add = steering_add,
	.rule_remove = steering_remove,
	.link = link_state,
	.removed = removed,
	.lives = lives_of,
	.dialling = memif_dialling,
	.left = left_at,
	.stats = stats,
	.state = state,
	.xstats = xstats,
	.rx_fd = rx_fd,
	.rx_arm = rx_arm,
	.rx_disarm = rx_disarm,
	.cache_take = cache_take,
	.cache_give_back = cache_give_back,
	.cache_number = cache_number,
	.queue = burst_queue,
	.rx_burst = burst_receive,
	.tx_burst = burst_send,
	.alloc_frames = frames_alloc,
	.free_frames = frames_free,
};
