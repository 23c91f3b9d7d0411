#include "trireme/backend/cpu/products/tiled_bf16_product.h"

#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/backend/cpu/products/tile_state.h"
#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kMostTermsInTiles = 512;  // of a part: packed rows of a block then stay in the first-level cache
constexpr int64_t kMostOfMatrix = 1 << 19;  // elements that are packed at once of b, half of the second-level cache
constexpr int64_t kMostOfRows = 1 << 17;    // and of a where b stays
constexpr int64_t kSumsThatStay = 1 << 18;  // that stay in the cache while all of their terms pass
constexpr int64_t kLongestSide = 512;       // of such sums where both sides are long,
constexpr int64_t kLongestOfAll = 1024;     // and where one is short
constexpr int64_t kWordsOfStep = 2 * kTileWords;

int64_t even_lines(int64_t size, int64_t most, int64_t step) {
  const int64_t parts = std::max<int64_t>(1, parts_of(size, most));
  return rounded_up(std::max<int64_t>(1, parts_of(size, parts)), step);
}

// Of each part but the last one.
int64_t terms_in_tiles(int64_t k) {
  return even_lines(k, kMostTermsInTiles, kTileTerms);
}
int64_t tile_steps(int64_t terms) {
  return parts_of(terms, kTileTerms);
}
// Of lines that are packed with all of their terms.
int64_t packed_words(int64_t lines, int64_t terms) {
  return parts_of(lines, kTileLines) * tile_steps(terms) * kWordsOfStep;
}
int64_t word_bytes(int64_t words) {
  return words * static_cast<int64_t>(sizeof(uint32_t));
}

// One product: its sizes, and where its matrices lie.
template <class C>
struct TiledProduct {
  int64_t m = 0, n = 0, k = 0;
  const Bf16* a = nullptr;
  const Bf16* b = nullptr;
  C* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, onto = false;
};

// Lines of an operand, from `from` on, in blocks of kTileLines, each with all of `terms`. Where lines lie side by side
// all of a step's are packed before the next step's, so that memory is read along its lines.
void pack_tiled_lines(const TileSource& how, int64_t lines, int64_t terms, const Bf16* from, uint32_t* to) {
  const int64_t words = tile_steps(terms) * kWordsOfStep;
  const int64_t at_once = how.lines_beside ? kTileTerms : terms;
  for (int64_t term = 0; term < terms; term += at_once, to += kWordsOfStep) {
    for (int64_t line = 0; line < lines; line += kTileLines) {
      loops().tiles.pack(how, std::min(kTileLines, lines - line), std::min(at_once, terms - term),
                         from + (how.lines_beside ? term * how.stride + line : line * how.stride + term),
                         to + line / kTileLines * words);
    }
  }
}

template <class C>
void pack_tiled_rows(const TiledProduct<C>& g, int64_t row, int64_t rows, int64_t first, int64_t terms, uint32_t* to) {
  pack_tiled_lines({.as_rows = true, .lines_beside = g.transpose_a, .stride = g.lda}, rows, terms,
                   g.a + (g.transpose_a ? first * g.lda + row : row * g.lda + first), to);
}
template <class C>
void pack_tiled_columns(const TiledProduct<C>& g, int64_t column, int64_t columns, int64_t first, int64_t terms,
                        uint32_t* to) {
  pack_tiled_lines({.as_rows = false, .lines_beside = !g.transpose_b, .stride = g.ldb}, columns, terms,
                   g.b + (g.transpose_b ? column * g.ldb + first : first * g.ldb + column), to);
}

// What is packed next, of both operands, while tiles are computed.
class AheadOfTiles {
 public:
  template <class C>
  void rows(const TiledProduct<C>& g, int64_t row, int64_t rows, int64_t first, int64_t terms) {
    add(0, g.a + (g.transpose_a ? first * g.lda + row : row * g.lda + first), g.transpose_a ? terms : rows, g.lda,
        g.transpose_a ? rows : terms);
  }
  template <class C>
  void columns(const TiledProduct<C>& g, int64_t column, int64_t columns, int64_t first, int64_t terms) {
    add(1, g.b + (g.transpose_b ? column * g.ldb + first : first * g.ldb + column), g.transpose_b ? columns : terms,
        g.ldb, g.transpose_b ? terms : columns);
  }
  // Over so many tiles.
  LinesAhead* spread(int64_t tiles) {
    spread_over_tiles(lines_, count_, tiles);
    return &lines_;
  }

