/* The hot path's part of the table of shim.h, which says what each does. */
#ifndef SIDELANE_BURST_H
#define SIDELANE_BURST_H

#include "shim.h"

/* A port is there, which nobody uses yet. */
void burst_attach(uint16_t port);
struct sl_queue *burst_queue(uint16_t port, uint16_t number);
uint16_t burst_receive(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t max, uint32_t life);
uint16_t burst_send(struct sl_queue *queue, struct sl_mbuf **frames, uint16_t count, uint32_t life);
int frames_alloc(void *pool, struct sl_mbuf **frames, uint32_t count);
void frames_free(struct sl_mbuf **frames, uint32_t count);

#endif
