/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Collective calls of whatever MPI this is compiled with: one line of JSON a measurement, by rank 0.
 *
 *     collectives LIMIT_S MEASURE_NS COLLECTIVE:BYTES...
 *
 * Each call back to back, as many times as take MEASURE_NS and a few barriers, and CALLS_MIN times unless one takes LONG_NS: rank 0 may
 * come from the barrier before them when others on its core have done much of the first one. A barrier closes the calls, since a root
 * that has run ahead has not done its part yet. `bench/src/collectives/rank.rs` is the same loop over ours.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CALLS_MIN = 10, CALLS_MAX = 20000, GROWTH = 16, BARRIERS = 4, PATIENCE = 20, LONG_NS = 100 * 1000 * 1000 };

static int rank, size;
static char *a, *b;
static int *counts, *places;
static MPI_Datatype *types;
static MPI_Comm ring;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const MPI_Comm w = MPI_COMM_WORLD;

static void barrier(int bytes) { (void)bytes; MPI_Barrier(w); }
static void broadcast(int n) { MPI_Bcast(b, n, MPI_BYTE, 0, w); }
static void reduce(int n) { MPI_Reduce(a, b, n / 4, MPI_INT, MPI_SUM, 0, w); }
static void allreduce(int n) { MPI_Allreduce(a, b, n / 4, MPI_INT, MPI_SUM, w); }
/* One array of `n` bytes, cut into a block for each. */
static void reduce_scatter_block(int n) { MPI_Reduce_scatter_block(a, b, n / 4 / size, MPI_INT, MPI_SUM, w); }
static void reduce_scatter(int n)
{
    (void)n;
    MPI_Reduce_scatter(a, b, counts, MPI_INT, MPI_SUM, w);
}
static void scan(int n) { MPI_Scan(a, b, n / 4, MPI_INT, MPI_SUM, w); }
static void exscan(int n) { MPI_Exscan(a, b, n / 4, MPI_INT, MPI_SUM, w); }
static void gather(int n) { MPI_Gather(a, n, MPI_BYTE, b, n, MPI_BYTE, 0, w); }
static void gatherv(int n) { MPI_Gatherv(a, n, MPI_BYTE, b, counts, places, MPI_BYTE, 0, w); }
static void scatter(int n) { MPI_Scatter(a, n, MPI_BYTE, b, n, MPI_BYTE, 0, w); }
static void scatterv(int n) { MPI_Scatterv(a, counts, places, MPI_BYTE, b, n, MPI_BYTE, 0, w); }
static void allgather(int n) { MPI_Allgather(a, n, MPI_BYTE, b, n, MPI_BYTE, w); }
static void allgatherv(int n) { MPI_Allgatherv(a, n, MPI_BYTE, b, counts, places, MPI_BYTE, w); }
static void alltoall(int n) { MPI_Alltoall(a, n, MPI_BYTE, b, n, MPI_BYTE, w); }
static void alltoallv(int n)
{
    (void)n;
    MPI_Alltoallv(a, counts, places, MPI_BYTE, b, counts, places, MPI_BYTE, w);
}
static void alltoallw(int n)
{
    (void)n;
    MPI_Alltoallw(a, counts, places, types, b, counts, places, types, w);
}
static void neighbor_allgather(int n) { MPI_Neighbor_allgather(a, n, MPI_BYTE, b, n, MPI_BYTE, ring); }
static void neighbor_alltoall(int n) { MPI_Neighbor_alltoall(a, n, MPI_BYTE, b, n, MPI_BYTE, ring); }

static void await(MPI_Request *request) { MPI_Wait(request, MPI_STATUS_IGNORE); }
static void ibarrier(int n)
{
    (void)n;
    MPI_Request r;
    MPI_Ibarrier(w, &r);
    await(&r);
}
static void ibroadcast(int n)
{
    MPI_Request r;
    MPI_Ibcast(b, n, MPI_BYTE, 0, w, &r);
    await(&r);
}
static void iallreduce(int n)
{
    MPI_Request r;
    MPI_Iallreduce(a, b, n / 4, MPI_INT, MPI_SUM, w, &r);
    await(&r);
}

