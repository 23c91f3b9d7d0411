// fused_rows: each step's own kernel on rows that fit the second-level cache, block after block. So every element goes
// through the same operations as in a kernel of its own, and has the same bits. A product takes its turn before the
// steps that follow it: with the kernel that it has alone, for all rows, or by panels or tiles, for those of a block,
// with the bits that products in blocks or in tiles have.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/panel_product.h"
#include "trireme/backend/cpu/products/product_rivals.h"
#include "trireme/backend/cpu/products/tiled_bf16_product.h"
#include "trireme/backend/cpu/products/tiled_product.h"
#include "trireme/backend/cpu/rows/row_work.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

// The work with what a thread has of its own, made once.
struct BoundRows {
  struct Step {
    std::vector<View> in, out;
    std::shared_ptr<void> of_product;  // what its kernel keeps
  };
  RowWork work;
  std::vector<std::vector<Step>> of_threads;

  BoundRows(const KernelArgs& args, RowProducts how) {
    std::vector<TensorType> in;
    for (const View& view : args.in) in.push_back(view.type);
    work = row_work(in, args.attrs, how, threads_of(args));
    std::vector<Step> steps;
    for (const RowStep& step : work.steps.steps)
      steps.push_back({std::vector<View>(step.in.size()), std::vector<View>(step.out.size()), {}});
    of_threads.assign(static_cast<size_t>(threads_of(args)), steps);
  }
};

// What threads share of the scratch.
std::byte* shared_scratch(const KernelArgs& args, const RowWork& work) {
  return align(args.scratch.data() + threads_of(args) * work.thread_bytes());
}

std::byte* matrix_of(const KernelArgs& args, const RowWork& work, const RowWork::PanelProduct& product) {
  return shared_scratch(args, work) + product.offset;
}

// The product of some rows of a block, without their places.
Gemm rows_of_product(const RowWork& work, const RowWork::PanelProduct& product, int64_t count) {
  const Product& p = product.of_block;
  return {.m = p.m / work.block * count,
          .n = p.n,
          .k = p.k,
          .lda = p.lda(),
          .ldb = p.ldb(),
          .ldc = p.n,
          .transpose_b = p.transpose_b};
}

void pack_matrix(const KernelArgs& args, const RowWork& work, const RowWork::PanelProduct& product) {
  const View& b = args.in[static_cast<size_t>(work.steps.steps[product.step].in[1])];
  if (b.type.dtype == DType::kBF16) {
    std::byte* const matrix = matrix_of(args, work, product);
    const Bf16* const from = data_of<Bf16>(b);
    return run_tasks(args.pool, tiled_matrix_parts(product.of_block.n),
                     [&](int64_t part, int) { pack_tiled_matrix_part(product.of_block, from, part, matrix); });
  }
  Gemm g = rows_of_product(work, product, work.block);
  g.b = data_of<float>(b);
  std::byte* const matrix = matrix_of(args, work, product);
  const bool tiles = work.how == RowProducts::kTiles;
  run_tasks(args.pool, (tiles ? tiled_panel_parts : panel_parts)(g.n, g.k), [&](int64_t part, int) {
    if (tiles) return pack_tiled_panel_part(g, part, matrix);
    pack_panel_part(g, part, reinterpret_cast<float*>(matrix));
  });
}

// One block, and one thread that works on it.
class FusedBlock {
 public:
  FusedBlock(const KernelArgs& args, const RowWork& work, int64_t block, int thread)
      : args_(args),
        work_(work),
        first_(block * work.block),
        count_(std::min(work.rows - first_, work.block)),
        scratch_(args.scratch.data() + thread * work.thread_bytes()) {}

  // All steps, by this thread.
  void run(std::vector<BoundRows::Step>& at) const {
    for (const RowWork::Run& run : work_.runs) {
      if (run.is_product) {
        multiply(run.first, at[run.first]);
        continue;
      }
      for (int64_t row = 0; row < count_; row += work_.part) run_part(run, row, at);
    }
  }

  // A part's rows from the block's `row` on.
  void run_part(const RowWork::Run& run, int64_t row, std::vector<BoundRows::Step>& at) const {
    const int64_t rows = std::min(work_.part, count_ - row);
    for (size_t s = run.first; s < run.end; ++s) {
      look(s, row, rows, at[s]);
      std::shared_ptr<void> state;
      work_.kernels[s]->run({.in = at[s].in,
                             .out = at[s].out,
                             .in_place = {},
                             .out_place = {},
                             .attrs = work_.steps.steps[s].attrs,
                             .scratch = {scratch_ + work_.part_bytes, static_cast<size_t>(work_.step_bytes)},
                             .state = &state});
    }
  }

