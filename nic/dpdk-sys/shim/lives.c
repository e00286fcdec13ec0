/* The lives of a pair's peers. What bursts use goes with the peer, and with it the frames that the peer had sent and nobody has
 * received yet. So all that is in the ring is taken out just before, and is what the next bursts receive. Only whole frames
 * are: a sender moves the ring's head when they are written. Who takes them out, and when, is another thing for each driver:
 *
 * - memif unmaps the memory that both share (22.11: memif_disconnect -> memif_free_regions), on the interrupt thread. It is ours
 *   too and lasts until then.
 * - vhost unmaps its client's memory, on a thread of its own (vhost.c).
 * - A virtio-user client's ring is in its own memory, and stays.
 *
 * A link may be down and up again, with another peer, before anybody looks; so ends are counted. */
#include "lives.h"
#include "guard.h"

#include <rte_ethdev.h>

uint32_t lives[RTE_MAX_ETHPORTS];
uint32_t left[RTE_MAX_ETHPORTS];

static struct {
	struct rte_mbuf *mbufs[SL_LEFT_MAX];
	/* Place of the oldest. */
	uint32_t first;
} leavings[RTE_MAX_ETHPORTS];

/* Frames for which there was no room. */
static uint64_t lost[RTE_MAX_ETHPORTS];

/* Started ports whose peers' ends are told of, by whom; 0: others. */
static uint8_t watched[RTE_MAX_ETHPORTS];
/* Descriptors of the longest ring (memif: 2^14). */
#define RING_MAX (1u << 14)
/* memif's with a peer when the handler began. Interrupt thread only. */
static uint8_t was_up[RTE_MAX_ETHPORTS];

static int is_up(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

static int is_told(uint16_t port, enum lives_told by)
{
	return __atomic_load_n(&watched[port], __ATOMIC_ACQUIRE) == by;
}

/* Who sees the new number sees what is left, too. */
static void count(uint16_t port)
{
	__atomic_fetch_add(&lives[port], 1, __ATOMIC_RELEASE);
}

void lives_begin(uint16_t port, enum lives_told told)
{
	__atomic_store_n(&lost[port], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&watched[port], told, __ATOMIC_RELEASE);
}

void lives_end(uint16_t port)
{
	/* Nobody takes anything out meanwhile. */
	guard_shut_out();
	__atomic_store_n(&watched[port], 0, __ATOMIC_RELEASE);
	for (uint32_t at = 0; at < left[port]; at++)
		rte_pktmbuf_free(leavings[port].mbufs[(leavings[port].first + at) % SL_LEFT_MAX]);
	__atomic_store_n(&left[port], 0, __ATOMIC_RELEASE);
	guard_let_in();
}

void lives_lose(uint16_t port, uint32_t count)
{
	__atomic_fetch_add(&lost[port], count, __ATOMIC_RELAXED);
}

uint64_t lives_lost(uint16_t port)
{
	return __atomic_load_n(&lost[port], __ATOMIC_RELAXED);
}

void lives_keep(uint16_t port, struct rte_mbuf *mbuf)
{
	if (left[port] == SL_LEFT_MAX) {
		rte_pktmbuf_free(mbuf);
		lives_lose(port, 1);
		return;
	}
	leavings[port].mbufs[(leavings[port].first + left[port]) % SL_LEFT_MAX] = mbuf;
	__atomic_store_n(&left[port], left[port] + 1, __ATOMIC_RELEASE);
}

/* Takes all out of the first receive ring; the others are of ports that no endpoint has to itself. `is_end`: what there is no room for would
 * be lost with the ring. Else it stays there. */
static void take_out(uint16_t port, int is_end)
{
	struct rte_mbuf *mbufs[32];
	uint32_t all = 0;
	uint16_t come;

	do {
		uint16_t room = RTE_MIN(RTE_DIM(mbufs), is_end ? RTE_DIM(mbufs) : SL_LEFT_MAX - left[port]);

		come = rte_eth_rx_burst(port, 0, mbufs, room);
		for (uint16_t at = 0; at < come; at++)
			lives_keep(port, mbufs[at]);
		all += come;
	} while (come > 0 && all < RING_MAX);
}

void lives_before_handler(int ending)
{
	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++) {
		was_up[port] = is_told(port, LIVES_BY_HANDLERS) && is_up(port);
		if (was_up[port] && (ending == LIVES_ALL || ending == port))
			/* A peer that is met says no more than that it goes. */
			take_out(port, ending == port);
	}
}

int lives_after_handler(void)
{
	int has_come = 0;

	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++) {
		if (was_up[port] && !is_up(port))
			count(port);
		has_come |= is_told(port, LIVES_BY_HANDLERS) && !was_up[port] && is_up(port);
	}
	return has_come;
}

void lives_over(uint16_t port, void (*take)(void *arg), void *arg)
{
	if (!is_told(port, LIVES_BY_SERVER))
		return;
	take(arg);
	count(port);
}

void lives_link_is_down(uint16_t port)
{
	uint8_t told = LIVES_BY_LINK;

	if (!is_told(port, LIVES_BY_LINK))
		return;
	guard_shut_out();
	/* Once: it has no other peer. */
	if (__atomic_compare_exchange_n(&watched[port], &told, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		take_out(port, 1);
		count(port);
	}
	guard_let_in();
}

uint16_t lives_take(uint16_t port, struct rte_mbuf **mbufs, uint16_t max)
{
	uint16_t count = RTE_MIN(max, left[port]);

	for (uint16_t at = 0; at < count; at++)
		mbufs[at] = leavings[port].mbufs[(leavings[port].first + at) % SL_LEFT_MAX];
	leavings[port].first = (leavings[port].first + count) % SL_LEFT_MAX;
	__atomic_store_n(&left[port], left[port] - count, __ATOMIC_RELEASE);
	return count;
}
