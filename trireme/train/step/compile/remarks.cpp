#include "trireme/train/step/compile/remarks.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/parallel/without_effect.h"

namespace trireme {

std::vector<std::string> remarks(const Compiled& step, const Parallel& parallel, int64_t ranks) {
  std::vector<std::string> out = step.remarks;
  const std::string& disk = parallel.tiers.disk.directory();
  const bool is_used =
      std::ranges::any_of(step.crews, [](const CompiledCrew& crew) { return crew.plan.arena(Tier::kDisk).bytes > 0; });
  if (!disk.empty() && !is_used) {
    const bool chooses = parallel.tiers.device.is_given() && parallel.tier_ways.auto_offload;
    out.push_back(fmt::format(
        "nothing lies on the disk, so parallel.disk = '{}' changes nothing{}", disk,
        chooses
            ? ": the step has room in parallel.device_memory and on the host, of which parallel.host_memory says how "
              "much it may take"
            : "; give values a home there (parallel.home, parallel.keep), or set parallel.device_memory and "
              "parallel.host_memory, by which homes are chosen"));
  }
  if (ranks == 1 || step.partitioned.by_hand) return out;
  for (std::string& what : without_effect(step.graph, step.strategy, parallel.optimizer))
    out.push_back(std::move(what));
  return out;
}

std::string order_without_effect(const Compiled& step, const Parallel& parallel) {
  const Strategy& strategy = step.strategy;
  if (strategy.sums.each.value_or(true) || step.partitioned.by_hand) return "";
  const auto partitioned = [&](bool each) {
    SumOrder sums = strategy.sums;
    sums.each = each;
    return to_string(partition(step.graph, strategy, partition_options(parallel, step.graph, strategy.mesh, sums)));
  };
  if (partitioned(true) != partitioned(false)) return "";
  return fmt::format(
      "parallel.gradient_accumulation_shard = false has no effect with parallel.zero = {}: what this step sums over "
      "ranks is summed after micro-batches are added in either case; leave it out",
      parallel.optimizer.level);
}

}  // namespace trireme