 private:
  void add(int block, const Bf16* from, int64_t rows, int64_t stride, int64_t size) {
    constexpr int64_t kOfLine = kLineBytes / static_cast<int64_t>(sizeof(Bf16));
    const int64_t lines = parts_of(size, kOfLine);
    set_lines(lines_, block, from, rows, stride * static_cast<int64_t>(sizeof(Bf16)), lines);
    count_ += rows * lines;
  }

  LinesAhead lines_;
  int64_t count_ = 0;
};

// Packed operands of some rows and columns of c, with the same terms; those before have been summed.
template <class C>
struct TiledChunk {
  int64_t rows = 0, columns = 0, terms = 0;
  const uint32_t* a = nullptr;
  const uint32_t* b = nullptr;
  C* c = nullptr;
  int64_t ldc = 0;
  float* sums = nullptr;  // of rows of `columns` each; null: c has them
  bool adds = false;      // to what was summed before
  bool ends = true;       // these are the last terms
  LinesAhead* ahead = nullptr;

  int64_t tiles() const { return parts_of(rows, kTileLines) * parts_of(columns, kTileLines); }
};

// Where a row of blocks goes, and what it is added to.
template <class C>
void set_tiled_result(const TiledChunk<C>& chunk, int64_t row, bool adds, bool ends, TileRow& blocks) {
  C* const c = chunk.c + row * chunk.ldc;
  blocks.c_row = chunk.ldc;
  if constexpr (std::is_same_v<C, float>) {
    blocks.c = c;
    blocks.sums = adds ? c : nullptr;
    blocks.sums_row = chunk.ldc;
  } else {
    float* const sums = chunk.sums + row * chunk.columns;
    blocks.sums = adds ? sums : nullptr;
    blocks.sums_row = chunk.columns;
    if (ends) {
      blocks.rounded = c;
    } else {
      blocks.c = sums;
      blocks.c_row = chunk.columns;
    }
  }
}

template <class C>
void multiply_chunk(const TiledChunk<C>& chunk, int64_t terms_of_part) {
  const TileState state;
  const int64_t words = tile_steps(chunk.terms) * kWordsOfStep;
  for (int64_t first = 0; first < chunk.terms; first += terms_of_part) {
    const int64_t terms = std::min(terms_of_part, chunk.terms - first);
    const bool adds = chunk.adds || first > 0;
    const bool ends = chunk.ends && first + terms == chunk.terms;
    const int64_t part = first / kTileTerms * kWordsOfStep;
    for (int64_t row = 0; row < chunk.rows; row += kTileLines) {
      TileRow blocks{.rows = std::min(kTileLines, chunk.rows - row),
                     .columns = chunk.columns,
                     .steps = tile_steps(terms),
                     .a = chunk.a + row / kTileLines * words + part,
                     .b = chunk.b + part,
                     .b_block = words,
                     .ahead = chunk.ahead};
      set_tiled_result(chunk, row, adds, ends, blocks);
      loops().tiles.multiply(blocks);
    }
  }
}

// What is packed at once of a product. Either all terms of so many columns, which all rows pass; or, where that would
// be few columns, all terms pass sums that stay.
struct TilePortions {
  int64_t rows = 0, columns = 0, terms = 0;

  TilePortions(int64_t m, int64_t n, int64_t k) {
    constexpr int64_t kFewestColumns = 512;
    const int64_t all_terms = rounded_up(std::max<int64_t>(1, k), kTileTerms);
    const int64_t side_m = rounded_up(m, kTileLines), side_n = rounded_up(n, kTileLines);
    const int64_t fitting = kMostOfMatrix / all_terms;
    if (fitting >= std::min(side_n, kFewestColumns)) {
      terms = all_terms;
      columns = even_lines(n, std::min(side_n, fitting), kTileLines);
      rows = even_lines(m, std::max(kTileLines, std::min<int64_t>(128, kMostOfRows / all_terms)), kTileLines);
    } else {
      terms = terms_in_tiles(k);
      const int64_t beside = std::min(kLongestOfAll, kSumsThatStay / std::min(side_m, kLongestSide));
      columns = even_lines(n, std::min(side_n, beside), kTileLines);
      rows = even_lines(m, std::min({side_m, kLongestOfAll, kSumsThatStay / columns}), kTileLines);
    }
  }
  int64_t a_words() const { return packed_words(rows, terms); }
  int64_t b_words() const { return packed_words(columns, terms); }
  int64_t sums(int64_t k) const { return k > terms_in_tiles(k) ? rows * columns : 0; }
};

template <class C>
int64_t bf16_room(const TilePortions& p, int64_t k) {
  const int64_t sums = std::is_same_v<C, float> ? 0 : p.sums(k);
  return aligned(word_bytes(p.a_words() + p.b_words()) + sums * static_cast<int64_t>(sizeof(float)));
}

