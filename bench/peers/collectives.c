/* Collectives of an installed MPI, in the loop of mpi-lite/examples/collectives.rs: how, is in bench/NOTES.md.
 *
 *     mpicc -O2 collectives.c -o collectives && mpiexec -n 4 ./collectives
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static char *a, *b;

static void call(int which, int bytes) {
    int n = bytes / 4;
    MPI_Comm w = MPI_COMM_WORLD;
    switch (which) {
    case 0: MPI_Barrier(w); break;
    case 1: MPI_Bcast(b, bytes, MPI_BYTE, 0, w); break;
    case 2: MPI_Reduce(a, b, n, MPI_INT, MPI_SUM, 0, w); break;
    case 3: MPI_Allreduce(a, b, n, MPI_INT, MPI_SUM, w); break;
    /* Cut into one block for each, like the others' whole arrays. */
    case 4: MPI_Reduce_scatter_block(a, b, n / size, MPI_INT, MPI_SUM, w); break;
    case 5: MPI_Scan(a, b, n, MPI_INT, MPI_SUM, w); break;
    case 6: MPI_Gather(a, bytes, MPI_BYTE, b, bytes, MPI_BYTE, 0, w); break;
    case 7: MPI_Scatter(a, bytes, MPI_BYTE, b, bytes, MPI_BYTE, 0, w); break;
    case 8: MPI_Allgather(a, bytes, MPI_BYTE, b, bytes, MPI_BYTE, w); break;
    case 9: MPI_Alltoall(a, bytes, MPI_BYTE, b, bytes, MPI_BYTE, w); break;
    }
}

static const char *names[] = {"barrier", "broadcast", "reduce", "allreduce", "reduce-scatter",
                              "scan", "gather", "scatter", "allgather", "alltoall"};
static const int sizes[] = {8, 1024, 16384, 131072, 1048576};

static double timed(int which, int bytes, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) call(which, bytes);
    /* A root that has run ahead waits for the others. */
    MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - begin) / calls * 1e6;
}

static int ascending(const void *x, const void *y) {
    double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

int main(int argc, char **argv) {
    double budget_us = argc > 1 ? atof(argv[1]) : 10000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    a = malloc((size_t)size << 20);
    b = malloc((size_t)size << 20);
    memset(a, 1, (size_t)size << 20);
    memset(b, 1, (size_t)size << 20);
    for (int which = 0; which < 10; which++)
        for (int s = 0; s < 5; s++) {
            int bytes = which ? sizes[s] : 0;
            if (which == 4 && bytes < 4 * size) continue;
            timed(which, bytes, 2);
            double once = timed(which, bytes, 3), rounds[3];
            MPI_Bcast(&once, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            int calls = once > 0 && budget_us / once < 1000 ? (int)(budget_us / once) : 1000;
            if (calls < 2) calls = 2;
            for (int r = 0; r < 3; r++) rounds[r] = timed(which, bytes, calls);
            qsort(rounds, 3, sizeof *rounds, ascending);
            if (rank == 0) printf("%s,%d,%d,%.2f\n", names[which], size, bytes, rounds[1]);
            if (!which) break;
        }
    MPI_Finalize();
}
