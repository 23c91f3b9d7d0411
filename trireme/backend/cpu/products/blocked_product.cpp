#include "trireme/backend/cpu/products/blocked_product.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kPanelTerms = 384;     // of a part at most: its panel of b then fills the first-level cache
constexpr int64_t kTilesDown = 16;       // packed at once of a: half of the second-level cache
constexpr int64_t kPanelColumns = 1024;  // packed at once of b
constexpr int64_t kLine = 16;            // floats of a cache line
template <class T>
constexpr int64_t kLineOf = 64 / sizeof(T);
// Of all instruction sets, so that a plan takes as many bytes on every CPU.
constexpr int64_t kWidestTile = 16, kLongestTile = 32;

// Equal parts of n, none longer than `most`, but for the last one, in whole `step`s.
int64_t even_parts(int64_t n, int64_t most, int64_t step) {
  const int64_t parts = std::max<int64_t>(1, (n + most - 1) / most);
  return rounded_up(std::max<int64_t>(1, (n + parts - 1) / parts), step);
}

struct BlockSteps {
  int64_t rows, columns, terms;

  BlockSteps(int64_t m, int64_t n, int64_t k)
      : rows(even_parts(m, kTilesDown * loops().tile_rows, loops().tile_rows)),
        columns(even_parts(n, kPanelColumns, loops().tile_columns)),
        terms(even_parts(k, kPanelTerms, 1)) {}
  int64_t a_floats() const { return rounded_up(rows * terms, kLine); }
};

// What the next part packs, a line of memory of all its terms at a time: first that of b, then that of a. Of an a whose
// rows lie as they are, the rows that are packed next, a line of each at a time.
template <class T>
class Ahead {
 public:
  Ahead(const GemmOf<T>& g, const PanelSourceOf<T>& b, int64_t columns, int64_t first, int64_t terms) : g_(&g) {
    if (first + terms >= g.k) return;
    if (b.lines_beside) {
      b_ = b.data + (first + terms) * b.stride;
      b_step_ = b.stride;
      b_lines_ = (columns + kLineOf<T> - 1) / kLineOf<T>;
    }
    if (g.transpose_a) {
      a_ = g.a + (first + terms) * g.lda;
      a_lines_ = (g.m + kLineOf<T> - 1) / kLineOf<T>;
    }
  }

  // The next rows of the part begin here; null: there are none.
  void next_rows(const T* rows, int64_t terms) {
    if (g_->transpose_a) return;
    a_ = rows;
    a_lines_ = rows == nullptr ? 0 : (terms + kLineOf<T> - 1) / kLineOf<T> + 1;
    a_taken_ = 0;
  }

  void take(BlockTile& tile) {
    // Rows are packed before the next part is.
    const bool a_first = !g_->transpose_a && a_taken_ < a_lines_;
    if (b_taken_ < b_lines_ && !a_first) {
      look_at(tile, b_ + b_taken_++ * kLineOf<T>, b_step_);
    } else if (a_taken_ < a_lines_) {
      look_at(tile, a_ + a_taken_++ * kLineOf<T>, g_->lda);
    } else {
      tile.ahead = nullptr;
    }
  }

 private:
  static void look_at(BlockTile& tile, const T* first, int64_t step) {
    tile.ahead = first;
    tile.ahead_step_bytes = step * static_cast<int64_t>(sizeof(T));
  }

  const GemmOf<T>* g_;
  const T* a_ = nullptr;
  const T* b_ = nullptr;
  int64_t b_step_ = 0, a_lines_ = 0, b_lines_ = 0;
  int64_t a_taken_ = 0, b_taken_ = 0;
};

template <class T>
void clear(const GemmOf<T>& g) {
  for (int64_t i = 0; i < g.m && g.beta == 0; ++i) std::fill_n(g.c + i * g.ldc, g.n, 0.0F);
}

// The columns from j on and the terms from `first` on, of all rows.
template <class T>
void add_part(const GemmOf<T>& g, const BlockSteps& steps, int64_t j, int64_t first, float* room) {
  const int64_t tile_rows = loops().tile_rows;
  const int64_t tile_columns = loops().tile_columns;
  const int64_t columns = std::min(steps.columns, g.n - j);
  const LeafRun run{0, std::min(steps.terms, g.k - first), true};
  const PanelSourceOf<T> whole_b = PanelSourceOf<T>{g.b, g.ldb, !g.transpose_b}.from_line(j);
  const PanelSourceOf<T> a{g.a + (g.transpose_a ? first * g.lda : first), g.lda, g.transpose_a};
  const PanelSourceOf<T> b{whole_b.data + (g.transpose_b ? first : first * g.ldb), g.ldb, !g.transpose_b};
  float* const a_room = room;
  float* const b_room = room + steps.a_floats();
  Ahead<T> ahead(g, whole_b, columns, first, run.length);
  BlockTile tile{.terms = run.length, .c_row = g.ldc, .add = first > 0 || g.beta != 0};
  pack_panels(b, columns, tile_columns, {&run, 1}, run.length, b_room);
  for (int64_t top = 0; top < g.m; top += steps.rows) {
    const int64_t rows = std::min(steps.rows, g.m - top);
    pack_panels(a.from_line(top), rows, tile_rows, {&run, 1}, run.length, a_room);
    ahead.next_rows(top + rows < g.m ? a.from_line(top + rows).data : nullptr, run.length);
    for (int64_t column = 0; column < columns; column += tile_columns) {
      tile.columns = std::min(tile_columns, columns - column);
      tile.b = b_room + column * run.length;
      for (int64_t row = 0; row < rows; row += tile_rows) {
        tile.rows = std::min(tile_rows, rows - row);
        tile.a = a_room + row * run.length;
        tile.c = g.c + (top + row) * g.ldc + j + column;
        ahead.take(tile);
        loops().block_tile(tile);
      }
    }
  }
}

}  // namespace

int64_t blocked_floats(int64_t m, int64_t n, int64_t k) {
  invariant(loops().tile_rows <= kWidestTile && loops().tile_columns <= kLongestTile, "a tile of {} x {}",
            loops().tile_rows, loops().tile_columns);
  const int64_t terms = std::clamp<int64_t>(k, 1, kPanelTerms);
  const int64_t rows = std::min(kTilesDown * kWidestTile, m + kWidestTile - 1);
  return rounded_up(rows * terms, kLine) + std::min(kPanelColumns, n + kLongestTile - 1) * terms;
}

template <class T>
void multiply_in_blocks(const GemmOf<T>& g, float* room) {
  invariant(g.alpha == 1 && (g.beta == 0 || g.beta == 1), "a product in blocks with alpha {} and beta {}", g.alpha,
            g.beta);
  if (g.k == 0) return clear(g);
  const BlockSteps steps(g.m, g.n, g.k);
  for (int64_t j = 0; j < g.n; j += steps.columns) {
    for (int64_t first = 0; first < g.k; first += steps.terms) add_part(g, steps, j, first, room);
  }
}

template void multiply_in_blocks(const GemmOf<float>&, float*);
template void multiply_in_blocks(const GemmOf<Bf16>&, float*);

}  // namespace trireme::cpu