  // A product of all rows, by the threads of the pool.
  void run_product(size_t s, BoundRows::Step& at) const {
    look(s, 0, count_, at);
    work_.kernels[s]->run({.in = at.in,
                           .out = at.out,
                           .in_place = {},
                           .out_place = {},
                           .attrs = work_.steps.steps[s].attrs,
                           .scratch = {shared_scratch(args_, work_), static_cast<size_t>(work_.shared_bytes)},
                           .pool = args_.pool,
                           .state = &at.of_product});
  }

 private:
  void multiply(size_t s, BoundRows::Step& at) const {
    look(s, 0, count_, at);
    const auto product = std::ranges::find(work_.panels, s, &RowWork::PanelProduct::step);
    std::byte* const room = align(scratch_ + work_.part_bytes);
    const bool more_rows = first_ + count_ < work_.rows;
    Gemm g = rows_of_product(work_, *product, count_);
    const std::byte* const matrix = matrix_of(args_, work_, *product);
    if (work_.how == RowProducts::kBf16Tiles) {
      Product p = product->of_block;
      p.m = g.m;
      return multiply_by_tiled_matrix(p, data_of<Bf16>(at.in[0]), matrix, data_of<Bf16>(at.out[0]), room, more_rows);
    }
    g.a = data_of<float>(at.in[0]);
    g.c = data_of<float>(at.out[0]);
    if (work_.how == RowProducts::kTiles) return multiply_by_tiled_panels(g, matrix, room);
    multiply_by_panels(g, reinterpret_cast<const float*>(matrix), reinterpret_cast<float*>(room), more_rows);
  }

  void look(size_t s, int64_t row, int64_t rows, BoundRows::Step& at) const {
    const RowStep& step = work_.steps.steps[s];
    for (size_t i = 0; i < at.in.size(); ++i) at.in[i] = view(static_cast<size_t>(step.in[i]), row, rows);
    for (size_t i = 0; i < at.out.size(); ++i) at.out[i] = view(static_cast<size_t>(step.out[i]), row, rows);
  }

  View view(size_t id, int64_t row, int64_t rows) const { return {data(id, row), work_.piece(id, rows)}; }
  std::byte* data(size_t id, int64_t row) const {
    if (work_.place[id] >= 0 && work_.keeps_block[id] == 0) return scratch_ + work_.place[id];
    if (work_.place[id] >= 0) return of_block() + work_.place[id] + row * work_.row_bytes(id);
    const int64_t offset = work_.values[id].by_row ? (first_ + row) * work_.row_bytes(id) : 0;
    if (id < args_.in.size()) return args_.in[id].data + offset;
    const auto& results = work_.steps.results;
    const auto result = std::find(results.begin(), results.end(), static_cast<int>(id)) - results.begin();
    return args_.out[static_cast<size_t>(result)].data + offset;
  }
  std::byte* of_block() const {
    return work_.apart ? shared_scratch(args_, work_) + work_.shared_bytes
                       : scratch_ + work_.part_bytes + work_.step_bytes;
  }

  const KernelArgs& args_;
  const RowWork& work_;
  int64_t first_;
  int64_t count_;
  std::byte* scratch_;
};

// Run after run, each by all threads.
void run_apart(const KernelArgs& args, BoundRows& bound) {
  const RowWork& work = bound.work;
  for (const RowWork::Run& run : work.runs) {
    if (run.is_product) {
      FusedBlock(args, work, 0, 0).run_product(run.first, bound.of_threads[0][run.first]);
      continue;
    }
    run_tasks(args.pool, (work.rows + work.part - 1) / work.part, [&](int64_t part, int thread) {
      FusedBlock(args, work, 0, thread).run_part(run, part * work.part, bound.of_threads[static_cast<size_t>(thread)]);
    });
  }
}

template <RowProducts how>
void run_fused_rows(const KernelArgs& args) {
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = std::make_shared<BoundRows>(args, how);
  BoundRows& bound = *static_cast<BoundRows*>(state.get());
  const RowWork& work = bound.work;
  if (work.rows == 0) return;
  if (work.apart) return run_apart(args, bound);
  for (const RowWork::PanelProduct& product : work.panels) pack_matrix(args, work, product);
  run_tasks(args.pool, (work.rows + work.block - 1) / work.block, [&](int64_t block, int thread) {
    FusedBlock(args, work, block, thread).run(bound.of_threads[static_cast<size_t>(thread)]);
  });
}

