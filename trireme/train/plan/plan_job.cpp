#include "trireme/train/plan/plan_job.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/exec/analysis/virtual_time.h"
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
    if (is_communication(def_of(node)) || is_move(def_of(node)) || node.on_host) continue;
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
    return std::tuple(way.pp, way.tp, way.cp, way.ep, way.schedule, way.recompute, way.zero, way.kept_slices, way.keep,
                      way.place.state, way.place.update, way.is_searched);
  };
  std::set<decltype(key(ways.front()))> seen;
  const auto like = std::ranges::stable_partition(
      ways, [&](const PlannedWay& way) { return seen.size() < most && seen.insert(key(way)).second; });
  const auto unlike = static_cast<size_t>(like.begin() - ways.begin());
  ways.resize(std::max(unlike, most));
  std::ranges::stable_sort(ways, {}, [](const PlannedWay& each) { return each.cost.step_s; });
}

bool are_alike_but_for_variants(Way a, const Way& b) {
  a.kept_slices = b.kept_slices;
  a.keep = b.keep;
  a.place = b.place;
  return a == b;
}

// How many ways from this one on are alike but for their variants.
size_t variants_from(const std::vector<Way>& ways, size_t first) {
  size_t end = first + 1;
  while (end < ways.size() && are_alike_but_for_variants(ways[end], ways[first])) ++end;
  return end - first;
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request),
        job_(without_cuts(request.job)),
        model_(make_model(job_)),
        device_(make_device(job_.train.device)) {
    const Assembly assembly = assembly_for(job_, 1);
    const Graph step = graphs_of(assembly, 1).step;
    const Communication& how = assembly.options.parallel.communication;
    require(!how.machine || request.ranks <= how.machine->devices(),
            "plan: {} ranks, but the machine '{}' has {} devices; plan for fewer ranks, or for a larger machine",
            request.ranks, how.machine->name, how.machine->devices());
    out_.machine = how.machine ? *how.machine : how.measured ? *how.measured : Machine::this_host();
    out_.memory_bytes = memory_of_rank(request, assembly);
    // With a budget on the device each way has what is chosen under it (train/step/compile/choose_homes.h).
    is_budgeted_ = assembly.options.parallel.tiers.device.is_given();
    if (!is_budgeted_) out_.beside = bytes_beside(request, assembly);
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
    const std::vector<Way> ways = this->ways();
    out_.ledger.ways = static_cast<int64_t>(ways.size());
    bool fits_without = false;  // the last way that computes nothing again, and has nothing beside how it is cut
    for (size_t first = 0; first < ways.size();) {
      const size_t count = variants_from(ways, first);
      look_at_variants({&ways[first], count}, first, ways.size(), fits_without);
      first += count;
    }
    std::ranges::stable_sort(out_.best, {}, [](const PlannedWay& each) { return each.cost.step_s; });
    keep_unlike(request_.top, out_.best);
    for (const PlannedWay& shown : out_.best) verify(shown);
    if (out_.best.empty() && !out_.smallest) compile_smallest();
    if (!out_.best.empty()) out_.smallest.reset();
    if (out_.smallest) verify(*out_.smallest);
    return std::move(out_);
  }

  // Those that are asked for.
  std::vector<Way> ways() const {
    const std::vector<UpdatePlace> places = kept_.state > 0 ? out_.beside.places() : std::vector<UpdatePlace>();
    std::vector<Way> out = ways_of(job_, request_.ranks, places, out_.beside.keeps());
    if (request_.is_asked) std::erase_if(out, [&](const Way& way) { return !request_.is_asked(way); });
    return out;
  }

  CompiledJob compiled(const Way& way, bool is_verified = true) const {
    JobConfig job = job_;
    way.set(job);
    const Assembly assembly = assembly_for(job, request_.ranks);
    JobGraphs graphs = graphs_of(assembly, request_.ranks);
    CompileOptions how = compile_options(assembly, graphs.parallel, request_.ranks, request_.threads, device_);
    how.passes.verify = how.passes.verify && is_verified;
    return compile(std::move(graphs.step), std::move(graphs.evaluation), how);
  }

 private:
  // Ways that are alike but for their variants.
  void look_at_variants(std::span<const Way> ways, size_t before, size_t of, bool& fits_without) {
    std::vector<WayVariant> variants;
    for (const Way& way : ways)
      variants.push_back({.kept_slices = way.kept_slices, .keep = way.keep, .place = way.place});
    const bool is_again = ways.front().recompute != WayRecompute::kNone;
    if (!is_again) fits_without = false;
    std::vector<char> is_too_large(ways.size(), 0);
    for (size_t i = 0; i < ways.size(); ++i) {
      if (request_.on_way) request_.on_way(before + i + 1, of);
      const bool is_needed =
          std::ranges::all_of(variants_before(variants, i), [&](size_t nearer) { return is_too_large[nearer] != 0; });
      if ((is_again && fits_without) || !is_needed) {
        ++out_.ledger.needless;
        continue;
      }
      const int64_t too_large = out_.ledger.memory_least + out_.ledger.memory;
      const bool fits = look_at(ways[i]);
      is_too_large[i] = out_.ledger.memory_least + out_.ledger.memory > too_large ? 1 : 0;
      if (!is_again && variants[i] == WayVariant()) fits_without = fits;
    }
  }

  Assembly assembly_for(const JobConfig& job, int64_t ranks) const { return assembly_of(job, *model_, ranks); }

  // Whether it fits.
  bool look_at(const Way& way) {
    const int64_t least = is_budgeted_ ? 0 : least_bytes(way, request_.ranks, kept_);
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
    if (const int64_t beyond = beyond_of(way, *cost); beyond > 0) {
      ++out_.ledger.memory;
      out_.too_large.push_back({way, cost->most_bytes()});
      if (!out_.smallest || beyond < beyond_of(out_.smallest->way, out_.smallest->cost)) out_.smallest = {way, *cost};
      return false;
    }
    ++out_.ledger.fit;
    out_.best.push_back({way, std::move(*cost)});
    return true;
  }

  int64_t beyond_of(const Way& way, const WayCost& cost) const {
    return bytes_beyond(way, cost, out_.memory_bytes, out_.beside);
  }

  // Of ways of which not even parameters and state fit one that has the fewest bytes of these and can be compiled.
  void compile_smallest() {
    constexpr size_t kMostTried = 64;
    std::vector<JobPlan::TooLarge> order = out_.too_large;
    // Of as many bytes of parameters and state the one that likely has the fewest others.
    std::ranges::stable_sort(order, {}, [&](const JobPlan::TooLarge& of) {
      return std::tuple(of.bytes, kWayRecompute.end() - std::ranges::find(kWayRecompute, of.way.recompute),
                        -of.way.micro_batches, !of.way.kept_slices, of.way.keep == Tier::kDevice);
    });
    order.resize(std::min(order.size(), kMostTried));
    for (const JobPlan::TooLarge& each : order) {
      try {
        out_.smallest = {each.way, compiled_cost(each.way)};
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
      }
    }
  }

  // Of many ways that are priced few are shown, which are verified then.
  WayCost compiled_cost(const Way& way) const {
    WayCost out = cost_of(compiled(way, false).step);
    out.flops = flops_;
    return out;
  }
  void verify(const PlannedWay& shown) const {
    const WayCost verified = cost_of(compiled(shown.way).step);
    invariant(verified.step_s == shown.cost.step_s && verified.most_bytes() == shown.cost.most_bytes(),
              "{} takes {} s and {} bytes where it is verified, and else {} s and {}", shown.way.text(),
              verified.step_s, verified.most_bytes(), shown.cost.step_s, shown.cost.most_bytes());
  }

  const PlanRequest& request_;
  const JobConfig job_;
  const std::unique_ptr<nn::Module> model_;
  const std::shared_ptr<Device> device_;  // of all ways
  KeptBytes kept_;
  bool is_budgeted_ = false;
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
  const int64_t state = way.place.state == Tier::kDevice ? kept.state / (way.zero > 0 ? ranks : pieces) : 0;
  // With updates on the host they come, maybe in a narrower type, and others are there at that moment.
  const int64_t parameters = way.place.update == Tier::kDevice ? kept.parameters : 0;
  return parameters / (way.zero == 3 ? ranks : pieces) + state;
}

