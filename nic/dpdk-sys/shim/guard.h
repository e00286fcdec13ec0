/* Keeps bursts away from what a driver changes on a thread of its own: an asymmetric lock, of which a burst pays two stores and a
 * load, and who changes, once in the life of a peer, a membarrier(2) and the end of the bursts under way. */
#ifndef SIDELANE_GUARD_H
#define SIDELANE_GUARD_H

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
extern uint32_t guard_word;
/* What bursts use is being changed. */
#define GUARD_SHUT 1u
/* The kernel has no membarrier(2) for us: bursts bring their own fence. */
#define GUARD_FENCE 2u

/* What is left to do of `guard_enter` when there is a reason. */
__rte_cold void guard_wait(uint32_t *under_way);

/* Before a burst, whose word this is: after the change that is under way, which takes less than a millisecond. */
static inline void guard_enter(uint32_t *under_way)
{
	__atomic_store_n(under_way, 1, __ATOMIC_RELAXED);
	/* Between this store and this load there has to be a fence on one side of the two, and the rare side has it
	 * (guard_shut_out); here the compiler must keep the order, no more. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (unlikely(__atomic_load_n(&guard_word, __ATOMIC_ACQUIRE) != 0))
		guard_wait(under_way);
}

/* After it. */
static inline void guard_leave(uint32_t *under_way)
{
	__atomic_store_n(under_way, 0, __ATOMIC_RELEASE);
}

/* Once, before the environment starts. */
void guard_up(void);

/* Waits until no burst is under way, and lets none begin until `guard_let_in`. One thread at a time is between the two. */
void guard_shut_out(void);
void guard_let_in(void);

#endif
