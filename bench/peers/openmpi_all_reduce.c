/* Times OpenMPI's MPI_Allreduce, in place, on f32 sums, as `trireme bench collective` times its own: five runs to warm up, of which the
 * last says how many more take half a second, 5,000 at most; these one after the other, and the median of rank 0's times. A line of
 * JSON for each size in bytes that is named. With "shared" before the sizes the operands lie in memory that both ranks have mapped
 * (MPI_Win_allocate_shared), else in memory of the rank's own.
 *
 *   mpicc -O2 -o all_reduce openmpi_all_reduce.c && mpirun -n 2 ./all_reduce shared 4096 1048576
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWarmup = 5, kMostRuns = 5000 };
static const double kBudget = 0.5; /* seconds */

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double time_one(float* data, int count) {
  const double begin = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  static double times[kMostRuns];
  const int shared = argc > 1 && strcmp(argv[1], "shared") == 0;
  for (int i = 1 + shared; i < argc; ++i) {
    const long bytes = atol(argv[i]);
    const int count = (int)(bytes / (long)sizeof(float));
    float* data = NULL;
    MPI_Win window = MPI_WIN_NULL;
    if (count > 0 && shared) {
      MPI_Win_allocate_shared((MPI_Aint)count * (MPI_Aint)sizeof(float), sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &data, &window);
      memset(data, 0, (size_t)count * sizeof(float));
    } else if (count > 0) {
      data = calloc((size_t)count, sizeof(float));
    }
    if (data == NULL) {
      fprintf(stderr, "openmpi_all_reduce: no room for '%s' bytes; give the size of some f32\n", argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 2);
      return 2;
    }
    double last = 0;
    int runs = 0;
    for (int i = 0; i < kWarmup; ++i) last = time_one(data, count);
    runs = (int)(kBudget / (last + 1e-7));
    runs = runs < 3 ? 3 : runs > kMostRuns ? kMostRuns : runs;
    MPI_Bcast(&runs, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int run = 0; run < runs; ++run) times[run] = time_one(data, count);
    qsort(times, (size_t)runs, sizeof(double), by_value);
    if (rank == 0) printf("{\"bytes\":%ld,\"world\":%d,\"us\":%.3f,\"runs\":%d}\n", bytes, ranks, times[runs / 2] * 1e6, runs);
    if (shared) {
      MPI_Win_free(&window);
    } else {
      free(data);
    }
  }
  MPI_Finalize();
  return 0;
}
