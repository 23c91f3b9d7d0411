#include "trireme/train/plan/plan_job.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/exec/virtual_time.h"
#include "trireme/op/op_def.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/report/utilisation.h"

namespace trireme {
namespace {

void add_computing(const CompiledCrew& crew, const Rates& rates, double share, WayCost& out) {
  const CostModel model(crew.program.mesh, rates);
  const std::vector<int64_t> prices = node_prices_ps(crew.program, model);
  for (size_t i = 0; i < prices.size(); ++i) {
    const Node& node = crew.program.graph.nodes()[i];
    if (is_communication(def_of(node))) continue;
    double& part = node.again                       ? out.again_s
                   : node.phase == Phase::kForward  ? out.forward_s
                   : node.phase == Phase::kBackward ? out.backward_s
                                                    : out.update_s;
    part += static_cast<double>(prices[i]) * 1e-12 * share;
  }
}

// The fastest so many, of ways in the order of their time. Of those that differ in sp and micro-batches alone the
// fastest one, as long as there are others.
void keep_unlike(size_t most, std::vector<PlannedWay>& ways) {
  if (ways.size() <= most) return;
  const auto key = [](const PlannedWay& each) {
    const Way& way = each.way;
    return std::tuple(way.pp, way.tp, way.cp, way.ep, way.schedule, way.recompute, way.zero, way.is_searched);
  };
  std::set<decltype(key(ways.front()))> seen;
  const auto like = std::ranges::stable_partition(
      ways, [&](const PlannedWay& way) { return seen.size() < most && seen.insert(key(way)).second; });
  const auto unlike = static_cast<size_t>(like.begin() - ways.begin());
  ways.resize(std::max(unlike, most));
  std::ranges::stable_sort(ways, {}, [](const PlannedWay& each) { return each.cost.step_s; });
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request), job_(without_cuts(request.job)), model_(make_model(job_)) {
    const Assembly assembly = assembly_for(job_, 1);
    const Graph step = graphs_of(assembly, 1).step;
    const Communication& how = assembly.options.parallel.communication;
    require(!how.machine || request.ranks <= how.machine->devices(),
            "plan: {} ranks, but the machine '{}' has {} devices; plan for fewer ranks, or for a larger machine",
            request.ranks, how.machine->name, how.machine->devices());
    out_.machine = how.machine ? *how.machine : how.measured ? *how.measured : Machine::this_host();
    out_.memory_bytes = memory_of_rank(request, assembly);
    out_.graph = hash_of_graph(step);
    kept_ = kept_by(step);
    flops_ = flops_of(step);
    const Machine& machine = out_.machine;
    out_.peak_flops_per_s = machine.flops_of(to_string(job_.train.step.compute)) * static_cast<double>(request.ranks);
    const double fastest = std::max(machine.flops_of("f32"), machine.flops_of(to_string(job_.train.step.compute)));
    double achievable = machine.achievable;  // of the best op
    for (const OpRate& rate : machine.op_rates) achievable = std::max(achievable, rate.achievable);
    out_.bound_s = flops_ / (fastest * achievable * static_cast<double>(request.ranks));
  }

  JobPlan run() {
    std::vector<Way> ways = ways_of(job_, request_.ranks);
    if (request_.is_asked) std::erase_if(ways, [&](const Way& way) { return !request_.is_asked(way); });
    out_.ledger.ways = static_cast<int64_t>(ways.size());
    bool fits_without = false;  // the last way that computes nothing again
    for (size_t i = 0; i < ways.size(); ++i) {
      const Way& way = ways[i];
      if (request_.on_way) request_.on_way(i + 1, ways.size());
      if (way.recompute == "none") fits_without = false;
      if (way.recompute != "none" && fits_without) {
        ++out_.ledger.needless;
        continue;
      }
      const bool fits = look_at(way);
      fits_without = fits_without || (way.recompute == "none" && fits);
    }
    std::ranges::stable_sort(out_.best, {}, [](const PlannedWay& each) { return each.cost.step_s; });
    keep_unlike(request_.top, out_.best);
    return std::move(out_);
  }

  CompiledJob compiled(const Way& way) const {
    JobConfig job = job_;
    set_keys(job, way.keys());
    const Assembly assembly = assembly_for(job, request_.ranks);
    JobGraphs graphs = graphs_of(assembly, request_.ranks);
    const CompileOptions how = compile_options(assembly, graphs.parallel, request_.ranks, request_.threads);
    return compile(std::move(graphs.step), std::move(graphs.evaluation), how);
  }

