/* Makes DPDK's memif driver safe against peers that go at any time, and its server one that can be closed. */
#ifndef SIDELANE_MEMIF_H
#define SIDELANE_MEMIF_H

#include <stdint.h>

/* This is code of the driver. */
int is_of_memif(const void *code);

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

/* The port whose handler runs, if one does on this thread; -1: none. */
int memif_handled(void);

/* Before a port is stopped that lends its packet buffers: a socket to who has them, or -1. */
int memif_keep_line(uint16_t port);
/* When it is stopped: whether its server has taken what is for it and touches them no more. 0: it is stopped, and will when it goes on.
 * Waits for that, and for a limited time. */
int memif_hang_up(uint16_t port, int line);

/* On the interrupt thread, for a port that is stopped: nobody comes to it any more, and who came and was not let in yet
 * is turned away. Nothing happens where none listens. */
void memif_close_listener(uint16_t port);

#endif
