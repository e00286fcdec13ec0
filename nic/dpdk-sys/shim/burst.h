/* The hot path's part of the table of shim.h, which says what each does. */
#ifndef SIDELANE_BURST_H
#define SIDELANE_BURST_H

#include "shim.h"

uint32_t burst_receive(uint16_t port, uint16_t queue, struct sl_frame *frames, uint32_t max, uint64_t *misshapen);
uint32_t burst_send(uint16_t port, uint16_t queue, struct sl_frame *frames, uint32_t count, uint32_t life);
int frames_alloc(void *pool, struct sl_frame *frames, uint32_t count);
void frames_free(struct sl_frame *frames, uint32_t count);

#endif
