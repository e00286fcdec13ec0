#include "hear.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum heard hear(int fd, void *into, size_t len, int64_t give_up)
{
	for (size_t have = 0; have < len;) {
		struct pollfd look = { .fd = fd, .events = POLLIN };
		ssize_t more = recv(fd, (char *)into + have, len - have, MSG_DONTWAIT);

		if (more > 0)
			have += more;
		else if (more == 0 || (errno != EAGAIN && errno != EINTR))
			return GONE;
		else if (now_ms() >= give_up)
			return SILENT;
		else
			poll(&look, 1, give_up - now_ms());
	}
	return HEARD;
}
