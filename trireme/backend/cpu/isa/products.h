// The inner loops of matrix products that are not oneDNN's: products of bf16 in pairs, and tiles of sums in leaves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::cpu {

// An element of a bf16 tensor, by its bits.
using Bf16 = uint16_t;

struct Lines {
  int64_t rows = 0;
  int64_t size = 0;
};

// c[m,n] = sum over pairs of a's and b's, or added to c. Pairs of a are `a_row` and `a_pair` apart from row to row and
// along a row; rows of b, one a pair, `b_pair`. Columns of b and c are touched up to whole vectors of 16.
struct PairProduct {
  int64_t m = 0, n = 0, pairs = 0;
  const uint32_t* a = nullptr;
  int64_t a_row = 0, a_pair = 1;
  const uint32_t* b = nullptr;
  int64_t b_pair = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
};

// Products of bf16 in pairs, and the ways to make the pairs; null below avx512_bf16. Rows of x lie `stride` apart.
struct PairLoops {
  void (*multiply)(const PairProduct& k);
  // Row i of the result: elements of rows 2 i and 2 i + 1 of x, or of zeros where there is no such row. Written up to
  // whole vectors.
  void (*pair_rows)(Lines x, int64_t stride, const Bf16* from, int64_t to_stride, uint32_t* to);
  void (*round_and_pair_rows)(Lines x, int64_t stride, const float* from, int64_t to_stride, uint32_t* to);
  // Row i of the result: elements 2 i and 2 i + 1 of each row of x, whose size is even, then zeros up to whole vectors.
  void (*pair_columns)(Lines x, int64_t stride, const Bf16* from, int64_t to_stride, uint32_t* to);
  // x rounded; a zero is put after a row of odd size.
  void (*round_rows)(Lines x, int64_t stride, const float* from, Bf16* to);
};

// A run of terms of a sum: `length` of them from the k-th `start` on.
struct LeafRun {
  int64_t start = 0, length = 0;
  bool ends_leaf = true;
};

// Sums of so many leaves may wait for their like in the tree of a sum (cpu/leaves.h).
inline constexpr int kMaxLeafLevels = 5;

// Lines of memory that are read soon (cpu/products/lines_ahead.h). A tile that is computed meanwhile asks for some of
// them, one now and then, since those asked for at once wait for each other, and tiles for them.
struct LinesAhead {
  // A column of `rows` lines, `step` bytes apart, then those beside it, `columns` in all.
  struct Block {
    const std::byte* first = nullptr;
    int64_t rows = 0, step = 0, columns = 0;
    int64_t row = 0;  // the next one
  };
  static constexpr int kBlocks = 5;
  Block blocks[kBlocks];
  int next = 0;         // the first block that may have lines
  int64_t of_tile = 0;  // lines that a tile asks for at most
};

// A tile c[rows, columns] of a product: sums in leaves, each leaf one or more of the runs in turn. Both operands are
// packed, as wide as Loops::tile_rows and tile_columns, in the order of the runs. A sum may take several tiles' turns,
// each with some of its runs.
struct LeafTile {
  int64_t rows = 0, columns = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  const LeafRun* runs = nullptr;
  int64_t count = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;    // begins with c, which holds what has been summed of a leaf
  int64_t leaves = 0;  // that ended before
  bool last = true;    // these are the last runs: c becomes the whole sum
  // Sums of 1, 2, 4, ... leaves that wait for their like, kMaxLeafLevels tiles; not for one leaf. The first `lasting`
  // of them, which the tile's next runs find again, in `kept`, the others in `passing`, which other tiles use as well.
  float* kept = nullptr;
  float* passing = nullptr;
  int lasting = 0;
  LinesAhead* ahead = nullptr;
};

// A tile c[rows, columns] of a product, or added to c; a and b are packed, as wide as Loops::tile_rows and
// tile_columns.
struct BlockTile {
  int64_t rows = 0, columns = 0;
  int64_t terms = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
  LinesAhead* ahead = nullptr;
};

// c[m,n] = a[m,k] b, or added to c, in the order of terms. Elements of a are `a_row` and `a_k` apart, of which one is
// 1; b is packed: panels of Loops::tile_columns columns, each of `panel_terms` terms, the first k of which are read.
struct PackedProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_k = 1;
  const float* b = nullptr;
  int64_t panel_terms = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool add = false;
  // Row i of a is zero but for its terms from `begin` + i to, without it, `end` + i; others may be left out. Of row i
  // of c, columns from `wanted` + i on may stay as they are.
  int64_t begin = 0, end = 0, wanted = 0;
  bool by_rows = false;  // all columns of some rows, then those of the next; false: all rows of a panel, then the next
  LinesAhead* ahead = nullptr;
};

// to[term][width]: some terms of n lines in f32, filled up with zeros; `width` is Loops::tile_rows or tile_columns. In
// `from`, the lines of a term lie side by side and terms `stride` apart, or the other way around.
template <class T>
struct PackLoops {
  void (*pack_beside)(int64_t width, int64_t n, int64_t terms, const T* from, int64_t stride, float* to);
  void (*pack_apart)(int64_t width, int64_t n, int64_t terms, const T* from, int64_t stride, float* to);
};

// For measuring: runs `turns` times as many independent multiply-adds of registers as `per_turn` says.
struct MultiplyAdds {
  float (*run)(int64_t turns);
  int64_t per_turn;
};

}  // namespace trireme::cpu