namespace {

int64_t memory_of_this_host(int64_t ranks) {  // which share it
  const Machine host = Machine::this_host();
  return host.memory_bytes * host.devices_per_host / ranks;
}

int64_t memory_without_budget(const PlanRequest& request, const Assembly& assembly) {
  if (request.memory_bytes > 0) return request.memory_bytes;
  const int64_t of_device = make_device(assembly.options.device)->memory_bytes();
  return of_device > 0 ? of_device : memory_of_this_host(request.ranks);
}

}  // namespace

int64_t memory_of_rank(const PlanRequest& request, const Assembly& assembly) {
  const MemorySize budget = assembly.options.parallel.tiers.of(Tier::kDevice);
  const int64_t out = memory_without_budget(request, assembly);
  return budget.is_given() ? std::min(out, budget.bytes()) : out;
}

std::vector<Tier> BesideBytes::keeps() const {
  std::vector<Tier> out;
  if (host > 0) out.push_back(Tier::kHost);
  if (disk > 0) out.push_back(Tier::kDisk);
  return out;
}

std::vector<UpdatePlace> BesideBytes::places() const {
  std::vector<UpdatePlace> out;
  for (const Tier update : {Tier::kDevice, Tier::kHost}) {
    if (update == Tier::kHost && (host == 0 || !updates)) continue;  // where parameters would lie
    if (host > 0) out.push_back({Tier::kHost, update});
    if (disk > 0) out.push_back({Tier::kDisk, update});
  }
  return out;
}

