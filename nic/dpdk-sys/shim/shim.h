/* What the Rust side sees of DPDK: one table of functions that work on bursts, free of DPDK's types.
 *
 * Of libdpdk's layouts only a few places of an mbuf cross this border, so the Rust side is the same for every version that has them
 * there; the shim is compiled against the headers of the one that is installed. `src/bindings.rs` is generated from this file.
 *
 * Functions that return int return 0, or a negative errno. Ports, and queues each way, are used by one thread at a time. */
#ifndef SIDELANE_SHIM_H
#define SIDELANE_SHIM_H

#include <stdint.h>

/* Queues that a port may have each way. */
#define SL_QUEUES_MAX 8
/* Frames that are kept of peers that have gone: twice the longest ring of ours, for a second one that comes and goes before
 * anybody receives. */
#define SL_LEFT_MAX 512
/* No cache of mbufs. */
#define SL_CACHE_NONE 0xffffffffu
/* Where an empty frame begins in its buffer. */
#define SL_HEADROOM 128
/* Flags of an mbuf whose buffer is another's. */
#define SL_FLAGS_ATTACHED 0x6000000000000000ull

/* A packet buffer, with what the Rust side reads and writes of it where struct rte_mbuf has it, or the shim does not compile (burst.c).
 * Whoever has one owes it to `free_frames` or `tx_burst`. */
struct sl_mbuf {
	uint8_t *buffer;
	uint8_t address[8];
	/* Of the frame, in the buffer. */
	uint16_t data_offset;
	uint16_t references;
	/* A frame in one piece has one. */
	uint16_t segments;
	uint16_t port;
	/* What was found when it was received, and is to be done when it is sent. */
	uint64_t flags;
	uint8_t kind[4];
	/* Bytes of the frame, and of this segment of it. */
	uint32_t frame_len;
	uint16_t data_len;
	uint8_t tags[12];
	/* Bytes from `buffer` on. */
	uint16_t buffer_len;
	/* Whose it is when nobody has it. */
	void *pool;
};

struct sl_queue;

/* What a device says of itself. */
struct sl_port_info {
	uint8_t mac[6];
	/* Largest payload of a frame behind the Ethernet header; 0: the device does not say. */
	uint16_t mtu_max;
	/* Longest frame that it receives, Ethernet header included. */
	uint32_t rx_frame_max;
	/* Offloads as in rte_ethdev.h (RTE_ETH_RX_OFFLOAD_*, RTE_ETH_TX_OFFLOAD_*). */
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	/* Memory node, or -1. */
	int32_t numa_node;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	/* Fewest descriptors that a queue has, whatever is asked for. */
	uint16_t rx_descriptors_min;
	uint16_t tx_descriptors_min;
	/* Name of the driver, such as net_memif. */
	char driver[64];
};

/* How a port is started. */
struct sl_port_config {
	/* Largest payload behind the Ethernet header; 0: the device's own setting stays. */
	uint16_t mtu;
	/* At least one each way. Queues are numbered from 0, up to SL_QUEUES_MAX of them. */
	uint16_t rx_queues;
	uint16_t tx_queues;
	/* Descriptors asked for. In return: those that the device has. */
	uint16_t rx_descriptors;
	uint16_t tx_descriptors;
	/* Asked: use receive interrupts. In return: whether there are. */
	uint8_t rx_interrupt;
	/* Its peer reads and writes its packet buffers where they are: a memif's client without a copy. */
	uint8_t lends;
};

struct sl_link {
	uint8_t up;
	/* Megabits a second; UINT32_MAX: unknown. */
	uint32_t mbit_per_s;
};

struct sl_stats {
	uint64_t rx_frames;
	uint64_t tx_frames;
	/* Lost for want of descriptors. */
	uint64_t rx_missed;
	/* Damaged. */
	uint64_t rx_errors;
	/* Lost for want of mbufs. */
	uint64_t rx_no_mbuf;
	/* Lost of what peers had sent that have gone: there was no room to keep it. */
	uint64_t rx_left;
	uint64_t tx_errors;
};

/* How a port is set, for whoever looks for a fault. */
struct sl_state {
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint8_t promiscuous;
	uint8_t all_multicast;
	/* Mbufs that nobody holds. */
	uint32_t mbufs_free;
};

/* A device's own counter. */
struct sl_xstat {
	char name[64];
	uint64_t value;
};

struct sl_dpdk {
	/* sizeof(struct sl_dpdk) of the shim. */
	uint64_t size;

	/* Once, before ports. */

	/* Such as "DPDK 22.11.11". */
	const char *(*version)(void);
	/* Directory that drivers are loaded from. */
	const char *(*driver_dir)(void);
	/* Starts the environment, once a process. `on_log` gets what it has to say, on any thread. */
	int (*eal_up)(int argc, char **argv, void (*on_log)(const char *text, uint64_t len));

