#include "trireme/backend/cpu/products/packed_product.h"

#include <algorithm>
#include <bit>

#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {
namespace {

// Of a part at most: a panel of b then fills the first-level cache, panels of kTilesTogether tiles of a half of the
// second.
constexpr int64_t kPackedTerms = 384;
constexpr int64_t kTilesTogether = 16;
// Sides of a block at most; of one whose sums of leaves wait in memory between parts.
constexpr int64_t kPackedRows = 2048, kPackedColumns = 1024, kSideThatWaits = 512;
constexpr int64_t kCacheLine = 16;              // floats
constexpr int64_t kPackedNearFloats = 4 << 10;  // of a packed matrix that the first-level cache holds beside rows

// How the result is cut into blocks, of which a task computes one. Bits do not depend on it.
struct Blocking {
  int64_t rows, columns;  // of a block, whole tiles
  int64_t down, across;
  int64_t terms;            // of a part at most
  int64_t tiles_that_wait;  // with sums of leaves in memory

  int64_t a_floats() const { return rounded_up(kTilesTogether * loops().tile_rows * terms, kCacheLine) + kCacheLine; }
  int64_t b_floats() const { return rounded_up(columns, loops().tile_columns) * terms; }
  int64_t kept_floats() const { return tiles_that_wait * kMaxLeafLevels * loops().tile_rows * loops().tile_columns; }
  int64_t floats() const { return a_floats() + b_floats() + kept_floats(); }
};

Blocking blocking_of(const Product& p, int threads) {
  const int64_t tile_rows = loops().tile_rows;
  const int64_t tile_columns = loops().tile_columns;
  const bool waits = p.k > kPackedTerms;
  Blocking b{};
  // One tile at least, also where there are no rows or columns.
  b.rows = rounded_up(std::clamp<int64_t>(p.m, 1, waits ? kSideThatWaits : kPackedRows), tile_rows);
  b.columns = rounded_up(std::clamp<int64_t>(p.n, 1, waits ? kSideThatWaits : kPackedColumns), tile_columns);
  // A few tasks for each thread, so that none waits long for another.
  const auto tasks = [&] { return (p.m + b.rows - 1) / b.rows * ((p.n + b.columns - 1) / b.columns) * p.batch; };
  while (threads > 1 && tasks() < 4 * threads && (b.rows > 4 * tile_rows || b.columns > 4 * tile_columns)) {
    if (b.rows / tile_rows >= b.columns / tile_columns) {
      b.rows = rounded_up(b.rows / 2, tile_rows);
    } else {
      b.columns = rounded_up(b.columns / 2, tile_columns);
    }
  }
  b.down = (p.m + b.rows - 1) / b.rows;
  b.across = (p.n + b.columns - 1) / b.columns;
  b.terms = std::min(p.k, kPackedTerms);
  b.tiles_that_wait = waits ? b.rows / tile_rows * (b.columns / tile_columns) : 1;
  return b;
}

// Appends runs to parts of kPackedTerms at most: each a power of two of leaves, of which one sum is left, or, where
// leaves are longer, parts of nearly equal length.
class TermsMaker {
 public:
  TermsMaker(int64_t k, int64_t longest_leaf)
      : most_((k + parts_of(k) - 1) / parts_of(k)),
        leaves_together_(
            k <= kPackedTerms || longest_leaf == 0
                ? 0
                : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(kPackedTerms / longest_leaf)))) {
    if (leaves_together_ > 0) most_ = kPackedTerms;
    terms_.parts.emplace_back();
  }

  void add(const LeafRun& run) {
    for (int64_t done = 0;;) {
      if (done < run.length && is_full())
        terms_.parts.push_back({.first = terms_.runs.size(), .leaves = leaves_, .begun = begun_});
      Terms::Part& part = terms_.parts.back();
      const int64_t length = std::min(run.length - done, most_ - part.length);
      const bool ends = done + length == run.length;
      terms_.runs.push_back({run.start + done, length, ends && run.ends_leaf});
      ++part.count;
      part.length += length;
      begun_ = !(ends && run.ends_leaf);
      leaves_ += begun_ ? 0 : 1;
      if (ends) return;
      done += length;
    }
  }
  Terms take() { return std::move(terms_); }

 private:
  static int64_t parts_of(int64_t k) { return std::max<int64_t>(1, (k + kPackedTerms - 1) / kPackedTerms); }

  bool is_full() const {
    const Terms::Part& part = terms_.parts.back();
    return part.length == most_ || (leaves_together_ > 0 && leaves_ - part.leaves >= leaves_together_);
  }

  int64_t most_;
  int64_t leaves_together_;  // 0: leaves do not count
  int64_t leaves_ = 0;
  bool begun_ = false;
  Terms terms_;
};

