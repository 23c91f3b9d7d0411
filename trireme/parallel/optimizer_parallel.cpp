// ZeRO (OptimizerParallel of parallel.h): its keys, and the slices of parameters, gradients and state it asks for.
#include <algorithm>
#include <optional>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/parallel.h"

namespace trireme {
namespace {

// The least significant axes whose sizes, which are primes, multiply to `size`; nothing where there are none.
std::optional<Axes> axes_of_size(const Axes& axes, const Mesh& mesh, int64_t size) {
  Axes out;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t own = mesh.axis(axes[i]).size;
    if (size % own != 0) continue;
    size /= own;
    out.insert(out.begin(), axes[i]);
  }
  if (size != 1) return std::nullopt;
  return out;
}

// The axes the gradient is summed over, or those of them that make a group of `size`.
Axes group_axes(const Layout& gradient, const Layout& parameter, const Mesh& mesh, int64_t size) {
  Axes all;
  for (const int axis : gradient.partial_axes()) {
    if (is_micro_batch_axis(mesh, axis)) continue;
    if (!parameter.uses(axis)) all.push_back(axis);
  }
  if (size < 0) return all;
  return axes_of_size(all, mesh, size).value_or(all);
}

// The layout with its dimension `dim` cut by these axes too, where that is possible. Within parts that are uneven
// already there are no others: such a weight could be gathered by way of the whole dimension only.
std::optional<Layout> cut_further(const Layout& used, int dim, const Axes& axes, const Shape& shape, const Mesh& mesh) {
  Layout out = used;
  Axes& cut = out.dims[static_cast<size_t>(dim)];
  cut.append(axes.begin(), axes.end());
  if (!falls_in(shape[dim], mesh.size_of(cut), Parts::kUneven)) return std::nullopt;
  const bool stays_in_frame = frame(shape, out, mesh)[dim] == frame(shape, used, mesh)[dim];
  return used.dims[static_cast<size_t>(dim)].empty() || stays_in_frame ? std::optional(out) : std::nullopt;
}

// Slices over the axes, or over as many of the less significant ones as some dimension falls in. They are along the
// dimension in which they are smallest, and so of equal size where that is possible; of several the first.
std::optional<Layout> sliced_over(Axes axes, const Layout& used, const Shape& shape, const Mesh& mesh) {
  for (; !axes.empty(); axes.erase(axes.begin())) {
    std::optional<Layout> best;
    for (int dim = 0; dim < shape.rank(); ++dim) {
      std::optional<Layout> found = cut_further(used, dim, axes, shape, mesh);
      if (!found) continue;
      const auto elements = [&](const Layout& layout) { return local_shape(shape, layout, mesh).elements(); };
      if (!best || elements(*found) < elements(*best)) best = std::move(found);
    }
    if (best) return best;
  }
  return std::nullopt;
}

bool may_be_sliced(const Input& parameter, const TensorType& type, const OptimizerParallel& options) {
  return !is_excepted(parameter.name, options) && !is_below_threshold(type, options);
}

void check_level(const std::string& name, const KeyTarget& target) {
  const int64_t level = *std::get<int64_t*>(target);
  require(level >= 0 && level <= 3, "{} = {}; it must be 0, 1, 2 or 3", name, level);
}

// Whatever the number of ranks.
void check_own_shard_size(const std::string& name, const KeyTarget& target) {
  const int64_t size = *std::get<int64_t*>(target);
  require(size == -1 || size >= 1, "{} = {}; it must be 1 or more, or -1 for all ranks", name, size);
}

}  // namespace

