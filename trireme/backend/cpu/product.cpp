#include "trireme/backend/cpu/product.h"

#include <algorithm>
#include <array>

#include "trireme/backend/cpu/onednn.h"
#include "trireme/backend/cpu/parallel.h"

namespace trireme::cpu {
namespace {

using dnnl::memory;

template <class C>
constexpr memory::data_type kTypeOf =
    std::is_same_v<C, float> ? memory::data_type::f32 : memory::data_type::bf16;

// The primitives of a product's blocks. Those of the last row and column of blocks may be smaller.
template <class C>
class Plan {
 public:
  explicit Plan(const Product& product)
      : product_(product), blocks_(blocks_of(product.m, product.n, product.k, product.batch)) {
    prepare_onednn();
    for (size_t last_m : {0, 1}) {
      for (size_t last_n : {0, 1}) {
        Block& block = made_[last_m][last_n];
        block = make_block(last_m == 1 ? product.m - (blocks_.count_m - 1) * blocks_.m : blocks_.m,
                           last_n == 1 ? product.n - (blocks_.count_n - 1) * blocks_.n : blocks_.n);
        pad_bytes_ = std::max(pad_bytes_, static_cast<int64_t>(block.pad.get_size()));
      }
    }
    pad_bytes_ = aligned(pad_bytes_);
  }

  int64_t scratch_bytes(int threads) const { return kAlign + threads * pad_bytes_; }
  int64_t tasks() const { return product_.batch * blocks_.count_m * blocks_.count_n; }

  void run(int64_t task, int thread, const Matrices<Bf16, C>& at, std::byte* scratch) const {
    const int64_t column = task % blocks_.count_n;
    const int64_t row = task / blocks_.count_n % blocks_.count_m;
    const int64_t p = task / blocks_.count_n / blocks_.count_m;
    const int64_t i = row * blocks_.m;
    const int64_t j = column * blocks_.n;
    const Block& block = made_[row + 1 == blocks_.count_m][column + 1 == blocks_.count_n];
    const Bf16* a = at.a + p * product_.steps.a + (product_.transpose_a ? i : i * product_.lda());
    const Bf16* b = at.b + p * product_.steps.b + (product_.transpose_b ? j * product_.ldb() : j);
    C* c = at.c + p * product_.steps.c + i * product_.n + j;
    std::byte* pad = align(scratch) + thread * pad_bytes_;
    prepare_onednn();
    dnnl::stream stream(onednn_engine());
    block.run.execute(stream,
                      {{DNNL_ARG_SRC, memory(block.a, onednn_engine(), const_cast<Bf16*>(a))},
                       {DNNL_ARG_WEIGHTS, memory(block.b, onednn_engine(), const_cast<Bf16*>(b))},
                       {DNNL_ARG_DST, memory(block.c, onednn_engine(), c)},
                       {DNNL_ARG_SCRATCHPAD, memory(block.pad, onednn_engine(), pad)}});
  }

 private:
  struct Block {
    dnnl::primitive run;
    memory::desc a, b, c, pad;
  };

