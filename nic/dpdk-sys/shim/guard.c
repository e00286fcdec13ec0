#define _GNU_SOURCE
#include "guard.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct sl_queue queues[RTE_MAX_ETHPORTS][SL_QUEUES_MAX];
uint32_t guard_word;

/* Of who shuts out. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void guard_up(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0)
		guard_word = GUARD_FENCE;
}

void guard_shut_out(void)
{
	const struct timespec nap = { .tv_nsec = 20000 };

	pthread_mutex_lock(&turn);
	__atomic_fetch_or(&guard_word, GUARD_SHUT, __ATOMIC_RELAXED);
	/* A fence on every thread of the process at once: a burst that did not see the word has said that it is under
	 * way by now. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!(guard_word & GUARD_FENCE))
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (int port = 0; port < RTE_MAX_ETHPORTS; port++)
		for (int queue = 0; queue < SL_QUEUES_MAX; queue++)
			while (__atomic_load_n(&queues[port][queue].rx, __ATOMIC_ACQUIRE) ||
			       __atomic_load_n(&queues[port][queue].tx, __ATOMIC_ACQUIRE))
				nanosleep(&nap, NULL);
}

void guard_let_in(void)
{
	__atomic_fetch_and(&guard_word, ~GUARD_SHUT, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&turn);
}

void guard_wait(uint32_t *under_way)
{
	const struct timespec nap = { .tv_nsec = 20000 };

	for (;;) {
		/* In place of membarrier(2). */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!(__atomic_load_n(&guard_word, __ATOMIC_ACQUIRE) & GUARD_SHUT))
			return;
		__atomic_store_n(under_way, 0, __ATOMIC_RELEASE);
		do
			nanosleep(&nap, NULL);
		while (__atomic_load_n(&guard_word, __ATOMIC_RELAXED) & GUARD_SHUT);
		__atomic_store_n(under_way, 1, __ATOMIC_RELAXED);
	}
}
