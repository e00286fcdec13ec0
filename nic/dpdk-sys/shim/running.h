/* A port's start and its end. */
#ifndef SIDELANE_RUNNING_H
#define SIDELANE_RUNNING_H

#include <stdint.h>

#include <rte_config.h>

/* Ports that are ends of pairs. */
extern uint8_t pairs[RTE_MAX_ETHPORTS];

/* Before anybody can come to a port: its peers' ends are counted from then on. */
void running_watch(uint16_t port);
/* Starts a port whose queues are set up. */
int running_begin(uint16_t port);
/* The same with a pool that nobody has frames of yet. */
int running_begin_first(uint16_t port, void *pool);
/* Stops it; `for_good`: nobody comes to it any more. */
int running_end(uint16_t port, int for_good);

#endif
