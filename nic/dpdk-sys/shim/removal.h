/* Devices that are taken away. */
#ifndef SIDELANE_REMOVAL_H
#define SIDELANE_REMOVAL_H

#include <stdint.h>

/* A device is there, by this port. `card`: hardware, which the kernel tells of too. */
void removal_watch(uint16_t port, int card);
/* It is about to be put away. */
void removal_unwatch(uint16_t port);
/* It has started. */
void removal_forget_resets(uint16_t port);
/* True once it was taken away, or reset since it has started. */
int removed(uint16_t port);

#endif