// A block of the result on its way through the parts of its terms.
struct PackedBlock {
  PanelSource a, b;
  int64_t rows, columns;
  float* c;
  int64_t c_row;
  float *a_room, *b_room, *kept;
  bool waits;  // each tile has room of its own in `kept`
};

// Sums that so many leaves have been added up to.
int nodes_of(int64_t leaves) {
  return std::popcount(static_cast<uint64_t>(leaves));
}

int64_t ended_leaves(std::span<const LeafRun> runs) {
  return std::ranges::count(runs, true, &LeafRun::ends_leaf);
}

// What is packed next, while tiles are computed: the next rows of a, or after the last ones those of the next part, and
// the next part's columns of b.
class LeavesAhead {
 public:
  LeavesAhead(const PackedBlock& block, const Terms& terms, const Terms::Part& part)
      : block_(block), terms_(terms), part_(part), last_(&part == &terms.parts.back()) {
    const int64_t tiles = parts_of(block.rows, loops().tile_rows) * parts_of(block.columns, loops().tile_columns);
    const int64_t lines = part.length * (lines_of(block.rows) + lines_of(block.columns));
    spread_over_tiles(ahead_, lines, tiles * static_cast<int64_t>(part.count));
    if (!last_) bring(1, block.b, block.columns, (&part)[1]);
  }

  // Before the tiles of rows that end with `end`.
  void before_rows(int64_t end) {
    const int64_t rows = kTilesTogether * loops().tile_rows;
    if (end < block_.rows) {
      bring(0, block_.a.from_line(end), std::min(rows, block_.rows - end), part_);
    } else if (!last_) {
      bring(0, block_.a, std::min(rows, block_.rows), (&part_)[1]);
    }
  }
  LinesAhead* lines() { return &ahead_; }

 private:
  static int64_t lines_of(int64_t floats) { return parts_of(floats, kCacheLine); }

  // The terms of a part, as if its runs followed each other.
  void bring(int at, const PanelSource& from, int64_t lines, const Terms::Part& part) {
    const float* const first = from.from_term(terms_.runs[part.first].start).data;
    set_lines(ahead_, at, first, from.lines_beside ? part.length : lines,
              from.stride * static_cast<int64_t>(sizeof(float)), lines_of(from.lines_beside ? lines : part.length));
  }

  const PackedBlock& block_;
  const Terms& terms_;
  const Terms::Part& part_;
  bool last_;
  LinesAhead ahead_;
};

// Of all tiles, those of the first one's sums that do not last are free for any of them.
void multiply_part(const PackedBlock& block, const Terms& terms, const Terms::Part& part, bool last) {
  const int64_t tile_rows = loops().tile_rows;
  const int64_t tile_columns = loops().tile_columns;
  const std::span runs = std::span(terms.runs).subspan(part.first, part.count);
  LeafTile tile{.runs = runs.data(),
                .count = std::ssize(runs),
                .c_row = block.c_row,
                .add = part.begun,
                .leaves = part.leaves,
                .last = last,
                .passing = block.kept,
                .lasting = std::max(nodes_of(part.leaves), last ? 0 : nodes_of(part.leaves + ended_leaves(runs)))};
  const int64_t kept_floats = kMaxLeafLevels * tile_rows * tile_columns;
  const int64_t tiles_across = (block.columns + tile_columns - 1) / tile_columns;
  LeavesAhead ahead(block, terms, part);
  tile.ahead = ahead.lines();
  pack_panels(block.b, block.columns, tile_columns, runs, part.length, block.b_room);
  for (int64_t first = 0; first < block.rows; first += kTilesTogether * tile_rows) {
    const int64_t end = std::min(block.rows, first + kTilesTogether * tile_rows);
    pack_panels(block.a.from_line(first), end - first, tile_rows, runs, part.length, block.a_room);
    ahead.before_rows(end);
    for (int64_t j = 0; j < block.columns; j += tile_columns) {
      tile.columns = std::min(tile_columns, block.columns - j);
      tile.b = block.b_room + j * part.length;
      for (int64_t i = first; i < end; i += tile_rows) {
        tile.rows = std::min(tile_rows, end - i);
        tile.a = block.a_room + (i - first) * part.length;
        tile.c = block.c + i * block.c_row + j;
        tile.kept = block.kept + (block.waits ? (i / tile_rows * tiles_across + j / tile_columns) * kept_floats : 0);
        loops().leaf_tile(tile);
      }
    }
  }
}

