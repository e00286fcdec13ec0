/* What a memif's client without a copy lends its server: its packet buffers. */
#ifndef SIDELANE_LENDING_H
#define SIDELANE_LENDING_H

#include <stdint.h>

#include <rte_memory.h>

/* Once, before the environment starts, whose object this is: 0, or a negative errno. */
int lending_up(void *eal);

/* The port's packet buffers, before it starts, if it lends them; -EXDEV: they are in several pieces, or too far from where their memory
 * begins, for memif's driver. */
int lending_allow(uint16_t port, void *pool);
/* No more of it. */
void lending_end(uint16_t port);
/* Whether it was allowed. */
int lending_is_on(uint16_t port);
/* Whether a server has them. */
int lending_has_begun(uint16_t port);

#endif
