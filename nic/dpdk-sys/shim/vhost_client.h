/* The client's end of vhost, whose driver asks its server by a socket that it tells nobody of. */
#ifndef SIDELANE_VHOST_CLIENT_H
#define SIDELANE_VHOST_CLIENT_H

#include <stdint.h>

/* Once, before the environment starts: 0, or a negative errno. */
int vhost_client_up(void);

/* The calls between these two make a device, of this port; -1: it could not be made. */
void vhost_client_attach_begins(void);
void vhost_client_attach_ends(int port);

/* Whether the port may be closed: its server answers or is gone, or it has none. 0: the server is stopped, and writes to our memory when it
 * goes on. Waits for the answer, and for a limited time. */
int vhost_client_may_go(uint16_t port);
/* The port is closed. */
void vhost_client_forget(uint16_t port);

#endif