float* aligned_floats(std::byte* bytes) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(bytes) + 63) / 64 * 64);
}

}  // namespace

Terms terms_in_leaves(const LeafDim& dim) {
  const Leaves leaves(dim.whole, dim.start, dim.size);
  int64_t longest = 0;
  for (int64_t leaf = 0; leaf < leaves.count(); ++leaf)
    longest = std::max(longest, leaves.size(leaf) * dim.inner * dim.repeats);
  TermsMaker maker(dim.size * dim.inner * dim.repeats, longest);
  for (int64_t leaf = 0; leaf < leaves.count(); ++leaf) {
    for (int64_t repeat = 0; repeat < dim.repeats; ++repeat) {
      maker.add({repeat * dim.repeat_step + leaves.begin(leaf) * dim.inner, leaves.size(leaf) * dim.inner,
                 repeat + 1 == dim.repeats});
    }
  }
  return maker.take();
}

int64_t in_leaves_scratch(const Product& product, int threads) {
  return 64 + threads * blocking_of(product, threads).floats() * static_cast<int64_t>(sizeof(float));
}

void multiply_in_leaves(const Product& p, const Terms& terms, const Matrices<float>& at, const KernelArgs& args) {
  if (p.batch == 0 || p.m == 0 || p.n == 0) return;
  const Blocking blocks = blocking_of(p, threads_of(args));
  float* const scratch = aligned_floats(args.scratch.data());
  run_tasks(args.pool, p.batch * blocks.across * blocks.down, [&](int64_t task, int thread) {
    const int64_t i = task % blocks.down * blocks.rows;
    const int64_t j = task / blocks.down % blocks.across * blocks.columns;
    const int64_t batch = task / blocks.down / blocks.across;
    float* const room = scratch + thread * blocks.floats();
    const PackedBlock block{.a = PanelSource{at.a + batch * p.steps.a, p.lda(), p.transpose_a}.from_line(i),
                            .b = PanelSource{at.b + batch * p.steps.b, p.ldb(), !p.transpose_b}.from_line(j),
                            .rows = std::min(blocks.rows, p.m - i),
                            .columns = std::min(blocks.columns, p.n - j),
                            .c = at.c + batch * p.steps.c + i * p.n + j,
                            .c_row = p.n,
                            .a_room = room,
                            .b_room = room + blocks.a_floats(),
                            .kept = room + blocks.a_floats() + blocks.b_floats(),
                            .waits = blocks.tiles_that_wait > 1};
    for (const Terms::Part& part : terms.parts) multiply_part(block, terms, part, &part == &terms.parts.back());
  });
}

int64_t packed_floats(int64_t n, int64_t k) {
  // Whatever the instruction set in use at the time of the call: 32 columns are the widest tile.
  return rounded_up(n, 32) * k;
}

void pack_right(const float* b, int64_t ldb, bool transpose_b, int64_t n, int64_t k, float* packed) {
  const LeafRun all{0, k, true};
  pack_panels(PanelSource{b, ldb, !transpose_b}, n, loops().tile_columns, {&all, 1}, k, packed);
}

void multiply_packed(const Gemm& g, const float* packed, int64_t terms, const Band& band, int64_t wanted,
                     LinesAhead* ahead) {
  loops().multiply_packed({.m = g.m,
                           .n = g.n,
                           .k = g.k,
                           .a = g.a,
                           .a_row = g.transpose_a ? 1 : g.lda,
                           .a_k = g.transpose_a ? g.lda : 1,
                           .b = packed,
                           .panel_terms = terms,
                           .c = g.c,
                           .c_row = g.ldc,
                           .add = g.beta != 0,
                           .begin = band.begin,
                           .end = band.end,
                           .wanted = wanted,
                           .by_rows = g.n * g.k <= kPackedNearFloats,
                           .ahead = ahead});
}

}  // namespace trireme::cpu
