/* What steers frames to queues, of the table of shim.h, which says what each does. */
#ifndef SIDELANE_STEERING_H
#define SIDELANE_STEERING_H

#include <stdint.h>

int steering_supported(uint16_t port);
int steering_add(uint16_t port, const uint8_t *mac, int own, uint16_t ethertype, uint16_t queue, void **rule);
void steering_remove(uint16_t port, const uint8_t *mac, int own, void *rule);

#endif
