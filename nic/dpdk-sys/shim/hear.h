/* What the other end of a socket says, or that it is gone, within a time. */
#ifndef SIDELANE_HEAR_H
#define SIDELANE_HEAR_H

#include <stddef.h>
#include <stdint.h>

/* As long as a client waits for its server to come (port.rs, PEER_PATIENCE). */
#define PATIENCE_MS 2500

enum heard { HEARD, GONE, SILENT };

/* Of CLOCK_MONOTONIC. */
int64_t now_ms(void);

/* Reads `len` bytes, or until then. Signals are no news. */
enum heard hear(int fd, void *into, size_t len, int64_t give_up);

#endif
