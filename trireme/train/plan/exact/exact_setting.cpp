#include "trireme/train/plan/exact/exact_setting.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/cost/op_seconds.h"
#include "trireme/parallel/strategy/strategy_file.h"
#include "trireme/pass/host_inputs.h"
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

// What all updates take on the host, for each byte of the state; by a 1,024th less.
int64_t update_fs_per_byte(const Graph& step, const Machine& machine, int64_t state_bytes) {
  double seconds = 0;
  const std::vector<char> on_host = nodes_for_host(step, {.updates = true});
  for (NodeId id = 0; id < static_cast<NodeId>(on_host.size()); ++id) {
    const Node& node = step.node(id);
    if (on_host[static_cast<size_t>(id)] == 0) continue;
    std::vector<TensorType> in, out;
    for (const ValueId read : node.inputs) in.push_back(step.type(read));
    for (const ValueId made : node.outputs) out.push_back(step.type(made));
    seconds += compute_seconds_on_host(def_of(node), {in, out, node.attrs}, machine);
  }
  const double fs = seconds * 1e15 / static_cast<double>(state_bytes) * (1 - 1.0 / 1024);
  return std::max<int64_t>(1, static_cast<int64_t>(fs));
}

// Of parameters that the device computes with in so many bytes an element, or in their own type where that is narrower.
int64_t weight_bytes(const Graph& step, int64_t element_bytes) {
  int64_t out = 0;
  for (const Input& input : step.inputs()) {
    if (input.role != Role::kParameter) continue;
    const TensorType& type = step.type(input.value);
    out += type.elements() * std::min(element_bytes, static_cast<int64_t>(size_of(type.dtype)));
  }
  return out;
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
  if (out.beside.updates && out.figures.state_bytes > 0) {
    out.figures.update_fs_per_byte = update_fs_per_byte(step, machine, out.figures.state_bytes);
    out.figures.weight_bytes = weight_bytes(step, static_cast<int64_t>(size_of(out.job.train.step.compute)));
  }
  out.figures.arithmetic_ps =
      static_cast<int64_t>(out.flops / (fastest * achievable * static_cast<double>(ranks)) * 1e12);
}

}  // namespace

ExactSetting exact_setting(const PlanRequest& request) {
  require(request.ranks >= 1, "plan: {} ranks; it must be 1 or more", request.ranks);
  ExactSetting out{.job = without_cuts(request.job), .is_asked = request.is_asked};
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

std::vector<UpdatePlace> ExactSetting::places() const {
  return figures.state_bytes > 0 ? beside.places() : std::vector<UpdatePlace>();
}

std::vector<Tier> ExactSetting::keeps() const {
  return figures.is_joined ? std::vector<Tier>() : beside.keeps();
}

OuterWays ExactSetting::ways(int64_t ranks) const {
  return ways(ranks, job.train.fit.batch);
}

OuterWays ExactSetting::ways(int64_t ranks, int64_t batch) const {
  const OuterWays all = outer_ways(model, ranks, batch, positions, parts.count(), places(), keeps(), figures.is_joined);
  return is_asked ? all.kept_by([&](const OuterWay& way) { return is_asked(way.way()); }) : all;
}

}  // namespace trireme
