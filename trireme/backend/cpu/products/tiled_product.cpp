#include "trireme/backend/cpu/products/tiled_product.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/backend/cpu/products/tile_state.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kTermsInTiles = 256;    // of a part: a block's packed rows then stay in the first-level cache
constexpr int64_t kRowsInTiles = 512;     // packed at once of a
constexpr int64_t kColumnsInTiles = 512;  // and of b
constexpr int64_t kBytesOfTiledTerm = kPartsOfF32 * static_cast<int64_t>(sizeof(Bf16));

// Parts of a size of about as much each, in whole steps.
int64_t even_steps(int64_t size, int64_t most, int64_t step) {
  return rounded_up(parts_of(size, std::max<int64_t>(1, parts_of(size, most))), step);
}
int64_t f32_terms_in_tiles(int64_t k) {
  return even_steps(k, kTermsInTiles, kTileTerms);
}
// Packed lines, in whole blocks, with so many terms, in whole steps.
int64_t tiled_bytes(int64_t lines, int64_t terms) {
  return rounded_up(lines, kTileLines) * rounded_up(terms, kTileTerms) * kBytesOfTiledTerm;
}

// What is packed at once, in whole blocks and steps.
struct TileParts {
  int64_t rows = 0, columns = 0, terms = 0;

  TileParts(int64_t m, int64_t n, int64_t k, int64_t room) {
    terms = f32_terms_in_tiles(k);
    const int64_t lines = room / (terms * kBytesOfTiledTerm) / kTileLines * kTileLines;
    const int64_t all_rows = rounded_up(m, kTileLines), all_columns = rounded_up(n, kTileLines);
    // Half of them each, or what the other one leaves.
    const int64_t half = lines / 2 / kTileLines * kTileLines;
    rows = std::min(kRowsInTiles, std::max(half, lines - std::min(all_columns, kColumnsInTiles)));
    columns = std::min(kColumnsInTiles, lines - std::min(rows, all_rows));
    rows = even_steps(m, std::max(rows, kTileLines), kTileLines);
    columns = even_steps(n, std::max(columns, kTileLines), kTileLines);
  }
  bool fit(int64_t room) const { return tiled_bytes(rows, terms) + tiled_bytes(columns, terms) <= room; }
};

// Blocks of kTileLines lines one after the other, each with all of `terms`. Lines of the same terms share pages of
// memory, so a step of all of them is packed at a time.
void pack_in_tiles(const TileSource& how, int64_t lines, int64_t terms, const float* from, std::byte* to) {
  const int64_t together = how.lines_beside ? kTileTerms : terms;
  for (int64_t term = 0; term < terms; term += together, to += tiled_bytes(kTileLines, together)) {
    const float* const at = from + (how.lines_beside ? term * how.stride : term);
    for (int64_t line = 0; line < lines; line += kTileLines) {
      loops().tiles.pack_f32(how, std::min(kTileLines, lines - line), std::min(together, terms - term),
                             at + (how.lines_beside ? line : line * how.stride),
                             reinterpret_cast<uint32_t*>(to + line / kTileLines * tiled_bytes(kTileLines, terms)));
    }
  }
}

// From a row of a on, and a term.
void pack_tiled_rows(const Gemm& g, int64_t row, int64_t rows, int64_t first, int64_t terms, std::byte* to) {
  pack_in_tiles({.as_rows = true, .lines_beside = g.transpose_a, .stride = g.lda}, rows, terms,
                g.a + (g.transpose_a ? first * g.lda + row : row * g.lda + first), to);
}
void pack_tiled_columns(const Gemm& g, int64_t column, int64_t columns, int64_t first, int64_t terms, std::byte* to) {
  pack_in_tiles({.as_rows = false, .lines_beside = !g.transpose_b, .stride = g.ldb}, columns, terms,
                g.b + (g.transpose_b ? column * g.ldb + first : first * g.ldb + column), to);
}

