#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/plan/parallel.h"

namespace trireme {
namespace {

// The least significant axes whose sizes, which are primes, multiply to `size`; nothing where there are none.
std::optional<std::vector<int>> axes_of_size(const std::vector<int>& axes, const Mesh& mesh, int64_t size) {
  std::vector<int> out;
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
std::vector<int> group_axes(const Layout& gradient, const Layout& parameter, const Mesh& mesh, int64_t size) {
  std::vector<int> all;
  for (const int axis : gradient.partial_axes()) {
    if (is_micro_batch_axis(mesh, axis)) continue;
    if (!parameter.uses(axis)) all.push_back(axis);
  }
  if (size < 0) return all;
  return axes_of_size(all, mesh, size).value_or(all);
}

bool is_excepted(const std::string& name, const OptimizerParallel& options) {
  return std::any_of(options.except.begin(), options.except.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_level(const std::string& name, const KeyTarget& target) {
  const int64_t level = *std::get<int64_t*>(target);
  require(level >= 0 && level <= 3, "{} = {}; it must be 0, 1, 2 or 3", name, level);
}

}  // namespace

std::vector<Key> keys_of(OptimizerParallel& options) {
  return {{.name = "zero",
           .target = &options.level,
           .doc = "ZeRO: slice over data parallel ranks 1: the optimizer's state, 2: also gradients, 3: also weights; "
                  "0: nothing",
           .check = check_level,
           .flag = "--zero",
           .in_bench = true},
          {.name = "zero_threshold_kb",
           .target = &options.threshold_kb,
           .doc = "parameters of fewer KiB than this are not sliced",
           .no_effect_with = "zero = 0"},
          {.name = "zero_shard_size",
           .target = &options.shard_size,
           .doc = "number of ranks that one copy is sliced over; -1: all",
           .no_effect_with = "zero = 0"},
          {.name = "zero_except",
           .target = &options.except,
           .doc = "patterns of the names of parameters that are not sliced",
           .no_effect_with = "zero = 0"}};
}

void ask_optimizer_parallel(const Graph& graph, const Strategy& plain, const OptimizerParallel& options, Asks& asks) {
  require(options.level >= 0 && options.level <= 3, "optimizer parallelism of level {}; it must be 0, 1, 2 or 3",
          options.level);
  require(options.threshold_kb >= 0, "optimizer parallelism: a threshold of {} KiB; it must be 0 or more",
          options.threshold_kb);
  const int64_t ranks = without_micro_batches(plain.mesh).devices();
  require(
      options.shard_size == -1 || (options.shard_size > 0 && options.shard_size <= ranks),
      "optimizer parallelism: a shard size of {}; it must be from 1 to the {} ranks, or -1 for all of a parameter's",
      options.shard_size, ranks);
  if (options.level == 0) return;
  const std::vector<Layout> layouts = value_layouts(graph, plain);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    const TensorType& type = graph.type(input.value);
    const Layout& used = plain.inputs[i];
    if (input.role != Role::kParameter || is_excepted(input.name, options)) continue;
    if (type.shape.rank() == 0 || type.bytes() / 1024 < options.threshold_kb) continue;
    const Update* const update = graph.update_of(input.value);
    if (update == nullptr) continue;
    const std::vector<int> axes =
        group_axes(layouts[static_cast<size_t>(update->gradient)], used, plain.mesh, options.shard_size);
    if (axes.empty() || type.shape[0] % (used.cuts(0, plain.mesh) * plain.mesh.size_of(axes)) != 0) continue;
    Layout sliced = used;
    sliced.dims[0].insert(sliced.dims[0].end(), axes.begin(), axes.end());
    for (const ValueId state : update->states) asks.inputs[static_cast<size_t>(graph.value(state).index)] = sliced;
    if (options.level >= 2) asks.seen_as[update->gradient] = sliced;
    if (options.level >= 3) {
      asks.inputs[i] = sliced;
      asks.seen_as[input.value] = used;
    }
  }
}

}  // namespace trireme
