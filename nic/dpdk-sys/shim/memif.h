/* Makes DPDK's memif driver safe against peers that go at any time, and its server one that can be closed. */
#ifndef SIDELANE_MEMIF_H
#define SIDELANE_MEMIF_H

#include <stdint.h>

/* A driver, of which this is code, has a descriptor to be woken by. */
void memif_has(int fd, const void *code);

/* Once, before the environment starts: 0, or a negative errno. */
int memif_up(void);

/* The calls between these two make a device: its listening socket is remembered as that of the port; -1: of none.
 * `own_user`: the other end has to be a process of our own user, from the first one that comes. */
void memif_attach_begins(int own_user);
void memif_attach_ends(int port);
/* The call between these two starts a port. */
void memif_start_begins(uint16_t port, int own_user);
void memif_start_ends(void);

/* Whether a client of the port has a connection to its server that memif has not given up. */
int memif_dialling(uint16_t port);

/* On the interrupt thread, for a port that is stopped: nobody comes to it any more, and who came and was not let in yet
 * is turned away. Nothing happens where none listens. */
void memif_close_listener(uint16_t port);

#endif
