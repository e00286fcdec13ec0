/* What the environment does to the rest of its process and machine while it starts, kept away from both. */
#define _GNU_SOURCE
#include "start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>

static ssize_t drop_write(void *cookie, const char *text, size_t len)
{
	(void)cookie, (void)text;
	return (ssize_t)len;
}

/* Where an argument is wrong the environment prints a hundred lines of usage on standard output, and what is wrong is in the log. Only C's
 * stream is another one meanwhile, not the descriptor, which other threads may be writing to. It is never closed, since they may be printing
 * to it, too. */
static int init_silent(int argc, char **argv)
{
#ifdef __GLIBC__
	cookie_io_functions_t io = { .write = drop_write };
	FILE *kept = stdout, *silent = fopencookie(NULL, "w", io);
	int result;

	if (silent != NULL)
		stdout = silent;
	result = rte_eal_init(argc, argv);
	stdout = kept;
	return result;
#else
	return rte_eal_init(argc, argv);
#endif
}

#define VARIABLE "RUNTIME_DIRECTORY"

static char nowhere[] = VARIABLE "=/dev/null";

/* A copy of the process's variables with that one in front, where it is the one that is found; NULL: no memory. */
static char **with_nowhere(char **own)
{
	size_t count = 0;
	char **with;

	while (own != NULL && own[count] != NULL)
		count++;
	with = malloc((count + 2) * sizeof(*with));
	if (with == NULL)
		return NULL;
	with[0] = nowhere;
	if (count > 0)
		memcpy(&with[1], own, count * sizeof(*with));
	with[count + 1] = NULL;
	return with;
}

/* The environment makes a folder for files that it then does not have, as it is told (--no-shconf), and goes on where it can't
 * (eal_filesystem.c, eal_create_runtime_dir). One that was made would stay when the process is killed, and below a file none can be. No
 * argument says where, only a variable: there while it starts, in an array of our own, since setenv(3) frees what other threads may be
 * reading. The array stays the process's, as what they have set meanwhile is in it. What another thread starts meanwhile (0.1 s) inherits the
 * variable, and what it sets it to itself is undone. */
int start_eal(int argc, char **argv)
{
	const char *theirs = getenv(VARIABLE);
	char **with = with_nowhere(environ);
	int result;

	if (with == NULL)
		return init_silent(argc, argv);
	__atomic_store_n(&environ, with, __ATOMIC_RELEASE);
	result = init_silent(argc, argv);
	if (environ == with && with[0] == nowhere) {
		__atomic_store_n(&environ, with + 1, __ATOMIC_RELEASE);
	} else {
		/* Another thread has set one that was not there. */
		unsetenv(VARIABLE);
		if (theirs != NULL)
			setenv(VARIABLE, theirs, 1);
	}
	return result;
}
