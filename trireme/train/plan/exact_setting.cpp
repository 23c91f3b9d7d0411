#include "trireme/train/plan/exact_setting.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/cost/op_seconds.h"
#include "trireme/parallel/strategy/strategy_file.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/report/utilisation.h"

namespace trireme {
namespace {

// Of the slower way, and by a 1,024th less, as the prices of moves are rounded.
int64_t fs_per_byte(const Machine& machine, Tier tier) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const double seconds = std::max(move_seconds({tier, Tier::kDevice}, kBytes, machine),
                                  move_seconds({Tier::kDevice, tier}, kBytes, machine));
  return static_cast<int64_t>(seconds * 1e15 / kBytes * (1 - 1.0 / 1024));
}

void set_figures(const Graph& step, int64_t ranks, ExactSetting& out) {
  for (const Input& input : step.inputs()) {
    if (input.role == Role::kParameter) out.figures.parameter_bytes += step.type(input.value).bytes();
    if (input.role == Role::kState) out.figures.state_bytes += step.type(input.value).bytes();
  }
  out.flops = flops_of(step);
  const Machine& machine = out.machine;
  const std::string compute(to_string(out.job.train.step.compute));
  out.peak_flops_per_s = machine.flops_of(compute) * static_cast<double>(ranks);
  double achievable = machine.achievable;
  for (const OpRate& rate : machine.op_rates) achievable = std::max(achievable, rate.achievable);
  const double fastest = std::max(machine.flops_of("f32"), machine.flops_of(compute));
  out.figures.host_fs_per_byte = fs_per_byte(machine, Tier::kHost);
  out.figures.disk_fs_per_byte = machine.disk_bytes_per_s > 0 ? fs_per_byte(machine, Tier::kDisk) : 0;
  out.figures.arithmetic_ps =
      static_cast<int64_t>(out.flops / (fastest * achievable * static_cast<double>(ranks)) * 1e12);
}

}  // namespace

ExactSetting exact_setting(const PlanRequest& request) {
  require(request.ranks >= 1, "plan: {} ranks; it must be 1 or more", request.ranks);
  ExactSetting out{.job = without_cuts(request.job)};
  const auto model = make_model(out.job);
  const Assembly assembly = assembly_of(out.job, *model, 1);
  const Graph step = graphs_of(assembly, 1).step;
  out.graph = hash_of_graph(step);
  out.parts = parts_of(step);
  const Communication& how = assembly.options.parallel.communication;
  require(!how.machine || request.ranks <= how.machine->devices(),
          "plan: {} ranks, but the machine '{}' has {} devices; plan for fewer ranks, or for a larger machine",
          request.ranks, how.machine->name, how.machine->devices());
  out.machine = how.machine ? *how.machine : how.measured ? *how.measured : Machine::this_host();
  if (how.machine) out.most_ranks = how.machine->devices();
  out.memory_bytes = memory_of_rank(request, assembly);
  out.beside = bytes_beside(request, assembly);
  TierSizes& sizes = out.job.parallel.tiers;  // which are of a rank of the whole job: parts are priced as they are
  sizes.device = sizes.host = MemorySize();
  out.model = model_of(out.job).cuttable();
  if (out.job.train.label_smoothing != 0) out.model.vocabulary = 0;  // the loss of a cut vocabulary has none
  out.positions = predicts_classes(out.job) ? 1 : fields_of(out.job)[0].sample.elements();
  set_figures(step, request.ranks, out);
  out.figures.is_joined = PartPricer::has_joined_micro_batches(out.job, out.parts);
  return out;
}

std::vector<Tier> ExactSetting::tiers() const {
  return figures.state_bytes > 0 ? beside.tiers() : std::vector<Tier>();
}

OuterWays ExactSetting::ways(int64_t ranks) const {
  return ways(ranks, job.train.fit.batch);
}

OuterWays ExactSetting::ways(int64_t ranks, int64_t batch) const {
  const int64_t most_stages = figures.is_joined ? 1 : parts.count();
  return outer_ways(model, ranks, batch, positions, most_stages, tiers());
}

}  // namespace trireme
