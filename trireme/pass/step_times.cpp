#include "trireme/pass/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

struct Types {
  std::vector<TensorType> in, out;
};

Types types_of(const Graph& graph, const Node& node) {
  Types types;
  for (const ValueId id : node.inputs) types.in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) types.out.push_back(graph.type(id));
  return types;
}

LinkCost slowest_link(const Program& program, const RankGroups& groups, const ReshardCosts& links) {
  std::vector<int64_t> axes = groups.axes;
  if (!groups.ranks.empty()) {  // listed by number: they may lie anywhere
    for (int axis = 0; axis < program.mesh.axes(); ++axis) axes.push_back(axis);
  }
  if (axes.empty()) return links.link;
  LinkCost out = links.of(static_cast<int>(axes[0]));
  for (const int64_t axis : axes) {
    const LinkCost& link = links.of(static_cast<int>(axis));
    out.latency_s = std::max(out.latency_s, link.latency_s);
    out.bytes_per_s = std::min(out.bytes_per_s, link.bytes_per_s);
  }
  return out;
}

double rounds(int64_t ranks) {
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(ranks, 1) - 1));
}

double seconds_of(const Program& program, const Node& node, const ReshardCosts& links, const Machine& machine) {
  const OpDef& op = def_of(node);
  const auto [in, out] = types_of(program.graph, node);
  if (is_communication(op)) {
    const RankGroups groups = groups_of(node);
    const LinkCost link = slowest_link(program, groups, links);
    int64_t sent = 0, got = 0;
    for (const TensorType& type : in) sent += type.bytes();
    for (const TensorType& type : out) got += type.bytes();
    const double share = static_cast<double>(groups.size - 1) / static_cast<double>(groups.size);
    return links.step_s + rounds(groups.size) * link.latency_s +
           share * static_cast<double>(std::max(sent, got)) / link.bytes_per_s;
  }
  if (!op.cost || op.traits.zero_cost_view || out.empty()) return 0;
  const Cost cost = op.cost.get()({in, out, node.attrs});
  const double flops_per_s = machine.flops_of(to_string(in.empty() ? out[0].dtype : in[0].dtype)) * machine.achievable;
  return std::max(cost.flops / flops_per_s, cost.bytes / machine.memory_bytes_per_s);
}

bool is_sum(const Node& node) {
  return does(node, ReshardStep::Kind::kAllReduce);
}

}  // namespace

BucketModel all_reduce_model(const Program& program, const Node& node, const ReshardCosts& links) {
  const RankGroups groups = groups_of(node);
  const LinkCost link = slowest_link(program, groups, links);
  const auto p = static_cast<double>(groups.size);
  return {.start_s = links.step_s + 2 * rounds(groups.size) * link.latency_s,
          .bytes_per_s = groups.size > 1 ? link.bytes_per_s * p / (2 * (p - 1)) : link.bytes_per_s};
}

std::vector<double> start_times(const Program& program, const Rates& rates) {
  const Machine machine = rates.machine ? *rates.machine : Machine::this_host();
  std::vector<double> out;
  double now = 0;
  for (const Node& node : program.graph.nodes()) {
    out.push_back(now);
    if (!is_sum(node)) now += seconds_of(program, node, rates.links, machine);
  }
  out.push_back(now);
  return out;
}

std::vector<AllReduceTime> all_reduce_times(const Program& program, const Rates& rates) {
  const std::vector<double> starts = start_times(program, rates);
  std::map<std::string, double> free_at;  // by the ranks that are summed over
  std::vector<AllReduceTime> out;
  for (size_t i = 0; i < program.graph.nodes().size(); ++i) {
    const Node& node = program.graph.nodes()[i];
    if (!is_sum(node)) continue;
    AllReduceTime time{.node = static_cast<NodeId>(i), .members = node.inputs.size(), .ready_s = starts[i]};
    for (const ValueId id : node.inputs) time.bytes += program.graph.type(id).bytes();
    double& free = free_at[groups_of(node).text(program.mesh)];
    time.begin_s = std::max(free, time.ready_s);
    free = time.end_s = time.begin_s + all_reduce_model(program, node, rates.links).seconds(time.bytes);
    out.push_back(time);
  }
  return out;
}

std::string all_reduce_table(const Program& program, const Rates& rates) {
  const std::vector<AllReduceTime> times = all_reduce_times(program, rates);
  if (times.empty()) return "no sums over ranks\n";
  std::string out = "sums over ranks, in ms of the modelled step:\n";
  out += fmt::format("{:<14} {:>7} {:>14} {:>11} {:>11} {:>11}  {}\n", "over", "values", "bytes", "ready", "begins",
                     "ends", "first");
  double end_s = 0, all_s = 0;
  for (const AllReduceTime& time : times) {
    const Node& node = program.graph.node(time.node);
    out += fmt::format("{:<14} {:>7} {:>14} {:>11.3f} {:>11.3f} {:>11.3f}  %{}\n", groups_of(node).text(program.mesh),
                       time.members, time.bytes, time.ready_s * 1e3, time.begin_s * 1e3, time.end_s * 1e3,
                       node.outputs[0]);
    end_s = std::max(end_s, time.end_s);
    all_s += time.end_s - time.begin_s;
  }
  const double compute_s = start_times(program, rates).back();
  return out + fmt::format("computing ends at {:.3f} ms, the last sum at {:.3f}; all take {:.3f} ms\n", compute_s * 1e3,
                           end_s * 1e3, all_s * 1e3);
}

}  // namespace trireme
