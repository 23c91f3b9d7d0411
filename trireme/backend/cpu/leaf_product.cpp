#include "trireme/backend/cpu/leaf_product.h"

#include <algorithm>
#include <numeric>

#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/parallel.h"

namespace trireme::cpu {
namespace {

int64_t rounded_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Blocks of the result: a task computes one, from its rows of a and columns of b packed. Bits do
// not depend on them.
struct LeafBlocks {
  int64_t rows, columns;  // of a block, whole tiles
  int64_t down, across;

  int64_t packed_a(int64_t k) const { return rows * k; }
  int64_t packed_b(int64_t k) const { return columns * k; }
};

LeafBlocks leaf_blocks(const Product& p, int threads) {
  constexpr int64_t kFloatsOfA = 1 << 18;  // a second-level cache's share
  constexpr int64_t kFloatsOfB = 1 << 19;
  const int64_t tile_rows = loops().tile_rows;
  const int64_t tile_columns = loops().tile_columns;
  const int64_t k = std::max<int64_t>(1, p.k);
  LeafBlocks b{};
  b.rows = std::min(rounded_up(p.m, tile_rows),
                    std::max<int64_t>(1, kFloatsOfA / k / tile_rows) * tile_rows);
  b.columns = std::min(rounded_up(p.n, tile_columns),
                       std::max<int64_t>(1, kFloatsOfB / k / tile_columns) * tile_columns);
  // A few tasks for each thread, so that none waits long for another.
  const auto tasks = [&] {
    return (p.m + b.rows - 1) / b.rows * ((p.n + b.columns - 1) / b.columns) * p.batch;
  };
  while (threads > 1 && tasks() < 4 * threads &&
         (b.rows > 4 * tile_rows || b.columns > 4 * tile_columns)) {
    if (b.rows / tile_rows >= b.columns / tile_columns) {
      b.rows = rounded_up(b.rows / 2, tile_rows);
    } else {
      b.columns = rounded_up(b.columns / 2, tile_columns);
    }
  }
  b.down = (p.m + b.rows - 1) / b.rows;
  b.across = (p.n + b.columns - 1) / b.columns;
  return b;
}

// `columns` columns of b from the first on, as panels of whole tiles: in each the terms in the
// order of the runs.
void pack_b(const float* b, int64_t ldb, bool transpose, int64_t columns,
            std::span<const LeafRun> runs, float* to) {
  const int64_t width = loops().tile_columns;
  for (int64_t j = 0; j < columns; j += width) {
    const int64_t n = std::min(width, columns - j);
    for (const LeafRun& run : runs) {
      if (transpose) {
        if (n < width) std::fill_n(to, run.length * width, 0.0F);
        for (int64_t column = 0; column < n; ++column) {
          const float* from = b + (j + column) * ldb + run.start;
          for (int64_t k = 0; k < run.length; ++k) to[k * width + column] = from[k];
        }
      } else {
        for (int64_t k = 0; k < run.length; ++k) {
          float* row = to + k * width;
          std::copy_n(b + (run.start + k) * ldb + j, n, row);
          std::fill_n(row + n, width - n, 0.0F);
        }
      }
      to += run.length * width;
    }
  }
}

// `rows` rows of op(a), as panels of tile_rows: all k of each in turn.
void pack_a(const float* a, int64_t lda, bool transpose, int64_t rows, int64_t k, float* to) {
  const int64_t width = loops().tile_rows;
  for (int64_t i = 0; i < rows; i += width) {
    const int64_t n = std::min(width, rows - i);
    if (transpose) {
      for (int64_t term = 0; term < k; ++term)
        std::copy_n(a + term * lda + i, n, to + term * width);
    } else {
      for (int64_t row = 0; row < n; ++row) {
        const float* from = a + (i + row) * lda;
        for (int64_t term = 0; term < k; ++term) to[term * width + row] = from[term];
      }
    }
    to += k * width;
  }
}

// The tiles of rows x columns of c; the rows of a tile lie a_panel after those of the one before.
void multiply_block(const LeafTile& first, int64_t rows, int64_t columns, int64_t a_panel,
                    int64_t k) {
  const Loops& all = loops();
  for (int64_t j = 0; j < columns; j += all.tile_columns) {
    LeafTile tile = first;
    tile.columns = std::min(all.tile_columns, columns - j);
    tile.b += j * k;
    for (int64_t i = 0; i < rows; i += all.tile_rows) {
      tile.rows = std::min(all.tile_rows, rows - i);
      tile.a = first.a + i / all.tile_rows * a_panel;
      tile.c = first.c + i * first.c_row + j;
      all.leaf_tile(tile);
    }
  }
}

}  // namespace

std::vector<LeafRun> leaf_runs(const LeafDim& dim) {
  const Leaves leaves(dim.whole, dim.start, dim.size);
  std::vector<LeafRun> runs;
  for (int64_t leaf = 0; leaf < leaves.count(); ++leaf) {
    for (int64_t repeat = 0; repeat < dim.repeats; ++repeat) {
      runs.push_back({repeat * dim.repeat_step + leaves.begin(leaf) * dim.inner,
                      leaves.size(leaf) * dim.inner, repeat + 1 == dim.repeats});
    }
  }
  return runs;
}

int64_t leaf_product_scratch(const Product& product, int threads) {
  const LeafBlocks blocks = leaf_blocks(product, threads);
  return threads * (blocks.packed_a(product.k) + blocks.packed_b(product.k)) *
         static_cast<int64_t>(sizeof(float));
}

void multiply_in_leaves(const Product& p, const std::vector<LeafRun>& runs,
                        const Matrices<float>& at, const KernelArgs& args) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  const LeafBlocks blocks = leaf_blocks(p, threads_of(args));
  const int64_t floats_a = blocks.packed_a(p.k);
  const int64_t floats = floats_a + blocks.packed_b(p.k);
  auto* scratch = reinterpret_cast<float*>(args.scratch.data());
  run_tasks(args.pool, p.batch * blocks.across * blocks.down, [&](int64_t task, int thread) {
    const int64_t i = task % blocks.down * blocks.rows;
    const int64_t j = task / blocks.down % blocks.across * blocks.columns;
    const int64_t batch = task / blocks.down / blocks.across;
    const int64_t rows = std::min(blocks.rows, p.m - i);
    const int64_t columns = std::min(blocks.columns, p.n - j);
    float* a_room = scratch + thread * floats;
    float* b_room = a_room + floats_a;
    const float* a = at.a + batch * p.steps.a + (p.transpose_a ? i : i * p.lda());
    const float* b = at.b + batch * p.steps.b + (p.transpose_b ? j * p.ldb() : j);
    pack_b(b, p.ldb(), p.transpose_b, columns, runs, b_room);
    pack_a(a, p.lda(), p.transpose_a, rows, p.k, a_room);
    const int64_t tile_rows = loops().tile_rows;
    multiply_block({.a = a_room,
                    .a_row = 1,
                    .a_k = tile_rows,
                    .b = b_room,
                    .runs = runs.data(),
                    .count = std::ssize(runs),
                    .c = at.c + batch * p.steps.c + i * p.n + j,
                    .c_row = p.n},
                   rows, columns, tile_rows * p.k, p.k);
  });
}

int64_t one_leaf_floats(int64_t n, int64_t k) {
  // Whatever the instruction set in use at the time of the call: 32 columns are the widest tile.
  return rounded_up(n, 32) * k;
}

void gemm_in_one_leaf(const Gemm& g, float* room) {
  if (g.m == 0 || g.n == 0) return;
  const LeafRun all{0, g.k, true};
  pack_b(g.b, g.ldb, g.transpose_b, g.n, {&all, 1}, room);
  multiply_block({.a = g.a,
                  .a_row = g.transpose_a ? 1 : g.lda,
                  .a_k = g.transpose_a ? g.lda : 1,
                  .b = room,
                  .runs = &all,
                  .count = 1,
                  .c = g.c,
                  .c_row = g.ldc,
                  .add = g.beta != 0},
                 g.m, g.n, loops().tile_rows * (g.transpose_a ? 1 : g.lda), g.k);
}

}  // namespace trireme::cpu
