/* When a peer goes, memif unmaps the memory that both share, and with it the frames that the peer had sent and nobody has
 * received yet (22.11: memif_disconnect -> memif_free_regions). The memory is ours too and lasts until then, so all that
 * is in the ring is taken out just before, and is what the next bursts receive. Only whole frames are: a sender moves the
 * ring's head when they are written.
 *
 * Its link may be down and up again, with another peer, before anybody looks; so ends are counted. */
#include "lives.h"
#include "shim.h"

#include <rte_ethdev.h>

uint32_t lives[RTE_MAX_ETHPORTS];
uint32_t left[RTE_MAX_ETHPORTS];

static struct {
	struct rte_mbuf *mbufs[SL_LEFT_MAX];
	/* Place of the oldest. */
	uint32_t first;
} leavings[RTE_MAX_ETHPORTS];

/* Started memif ports. */
static uint8_t watched[RTE_MAX_ETHPORTS];
/* Those with a peer when the handler began. Interrupt thread only. */
static uint8_t was_up[RTE_MAX_ETHPORTS];

static int is_up(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void lives_begin(uint16_t port)
{
	__atomic_store_n(&watched[port], 1, __ATOMIC_RELEASE);
}

void lives_end(uint16_t port)
{
	__atomic_store_n(&watched[port], 0, __ATOMIC_RELEASE);
	for (uint32_t at = 0; at < left[port]; at++)
		rte_pktmbuf_free(leavings[port].mbufs[(leavings[port].first + at) % SL_LEFT_MAX]);
	__atomic_store_n(&left[port], 0, __ATOMIC_RELEASE);
}

/* Takes all out of the first receive ring; the others are of ports that no endpoint has to itself. */
static void take_out(uint16_t port)
{
	struct rte_mbuf *mbufs[32];
	uint32_t count = left[port];
	uint16_t come;

	do {
		come = rte_eth_rx_burst(port, 0, mbufs, RTE_MIN(RTE_DIM(mbufs), SL_LEFT_MAX - count));
		for (uint16_t at = 0; at < come; at++)
			leavings[port].mbufs[(leavings[port].first + count++) % SL_LEFT_MAX] = mbufs[at];
	} while (come > 0 && count < SL_LEFT_MAX);
	__atomic_store_n(&left[port], count, __ATOMIC_RELEASE);
}

void lives_before_handler(int ending)
{
	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++) {
		was_up[port] = __atomic_load_n(&watched[port], __ATOMIC_ACQUIRE) && is_up(port);
		if (was_up[port] && (ending == LIVES_ALL || ending == port))
			take_out(port);
	}
}

void lives_after_handler(void)
{
	for (uint16_t port = 0; port < RTE_MAX_ETHPORTS; port++)
		/* Who sees the new number sees what is left, too. */
		if (was_up[port] && !is_up(port))
			__atomic_fetch_add(&lives[port], 1, __ATOMIC_RELEASE);
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
