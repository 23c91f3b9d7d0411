#include "trireme/train/step/compile/remarks.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/parallel/without_effect.h"

namespace trireme {
namespace {

std::string reuse_without_effect(const Compiled& step, const Communication& how) {
  const bool is_used = std::ranges::any_of(step.crews, [](const CompiledCrew& c) { return !c.plan.calls.empty(); });
  if (how.reuse == 0 || is_used) return "";
  return fmt::format(
      "parallel.collective_reuse = {} has no effect: no collective of this step's plan stands there more often than "
      "{}",
      how.reuse, how.reuse_above == 1 ? "once" : fmt::format("{} times", how.reuse_above));
}

// What ranks exchange, in words.
std::string exchanged_by(const Compiled& step, const Parallel& parallel, const SumOrder& sums) {
  const Strategy& strategy = step.strategy;
  return to_string(partition(step.graph, strategy, partition_options(parallel, step.graph, strategy.mesh, sums)));
}

// What ranks exchange, where what is asked of how they do changes none of it.
void add_moves_without_effect(const Compiled& step, const Parallel& parallel, std::vector<std::string>& out) {
  const SumOrder& sums = step.strategy.sums;
  const Communication &given = parallel.communication, usual;
  const auto say_unless_it_differs = [&](bool Communication::*key, std::string_view name) {
    if (given.*key == usual.*key) return;
    Parallel without = parallel;
    without.communication.*key = usual.*key;
    if (exchanged_by(step, parallel, sums) != exchanged_by(step, without, sums)) return;
    out.push_back(fmt::format("parallel.{} = {} has no effect: what ranks of this step exchange is the same without it",
                              name, given.*key));
  };
  const auto is_narrow = [](const Value& value) {
    return is_floating(value.type->dtype) && size_of(value.type->dtype) < size_of(DType::kF32);
  };
  if (parallel.search.kind == SearchKind::kNone) say_unless_it_differs(&Communication::all_to_all, "enable_alltoall");
  if (std::ranges::any_of(step.graph.values(), is_narrow)) {  // else all sums are in f32
    say_unless_it_differs(&Communication::gradients_in_f32, "gradient_fp32_sync");
    say_unless_it_differs(&Communication::all_in_f32, "force_fp32_communication");
  }
}

}  // namespace

std::vector<std::string> remarks(const Compiled& step, const Parallel& parallel, int64_t ranks) {
  std::vector<std::string> out = step.remarks;
  const std::string& disk = parallel.tiers.disk.directory();
  const bool is_used =
      std::ranges::any_of(step.crews, [](const CompiledCrew& crew) { return crew.plan.arena(Tier::kDisk).bytes > 0; });
  if (!disk.empty() && !is_used) {
    const bool chooses = chooses_homes(parallel.tiers, parallel.tier_ways, parallel.on_host.is_asked_for());
    out.push_back(fmt::format(
        "nothing lies on the disk, so parallel.disk = '{}' changes nothing{}", disk,
        chooses ? ": the step has room on the device and on the host, of which parallel.device_memory and "
                  "parallel.host_memory say how much it may take"
                : "; give values a home there (parallel.home, parallel.keep), or set parallel.device_memory and "
                  "parallel.host_memory, by which homes are chosen"));
  }
  if (std::string text = reuse_without_effect(step, parallel.communication); !text.empty() && ranks > 1)
    out.push_back(std::move(text));
  if (ranks == 1 || step.partitioned.by_hand) return out;
  for (std::string& what : without_effect(step.graph, step.strategy, parallel.optimizer))
    out.push_back(std::move(what));
  add_moves_without_effect(step, parallel, out);
  return out;
}

std::string order_without_effect(const Compiled& step, const Parallel& parallel) {
  if (step.strategy.sums.each.value_or(true) || step.partitioned.by_hand) return "";
  const auto in_order = [&](bool each) {
    SumOrder sums = step.strategy.sums;
    sums.each = each;
    return exchanged_by(step, parallel, sums);
  };
  if (in_order(true) != in_order(false)) return "";
  return fmt::format(
      "parallel.gradient_accumulation_shard = false has no effect with parallel.zero = {}: what this step sums over "
      "ranks is summed after micro-batches are added in either case; leave it out",
      parallel.optimizer.level);
}

}  // namespace trireme
