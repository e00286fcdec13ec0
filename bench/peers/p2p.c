/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The ladder's patterns over whatever MPI this is compiled with: one line of JSON of the library and of
 * each rank's host, and one a measurement, by rank 0.
 *
 *     p2p CORE_A CORE_B LIMIT_S WARM_NS MEASURE_NS PATTERN:SIZE...
 *
 * ping-pong: one message back and forth; half round trips, less one reading of the clock.
 * flood, bandwidth: windows of 64 non-blocking messages and one answer a window, all of a window in one buffer, as the
 * OSU benchmarks osu_mbw_mr and osu_bw have it; messages a second, at the sender.
 *
 * Whether a message is the last one stands in its first byte, so that only rank 0 looks at the time. Every pattern is played
 * once for a quarter of the time before any counts: connections, memory and code are warm then.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, PAGE = 4096, BEHIND = 16, SAMPLES_LEAST = 100, SAMPLES_MAX = 1 << 19, PATIENCE = 3, MORE = 0, LAST = 1, TAG = 1, CLOCK_READINGS = 1000 };

static int rank;
static uint64_t warm_ns, measure_ns;
static uint64_t samples[SAMPLES_MAX];
/* What rank 0 has found of the last pattern. */
static char found[256];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pin_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("sched_setaffinity");
        exit(1);
    }
}

static int smaller(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest sample that at least `permille` of a thousand samples do not exceed. */
static double half_at(size_t n, size_t permille, double clock_cost)
{
    size_t at = (n * permille + 999) / 1000;
    double half = ((double)samples[at ? at - 1 : 0] - clock_cost) / 2;
    return half > 0 ? half : 0;
}

/* As the ladder's own sides have it: a hundred samples, or one where PATIENCE times its time more was not enough for them. */
static int is_over(uint64_t passed, size_t n)
{
    uint64_t end = warm_ns + measure_ns;
    size_t few = passed < end + PATIENCE * measure_ns ? SAMPLES_LEAST : 1;
    return (passed >= end && n >= few) || n == SAMPLES_MAX;
}

static void ping_pong(char *buffer, int size)
{
    if (rank == 1) {
        for (;;) {
            MPI_Recv(buffer, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (buffer[0] == LAST)
                return;
            MPI_Send(buffer, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
    uint64_t before = now_ns();
    for (int i = 0; i < CLOCK_READINGS; i++)
        now_ns();
    double clock_cost = (double)(now_ns() - before) / (CLOCK_READINGS + 1);

    size_t n = 0;
    uint64_t begin = now_ns(), sent_at = begin;
    buffer[0] = MORE;
    do {
        MPI_Send(buffer, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(buffer, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        uint64_t now = now_ns();
        if (sent_at - begin >= warm_ns)
            samples[n++] = now - sent_at;
        sent_at = now;
    } while (!is_over(sent_at - begin, n));
    buffer[0] = LAST;
    MPI_Send(buffer, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);

    qsort(samples, n, sizeof samples[0], smaller);
    snprintf(found, sizeof found, "\"half_rtt_ns\":{\"min\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"n\":%zu}",
             half_at(n, 0, clock_cost), half_at(n, 500, clock_cost), half_at(n, 990, clock_cost),
             half_at(n, 999, clock_cost), n);
}

static void one_way(char *buffer, int size)
{
    MPI_Request requests[WINDOW];
    char answer = 0;
    if (rank == 1) {
        do {
            for (int i = 0; i < WINDOW; i++)
                MPI_Irecv(buffer, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        } while (buffer[0] != LAST);
        return;
    }
    uint64_t begin = now_ns(), since = begin, counted = 0, now = begin;
    int counting = 0;
    buffer[0] = MORE;
    while (buffer[0] != LAST) {
        if (counting && now - since >= measure_ns)
            buffer[0] = LAST;
        for (int i = 0; i < WINDOW; i++)
            MPI_Isend(buffer, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        now = now_ns();
        if (counting) {
            counted += WINDOW;
        } else if (now - begin >= warm_ns) {
            counting = 1;
            since = now;
        }
    }
    snprintf(found, sizeof found, "\"msgs_per_s\":%.1f", (double)counted * 1e9 / (double)(now - since));
}

/* Plays PATTERN:SIZE; false when there is no such thing. */
static int play(const char *pattern, int counts)
{
    const char *colon = strchr(pattern, ':');
    long size = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (size < 1 || size > INT32_MAX) {
        fprintf(stderr, "p2p: `%s` is no PATTERN:SIZE\n", pattern);
        return 0;
    }
    char *area = malloc((size_t)size + PAGE);
    if (!area) {
        perror("p2p: malloc");
        return 0;
    }
    /* Where the ladder's own messages stand, and large arrays of programs do: two words behind a page's beginning. */
    char *buffer = area + (BEHIND - (uintptr_t)area) % PAGE;
    memset(buffer, 0x5a, (size_t)size);
    buffer[0] = MORE;
    MPI_Barrier(MPI_COMM_WORLD);
    if (strncmp(pattern, "ping-pong:", 10) == 0)
        ping_pong(buffer, (int)size);
    else
        one_way(buffer, (int)size);
    if (rank == 0 && counts) {
        printf("{%s,\"kind\":\"%.*s\",\"size\":%ld}\n", found, (int)(colon - pattern), pattern, size);
        fflush(stdout);
    }
    free(area);
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || argc < 6) {
        fprintf(stderr, "p2p: %d ranks and %d arguments; it takes two ranks\n", ranks, argc - 1);
        return 2;
    }
    pin_to(atoi(argv[1 + rank]));
    /* Whoever loses the other side does not spin for ever. */
    alarm((unsigned)atoi(argv[3]));
    warm_ns = strtoull(argv[4], NULL, 10);
    measure_ns = strtoull(argv[5], NULL, 10);

    char host[64] = "", hosts[2][sizeof host];
    gethostname(host, sizeof host - 1);
    MPI_Gather(host, sizeof host, MPI_CHAR, hosts, sizeof host, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        library[strcspn(library, "\r\n")] = 0;
        for (char *c = library; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
                *c = ' ';
        printf("{\"library\":\"%s\",\"hosts\":[\"%s\",\"%s\"]}\n", library, hosts[0], hosts[1]);
        fflush(stdout);
    }
    uint64_t whole_ns = measure_ns;
    for (int counts = 0; counts <= 1; counts++) {
        measure_ns = counts ? whole_ns : whole_ns / 4;
        for (int i = 6; i < argc; i++)
            if (!play(argv[i], counts))
                return 1;
    }
    MPI_Finalize();
    return 0;
}