static const struct {
    const char *name;
    void (*call)(int bytes);
    /* The bytes are one array, of which each rank has a block. */
    int cut;
} collectives[] = {
    {"barrier", barrier, 0},
    {"broadcast", broadcast, 0},
    {"reduce", reduce, 0},
    {"allreduce", allreduce, 0},
    {"reduce-scatter-block", reduce_scatter_block, 0},
    {"reduce-scatter", reduce_scatter, 1},
    {"scan", scan, 0},
    {"exscan", exscan, 0},
    {"gather", gather, 0},
    {"gatherv", gatherv, 0},
    {"scatter", scatter, 0},
    {"scatterv", scatterv, 0},
    {"allgather", allgather, 0},
    {"allgatherv", allgatherv, 0},
    {"alltoall", alltoall, 0},
    {"alltoallv", alltoallv, 0},
    {"alltoallw", alltoallw, 0},
    {"neighbor-allgather", neighbor_allgather, 0},
    {"neighbor-alltoall", neighbor_alltoall, 0},
    {"ibarrier", ibarrier, 0},
    {"ibroadcast", ibroadcast, 0},
    {"iallreduce", iallreduce, 0},
};

/* Time of these calls and a barrier; rank 0's counts. */
static uint64_t timed(void (*call)(int), int bytes, int calls)
{
    MPI_Barrier(w);
    uint64_t begin = now_ns();
    for (int i = 0; i < calls; i++) call(bytes);
    MPI_Barrier(w);
    return now_ns() - begin;
}

/* How many calls come next, and 0 when there are enough; rank 0 decides. */
static int next_calls(int calls, uint64_t took, uint64_t spent, uint64_t enough)
{
    int next = 0, few = calls < CALLS_MIN && took < (uint64_t)LONG_NS * (uint64_t)calls;
    if (few || (took < enough && calls < CALLS_MAX && spent < PATIENCE * enough)) {
        double wanted = 1.1 * (double)calls * (double)enough / (double)(took ? took : 1);
        next = wanted > (double)calls * GROWTH ? calls * GROWTH : (int)wanted;
        if (next <= calls) next = calls + 1;
        if (few && next < CALLS_MIN) next = CALLS_MIN;
        if (next > CALLS_MAX) next = CALLS_MAX;
    }
    MPI_Bcast(&next, 1, MPI_INT, 0, w);
    return next;
}

int main(int argc, char **argv)
{
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 60);
    uint64_t enough = argc > 2 ? (uint64_t)atoll(argv[2]) : 5000000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(w, &rank);
    MPI_Comm_size(w, &size);
    int periodic = 1;
    MPI_Cart_create(w, 1, &size, &periodic, 0, &ring);
    counts = calloc((size_t)size, sizeof *counts);
    places = calloc((size_t)size, sizeof *places);
    types = malloc((size_t)size * sizeof *types);
    for (int r = 0; r < size; r++) types[r] = MPI_BYTE;
    size_t room = (size_t)size;
    for (int i = 3; i < argc; i++) {
        size_t bytes = (size_t)atoll(strchr(argv[i], ':') + 1) * (size_t)(size > 2 ? size : 2);
        if (bytes > room) room = bytes;
    }
    a = malloc(room);
    b = malloc(room);
    memset(a, 1, room);
    memset(b, 1, room);
    if (rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        for (char *c = library; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = ' ';
        printf("{\"library\":\"%.60s\"}\n", library);
    }
    uint64_t closing = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t took = timed(barrier, 0, 0);
        if (took < closing) closing = took;
    }
    if (enough < BARRIERS * closing) enough = BARRIERS * closing;
    for (int i = 3; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        int bytes = atoi(colon + 1);
        size_t which = 0, known = sizeof collectives / sizeof *collectives;
        while (which < known && (strncmp(collectives[which].name, argv[i], (size_t)(colon - argv[i])) != 0
                                 || collectives[which].name[colon - argv[i]] != 0))
            which++;
        if (which == known) {
            fprintf(stderr, "no collective is called %s\n", argv[i]);
            MPI_Abort(w, 1);
        }
        for (int r = 0; r < size; r++) {
            counts[r] = collectives[which].cut ? bytes / 4 / size : bytes;
            places[r] = r * bytes;
        }
        /* The first call may make connections. */
        timed(collectives[which].call, bytes, 1);
        int calls = 1, next = 1;
        uint64_t took = 0, spent = 0;
        while (next > 0) {
            calls = next;
            took = timed(collectives[which].call, bytes, calls);
            spent += took;
            next = next_calls(calls, took, spent, enough);
        }
        if (rank == 0) {
            printf("{\"collective\":\"%.*s\",\"bytes\":%d,\"ns\":%.1f}\n", (int)(colon - argv[i]), argv[i], bytes,
                   (double)took / calls);
            fflush(stdout);
        }
    }
    MPI_Finalize();
}