bool is_excepted(const std::string& name, const OptimizerParallel& options) {
  return std::any_of(options.except.begin(), options.except.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

bool is_below_threshold(const TensorType& type, const OptimizerParallel& options) {
  return type.bytes() / 1024 < options.threshold_kb;
}

std::vector<Key> keys_of(OptimizerParallel& options) {
  return {{.name = "zero",
           .target = &options.level,
           .doc = "ZeRO: slice over data parallel ranks 1: the optimizer's state, 2: also gradients, 3: also weights; "
                  "0: nothing",
           .check = check_level,
           .flag = "--zero",
           .in_bench = true,
           .of_ranks = true,
           .of_training = true},
          {.name = "zero_threshold_kb",
           .target = &options.threshold_kb,
           .doc = "parameters of fewer KiB than this are not sliced",
           .check = check_not_below_0,
           .no_effect_with = "zero = 0",
           .of_ranks = true,
           .of_training = true},
          {.name = "zero_shard_size",
           .target = &options.shard_size,
           .doc = "number of ranks that one copy is sliced over; -1: all",
           .check = check_own_shard_size,
           .no_effect_with = "zero = 0",
           .of_ranks = true,
           .of_training = true},
          {.name = "zero_except",
           .target = &options.except,
           .doc = "patterns of the names of parameters that are not sliced",
           .no_effect_with = "zero = 0",
           .of_ranks = true,
           .of_training = true}};
}

void check_shard_size(const OptimizerParallel& options, int64_t ranks) {
  const bool is_used = options.level > 0;
  require(options.shard_size == -1 || (options.shard_size > 0 && (!is_used || options.shard_size <= ranks)),
          "optimizer parallelism: a shard size of {}; it must be from 1 to {}, the number of ranks, or -1 for all of a "
          "parameter's",
          options.shard_size, ranks);
}

void ask_optimizer_parallel(const Graph& graph, const Strategy& plain, const OptimizerParallel& options, Asks& asks) {
  require(options.level >= 0 && options.level <= 3, "optimizer parallelism of level {}; it must be 0, 1, 2 or 3",
          options.level);
  require(options.threshold_kb >= 0, "optimizer parallelism: a threshold of {} KiB; it must be 0 or more",
          options.threshold_kb);
  check_shard_size(options, without_micro_batches(plain.mesh).devices());
  if (options.level == 0) return;
  const std::vector<Layout> layouts = value_layouts(graph, plain);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    const TensorType& type = graph.type(input.value);
    const Layout& used = plain.inputs[i];
    if (input.role != Role::kParameter || !may_be_sliced(input, type, options)) continue;
    const Update* const update = graph.update_of(input.value);
    if (update == nullptr) continue;
    const std::optional<Layout> sliced =
        sliced_over(group_axes(layouts[static_cast<size_t>(update->gradient)], used, plain.mesh, options.shard_size),
                    used, type.shape, plain.mesh);
    if (!sliced) continue;
    for (const ValueId state : update->states) asks.inputs[static_cast<size_t>(graph.value(state).index)] = sliced;
    asks.seen_as[update->gradient] = *sliced;  // by the norm of all gradients as by the update
    if (options.level >= 3) {
      asks.inputs[i] = sliced;
      asks.seen_as[input.value] = used;
    }
  }
}

SumOrder sum_order(const Graph& graph, const Parallel& parallel, const Mesh& mesh) {
  SumOrder out;
  if (micro_batches(mesh) == 1) return out;
  // What a search slices it prices with one sum a step.
  const bool is_found = parallel.search.kind != SearchKind::kNone && parallel.optimizer.level < 2;
  out.each = parallel.communication.shard_accumulation && !is_found;
  if (parallel.optimizer.level != 1) return out;
  for (const Update& update : graph.updates()) {
    const auto index = static_cast<size_t>(graph.value(update.parameter).index);
    if (may_be_sliced(graph.inputs()[index], graph.type(update.parameter), parallel.optimizer)) out.once.insert(index);
  }
  return out;
}

std::set<ValueId> summed_once(const Graph& graph, const SumOrder& sums) {
  std::set<ValueId> out;
  for (const size_t index : sums.once) {
    if (const Update* update = graph.update_of(graph.inputs()[index].value); update != nullptr)
      out.insert(update->gradient);
  }
  return out;
}

}  // namespace trireme
