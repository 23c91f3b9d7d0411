#include "trireme/backend/cpu/products/product.h"

#include <algorithm>
#include <array>
#include <memory>

#include "trireme/backend/cpu/products/blocked_product.h"
#include "trireme/backend/cpu/products/gemm.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/tiled_product.h"
#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {
namespace {

using dnnl::memory;

template <class C>
constexpr memory::data_type kTypeOf = std::is_same_v<C, float> ? memory::data_type::f32 : memory::data_type::bf16;

// The blocks that a product is cut into, by its sizes alone. Rows are cut down to 1024, which costs next to nothing, as
// do terms where the result is small; otherwise blocks have 512 Mflop at least, since smaller ones run up to a quarter
// slower.
struct Blocks {
  int64_t m, n, k;  // sizes of a block; the last ones may be smaller
  int64_t count_m = 1, count_n = 1, count_k = 1;

  int64_t count() const { return count_m * count_n * count_k; }
};

Blocks blocks_of(const Product& p, bool cut_terms) {
  constexpr int64_t kMaxBlocks = 16, kMaxParts = 4;
  constexpr int64_t kMinSide = 128, kLongSide = 1024;
  constexpr int64_t kSmallResult = 1 << 19;
  constexpr double kLongBlockFlops = 128e6, kBlockFlops = 512e6;
  const auto half = [](int64_t side) { return ((side + 1) / 2 + 15) / 16 * 16; };
  const bool may_cut_k = cut_terms && p.batch == 1 && p.m * p.n <= kSmallResult;
  Blocks b{.m = p.m, .n = p.n, .k = p.k};
  while (p.batch * b.count() * 2 <= kMaxBlocks) {
    const double flops = 2.0 * static_cast<double>(b.m) * static_cast<double>(b.n) * static_cast<double>(b.k);
    if (flops >= 2 * kLongBlockFlops && may_cut_k && b.k >= 2 * kLongSide && b.count_k < kMaxParts) {
      b.k = half(b.k);
    } else if (flops >= 2 * kLongBlockFlops && b.m >= 2 * kLongSide) {
      b.m = half(b.m);
    } else if (flops >= 2 * kBlockFlops && std::max(b.m, b.n) >= 2 * kMinSide) {
      int64_t& side = b.m >= b.n ? b.m : b.n;
      side = half(side);
    } else {
      break;
    }
    b.count_m = (p.m + b.m - 1) / b.m;
    b.count_n = (p.n + b.n - 1) / b.n;
    b.count_k = (p.k + b.k - 1) / b.k;
  }
  return b;
}

// Of f32 matrices. In products that pack their operands no bit depends on the cuts of rows and columns: one thread
// packs less where it takes them whole.
Blocks f32_blocks(const Product& p, Way way, int threads) {
  Blocks blocks = blocks_of(p, true);
  if (way != Way::kSgemm && threads == 1) blocks = {.m = p.m, .n = p.n, .k = blocks.k, .count_k = blocks.count_k};
  return blocks;
}

// Blocks of the first terms are computed where the result lies, those of the others in `parts` of m n floats each,
// which add_parts adds to it in order.
int64_t parts_bytes(const Blocks& blocks, const Product& p) {
  return blocks.count_k == 1 ? 0
                             : kAlign + (blocks.count_k - 1) * aligned(p.m * p.n * static_cast<int64_t>(sizeof(float)));
}

float* part_at(int64_t part, const Product& p, std::byte* parts) {
  return reinterpret_cast<float*>(align(parts) + (part - 1) * aligned(p.m * p.n * static_cast<int64_t>(sizeof(float))));
}

void add_parts(const Blocks& blocks, const Product& p, std::byte* parts, float* c, ThreadPool* pool) {
  if (blocks.count_k == 1) return;
  run_tasks(pool, (p.m * p.n + kGrain - 1) / kGrain, [&](int64_t task, int) {
    const int64_t begin = task * kGrain;
    const int64_t n = std::min(kGrain, p.m * p.n - begin);
    for (int64_t part = 1; part < blocks.count_k; ++part)
      loops().f32.add_scaled(n, c + begin, part_at(part, p, parts) + begin, 1.0F, c + begin);
  });
}

// Of a thread, for multiply_in_blocks or multiply_in_tiles.
int64_t block_bytes(const Blocks& blocks) {
  return aligned(blocked_floats(blocks.m, blocks.n, blocks.k) * static_cast<int64_t>(sizeof(float)));
}

// The block of a task.
struct Place {
  int64_t batch, row, column, part;  // of blocks
  int64_t i, j, t;                   // its first row, column and term
};

Place place_of(const Blocks& blocks, int64_t task) {
  const int64_t part = task % blocks.count_k;
  const int64_t column = task / blocks.count_k % blocks.count_n;
  const int64_t row = task / blocks.count_k / blocks.count_n % blocks.count_m;
  return {task / blocks.count(), row, column, part, row * blocks.m, column * blocks.n, part * blocks.k};
}

// The operands of a block.
template <class T>
const T* left_of(const Product& p, const Place& at, const T* a) {
  return a + at.batch * p.steps.a + (p.transpose_a ? at.t * p.lda() + at.i : at.i * p.lda() + at.t);
}
template <class T>
const T* right_of(const Product& p, const Place& at, const T* b) {
  return b + at.batch * p.steps.b + (p.transpose_b ? at.j * p.ldb() + at.t : at.t * p.ldb() + at.j);
}

// The primitives of a product's blocks. Those of the last row and column of blocks may be smaller.
template <class C>
class Plan {
 public:
  explicit Plan(const Product& product)
      : product_(product), blocks_(blocks_of(product, std::is_same_v<C, float> && !product.onto)) {
    prepare_onednn();
    const auto last = [](int64_t whole, int64_t count, int64_t size) { return whole - (count - 1) * size; };
    for (size_t kind = 0; kind < made_.size(); ++kind) {
      // The only row, column or part is the last one.
      if ((!(kind & 4) && blocks_.count_m == 1) || (!(kind & 2) && blocks_.count_n == 1) ||
          (!(kind & 1) && blocks_.count_k == 1))
        continue;
      Block& block = made_[kind];
      block = make_block(kind & 4 ? last(product.m, blocks_.count_m, blocks_.m) : blocks_.m,
                         kind & 2 ? last(product.n, blocks_.count_n, blocks_.n) : blocks_.n,
                         kind & 1 ? last(product.k, blocks_.count_k, blocks_.k) : blocks_.k);
      pad_bytes_ = std::max(pad_bytes_, static_cast<int64_t>(block.pad.get_size()));
    }
    pad_bytes_ = aligned(pad_bytes_);
  }