// On the calling thread.
template <class C>
void multiply_tiled_block(const TiledProduct<C>& g, const TilePortions& p, std::byte* room) {
  auto* const b = reinterpret_cast<uint32_t*>(room);
  auto* const a = b + p.b_words();
  auto* const sums = reinterpret_cast<float*>(a + p.a_words());
  const bool all_terms = p.terms >= g.k;
  for (int64_t j = 0; j < g.n; j += p.columns) {
    TiledChunk<C> chunk{.columns = std::min(p.columns, g.n - j), .a = a, .b = b, .ldc = g.ldc, .sums = sums};
    for (int64_t i = 0; i < g.m; i += p.rows) {
      chunk.rows = std::min(p.rows, g.m - i);
      chunk.c = g.c + i * g.ldc + j;
      for (int64_t first = 0; first < g.k; first += p.terms) {
        chunk.terms = std::min(p.terms, g.k - first);
        chunk.adds = first > 0 || g.onto;
        chunk.ends = first + chunk.terms == g.k;
        if (i == 0 || !all_terms) pack_tiled_columns(g, j, chunk.columns, first, chunk.terms, b);
        pack_tiled_rows(g, i, chunk.rows, first, chunk.terms, a);
        AheadOfTiles ahead;
        const int64_t next = first + chunk.terms;
        if (next < g.k) {
          ahead.rows(g, i, chunk.rows, next, std::min(p.terms, g.k - next));
          ahead.columns(g, j, chunk.columns, next, std::min(p.terms, g.k - next));
        } else if (i + chunk.rows < g.m) {
          const int64_t row = i + chunk.rows;
          ahead.rows(g, row, std::min(p.rows, g.m - row), 0, p.terms < g.k ? p.terms : g.k);
        }
        chunk.ahead = ahead.spread(chunk.tiles() * parts_of(chunk.terms, terms_in_tiles(g.k)));
        multiply_chunk(chunk, terms_in_tiles(g.k));
      }
    }
  }
}

// How a product is cut for so many threads: the blocks of each of its matrices.
struct ThreadBlocks {
  int64_t rows, columns;  // the last ones may be smaller
  int64_t down = 1, across = 1;

  ThreadBlocks(const Product& p, int threads) : rows(p.m), columns(p.n) {
    constexpr int64_t kTasksOfThread = 4, kLeastSide = 128;
    constexpr double kLeastFlops = 64e6;
    const auto half = [](int64_t side) { return rounded_up(parts_of(side, 2), kTileLines); };
    while (threads > 1 && p.batch * down * across < threads * kTasksOfThread && std::max(rows, columns) > kLeastSide &&
           2.0 * static_cast<double>(rows) * static_cast<double>(columns * p.k) >= 2 * kLeastFlops) {
      int64_t& side = rows >= columns ? rows : columns;
      side = half(side);
      down = parts_of(p.m, rows);
      across = parts_of(p.n, columns);
    }
  }
};

// The choice of the kernel may have been made by whole tensors of which these are pieces.
bool is_empty_product(const Product& p) {
  return p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0;
}
// No terms sum to zero.
template <class C>
void clear_result(const Product& p, C* c) {
  if (!p.onto) std::fill_n(c, p.batch * p.m * p.n, C{});
}

constexpr int64_t kColumnsOfTiledPart = 256;  // of a matrix that is packed whole
constexpr int64_t kColumnsOfSums = 512;       // of a block of rows, at once

template <class C>
TiledProduct<C> without_places(const Product& p) {
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .lda = p.lda(),
          .ldb = p.ldb(),
          .ldc = p.n,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b};
}

}  // namespace

std::string why_no_bf16_tiles(const Product& p) {
  // Rows are packed for all columns together, which oneDNN does only where they are transposed: few columns do not
  // repay that.
  constexpr int64_t kLeastSide = 32, kLeastColumns = 96;
  if (loops().tiles.multiply == nullptr) return fmt::format("{} has no products in tiles", to_string(isa()));
  if (std::min({p.m, p.n, p.k}) >= kLeastSide && (p.transpose_a || p.n >= kLeastColumns)) return "";
  return fmt::format("{} x {} x {} is too small for tiles", p.m, p.n, p.k);
}

template <class C>
int64_t bf16_tiles_scratch(const Product& p, int threads) {
  if (is_empty_product(p)) return 0;
  const ThreadBlocks blocks(p, threads);
  return kAlign + threads * bf16_room<C>(TilePortions(blocks.rows, blocks.columns, p.k), p.k);
}