BesideBytes bytes_beside(const PlanRequest& request, const Assembly& assembly) {
  const Parallel& parallel = assembly.options.parallel;
  if (!parallel.homes.empty() || parallel.on_host.is_asked_for()) return {};
  const std::optional<Machine>& machine = parallel.communication.machine;
  BesideBytes out;
  if (machine) out = {.host = machine->host_memory_bytes, .disk = machine->disk_bytes};
  const bool is_hosts_memory = make_device(assembly.options.device)->memory_bytes() == 0;
  out.updates = machine ? machine->host_memory_bytes_per_s > 0 || machine->to_host_bytes_per_s == 0 : is_hosts_memory;
  const TierSizes& sizes = parallel.tiers;
  if (sizes.of(Tier::kHost).is_given()) {
    out.host = sizes.of(Tier::kHost).bytes();
  } else if (out.host == 0 && sizes.device.is_given() && is_hosts_memory) {
    out.host = std::max<int64_t>(0, memory_of_this_host(request.ranks) - sizes.of(Tier::kDevice).bytes());
  }
  if (sizes.of(Tier::kDisk).is_given()) out.disk = sizes.of(Tier::kDisk).bytes();
  return out;
}

WayCost cost_of(const Compiled& compiled) {
  WayCost out;
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* const plan : compiled.plans()) seconds.push_back(action_seconds(*plan, compiled.rates));
  const VirtualTime time = virtual_time(
      compiled.plans(), {.seconds = std::move(seconds), .overlap_slowdown = compiled.rates.overlap_slowdown()});
  check_step(time.makespan_s);
  out.step_s = time.makespan_s;
  const auto ranks = static_cast<double>(time.ranks.size());
  for (const RankTime& rank : time.ranks) {
    for (int lane = 1; lane < kLanes; ++lane) {
      const LaneTime& of = rank.lanes[static_cast<size_t>(lane)];
      (lane == static_cast<int>(Lane::kHost) ? out.host_s : out.moving_s) += of.busy_s / ranks;
      out.exposed_s += of.exposed_s / ranks;
    }
    out.host_exposed_s += rank.lane(Lane::kHost).exposed_s / ranks;
    for (const Lane lane : {Lane::kIn, Lane::kOut, Lane::kLoad, Lane::kStore}) {
      out.tiers_s += rank.lane(lane).busy_s / ranks;
      out.tiers_exposed_s += rank.lane(lane).exposed_s / ranks;
    }
  }
  for (const CompiledCrew& crew : compiled.crews) {
    add_computing(crew, compiled.rates, 1.0 / static_cast<double>(compiled.crews.size()), out);
    const Arena& arena = crew.plan.arena();
    out.memory.push_back({arena.bytes, arena.persistent, bytes_by_holding(crew.plan),
                          crew.plan.arena(Tier::kHost).bytes, crew.plan.arena(Tier::kDisk).bytes});
  }
  // A rank that does not compute waits for what is on its way, or for others to send it.
  const double idle_s = out.step_s - out.forward_s - out.backward_s - out.again_s - out.update_s;
  out.exposed_s = std::clamp(out.exposed_s, 0.0, std::max(0.0, idle_s));
  out.host_exposed_s = std::min(out.host_exposed_s, out.exposed_s);
  out.tiers_exposed_s = std::min(out.tiers_exposed_s, out.exposed_s - out.host_exposed_s);
  out.waiting_s = std::max(0.0, idle_s - out.exposed_s);
  return out;
}

int64_t WayCost::Memory::gaps() const {
  return arena - std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
}

int64_t WayCost::most_bytes_of(int64_t Memory::*arena) const {
  int64_t out = 0;
  for (const Memory& each : memory) out = std::max(out, each.*arena);
  return out;
}

int64_t WayCost::most_bytes() const {
  return most_bytes_of(&Memory::arena);
}

int64_t bytes_beyond(const Way& way, const WayCost& cost, int64_t memory_bytes, const BesideBytes& beside) {
  int64_t out = std::max<int64_t>(0, cost.most_bytes() - memory_bytes);
  if (way.place == UpdatePlace() && way.keep == Tier::kDevice) return out;
  out += std::max<int64_t>(0, cost.most_bytes_of(&WayCost::Memory::host) - beside.host);
  return out + std::max<int64_t>(0, cost.most_bytes_of(&WayCost::Memory::disk) - beside.disk);
}

JobPlan plan_job(const PlanRequest& request) {
  require(request.ranks >= 1, "plan: {} ranks; it must be 1 or more", request.ranks);
  return Planner(request).run();
}

std::vector<Way> ways_of(const PlanRequest& request) {
  return Planner(request).ways();
}

Compiled compile_way(const PlanRequest& request, const Way& way) {
  return Planner(request).compiled(way).step;
}

std::optional<WayCost> cost_of_way(const PlanRequest& request, const Way& way) {
  try {
    return cost_of(compile_way(request, way));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    return std::nullopt;
  }
}

}  // namespace trireme