  int64_t scratch_bytes(int threads) const { return kAlign + threads * pad_bytes_ + parts_bytes(blocks_, product_); }

  void run(const Matrices<Bf16, C>& at, const KernelArgs& args) const {
    std::byte* pads = align(args.scratch.data());
    std::byte* parts = pads + threads_of(args) * pad_bytes_;
    run_tasks(args.pool, product_.batch * blocks_.count(), [&](int64_t task, int thread) {
      run_block(place_of(blocks_, task), at, pads + thread * pad_bytes_, parts);
    });
    if constexpr (std::is_same_v<C, float>) add_parts(blocks_, product_, parts, at.c, args.pool);
  }

 private:
  struct Block {
    dnnl::primitive run;
    memory::desc a, b, c, pad;
  };

  void run_block(const Place& place, const Matrices<Bf16, C>& at, std::byte* pad, std::byte* parts) const {
    const Block& block =
        made_[(place.row + 1 == blocks_.count_m ? 4 : 0) + (place.column + 1 == blocks_.count_n ? 2 : 0) +
              (place.part + 1 == blocks_.count_k ? 1 : 0)];
    const Bf16* a = left_of(product_, place, at.a);
    const Bf16* b = right_of(product_, place, at.b);
    C* c = at.c + place.batch * product_.steps.c;
    if constexpr (std::is_same_v<C, float>) c = place.part == 0 ? c : part_at(place.part, product_, parts);
    c += place.i * product_.n + place.j;
    prepare_onednn();
    dnnl::stream stream(onednn_engine());
    block.run.execute(stream, {{DNNL_ARG_SRC, memory(block.a, onednn_engine(), const_cast<Bf16*>(a))},
                               {DNNL_ARG_WEIGHTS, memory(block.b, onednn_engine(), const_cast<Bf16*>(b))},
                               {DNNL_ARG_DST, memory(block.c, onednn_engine(), c)},
                               {DNNL_ARG_SCRATCHPAD, memory(block.pad, onednn_engine(), pad)}});
  }

