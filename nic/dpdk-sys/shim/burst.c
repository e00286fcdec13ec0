/* Bursts, and the frames that they move. */
#include "burst.h"
#include "lives.h"
#include "memif.h"

#include <errno.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* Most frames of one call: bounds the arrays on the stack. */
#define BURST_MAX 64u

/* Mbufs hold the longest frame, so only one that breaks the MTU comes in pieces. And some drivers (memif without a copy, virtio-user) take
 * a frame's length from the other side as it is. A function of its own: inlined, all that may become of a segment takes registers and
 * stack of every burst. */
static __rte_noinline __rte_cold void drop_misshapen(struct rte_mbuf *mbuf, uint64_t *misshapen)
{
	rte_pktmbuf_free(mbuf);
	++*misshapen;
}

uint32_t burst_receive(uint16_t port, uint16_t queue, struct sl_frame *frames, uint32_t max, uint64_t *misshapen)
{
	uint32_t *under_way = &memif_turns[port][queue].rx;
	struct rte_mbuf *mbufs[BURST_MAX];
	uint32_t shown = 0;
	uint16_t count;

	/* A client lends its server slots by the first burst after it was opened, and nobody may look again for long. */
	memif_enter(under_way);
	max = RTE_MIN(max, BURST_MAX);
	if (unlikely(left[port] > 0) && queue == 0)
		count = lives_take(port, mbufs, max);
	else
		count = rte_eth_rx_burst(port, queue, mbufs, max);
	memif_leave(under_way);
	for (uint16_t at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = mbufs[at];

		if (unlikely(mbuf->nb_segs != 1 || mbuf->data_off + mbuf->data_len > mbuf->buf_len)) {
			drop_misshapen(mbuf, misshapen);
			continue;
		}
		frames[shown].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		frames[shown].mbuf = mbuf;
		frames[shown].len = mbuf->data_len;
		shown++;
	}
	return shown;
}

uint32_t burst_send(uint16_t port, uint16_t queue, struct sl_frame *frames, uint32_t count, uint32_t life)
{
	uint32_t *under_way = &memif_turns[port][queue].tx;
	struct rte_mbuf *mbufs[BURST_MAX];

	count = RTE_MIN(count, BURST_MAX);
	for (uint32_t at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = frames[at].mbuf;

		mbuf->data_len = (uint16_t)frames[at].len;
		mbuf->pkt_len = frames[at].len;
		mbufs[at] = mbuf;
	}
	/* Whoever flushes may not look again for long. */
	memif_enter(under_way);
	/* Frames to a peer that is gone are not for the next one. */
	if (unlikely(__atomic_load_n(&lives[port], __ATOMIC_RELAXED) != life))
		count = 0;
	else
		count = rte_eth_tx_burst(port, queue, mbufs, count);
	memif_leave(under_way);
	return count;
}

int frames_alloc(void *pool, struct sl_frame *frames, uint32_t count)
{
	struct rte_mbuf *mbufs[BURST_MAX];

	if (count > BURST_MAX || rte_pktmbuf_alloc_bulk(pool, mbufs, count) != 0)
		return -ENOENT;
	for (uint32_t at = 0; at < count; at++) {
		frames[at].data = rte_pktmbuf_mtod(mbufs[at], uint8_t *);
		frames[at].mbuf = mbufs[at];
		frames[at].len = 0;
	}
	return 0;
}

void frames_free(struct sl_frame *frames, uint32_t count)
{
	struct rte_mbuf *mbufs[BURST_MAX];

	count = RTE_MIN(count, BURST_MAX);
	for (uint32_t at = 0; at < count; at++)
		mbufs[at] = frames[at].mbuf;
	rte_pktmbuf_free_bulk(mbufs, count);
}
