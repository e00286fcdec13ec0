/* The lives of a memif port's peers: how many have ended, and the frames that the last one left. */
#ifndef SIDELANE_LIVES_H
#define SIDELANE_LIVES_H

#include <stdint.h>

#include <rte_config.h>
#include <rte_mbuf.h>

/* Peers that have gone, by port. What a burst does is for the peer of one such number. */
extern uint32_t lives[RTE_MAX_ETHPORTS];
/* Frames that were taken out of the ring of a peer before that was taken down, by port. */
extern uint32_t left[RTE_MAX_ETHPORTS];

/* A memif port has started. */
void lives_begin(uint16_t port);
/* It has stopped: what is left has nobody any more. */
void lives_end(uint16_t port);

/* Around a handler of memif's, on the interrupt thread, while bursts are shut out. `port`: the one whose peer may be about to go,
 * or one of these. Other rings stay as they are: what was taken out of them would be more than there is room for one day. */
#define LIVES_ALL (-1)
#define LIVES_NONE (-2)
void lives_before_handler(int port);
void lives_after_handler(void);

/* In place of a burst, as long as there is something left: the oldest frames, at most `max`. */
uint16_t lives_take(uint16_t port, struct rte_mbuf **mbufs, uint16_t max);

#endif
