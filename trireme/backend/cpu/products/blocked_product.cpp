#include "trireme/backend/cpu/products/blocked_product.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kPanelTerms = 384;     // of a part at most: its panel of b then fills the first-level cache
constexpr int64_t kTilesDown = 16;       // packed at once of a: half of the second-level cache
constexpr int64_t kPanelColumns = 1024;  // packed at once of b
constexpr int64_t kLine = 16;            // floats of a cache line
template <class T>
constexpr int64_t kLineOf = kLineBytes / sizeof(T);
// Of all instruction sets, so that a plan takes as many bytes on every CPU.
constexpr int64_t kWidestTile = 16, kLongestTile = 32;

// Equal parts of n, none longer than `most`, but for the last one, in whole `step`s.
int64_t even_parts(int64_t n, int64_t most, int64_t step) {
  const int64_t parts = std::max<int64_t>(1, parts_of(n, most));
  return rounded_up(std::max<int64_t>(1, parts_of(n, parts)), step);
}

struct BlockSteps {
  int64_t rows, columns, terms;

  BlockSteps(int64_t m, int64_t n, int64_t k)
      : rows(even_parts(m, kTilesDown * loops().tile_rows, loops().tile_rows)),
        columns(even_parts(n, kPanelColumns, loops().tile_columns)),
        terms(even_parts(k, kPanelTerms, 1)) {}
  int64_t a_floats() const { return rounded_up(rows * terms, kLine); }
};

// What is packed next, of both operands, while tiles are computed.
template <class T>
class Ahead {
 public:
  // The next panel of b, then the next rows of a.
  LinesAhead* lines() { return &lines_; }
  void next_panel(const PanelSourceOf<T>& b, int64_t columns, int64_t terms) { add(0, b, columns, terms); }
  void next_rows(const PanelSourceOf<T>& a, int64_t rows, int64_t terms) { add(1, a, rows, terms); }
  // So many tiles make a block; its panels of b are packed meanwhile, or have been before.
  void spread(const BlockSteps& steps, int64_t tiles_down, int64_t tiles, bool packs_b) {
    const int64_t of_a = steps.terms * lines_of(steps.rows);
    const int64_t of_b = packs_b ? steps.terms * lines_of(loops().tile_columns) * (tiles / tiles_down) : 0;
    spread_over_tiles(lines_, of_a + of_b, tiles);
  }

 private:
  static int64_t lines_of(int64_t elements) { return parts_of(elements, kLineOf<T>); }
  void add(int block, const PanelSourceOf<T>& from, int64_t lines, int64_t terms) {
    set_lines(lines_, block, from.data, from.lines_beside ? terms : lines,
              from.stride * static_cast<int64_t>(sizeof(T)), lines_of(from.lines_beside ? lines : terms));
  }

  LinesAhead lines_;
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
  const int64_t next_terms = std::min(steps.terms, g.k - first - run.length);
  const PanelSourceOf<T> a = PanelSourceOf<T>{g.a, g.lda, g.transpose_a}.from_term(first);
  const PanelSourceOf<T> b = PanelSourceOf<T>{g.b, g.ldb, !g.transpose_b}.from_line(j).from_term(first);
  float* const a_room = room;
  float* const b_room = room + steps.a_floats();
  Ahead<T> ahead;
  BlockTile tile{.terms = run.length, .c_row = g.ldc, .add = first > 0 || g.beta != 0, .ahead = ahead.lines()};
  for (int64_t top = 0; top < g.m; top += steps.rows) {
    const int64_t rows = std::min(steps.rows, g.m - top);
    const int64_t rows_left = std::min(steps.rows, g.m - top - rows);
    pack_panels(a.from_line(top), rows, tile_rows, {&run, 1}, run.length, a_room);
    ahead.spread(steps, parts_of(rows, tile_rows), parts_of(rows, tile_rows) * parts_of(columns, tile_columns),
                 top == 0 || rows_left == 0);
    if (rows_left > 0) {
      ahead.next_rows(a.from_line(top + rows), rows_left, run.length);
    } else {
      ahead.next_rows(a.from_term(run.length), std::min(steps.rows, g.m), next_terms);
    }
    for (int64_t column = 0; column < columns; column += tile_columns) {
      tile.columns = std::min(tile_columns, columns - column);
      tile.b = b_room + column * run.length;
      if (top == 0)
        pack_panels(b.from_line(column), tile.columns, tile_columns, {&run, 1}, run.length,
                    b_room + column * run.length);
      const int64_t next = column + tile_columns;
      if (next < columns && top == 0) {
        ahead.next_panel(b.from_line(next), std::min(tile_columns, columns - next), run.length);
      } else if (next >= columns && rows_left == 0) {
        ahead.next_panel(b.from_term(run.length), std::min(columns, tile_columns), next_terms);
      }
      for (int64_t row = 0; row < rows; row += tile_rows) {
        tile.rows = std::min(tile_rows, rows - row);
        tile.a = a_room + row * run.length;
        tile.c = g.c + (top + row) * g.ldc + j + column;
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
