/* The lives of a port's peers: how many have ended, and the frames that the last one left. */
#ifndef SIDELANE_LIVES_H
#define SIDELANE_LIVES_H

#include <stdint.h>

#include <rte_config.h>
#include <rte_mbuf.h>

/* Peers that have gone, by port. What a burst does is for the peer of one such number. */
extern uint32_t lives[RTE_MAX_ETHPORTS];
/* Frames that were taken out of the ring of a peer before that was taken down, by port. */
extern uint32_t left[RTE_MAX_ETHPORTS];

/* How a peer's end is known. */
enum lives_told {
	/* memif: after one of its handlers the link is down. */
	LIVES_BY_HANDLERS = 1,
	/* A vhost server hears of its client's. */
	LIVES_BY_SERVER,
	/* A virtio-user client's link is found down, by whoever asks for it. */
	LIVES_BY_LINK,
};

/* A port is about to start, of which this is so. */
void lives_begin(uint16_t port, enum lives_told told);
/* It has stopped: what is left has nobody any more. */
void lives_end(uint16_t port);

/* Around a handler of memif's, on the interrupt thread, while bursts are shut out. `port`: the one whose peer may be about to go,
 * or one of these. Other rings stay as they are: what was taken out of them would be more than there is room for one day. */
#define LIVES_ALL (-1)
#define LIVES_NONE (-2)
void lives_before_handler(int port);
/* True: a peer has come. */
int lives_after_handler(void);

/* The client of a port is gone, and bursts are shut out: `take` keeps what it left, and it is counted. Nothing where the port has
 * stopped. */
void lives_over(uint16_t port, void (*take)(void *arg), void *arg);
/* The link of a port was found down. */
void lives_link_is_down(uint16_t port);
/* Keeps a frame for the next bursts, which are shut out. Where there is no room for it, it is lost, and counted. */
void lives_keep(uint16_t port, struct rte_mbuf *mbuf);
/* So many frames could not even be brought here. */
void lives_lose(uint16_t port, uint32_t count);
/* How many were lost since the port was started. */
uint64_t lives_lost(uint16_t port);

/* In place of a burst, as long as there is something left: the oldest frames, at most `max`. */
uint16_t lives_take(uint16_t port, struct rte_mbuf **mbufs, uint16_t max);

#endif
