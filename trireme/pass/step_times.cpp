#include "trireme/pass/step_times.h"

#include <fmt/format.h>

#include <algorithm>
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

double seconds_of(const Program& program, const Node& node, const ReshardCosts& links, const Machine& machine) {
  const OpDef& op = def_of(node);
  const auto [in, out] = types_of(program.graph, node);
  const TypeArgs types{in, out, node.attrs};
  if (!is_communication(op)) return compute_seconds(op, types, machine);
  return collective_seconds(op, types, program.mesh, links);
}

bool is_sum(const Node& node) {
  return does(node, ReshardStep::Kind::kAllReduce);
}

}  // namespace

BucketModel all_reduce_model(const Program& program, const Node& node, const ReshardCosts& links) {
  const RankGroups groups = groups_of(node);
  const LinkCost link = slowest_link(groups, program.mesh, links);
  const double share = among_all(groups.size, 1, 2).bytes;
  return {.start_s = seconds(among_all(groups.size, 0, 2), link, links),
          .bytes_per_s = groups.size > 1 ? link.bytes_per_s / share : link.bytes_per_s};
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
