/* Bursts, and the frames that they move. */
#include "burst.h"
#include "guard.h"
#include "lives.h"

#include <errno.h>
#include <stddef.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

/* What shim.h says of an mbuf is so. */
#define IS_AT(ours, theirs)                                                                                              \
	_Static_assert(offsetof(struct sl_mbuf, ours) == offsetof(struct rte_mbuf, theirs) &&                            \
			       sizeof(((struct sl_mbuf *)0)->ours) == sizeof(((struct rte_mbuf *)0)->theirs),            \
		       "another layout of struct rte_mbuf: " #theirs)
IS_AT(buffer, buf_addr);
IS_AT(data_offset, data_off);
IS_AT(references, refcnt);
IS_AT(segments, nb_segs);
IS_AT(flags, ol_flags);
IS_AT(frame_len, pkt_len);
IS_AT(data_len, data_len);
IS_AT(buffer_len, buf_len);
IS_AT(pool, pool);
_Static_assert(SL_HEADROOM == RTE_PKTMBUF_HEADROOM, "frames begin elsewhere");
_Static_assert(SL_FLAGS_ATTACHED == (RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT), "other flags of an mbuf");

void burst_attach(uint16_t port)
{
	static const uint32_t none;

	for (uint16_t number = 0; number < SL_QUEUES_MAX; number++) {
		struct sl_queue *queue = &queues[port][number];

		queue->port = port;
		queue->number = number;
		queue->lives = &lives[port];
		queue->left = number == 0 ? &left[port] : &none;
	}
}

struct sl_queue *burst_queue(uint16_t port, uint16_t number)
{
	return &queues[port][number];
}

uint16_t burst_receive(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t max, uint32_t life)
{
	struct rte_mbuf **mbufs = (struct rte_mbuf **)frames;
	uint16_t count;

	/* A client lends its server slots by the first burst after it was opened, and nobody may look again for long. */
	guard_enter(&queue->rx);
	if (unlikely(*queue->left > 0))
		count = lives_take(queue->port, mbufs, max);
	/* Frames of the next peer are not those of the one that has gone since the caller looked. */
	else if (unlikely(__atomic_load_n(queue->lives, __ATOMIC_RELAXED) != life))
		count = 0;
	else
		count = rte_eth_rx_burst(queue->port, queue->number, mbufs, max);
	guard_leave(&queue->rx);
	return count;
}

uint16_t burst_send(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t count, uint32_t life)
{
	/* Whoever flushes may not look again for long. */
	guard_enter(&queue->tx);
	/* Frames to a peer that is gone are not for the next one. */
	if (unlikely(__atomic_load_n(queue->lives, __ATOMIC_RELAXED) != life))
		count = 0;
	else
		count = rte_eth_tx_burst(queue->port, queue->number, (struct rte_mbuf **)frames, count);
	guard_leave(&queue->tx);
	return count;
}

int frames_alloc(void *pool, struct sl_mbuf **frames, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, (struct rte_mbuf **)frames, count) == 0 ? 0 : -ENOENT;
}

void frames_free(struct sl_mbuf **frames, uint32_t count)
{
	rte_pktmbuf_free_bulk((struct rte_mbuf **)frames, count);
}
