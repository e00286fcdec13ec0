/* Rules by which a port hands frames to its queues: those of an endpoint, by its address and the EtherType. */
#include "steering.h"

#include <errno.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

/* Frames of an EtherType to an address go to a queue. */
struct rule {
	struct rte_flow_attr attr;
	struct rte_flow_item_eth wanted;
	struct rte_flow_item_eth mask;
	struct rte_flow_action_queue queue;
	struct rte_flow_item pattern[2];
	struct rte_flow_action actions[2];
};

static void rule_write(struct rule *rule, const uint8_t *mac, uint16_t ethertype, uint16_t queue)
{
	memset(rule, 0, sizeof(*rule));
	rule->attr.ingress = 1;
	memcpy(rule->wanted.hdr.dst_addr.addr_bytes, mac, RTE_ETHER_ADDR_LEN);
	memset(rule->mask.hdr.dst_addr.addr_bytes, 0xff, RTE_ETHER_ADDR_LEN);
	rule->wanted.hdr.ether_type = rte_cpu_to_be_16(ethertype);
	rule->mask.hdr.ether_type = 0xffff;
	rule->queue.index = queue;
	rule->pattern[0] = (struct rte_flow_item){
		.type = RTE_FLOW_ITEM_TYPE_ETH, .spec = &rule->wanted, .mask = &rule->mask };
	rule->pattern[1].type = RTE_FLOW_ITEM_TYPE_END;
	rule->actions[0] = (struct rte_flow_action){ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &rule->queue };
	rule->actions[1].type = RTE_FLOW_ACTION_TYPE_END;
}

int steering_supported(uint16_t port)
{
	static const uint8_t nobody[RTE_ETHER_ADDR_LEN] = { 2 };
	struct rte_flow_error error;
	struct rule rule;
	int result;

	rule_write(&rule, nobody, RTE_ETHER_TYPE_IPV4, 0);
	result = rte_flow_validate(port, &rule.attr, rule.pattern, rule.actions, &error);
	/* A port that is not started may refuse every rule; that the driver has none is another answer. */
	return result == -ENOSYS || result == -ENOTSUP ? result : 0;
}

/* Lets frames for one more address in. */
static int add_mac(uint16_t port, const uint8_t *mac)
{
	struct rte_ether_addr address;
	int result;

	memcpy(address.addr_bytes, mac, sizeof(address.addr_bytes));
	result = rte_eth_dev_mac_addr_add(port, &address, 0);
	/* Devices that have one address let all others in when they are told to. */
	return result == -ENOTSUP ? rte_eth_promiscuous_enable(port) : result;
}

static void remove_mac(uint16_t port, const uint8_t *mac)
{
	struct rte_ether_addr address;

	memcpy(address.addr_bytes, mac, sizeof(address.addr_bytes));
	rte_eth_dev_mac_addr_remove(port, &address);
}

int steering_add(uint16_t port, const uint8_t *mac, int own, uint16_t ethertype, uint16_t queue, void **out)
{
	struct rte_flow_error error;
	struct rule rule;
	int result = own ? 0 : add_mac(port, mac);

	if (result != 0)
		return result;
	rule_write(&rule, mac, ethertype, queue);
	*out = rte_flow_create(port, &rule.attr, rule.pattern, rule.actions, &error);
	if (*out != NULL)
		return 0;
	result = rte_errno != 0 ? -rte_errno : -ENOTSUP;
	if (!own)
		remove_mac(port, mac);
	return result;
}

void steering_remove(uint16_t port, const uint8_t *mac, int own, void *rule)
{
	struct rte_flow_error error;

	rte_flow_destroy(port, rule, &error);
	if (!own)
		remove_mac(port, mac);
}