 private:
  Assembly assembly_for(const JobConfig& job, int64_t ranks) const {
    Assembly out = assembly_of(job, *model_, ranks);
    if (request_.machine) out.options.parallel.communication.machine = request_.machine;
    return out;
  }

  // Whether it fits.
  bool look_at(const Way& way) {
    const int64_t least = least_bytes(way, request_.ranks, kept_);
    if (least > out_.memory_bytes) {
      ++out_.ledger.memory_least;
      out_.too_large.push_back({way, least});
      out_.least_bytes = out_.least_bytes == 0 ? least : std::min(out_.least_bytes, least);
      return false;
    }
    std::optional<WayCost> cost;
    try {
      cost = compiled_cost(way);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
      ++out_.ledger.do_not_divide;
      out_.refused.emplace_back(way, error.what());
      if (out_.ledger.first_refusal.empty()) out_.ledger.first_refusal = error.what();
      return false;
    }
    if (cost->most_bytes() > out_.memory_bytes) {
      ++out_.ledger.memory;
      out_.too_large.push_back({way, cost->most_bytes()});
      if (!out_.smallest || cost->most_bytes() < out_.smallest->cost.most_bytes()) out_.smallest = {way, *cost};
      return false;
    }
    ++out_.ledger.fit;
    out_.best.push_back({way, std::move(*cost)});
    return true;
  }

  WayCost compiled_cost(const Way& way) const {
    WayCost out = cost_of(compiled(way).step);
    out.flops = flops_;
    return out;
  }

  const PlanRequest& request_;
  const JobConfig job_;
  const std::unique_ptr<nn::Module> model_;
  KeptBytes kept_;
  double flops_ = 0;
  JobPlan out_;
};

}  // namespace

KeptBytes kept_by(const Graph& graph) {
  KeptBytes out;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) out.parameters += graph.type(input.value).bytes();
    if (input.role == Role::kState) out.state += graph.type(input.value).bytes();
  }
  return out;
}

int64_t least_bytes(const Way& way, int64_t ranks, const KeptBytes& kept) {
  const int64_t pieces = way.is_searched ? ranks : way.pp * way.tp * way.ep;
  return kept.parameters / (way.zero == 3 ? ranks : pieces) + kept.state / (way.zero > 0 ? ranks : pieces);
}

int64_t memory_of_rank(const PlanRequest& request, const Assembly& assembly) {
  if (request.memory_bytes > 0) return request.memory_bytes;
  const int64_t of_device = make_device(assembly.options.device)->memory_bytes();
  if (of_device > 0) return of_device;
  const Machine host = Machine::this_host();  // whose memory its ranks share
  return host.memory_bytes * host.devices_per_host / request.ranks;
}

WayCost cost_of(const Compiled& compiled) {
  WayCost out;
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* const plan : compiled.plans()) seconds.push_back(action_seconds(*plan, compiled.rates));
  const VirtualTime time = virtual_time(compiled.plans(), {.seconds = std::move(seconds)});
  out.step_s = time.makespan_s;
  const auto ranks = static_cast<double>(time.ranks.size());
  for (const RankTime& rank : time.ranks) {
    for (int lane = 1; lane < kLanes; ++lane) {
      out.moving_s += rank.lanes[static_cast<size_t>(lane)].busy_s / ranks;
      out.exposed_s += rank.lanes[static_cast<size_t>(lane)].exposed_s / ranks;
    }
  }
  for (const CompiledCrew& crew : compiled.crews) {
    add_computing(crew, compiled.rates, 1.0 / static_cast<double>(compiled.crews.size()), out);
    const Arena& arena = crew.plan.arena();
    out.memory.push_back({arena.bytes, arena.persistent, bytes_by_holding(crew.plan)});
  }
  // A rank that does not compute waits for what is on its way, or for others to send it.
  const double idle_s = out.step_s - out.forward_s - out.backward_s - out.again_s - out.update_s;
  out.exposed_s = std::clamp(out.exposed_s, 0.0, std::max(0.0, idle_s));
  out.waiting_s = std::max(0.0, idle_s - out.exposed_s);
  return out;
}

int64_t WayCost::Memory::gaps() const {
  return arena - std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
}

int64_t WayCost::most_bytes() const {
  int64_t out = 0;
  for (const Memory& each : memory) out = std::max(out, each.arena);
  return out;
}

JobPlan plan_job(const PlanRequest& request) {
  require(request.ranks >= 1, "plan: {} ranks; it must be 1 or more", request.ranks);
  return Planner(request).run();
}

Compiled compile_way(const PlanRequest& request, const Way& way) {
  return Planner(request).compiled(way).step;
}

}  // namespace trireme