	/* Ports. */

	/* Makes a device known and finds its port. `pair`: it is an end of a reliable pair, to which no process of another user may come by
	 * memif, and of which the peers that go are counted. -ENOSYS: the server's end of vhost, of which no header was there. */
	int (*attach)(const char *bus, const char *name, const char *args, int pair, uint16_t *port);
	/* Stops, closes and forgets a device. -ETIMEDOUT: it is stopped, and stays as it is, as the other side may go on to use its memory and
	 * that of its frames. */
	int (*detach)(uint16_t port);
	int (*port_info)(uint16_t port, struct sl_port_info *info);
	/* Mbufs of one size; NULL, and the reason in *error. */
	void *(*pool_create)(const char *name, uint32_t mbufs, uint32_t cache, uint16_t room, int numa_node, int *error);
	void (*pool_free)(void *pool);
	/* -EXDEV: it lends its packet buffers, and they are not in one piece. */
	int (*port_start)(uint16_t port, struct sl_port_config *config, void *pool);
	int (*port_restart)(uint16_t port);
	/* Stops a port, which can be started again with other queues. */
	int (*port_stop)(uint16_t port);
	/* Counts the peer of a virtio-user client, too, where it finds that gone. */
	void (*link)(uint16_t port, struct sl_link *link);
	/* True once the device was taken away. */
	int (*removed)(uint16_t port);
	/* Where it is counted how many peers have gone, of a memif's port or a pair's; changed by another thread. Others count none. */
	const uint32_t *(*lives)(uint16_t port);
	/* True while a memif client waits for what its server answers; not true any more once it was turned away. */
	int (*dialling)(uint16_t port);
	/* Frames that those have left, which the next bursts receive before what a new peer sends. */
	uint32_t (*left)(uint16_t port);
	int (*stats)(uint16_t port, struct sl_stats *stats);
	/* `pool`: that of the port. Not for the hot path. */
	int (*state)(uint16_t port, void *pool, struct sl_state *state);
	/* Writes at most `max`; returns how many there are. */
	int (*xstats)(uint16_t port, struct sl_xstat *into, uint32_t max);

	/* Steering by the card: frames of an EtherType to an address go to a receive queue. */

	/* Whether its driver has rules at all, asked before it is started: 0, or -errno. */
	int (*rules)(uint16_t port);
	/* Makes a started port receive what goes to `mac`, one more unless `own`, at `queue`; NULL in *rule never. */
	int (*rule_add)(uint16_t port, const uint8_t *mac, int own, uint16_t ethertype, uint16_t queue, void **rule);
	/* Takes that back. */
	void (*rule_remove)(uint16_t port, const uint8_t *mac, int own, void *rule);

	/* Sleeping: a descriptor that becomes readable when a frame has come and the interrupt was armed; or -errno. */

	int (*rx_fd)(uint16_t port, uint16_t queue);
	int (*rx_arm)(uint16_t port, uint16_t queue);
	int (*rx_disarm)(uint16_t port, uint16_t queue);

	/* The hot path. */

	/* DPDK finds a cache of mbufs by the number of the thread that runs; without one (SL_CACHE_NONE), every mbuf is fetched from the
	 * ring that all share. But what is in the cache of a thread that does not come again is lost to all others. So numbers are of
	 * those who work here, and a thread has one while it works for them. */

	/* A number that nobody else has. More users than there are numbers go without. */
	uint32_t (*cache_take)(void);
	/* Gives it back, and what its cache has of a pool's mbufs. */
	void (*cache_give_back)(void *pool, uint32_t number);
	/* Where this thread's number stands as long as it lives. */
	uint32_t *(*cache_number)(void);
	/* A queue pair of an attached port, to move frames by: never freed. */
	struct sl_queue *(*queue)(uint16_t port, uint16_t number);
	/* Receives at most `max` frames. Some may be in pieces, or longer than their buffer. Once more than `life` peers have gone, only
	 * what those have left. */
	uint16_t (*rx_burst)(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t max, uint32_t life);
	/* Sends the first so many, none once more than `life` peers have gone; the rest stay the caller's. */
	uint16_t (*tx_burst)(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t count, uint32_t life);
	/* Takes `count` empty frames from a pool, each on a cache line of its own. All or none: 0, or -ENOENT. */
	int (*alloc_frames)(void *pool, struct sl_mbuf **frames, uint32_t count);
	void (*free_frames)(struct sl_mbuf **frames, uint32_t count);
};

/* The only symbol of the shim. */
extern const struct sl_dpdk sidelane_dpdk __attribute__((visibility("default")));

#endif
