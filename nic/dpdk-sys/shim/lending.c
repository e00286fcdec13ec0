/* memif's client without a copy gives its server all memory of the environment, as a region for each list of it, and finds its packet buffers
 * as if they were in the first one, where that has no holes (22.11: memif_region_init_zc, memif_tx_one_zc: "FIXME: get region index"): with
 * memory on several nodes, or after devices have come and gone, its server would look for them where nothing is, and end by SIGSEGV. So it is shown one
 * list, which has them, as one piece from its beginning to their end; what else is in the environment's memory, behind them or in other lists, is not
 * lent.
 *
 * The driver asks by rte_memseg_walk, which this object defines too. The loader finds ours first (memif.c). */
#define _GNU_SOURCE
#include "lending.h"
#include "memif.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

#include <rte_config.h>
#include <rte_mempool.h>

#define EXPORT __attribute__((visibility("default")))

/* The environment's own functions. */
static __typeof__(rte_memseg_get_fd) *real_get_fd;
static __typeof__(rte_memseg_walk) *real_walk;

/* Pages from where a list begins. */
struct piece {
	const struct rte_memseg_list *list;
	/* One of them. */
	const struct rte_memseg *page;
	size_t len;
	/* A server has heard of it. */
	int is_shown;
};
static struct piece lent[RTE_MAX_ETHPORTS];
/* A piece as memif is shown it. Interrupt thread only. */
static struct rte_memseg shown;
static const struct rte_memseg *page_of_shown;

int lending_up(void *eal)
{
	real_get_fd = dlsym(eal, "rte_memseg_get_fd");
	real_walk = dlsym(eal, "rte_memseg_walk");
	return real_get_fd == NULL || real_walk == NULL ? -ENOENT : 0;
}

static void add(struct rte_mempool *pool, void *arg, struct rte_mempool_memhdr *chunk, unsigned int number)
{
	struct piece *piece = arg;
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(chunk->addr);
	size_t end;

	(void)pool, (void)number;
	if (list == NULL || (piece->list != NULL && piece->list != list)) {
		piece->len = SIZE_MAX;
		return;
	}
	piece->list = list;
	piece->page = rte_mem_virt2memseg(chunk->addr, list);
	end = RTE_PTR_DIFF(chunk->addr, list->base_va) + chunk->len;
	piece->len = RTE_MAX(piece->len, RTE_ALIGN_CEIL(end, list->page_sz));
}

int lending_allow(uint16_t port, void *pool)
{
	struct piece piece = { 0 };

	rte_mempool_mem_iter(pool, add, &piece);
	/* Offsets within a region have 32 bits (memif.h, memif_region_offset_t). */
	if (piece.page == NULL || piece.len > UINT32_MAX)
		return -EXDEV;
	lent[port] = piece;
	return 0;
}

void lending_end(uint16_t port)
{
	lent[port] = (struct piece){ 0 };
}

int lending_is_on(uint16_t port)
{
	return lent[port].list != NULL;
}

int lending_has_begun(uint16_t port)
{
	return lent[port].is_shown;
}

EXPORT int rte_memseg_walk(rte_memseg_walk_t each, void *arg)
{
	int port = memif_handled();

	if (!is_of_memif(__builtin_return_address(0)))
		return real_walk(each, arg);
	if (port < 0 || !lending_is_on(port))
		return -1;
	page_of_shown = lent[port].page;
	shown = *page_of_shown;
	shown.addr = lent[port].list->base_va;
	shown.len = lent[port].len;
	lent[port].is_shown = 1;
	return each(lent[port].list, &shown, arg);
}

/* A client sends its server the descriptor, and then closes it, which is the environment's own (22.11: memif_region_init_zc, memif_connect).
 * The next one that connects would send whatever has its number by then. So it gets a copy. */
EXPORT int rte_memseg_get_fd(const struct rte_memseg *segment)
{
	int fd;

	if (!is_of_memif(__builtin_return_address(0)))
		return real_get_fd(segment);
	fd = real_get_fd(segment == &shown ? page_of_shown : segment);
	return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : fd;
}
