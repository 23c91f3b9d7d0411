#include "trireme/backend/cpu/products/panel_product.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kTermsOfPanel = 384;    // at most
constexpr int64_t kColumnsOfPart = 1024;  // that are packed as one part
constexpr int64_t kFloatsOfLine = 16;     // of the cache
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kMostRows = 16, kMostColumns = 32;  // of a tile, on any instruction set

// Terms of each panel but the last, which may have fewer.
int64_t terms_of(int64_t k) {
  const int64_t parts = std::max<int64_t>(1, parts_of(k, kTermsOfPanel));
  return std::max<int64_t>(1, parts_of(k, parts));
}

// Panels of the terms from `first` on lie one after the other, each with `terms` of its columns.
struct PanelsOf {
  int64_t n, k;
  int64_t width = rounded_up(n, loops().tile_columns);

  int64_t terms(int64_t first) const { return std::min(terms_of(k), k - first); }
  int64_t offset(int64_t first, int64_t column) const { return first * width + column * terms(first); }
};

// What tiles bring nearer: first the panel of b that comes next, then rows of a that are packed next, a line of each
// row at a time.
class AheadOfPanels {
 public:
  AheadOfPanels(const Gemm& g, int64_t first, int64_t terms, bool more_rows)
      : lines_of_panel_(lines_in(terms * loops().tile_columns)) {
    const bool more_terms = first + terms < g.k;
    const int64_t columns = lines_in(more_terms ? std::min(terms, g.k - first - terms) : terms_of(g.k)) + 1;
    const int64_t down = parts_of(g.m, loops().tile_rows), across = parts_of(g.n, loops().tile_columns);
    spread_over_tiles(lines_, across * lines_of_panel_ + g.m * columns, down * across);
    if (more_terms) set_lines(lines_, 1, g.a + first + terms, g.m, g.lda * kFloatBytes, columns);
    if (!more_terms && more_rows) set_lines(lines_, 1, g.a + g.m * g.lda, g.m, g.lda * kFloatBytes, columns);
  }

  void next_panel(const float* panel) { set_lines(lines_, 0, panel, lines_of_panel_, kLineBytes, 1); }
  LinesAhead* lines() { return &lines_; }

 private:
  static int64_t lines_in(int64_t floats) { return parts_of(floats, kFloatsOfLine); }

  int64_t lines_of_panel_;
  LinesAhead lines_;
};

}  // namespace

int64_t panels_floats(int64_t n, int64_t k) {
  invariant(loops().tile_rows <= kMostRows && loops().tile_columns <= kMostColumns, "a tile of {} x {}",
            loops().tile_rows, loops().tile_columns);
  return rounded_up(n, kMostColumns) * k;
}

int64_t panel_rows_floats(int64_t rows, int64_t k) {
  return (rows + kMostRows - 1) * std::min(k, kTermsOfPanel);
}

int64_t panel_parts(int64_t n, int64_t k) {
  return parts_of(n, kColumnsOfPart) * parts_of(k, terms_of(k));
}

void pack_panel_part(const Gemm& g, int64_t part, float* panels) {
  const PanelsOf of{g.n, g.k};
  const int64_t across = parts_of(g.n, kColumnsOfPart);
  const int64_t first = part / across * terms_of(g.k);
  const int64_t column = part % across * kColumnsOfPart;
  const LeafRun run{0, of.terms(first), true};
  const PanelSource b{g.b + (g.transpose_b ? first : first * g.ldb), g.ldb, !g.transpose_b};
  pack_panels(b.from_line(column), std::min(kColumnsOfPart, g.n - column), loops().tile_columns, {&run, 1}, run.length,
              panels + of.offset(first, column));
}

void multiply_by_panels(const Gemm& g, const float* panels, float* room, bool more_rows) {
  invariant(g.alpha == 1 && g.beta == 0 && !g.transpose_a, "a product by panels with alpha {}, beta {}", g.alpha,
            g.beta);
  for (int64_t i = 0; i < g.m && g.k == 0; ++i) std::fill_n(g.c + i * g.ldc, g.n, 0.0F);
  const int64_t tile_rows = loops().tile_rows;
  const int64_t tile_columns = loops().tile_columns;
  const PanelsOf of{g.n, g.k};
  for (int64_t first = 0; first < g.k; first += terms_of(g.k)) {
    const LeafRun run{0, of.terms(first), true};
    pack_panels(PanelSource{g.a + first, g.lda, false}, g.m, tile_rows, {&run, 1}, run.length, room);
    AheadOfPanels ahead(g, first, run.length, more_rows);
    BlockTile tile{.terms = run.length, .c_row = g.ldc, .add = first > 0, .ahead = ahead.lines()};
    for (int64_t column = 0; column < g.n; column += tile_columns) {
      tile.b = panels + of.offset(first, column);
      tile.columns = std::min(tile_columns, g.n - column);
      if (column + tile_columns < g.n) ahead.next_panel(tile.b + tile_columns * run.length);
      for (int64_t row = 0; row < g.m; row += tile_rows) {
        tile.rows = std::min(tile_rows, g.m - row);
        tile.a = room + row * run.length;
        tile.c = g.c + row * g.ldc + column;
        loops().block_tile(tile);
      }
    }
  }
}

}  // namespace trireme::cpu