// c[rows, columns] of packed operands. Blocks that lie side by side in c come one after the other.
void multiply_packed_tiles(int64_t rows, int64_t columns, int64_t terms, const std::byte* a, const std::byte* b,
                           bool add, float* c, int64_t c_row) {
  const TileState state;
  const int64_t block_bytes = tiled_bytes(kTileLines, terms);
  for (int64_t row = 0; row < rows; row += kTileLines) {
    float* const at = c + row * c_row;
    loops().tiles.multiply_f32({.rows = std::min(kTileLines, rows - row),
                                .columns = columns,
                                .steps = parts_of(terms, kTileTerms),
                                .a = reinterpret_cast<const uint32_t*>(a + row / kTileLines * block_bytes),
                                .b = reinterpret_cast<const uint32_t*>(b),
                                .b_block = block_bytes / 4,
                                .sums = add ? at : nullptr,
                                .sums_row = c_row,
                                .c = at,
                                .c_row = c_row});
  }
}

}  // namespace

bool tiles_fit(int64_t m, int64_t n, int64_t k, int64_t bytes) {
  constexpr int64_t kLeast = 32;
  return std::min({m, n, k}) >= kLeast && TileParts(m, n, k, bytes).fit(bytes);
}

void multiply_in_tiles(const Gemm& g, std::byte* room, int64_t bytes) {
  const TileParts parts(g.m, g.n, g.k, bytes);
  invariant(g.alpha == 1 && (g.beta == 0 || g.beta == 1) && parts.fit(bytes),
            "a product in tiles with alpha {}, beta {}", g.alpha, g.beta);
  for (int64_t i = 0; i < g.m && g.k == 0 && g.beta == 0; ++i) std::fill_n(g.c + i * g.ldc, g.n, 0.0F);
  std::byte* const a = room + tiled_bytes(parts.columns, parts.terms);
  for (int64_t j = 0; j < g.n; j += parts.columns) {
    const int64_t columns = std::min(parts.columns, g.n - j);
    for (int64_t first = 0; first < g.k; first += parts.terms) {
      const int64_t terms = std::min(parts.terms, g.k - first);
      pack_tiled_columns(g, j, columns, first, terms, room);
      for (int64_t i = 0; i < g.m; i += parts.rows) {
        const int64_t rows = std::min(parts.rows, g.m - i);
        pack_tiled_rows(g, i, rows, first, terms, a);
        multiply_packed_tiles(rows, columns, terms, a, room, first > 0 || g.beta != 0, g.c + i * g.ldc + j, g.ldc);
      }
    }
  }
}

int64_t tiled_panels_bytes(int64_t n, int64_t k) {
  return tiled_bytes(n, k);
}

int64_t tiled_panel_rows_bytes(int64_t rows, int64_t k) {
  return tiled_bytes(rows, std::min(k, kTermsInTiles));
}

int64_t tiled_panel_parts(int64_t n, int64_t k) {
  return parts_of(n, kColumnsInTiles) * parts_of(k, f32_terms_in_tiles(k));
}

// Panels of the terms from `first` on lie one after the other, each with all columns.
void pack_tiled_panel_part(const Gemm& g, int64_t part, std::byte* panels) {
  const int64_t across = parts_of(g.n, kColumnsInTiles);
  const int64_t first = part / across * f32_terms_in_tiles(g.k);
  const int64_t column = part % across * kColumnsInTiles;
  const int64_t terms = std::min(f32_terms_in_tiles(g.k), g.k - first);
  pack_tiled_columns(g, column, std::min(kColumnsInTiles, g.n - column), first, terms,
                     panels + tiled_bytes(g.n, first) + tiled_bytes(column, terms));
}

void multiply_by_tiled_panels(const Gemm& g, const std::byte* panels, std::byte* room) {
  invariant(g.alpha == 1 && g.beta == 0 && !g.transpose_a, "a product by panels with alpha {}, beta {}", g.alpha,
            g.beta);
  for (int64_t i = 0; i < g.m && g.k == 0; ++i) std::fill_n(g.c + i * g.ldc, g.n, 0.0F);
  for (int64_t first = 0; first < g.k; first += f32_terms_in_tiles(g.k)) {
    const int64_t terms = std::min(f32_terms_in_tiles(g.k), g.k - first);
    pack_tiled_rows(g, 0, g.m, first, terms, room);
    multiply_packed_tiles(g.m, g.n, terms, room, panels + tiled_bytes(g.n, first), first > 0, g.c, g.ldc);
  }
}

}  // namespace trireme::cpu
