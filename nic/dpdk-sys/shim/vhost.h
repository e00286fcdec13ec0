/* The server's end of a vhost pair: one client at a time, of which what it has sent is received also when it goes. */
#ifndef SIDELANE_VHOST_H
#define SIDELANE_VHOST_H

#include <stdint.h>

/* Whether this was compiled with the library's header. Without it the rest does nothing, and a server's end is no pair's. */
int vhost_is_known(void);
/* The call between these two configures a port that is a pair's end; if it is a vhost server's, it serves from then on. `pool`: of the
 * frames that it receives. */
void vhost_begins(uint16_t port, void *pool);
void vhost_ends(void);
/* Around the start of a server's port: its driver looks for a client and then says that it is started, and where a client comes does that the other
 * way round, with no lock between them (22.11: eth_dev_start, new_device). One that comes in between has its queues never set. */
void vhost_lock(void);
void vhost_unlock(void);
/* The port is closed, and serves nobody any more. */
void vhost_forget(uint16_t port);

#endif