template <class C>
void multiply_in_bf16_tiles(const Product& p, const Matrices<Bf16, C>& at, const KernelArgs& args) {
  if (is_empty_product(p)) return clear_result(p, at.c);
  const ThreadBlocks blocks(p, threads_of(args));
  std::byte* const rooms = align(args.scratch.data());
  const TilePortions portions(blocks.rows, blocks.columns, p.k);
  const int64_t bytes = bf16_room<C>(portions, p.k);
  run_tasks(args.pool, p.batch * blocks.down * blocks.across, [&](int64_t task, int thread) {
    const int64_t batch = task / blocks.across / blocks.down;
    const int64_t i = task / blocks.across % blocks.down * blocks.rows;
    const int64_t j = task % blocks.across * blocks.columns;
    const TiledProduct<C> block{.m = std::min(blocks.rows, p.m - i),
                                .n = std::min(blocks.columns, p.n - j),
                                .k = p.k,
                                .a = at.a + batch * p.steps.a + (p.transpose_a ? i : i * p.lda()),
                                .b = at.b + batch * p.steps.b + (p.transpose_b ? j * p.ldb() : j),
                                .c = at.c + batch * p.steps.c + i * p.n + j,
                                .lda = p.lda(),
                                .ldb = p.ldb(),
                                .ldc = p.n,
                                .transpose_a = p.transpose_a,
                                .transpose_b = p.transpose_b,
                                .onto = p.onto};
    multiply_tiled_block(block, portions, rooms + thread * bytes);
  });
}

bool tiled_matrix_stays(int64_t n, int64_t k) {
  return rounded_up(n, kTileLines) * rounded_up(k, kTileTerms) <= kMostOfMatrix;
}

int64_t tiled_matrix_bytes(int64_t n, int64_t k) {
  return word_bytes(packed_words(n, k));
}

int64_t tiled_matrix_parts(int64_t n) {
  return parts_of(n, kColumnsOfTiledPart);
}

void pack_tiled_matrix_part(const Product& p, const Bf16* b, int64_t part, std::byte* matrix) {
  TiledProduct<Bf16> g = without_places<Bf16>(p);
  g.b = b;
  const int64_t column = part * kColumnsOfTiledPart;
  pack_tiled_columns(g, column, std::min(kColumnsOfTiledPart, p.n - column), 0, p.k,
                     reinterpret_cast<uint32_t*>(matrix) + packed_words(column, p.k));
}

int64_t tiled_rows_bytes(int64_t rows, int64_t n, int64_t k) {
  const int64_t sums = k > terms_in_tiles(k) ? rows * std::min(n, kColumnsOfSums) : 0;
  return aligned(word_bytes(packed_words(rows, k)) + sums * static_cast<int64_t>(sizeof(float)));
}

void multiply_by_tiled_matrix(const Product& p, const Bf16* a, const std::byte* matrix, Bf16* c, std::byte* room,
                              bool more_rows) {
  TiledProduct<Bf16> g = without_places<Bf16>(p);
  g.a = a;
  auto* const rows = reinterpret_cast<uint32_t*>(room);
  pack_tiled_rows(g, 0, p.m, 0, p.k, rows);
  AheadOfTiles ahead;
  if (more_rows) ahead.rows(g, p.m, p.m, 0, p.k);
  TiledChunk<Bf16> chunk{.rows = p.m,
                         .columns = p.n,
                         .terms = p.k,
                         .a = rows,
                         .ldc = p.n,
                         .sums = reinterpret_cast<float*>(rows + packed_words(p.m, p.k))};
  const int64_t parts = parts_of(p.k, terms_in_tiles(p.k));
  chunk.ahead = ahead.spread(chunk.tiles() * parts);
  const int64_t at_once = parts > 1 ? kColumnsOfSums : p.n;
  for (int64_t column = 0; column < p.n; column += at_once) {
    chunk.columns = std::min(at_once, p.n - column);
    chunk.b = reinterpret_cast<const uint32_t*>(matrix) + packed_words(column, p.k);
    chunk.c = c + column;
    multiply_chunk(chunk, terms_in_tiles(p.k));
  }
}

template int64_t bf16_tiles_scratch<Bf16>(const Product&, int);
template int64_t bf16_tiles_scratch<float>(const Product&, int);
template void multiply_in_bf16_tiles(const Product&, const Matrices<Bf16>&, const KernelArgs&);
template void multiply_in_bf16_tiles(const Product&, const Matrices<Bf16, float>&, const KernelArgs&);

}  // namespace trireme::cpu