template <RowProducts how>
int64_t fused_rows_scratch(const TypeArgs& args, int threads) {
  const auto bytes = [&](RowProducts products) {
    return row_work(args.in, args.attrs, products, threads).scratch_bytes(threads);
  };
  // As much by panels as in tiles, which not every CPU has: a plan takes as many bytes on all of them.
  if (how == RowProducts::kPanels || how == RowProducts::kTiles)
    return std::max(bytes(RowProducts::kPanels), bytes(RowProducts::kTiles));
  return bytes(how);
}

// None where the types are not those of the call: the choice may be made by whole tensors, and attributes of steps are
// of pieces.
std::vector<std::optional<Product>> products_of(const TypeArgs& args, DType dtype = DType::kF32) {
  const RowSteps steps = parse_row_steps(args.attrs.as<FusedRowsAttrs>());
  try {
    return products_of_type(dtype, steps, row_values(steps, args.in));
  } catch (const Error&) {
    return {};
  }
}

std::string no_product(const TypeArgs& args) {
  return products_of(args).empty() ? "no step is a product" : "";
}

std::string not_by_panels(const TypeArgs& args) {
  const std::vector<std::optional<Product>> products = products_of(args);
  if (products.empty()) return "no step is a product";
  const bool all = std::ranges::all_of(products, [](const auto& product) { return product.has_value(); });
  return all ? "" : "a product among the steps is not of f32 matrices, the first as it lies";
}

std::string not_by_tiled_panels(const TypeArgs& args) {
  std::string reason = not_by_panels(args);
  for (const std::optional<Product>& product : products_of(args)) {
    if (reason.empty()) reason = why_no_tiles(*product);
  }
  return reason;
}

// By tiles, where the product alone is, and where its matrix stays in the cache beside the blocks of rows.
std::string not_by_bf16_tiles(const TypeArgs& args) {
  const std::vector<std::optional<Product>> products = products_of(args, DType::kBF16);
  if (products.empty()) return "no step is a product";
  for (const std::optional<Product>& product : products) {
    if (!product) return "a product among the steps is not of bf16 matrices, the first as it lies";
    std::string reason = why_no_bf16_tiles(*product);
    if (!reason.empty()) return reason;
    if (!tiled_matrix_stays(product->n, product->k))
      return fmt::format("a matrix of {} x {} does not stay in the cache", product->k, product->n);
  }
  return "";
}

// As of the product alone, so that its bits do not depend on what stands beside it.
std::string key_of_rows(const TypeArgs& args) {
  const std::vector<std::optional<Product>> products = products_of(args);
  return products.size() == 1 && products[0] ? measured_key(*products[0]) : "";
}

// In blocks the product's result does not go through memory, so that they are taken unless they are slower.
std::string_view quickest_for_rows(const TypeArgs& args, std::span<const Cores> others) {
  return quickest_way(products_of(args).at(0).value(), others, Way::kBlocks);
}

constexpr Rivals kRowRivals{.key = key_of_rows, .quickest = quickest_for_rows};

template <RowProducts how>
constexpr Kernel kernel_on_rows(std::string_view name, std::string (*why_not)(const TypeArgs&)) {
  constexpr bool keeps_bits = how == RowProducts::kInvariant;
  constexpr bool has_rivals = !keeps_bits && how != RowProducts::kBf16Tiles;
  return {
      .op = "fused_rows",
      .name = name,
      .why_not = why_not,
      .scratch = fused_rows_scratch<how>,
      .run = run_fused_rows<how>,
      .bits = keeps_bits ? Bits::kElement : Bits::kShape,
      .rivals = has_rivals ? &kRowRivals : nullptr,
  };
}

}  // namespace

std::span<const Kernel> fused_rows_kernels() {
  static constexpr Kernel kAll[] = {
      kernel_on_rows<RowProducts::kBf16Tiles>("fused_rows.product.bf16_tiles", not_by_bf16_tiles),
      kernel_on_rows<RowProducts::kUsual>("fused_rows.product.sgemm", no_product),
      kernel_on_rows<RowProducts::kPanels>("fused_rows.product.blocks", not_by_panels),
      kernel_on_rows<RowProducts::kTiles>("fused_rows.product.tiles", not_by_tiled_panels),
      kernel_on_rows<RowProducts::kInvariant>("fused_rows.blocks", nullptr),
  };
  return kAll;
}

}  // namespace trireme::cpu
