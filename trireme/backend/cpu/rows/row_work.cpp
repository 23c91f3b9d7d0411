#include "trireme/backend/cpu/rows/row_work.h"

#include <algorithm>
#include <tuple>

#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/op_products.h"
#include "trireme/backend/cpu/products/panel_product.h"
#include "trireme/backend/cpu/products/tiled_bf16_product.h"
#include "trireme/backend/cpu/products/tiled_product.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/base/error.h"

namespace trireme::cpu {
namespace {

// Of a block of a product by panels: its result stays in the second-level cache. Whole tiles on every instruction set.
constexpr int64_t kBlockFloats = 128 << 10;
constexpr int64_t kTilesRows = 42, kMostTilesRows = 210;
// The same of a product in tiles.
constexpr int64_t kAmxRows = 32, kMostAmxRows = 224, kMostAmxRowsOfBf16 = 256;

int64_t float_bytes(int64_t floats) {
  return aligned(floats * static_cast<int64_t>(sizeof(float)));
}

std::vector<TensorType> pieces(const RowWork& work, const std::vector<int>& ids, int64_t count) {
  std::vector<TensorType> out;
  for (const int id : ids) out.push_back(work.piece(static_cast<size_t>(id), count));
  return out;
}

void cut_into_runs(RowWork& work) {
  for (size_t s = 0; s < work.steps.steps.size(); ++s) {
    const bool product = is_product(work.steps.steps[s], work.values);
    if (work.runs.empty() || product || work.runs.back().is_product) work.runs.push_back({s, s, product});
    work.runs.back().end = s + 1;
  }
}

void cut_rows(RowWork& work, RowProducts how) {
  int64_t width = 1;
  for (size_t id = 0; id < work.values.size(); ++id) {
    if (work.values[id].by_row) width = std::max(width, work.row_elements(id));
  }
  work.part = work.block = rows_per_task(width);
  if (std::ranges::none_of(work.runs, &RowWork::Run::is_product)) return;
  work.apart = how == RowProducts::kInvariant || how == RowProducts::kUsual;
  if (how == RowProducts::kPanels || how == RowProducts::kTiles) {
    const std::vector<std::optional<Product>> products = products_of_type(DType::kF32, work.steps, work.values);
    work.apart = std::ranges::any_of(products, [](const auto& product) { return cuts_terms(product.value()); });
  }
  const int64_t step = how == RowProducts::kPanels ? kTilesRows : kAmxRows;
  const int64_t longest = how == RowProducts::kPanels  ? kMostTilesRows
                          : how == RowProducts::kTiles ? kMostAmxRows
                                                       : kMostAmxRowsOfBf16;
  const int64_t most = std::clamp(kBlockFloats / width / step * step, step, longest);
  work.block = std::max<int64_t>(1, work.apart ? work.rows : std::min(work.rows, most));
  work.part = std::min(work.part, work.block);
}

void add_panels(RowWork& work, size_t step, const TypeArgs& types) {
  const Product product = product_of(*work.steps.steps[step].op, types).value();
  work.panels.push_back({step, product, work.shared_bytes});
  const auto& [m, n, k] = std::tuple{product.m, product.n, product.k};
  if (work.how == RowProducts::kBf16Tiles) {
    work.shared_bytes += aligned(tiled_matrix_bytes(n, k));
    work.step_bytes = std::max(work.step_bytes, kAlign + tiled_rows_bytes(m, n, k));
  } else if (work.how == RowProducts::kTiles) {
    work.shared_bytes += aligned(tiled_panels_bytes(n, k));
    work.step_bytes = std::max(work.step_bytes, kAlign + aligned(tiled_panel_rows_bytes(m, k)));
  } else {
    work.shared_bytes += float_bytes(panels_floats(n, k));
    work.step_bytes = std::max(work.step_bytes, kAlign + float_bytes(panel_rows_floats(m, k)));
  }
  work.kernels.push_back(nullptr);
}

// Of a product for all rows.
const Kernel& product_kernel(const RowStep& step, const TypeArgs& types, RowProducts how) {
  if (how == RowProducts::kUsual || how == RowProducts::kInvariant)
    return choose_kernel(*step.op, types, how == RowProducts::kUsual ? Numerics::kFast : Numerics::kInvariant);
  const std::string_view end = how == RowProducts::kPanels ? ".blocks" : ".tiles";
  const std::vector<const Kernel*> all = kernels_of(*step.op);
  const auto found = std::ranges::find_if(all, [&](const Kernel* each) { return each->name.ends_with(end); });
  invariant(found != all.end(), "'{}' has no kernel that ends with '{}'", step.op->name, end);
  return **found;
}

void choose_kernels(RowWork& work, RowProducts how, int threads) {
  for (const RowWork::Run& run : work.runs) {
    for (size_t s = run.first; s < run.end; ++s) {
      const RowStep& step = work.steps.steps[s];
      const int64_t count = run.is_product ? work.block : work.part;
      const std::vector<TensorType> from = pieces(work, step.in, count);
      const std::vector<TensorType> to = pieces(work, step.out, count);
      const TypeArgs types{from, to, step.attrs};
      if (run.is_product && !work.apart) {
        add_panels(work, s, types);
        continue;
      }
      const Kernel& kernel =
          run.is_product ? product_kernel(step, types, how) : choose_kernel(*step.op, types, Numerics::kInvariant);
      int64_t& bytes = run.is_product ? work.shared_bytes : work.step_bytes;
      bytes = std::max(bytes, kernel.scratch_bytes(types, run.is_product ? threads : 1));
      work.kernels.push_back(&kernel);
    }
  }
  work.step_bytes = aligned(work.step_bytes);
  work.shared_bytes = aligned(work.shared_bytes);
}

size_t run_of(const RowWork& work, size_t step) {
  size_t run = 0;
  while (step >= work.runs[run].end) ++run;
  return run;
}

// Values between steps share slots: one is free after the last step that reads its value, where a value keeps all rows
// of a block, after the last one of that step's run.
class Slots {
 public:
  explicit Slots(RowWork& work) : work_(work), last_(work.values.size(), 0) {
    for (size_t s = 0; s < work.steps.steps.size(); ++s) {
      for (const int id : work.steps.steps[s].in) last_[static_cast<size_t>(id)] = s;
      for (const int id : work.steps.steps[s].out) last_[static_cast<size_t>(id)] = s;
    }
  }