  Block make_block(int64_t m, int64_t n, int64_t k) const {
    const auto desc = [](int64_t rows, int64_t columns, int64_t stride, bool transpose) {
      const memory::dims strides = transpose ? memory::dims{1, stride} : memory::dims{stride, 1};
      return memory::desc({rows, columns}, kTypeOf<Bf16>, strides);
    };
    Block block;
    block.a = desc(m, k, product_.lda(), product_.transpose_a);
    block.b = desc(k, n, product_.ldb(), product_.transpose_b);
    block.c = memory::desc({m, n}, kTypeOf<C>, memory::dims{product_.n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (product_.onto) {
      dnnl::post_ops add;
      add.append_sum(1.0F);
      attr.set_post_ops(add);
    }
    const dnnl::matmul::primitive_desc made({block.a, block.b, block.c}, attr, onednn_engine());
    block.run = dnnl::matmul(made);
    block.pad = made.scratchpad_desc();
    return block;
  }

  Product product_;
  Blocks blocks_;
  std::array<Block, 8> made_;  // by whether it is in the last row (4), column (2) and part (1); those that there are
  int64_t pad_bytes_ = 0;
};

bool is_empty(const Product& product) {
  return product.batch == 0 || product.m == 0 || product.n == 0;
}

// No terms: they sum to zero.
template <class C>
bool has_no_terms(const Product& product, const Matrices<Bf16, C>& at) {
  if (product.k > 0 || is_empty(product)) return is_empty(product);
  if (!product.onto) std::fill_n(at.c, product.batch * product.m * product.n, C{});
  return true;
}

// A block of a result of bf16, which is summed in f32.
constexpr int64_t kRoundedRows = 512, kRoundedColumns = 512;

int64_t rounded_block_bytes(const Product& p) {
  const int64_t m = std::min(kRoundedRows, p.m);
  const int64_t n = std::min(kRoundedColumns, p.n);
  return aligned((blocked_floats(m, n, p.k) + m * n) * static_cast<int64_t>(sizeof(float)));
}

// The block of c at row i and column j, of one product.
void multiply_and_round(const Product& p, const Matrices<Bf16>& at, int64_t i, int64_t j, float* room) {
  const int64_t m = std::min(kRoundedRows, p.m - i);
  const int64_t n = std::min(kRoundedColumns, p.n - j);
  float* const c = room + blocked_floats(std::min(kRoundedRows, p.m), std::min(kRoundedColumns, p.n), p.k);
  multiply_in_blocks(GemmOf<Bf16>{.m = m,
                                  .n = n,
                                  .k = p.k,
                                  .a = at.a + (p.transpose_a ? i : i * p.lda()),
                                  .b = at.b + (p.transpose_b ? j * p.ldb() : j),
                                  .c = c,
                                  .lda = p.lda(),
                                  .ldb = p.ldb(),
                                  .ldc = n,
                                  .transpose_a = p.transpose_a,
                                  .transpose_b = p.transpose_b},
                     room);
  for (int64_t row = 0; row < m; ++row) loops().bf16.from_f32(n, c + row * n, at.c + (i + row) * p.n + j);
}

// A product with a result of f32, block by block. Matrices of bf16 are multiplied by Way::kBlocks alone.
template <class T>
void multiply_to_f32(const Product& p, Way way, const Matrices<T, float>& at, std::byte* scratch, ThreadPool* pool) {
  const Blocks blocks = f32_blocks(p, way, pool == nullptr ? 1 : pool->size());
  std::byte* const rooms = way == Way::kSgemm ? nullptr : align(scratch + aligned(parts_bytes(blocks, p)));
  // Many small products make one task.
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
  const int64_t group =
      blocks.count() > 1 ? 1 : std::clamp<int64_t>(static_cast<int64_t>(1e6 / (flops + 1)), 1, p.batch);
  const int64_t items = p.batch * blocks.count();
  run_tasks(pool, (items + group - 1) / group, [&](int64_t task, int thread) {
    for (int64_t item = task * group; item < std::min(items, (task + 1) * group); ++item) {
      const Place place = place_of(blocks, item);
      float* c = place.part == 0 ? at.c + place.batch * p.steps.c : part_at(place.part, p, scratch);
      const GemmOf<T> block{.m = std::min(blocks.m, p.m - place.i),
                            .n = std::min(blocks.n, p.n - place.j),
                            .k = std::min(blocks.k, p.k - place.t),
                            .a = left_of(p, place, at.a),
                            .b = right_of(p, place, at.b),
                            .c = c + place.i * p.n + place.j,
                            .lda = p.lda(),
                            .ldb = p.ldb(),
                            .ldc = p.n,
                            .transpose_a = p.transpose_a,
                            .transpose_b = p.transpose_b,
                            .beta = p.onto && place.part == 0 ? 1.0F : 0.0F};
      std::byte* const room = way == Way::kSgemm ? nullptr : rooms + thread * block_bytes(blocks);
      if constexpr (std::is_same_v<T, float>) {
        if (way == Way::kSgemm) {
          gemm(block);
          continue;
        }
        if (way == Way::kTiles) {
          multiply_in_tiles(block, room, block_bytes(blocks));
          continue;
        }
      }
      multiply_in_blocks(block, reinterpret_cast<float*>(room));
    }
  });
  add_parts(blocks, p, scratch, at.c, pool);
}

}  // namespace

Gemm largest_block(const Product& p, Way way) {
  const Blocks blocks = f32_blocks(p, way, 1);
  return {.m = std::min(blocks.m, p.m),
          .n = std::min(blocks.n, p.n),
          .k = std::min(blocks.k, p.k),
          .lda = p.lda(),
          .ldb = p.ldb(),
          .ldc = p.n,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .beta = p.onto ? 1.0F : 0.0F};
}

std::string why_no_tiles(const Product& p) {
  if (loops().tiles.multiply_f32 == nullptr) return fmt::format("{} has no products in tiles", to_string(isa()));
  const Blocks blocks = f32_blocks(p, Way::kTiles, 1);
  if (tiles_fit(std::min(blocks.m, p.m), std::min(blocks.n, p.n), std::min(blocks.k, p.k), block_bytes(blocks)))
    return "";
  return fmt::format("{} x {} x {} is too small for tiles", p.m, p.n, p.k);
}

bool cuts_terms(const Product& product) {
  return blocks_of(product, true).count_k > 1;
}

int64_t f32_scratch(const Product& product, Way way, int threads) {
  const Blocks blocks = f32_blocks(product, way, threads);
  const int64_t parts = parts_bytes(blocks, product);
  return way == Way::kSgemm ? parts : kAlign + aligned(parts) + threads * block_bytes(blocks);
}

void multiply_f32(const Product& p, Way way, const Matrices<float>& at, std::byte* scratch, ThreadPool* pool) {
  if (!is_empty(p)) multiply_to_f32(p, way, at, scratch, pool);
}

template <class C>
int64_t onednn_scratch(const Product& product, int threads) {
  if (is_empty(product) || product.k == 0) return 0;
  return Plan<C>(product).scratch_bytes(threads);
}

template <class C>
void multiply_by_onednn(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args) {
  if (has_no_terms(product, at)) return;
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = std::make_shared<Plan<C>>(product);
  static_cast<const Plan<C>*>(state.get())->run(at, args);
}

template <class C>
int64_t widening_scratch(const Product& product, int threads) {
  if (std::is_same_v<C, float>) return f32_scratch(product, Way::kBlocks, threads);
  return kAlign + threads * rounded_block_bytes(product);
}

template <class C>
void multiply_widened(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args) {
  if (has_no_terms(product, at)) return;
  if constexpr (std::is_same_v<C, float>) {
    multiply_to_f32(product, Way::kBlocks, at, args.scratch.data(), args.pool);
  } else {
    std::byte* const rooms = align(args.scratch.data());
    const int64_t down = (product.m + kRoundedRows - 1) / kRoundedRows;
    const int64_t across = (product.n + kRoundedColumns - 1) / kRoundedColumns;
    run_tasks(args.pool, product.batch * down * across, [&](int64_t task, int thread) {
      const int64_t batch = task / across / down;
      multiply_and_round(
          product, {at.a + batch * product.steps.a, at.b + batch * product.steps.b, at.c + batch * product.steps.c},
          task / across % down * kRoundedRows, task % across * kRoundedColumns,
          reinterpret_cast<float*>(rooms + thread * rounded_block_bytes(product)));
    });
  }
}

template int64_t widening_scratch<Bf16>(const Product&, int);
template int64_t widening_scratch<float>(const Product&, int);
template int64_t onednn_scratch<Bf16>(const Product&, int);
template int64_t onednn_scratch<float>(const Product&, int);
template void multiply_by_onednn(const Product&, const Matrices<Bf16>&, const KernelArgs&);
template void multiply_by_onednn(const Product&, const Matrices<Bf16, float>&, const KernelArgs&);
template void multiply_widened(const Product&, const Matrices<Bf16>&, const KernelArgs&);
template void multiply_widened(const Product&, const Matrices<Bf16, float>&, const KernelArgs&);

}  // namespace trireme::cpu
