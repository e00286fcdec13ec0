/* Makes DPDK's memif driver safe against peers that go at any time, and its server one that can be closed. */
#ifndef SIDELANE_MEMIF_H
#define SIDELANE_MEMIF_H

#include <stdint.h>

#include <rte_atomic.h>
#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_config.h>

#include "shim.h"

/* What a burst needs of its queue pair, found when the port is attached. Written at every burst, so each pair has its own cache line. */
struct sl_queue {
	/* Bursts under way, one each way at most. */
	uint32_t rx;
	uint32_t tx;
	uint16_t port;
	uint16_t number;
	/* Of the port (lives.h). */
	const uint32_t *lives;
	/* What it receives before all else: of the port, or none. */
	const uint32_t *left;
} __rte_cache_aligned;

extern struct sl_queue queues[RTE_MAX_ETHPORTS][SL_QUEUES_MAX];
/* Why a burst may not just begin: 0 but for moments, where the kernel has membarrier(2). Hardly ever written. */
extern uint32_t memif_guard;
/* memif changes what bursts use. */
#define MEMIF_SHUT 1u
/* The kernel has no membarrier(2) for us: bursts bring their own fence. */
#define MEMIF_FENCE 2u

/* What is left to do of `memif_enter` when there is a reason. */
__rte_cold void memif_enter_guarded(uint32_t *under_way);

/* Before a burst, whose word this is: after the handler that is under way, which takes less than a millisecond. */
static inline void memif_enter(uint32_t *under_way)
{
	__atomic_store_n(under_way, 1, __ATOMIC_RELAXED);
	/* Between this store and this load there has to be a fence on one side of the two, and the rare side has it
	 * (memif_shut_out); here the compiler must keep the order, no more. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (unlikely(__atomic_load_n(&memif_guard, __ATOMIC_ACQUIRE) != 0))
		memif_enter_guarded(under_way);
}

/* After it. */
static inline void memif_leave(uint32_t *under_way)
{
	__atomic_store_n(under_way, 0, __ATOMIC_RELEASE);
}

/* Once, before the environment starts: 0, or a negative errno. */
int memif_guard_up(void);

/* The calls between these two make a device: its listening socket is remembered as that of the port; -1: of none.
 * `own_user`: the other end has to be a process of our own user, from the first one that comes. */
void memif_attach_begins(int own_user);
void memif_attach_ends(int port);
/* The call between these two starts a port. */
void memif_start_begins(uint16_t port);
void memif_start_ends(void);

/* Whether a client of the port has a connection to its server that memif has not given up. */
int memif_dialling(uint16_t port);

/* On the interrupt thread, for a port that is stopped: nobody comes to it any more, and who came and was not let in yet
 * is turned away. Nothing happens where none listens. */
void memif_close_listener(uint16_t port);

#endif