  void give() {
    work_.place.assign(work_.values.size(), -1);
    work_.keeps_block.assign(work_.values.size(), 0);
    work_.part_bytes = give(false, work_.part);
    work_.block_bytes = give(true, work_.block);
  }

 private:
  // To values of which so many rows are kept: the bytes of all slots.
  int64_t give(bool keeps, int64_t rows) {
    const std::vector<int>& results = work_.steps.results;
    std::vector<int64_t> slot_of(work_.values.size(), -1);
    std::vector<size_t> free_after;
    int64_t slot_bytes = 0;
    for (size_t s = 0; s < work_.steps.steps.size(); ++s) {
      for (const int id : work_.steps.steps[s].out) {
        const auto value = static_cast<size_t>(id);
        if (std::ranges::count(results, id) > 0 || leaves_its_run(value, s) != keeps) continue;
        slot_of[value] = take(free_after, value, s, keeps);
        slot_bytes = std::max(slot_bytes, aligned(rows * work_.row_bytes(value)));
      }
    }
    for (size_t value = 0; value < slot_of.size(); ++value) {
      if (slot_of[value] < 0) continue;
      work_.place[value] = slot_of[value] * slot_bytes;
      work_.keeps_block[value] = keeps ? 1 : 0;
    }
    return static_cast<int64_t>(free_after.size()) * slot_bytes;
  }

  bool leaves_its_run(size_t value, size_t made) const {
    const size_t run = run_of(work_, made);
    return work_.runs[run].is_product || last_[value] >= work_.runs[run].end;
  }

  int64_t take(std::vector<size_t>& free_after, size_t value, size_t made, bool keeps) const {
    const size_t after = keeps ? work_.runs[run_of(work_, last_[value])].end - 1 : last_[value];
    const auto found = std::ranges::find_if(free_after, [&](size_t at) { return at < made; });
    const auto slot = found - free_after.begin();
    if (found == free_after.end())
      free_after.push_back(after);
    else
      *found = after;
    return slot;
  }

  RowWork& work_;
  std::vector<size_t> last_;  // steps that read values
};

}  // namespace

int64_t RowWork::scratch_bytes(int threads) const {
  const int64_t shared = shared_bytes + (apart ? block_bytes : 0);
  return threads * thread_bytes() + (shared > 0 ? kAlign + shared : 0);
}

TensorType RowWork::piece(size_t id, int64_t count) const {
  TensorType type = values[id].type;
  if (!values[id].by_row || count == rows) return type;
  for (int dim = 0; dim < steps.row_dims; ++dim) type.shape[dim] = dim + 1 < steps.row_dims ? 1 : count;
  return type;
}

RowWork row_work(std::span<const TensorType> in, const Attrs& attrs, RowProducts how, int threads) {
  RowWork work{.how = how, .steps = parse_row_steps(attrs.as<FusedRowsAttrs>())};
  work.values = row_values(work.steps, in);
  const auto first = static_cast<size_t>(work.steps.results[0]);
  work.rows = count_rows(work.values[first].type.shape, work.steps.row_dims);
  cut_into_runs(work);
  cut_rows(work, how);
  choose_kernels(work, how, threads);
  Slots(work).give();
  return work;
}

std::vector<std::optional<Product>> products_of_type(DType dtype, const RowSteps& steps,
                                                     std::span<const RowValue> values) {
  std::vector<std::optional<Product>> products;
  for (const RowStep& step : steps.steps) {
    if (!is_product(step, values)) continue;
    std::vector<TensorType> in, out;
    for (const int id : step.in) in.push_back(values[static_cast<size_t>(id)].type);
    for (const int id : step.out) out.push_back(values[static_cast<size_t>(id)].type);
    const TypeArgs types{in, out, step.attrs};
    std::optional<Product>& found = products.emplace_back();
    const auto fits = [&](const TensorType& type) { return type.dtype == dtype; };
    if (std::ranges::all_of(in, fits) && std::ranges::all_of(out, fits)) found = product_of(*step.op, types);
    if (found && (found->batch != 1 || found->transpose_a)) found.reset();
  }
  return products;
}

}  // namespace trireme::cpu
