/* Who tells that a device was taken away: a few drivers, by an event of its port; VFIO, by a request to let go of it; the kernel, to
 * whoever listens to its uevents. Not all of them can be heard everywhere, and then a silent peer is all that one sees. */
#define ALLOW_EXPERIMENTAL_API
#include "removal.h"

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_ethdev.h>

/* The ends of a port: it is taken away, or whoever it is a part of was reset, and it will carry nothing any more as it is. */
static const enum rte_eth_event_type ends[] = { RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_RESET };

static uint8_t was_reset[RTE_MAX_ETHPORTS];
static uint8_t gone[RTE_MAX_ETHPORTS];

static int on_port_event(uint16_t port, enum rte_eth_event_type type, void *arg, void *ret)
{
	(void)arg, (void)ret;
	__atomic_store_n(type == RTE_ETH_EVENT_INTR_RESET ? &was_reset[port] : &gone[port], 1, __ATOMIC_RELEASE);
	return 0;
}

static void on_device_event(const char *name, enum rte_dev_event_type type, void *arg)
{
	(void)name;
	if (type == RTE_DEV_EVENT_REMOVE)
		__atomic_store_n(&gone[(uintptr_t)arg], 1, __ATOMIC_RELEASE);
}

/* Once a process. Of both, who may not does without. */
static void listen_to_kernel(void)
{
	static int listening;

	if (listening)
		return;
	listening = 1;
	rte_dev_event_monitor_start();
	/* The registers of a card that is gone are unmapped while a burst may be at them, which ends the process by SIGBUS:
	 * DPDK puts memory in their place. */
	rte_dev_hotplug_handle_enable();
}

static const char *device_of(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 ? rte_dev_name(info.device) : NULL;
}

void removal_watch(uint16_t port, int card)
{
	const char *device = device_of(port);

	__atomic_store_n(&gone[port], 0, __ATOMIC_RELEASE);
	for (size_t at = 0; at < RTE_DIM(ends); at++)
		rte_eth_dev_callback_register(port, ends[at], on_port_event, NULL);
	if (device != NULL)
		rte_dev_event_callback_register(device, on_device_event, (void *)(uintptr_t)port);
	if (card)
		listen_to_kernel();
}

void removal_unwatch(uint16_t port)
{
	const char *device = device_of(port);

	for (size_t at = 0; at < RTE_DIM(ends); at++)
		rte_eth_dev_callback_unregister(port, ends[at], on_port_event, NULL);
	/* Refused while it runs; one that stays is forgotten by the next that watches. */
	if (device != NULL)
		rte_dev_event_callback_unregister(device, on_device_event, (void *)(uintptr_t)port);
}

void removal_forget_resets(uint16_t port)
{
	__atomic_store_n(&was_reset[port], 0, __ATOMIC_RELEASE);
}

int removed(uint16_t port)
{
	return __atomic_load_n(&gone[port], __ATOMIC_ACQUIRE) || __atomic_load_n(&was_reset[port], __ATOMIC_ACQUIRE);
}