  Block make_block(int64_t m, int64_t n) const {
    const auto desc = [](int64_t rows, int64_t columns, int64_t stride, bool transpose) {
      const memory::dims strides = transpose ? memory::dims{1, stride} : memory::dims{stride, 1};
      return memory::desc({rows, columns}, kTypeOf<Bf16>, strides);
    };
    Block block;
    block.a = desc(m, product_.k, product_.lda(), product_.transpose_a);
    block.b = desc(product_.k, n, product_.ldb(), product_.transpose_b);
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
  std::array<std::array<Block, 2>, 2> made_;
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

// Tiles of f32: of a, of b and of c.
constexpr int64_t kRows = 256, kColumns = 512, kTerms = 512;
constexpr int64_t kTileFloats = kRows * kTerms + kTerms * kColumns + kRows * kColumns;

// A part of a matrix with rows `stride` apart, as it is stored.
void widen_rows(const Bf16* from, int64_t rows, int64_t columns, int64_t stride, float* to) {
  for (int64_t row = 0; row < rows; ++row)
    loops().bf16.to_f32(columns, from + row * stride, to + row * columns);
}

// The tile of c at row i and column j.
template <class C>
void multiply_tile(const Product& p, const Matrices<Bf16, C>& at, int64_t i, int64_t j, float* room) {
  float* a = room;
  float* b = a + kRows * kTerms;
  float* c = b + kTerms * kColumns;
  const int64_t m = std::min(kRows, p.m - i);
  const int64_t n = std::min(kColumns, p.n - j);
  if constexpr (std::is_same_v<C, float>) {
    for (int64_t row = 0; p.onto && row < m; ++row) std::copy_n(at.c + (i + row) * p.n + j, n, c + row * n);
  }
  for (int64_t first = 0; first < p.k; first += kTerms) {
    const int64_t k = std::min(kTerms, p.k - first);
    if (p.transpose_a) {
      widen_rows(at.a + first * p.m + i, k, m, p.m, a);
    } else {
      widen_rows(at.a + i * p.k + first, m, k, p.k, a);
    }
    if (p.transpose_b) {
      widen_rows(at.b + j * p.k + first, n, k, p.k, b);
    } else {
      widen_rows(at.b + first * p.n + j, k, n, p.n, b);
    }
    gemm({.m = m,
          .n = n,
          .k = k,
          .a = a,
          .b = b,
          .c = c,
          .lda = p.transpose_a ? m : k,
          .ldb = p.transpose_b ? k : n,
          .ldc = n,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .beta = p.onto || first > 0 ? 1.0F : 0.0F});
  }
  for (int64_t row = 0; row < m; ++row)
    loops_on<C>().from_f32(n, c + row * n, at.c + (i + row) * p.n + j);
}

}  // namespace

template <class C>
int64_t onednn_scratch(const Product& product, int threads) {
  if (is_empty(product) || product.k == 0) return 0;
  return Plan<C>(product).scratch_bytes(threads);
}

template <class C>
void multiply_by_onednn(const Product& product, const Matrices<Bf16, C>& at,
                        const KernelArgs& args) {
  if (has_no_terms(product, at)) return;
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = std::make_shared<Plan<C>>(product);
  const auto& plan = *static_cast<const Plan<C>*>(state.get());
  run_tasks(args.pool, plan.tasks(),
            [&](int64_t task, int thread) { plan.run(task, thread, at, args.scratch.data()); });
}

int64_t widening_scratch(int threads) {
  return threads * kTileFloats * static_cast<int64_t>(sizeof(float));
}

template <class C>
void multiply_widened(const Product& product, const Matrices<Bf16, C>& at, const KernelArgs& args) {
  if (has_no_terms(product, at)) return;
  auto* rooms = reinterpret_cast<float*>(args.scratch.data());
  const int64_t down = (product.m + kRows - 1) / kRows;
  const int64_t across = (product.n + kColumns - 1) / kColumns;
  run_tasks(args.pool, product.batch * down * across, [&](int64_t task, int thread) {
    const int64_t batch = task / across / down;
    multiply_tile<C>(product,
                  {at.a + batch * product.steps.a, at.b + batch * product.steps.b,
                   at.c + batch * product.steps.c},
                  task / across % down * kRows, task % across * kColumns,
                  rooms + thread * kTileFloats);
  });
}

template int64_t onednn_scratch<Bf16>(const Product&, int);
template int64_t onednn_scratch<float>(const Product&, int);
template void multiply_by_onednn(const Product&, const Matrices<Bf16>&, const KernelArgs&);
template void multiply_by_onednn(const Product&, const Matrices<Bf16, float>&, const KernelArgs&);
template void multiply_widened(const Product&, const Matrices<Bf16>&, const KernelArgs&);
template void multiply_widened(const Product&, const Matrices<Bf16, float>&, const KernelArgs&);

}  // namespace trireme::cpu
