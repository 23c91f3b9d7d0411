#include "trireme/pass/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/op/call_kinds.h"
#include "trireme/op/op_def.h"
#include "trireme/op/packing.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

using Kind = ReshardStep::Kind;

Machine machine_of(const Rates& rates) {
  return rates.machine ? *rates.machine : Machine::this_host();
}

double seconds_of(const CallKind& call, const Mesh& mesh, const ReshardCosts& links, const Machine& machine) {
  if (!is_communication(*call.op)) return compute_seconds(*call.op, call.types(), machine);
  return collective_seconds(*call.op, call.types(), mesh, links) + packing_seconds(*call.op, call.types(), machine);
}

// What each node is to those that may run beside computing.
class Beside {
 public:
  explicit Beside(const Graph& graph) : graph_(graph), first_reader_(graph.values().size(), -1) {
    for (size_t i = graph.nodes().size(); i-- > 0;) {
      for (const ValueId id : graph.nodes()[i].inputs) {
        first_reader_[static_cast<size_t>(id)] = static_cast<NodeId>(i);
      }
    }
  }

  // -1: none.
  NodeId first_reader(const Node& node) const {
    NodeId out = -1;
    for (const ValueId id : node.outputs) {
      const NodeId reader = first_reader_[static_cast<size_t>(id)];
      if (reader >= 0 && (out < 0 || reader < out)) out = reader;
    }
    return out;
  }

  bool runs_beside(const Node& node) const {
    if (does(node, Kind::kAllReduce)) return true;
    const bool gathers = does(node, Kind::kAllGather);
    if (!gathers && !does(node, Kind::kReduceScatter)) return false;
    const NodeId reader = first_reader(node);
    if (reader < 0) return true;
    return gathers ? reads_what_is_stored(node) : graph_.node(reader).phase == Phase::kUpdate;
  }

 private:
  bool reads_what_is_stored(const Node& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId id) { return is_as_stored(graph_, id); });
  }

  const Graph& graph_;
  std::vector<NodeId> first_reader_;  // of values
};

std::vector<double> start_times(const Program& program, const Rates& rates, const Beside& beside) {
  const Machine machine = machine_of(rates);
  CallKinds kinds;
  OfKind<double> seconds;
  std::vector<double> out;
  double now = 0;
  for (const Node& node : program.graph.nodes()) {
    out.push_back(now);
    if (node.on_host || is_move(def_of(node)) || beside.runs_beside(node)) continue;
    const int kind = kinds.of(program.graph, node);
    now += seconds.get(kind, [&] { return seconds_of(kinds[kind], program.mesh, rates.links, machine); });
  }
  out.push_back(now);
  return out;
}

}  // namespace

BucketModel bucket_model(const Program& program, const Node& node, const Rates& rates) {
  const RankGroups groups = groups_of(node);
  const LinkCost link = slowest_link(groups, program.mesh, rates.links);
  const int ways = does(node, Kind::kAllReduce) ? 2 : 1;
  const double share = among_all(groups.size, 1, ways).bytes;
  const bool packs = packs_slots(def_of(node).collective->call(node.attrs), 2);
  return {.start_s = seconds(among_all(groups.size, 0, ways), link, rates.links),
          .bytes_per_s = groups.size > 1 ? link.bytes_per_s / share : link.bytes_per_s,
          .packing_s_per_byte = packs ? 2 / machine_of(rates).memory_bytes_per_s : 0};
}

int64_t whole_bytes(const Program& program, const Node& node) {
  int64_t in = 0, out = 0;
  for (const ValueId id : node.inputs) in += program.graph.type(id).bytes();
  for (const ValueId id : node.outputs) out += program.graph.type(id).bytes();
  return std::max(in, out);
}

std::vector<double> start_times(const Program& program, const Rates& rates) {
  return start_times(program, rates, Beside(program.graph));
}

StepTimes step_times(const Program& program, const Rates& rates) {
  const Beside beside(program.graph);
  StepTimes times{.starts = start_times(program, rates, beside), .beside = {}};
  const std::vector<double>& starts = times.starts;
  struct OfCall {
    BucketModel model;
    double* free_at = nullptr;
  };
  std::map<std::string, double> free_at;  // by the ranks
  CallKinds kinds;
  OfKind<OfCall> of_kind;
  std::vector<BesideTime>& out = times.beside;
  for (size_t i = 0; i < program.graph.nodes().size(); ++i) {
    const Node& node = program.graph.nodes()[i];
    if (!beside.runs_beside(node)) continue;
    BesideTime time{.node = static_cast<NodeId>(i),
                    .members = node.inputs.size(),
                    .bytes = whole_bytes(program, node),
                    .ready_s = starts[i]};
    const OfCall& call = of_kind.get(kinds.of(program.graph, node), [&] {
      return OfCall{bucket_model(program, node, rates), &free_at[groups_of(node).text(program.mesh)]};
    });
    time.begin_s = std::max(*call.free_at, time.ready_s);
    const bool several = node.inputs.size() > 1;
    *call.free_at = time.end_s = time.begin_s + call.model.seconds(time.bytes, several);
    if (const NodeId reader = beside.first_reader(node); reader >= 0) time.read_s = starts[static_cast<size_t>(reader)];
    out.push_back(time);
  }
  return times;
}

std::map<ValueId, double> seconds_until_updated(const Graph& graph, std::span<const double> starts,
                                                const Machine& machine) {
  double free_s = 0;
  std::map<NodeId, double> ended_s;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (!node.on_host) continue;
    std::vector<TensorType> in, out;
    for (const ValueId read : node.inputs) in.push_back(graph.type(read));
    for (const ValueId made : node.outputs) out.push_back(graph.type(made));
    free_s = std::max(free_s, starts[static_cast<size_t>(id)]) +
             compute_seconds_on_host(def_of(node), {in, out, node.attrs}, machine);
    ended_s[id] = free_s;
  }
  std::map<ValueId, double> updated_s;
  const auto note = [&](ValueId input, ValueId made) {
    const auto ended = ended_s.find(graph.value(made).producer);
    if (ended == ended_s.end()) return;
    double& seconds = updated_s[input];
    seconds = std::max(seconds, ended->second - starts.back());
  };
  for (const Output& output : graph.outputs()) {
    const NodeId producer = graph.value(output.value).producer;
    if (output.updates == kNoValue || producer < 0) continue;
    note(output.updates, output.value);
    if (!def_of(graph.node(producer)).traits.joins_in_place) continue;
    for (const ValueId part : graph.node(producer).inputs) note(output.updates, part);
  }
  return updated_s;
}

std::string beside_table(const Program& program, const Rates& rates) {
  const auto [starts, times] = step_times(program, rates);
  if (times.empty()) return "no collectives beside the ops\n";
  std::string out = "collectives beside the ops, in ms of the modelled step:\n";
  out += fmt::format("{:<14} {:<14} {:>7} {:>12} {:>10} {:>10} {:>10} {:>10}  {}\n", "kind", "over", "values", "bytes",
                     "ready", "begins", "ends", "read", "first");
  double end_s = 0, all_s = 0;
  for (const BesideTime& time : times) {
    const Node& node = program.graph.node(time.node);
    const std::string read = time.read_s < 0 ? "-" : fmt::format("{:.3f}", time.read_s * 1e3);
    out += fmt::format("{:<14} {:<14} {:>7} {:>12} {:>10.3f} {:>10.3f} {:>10.3f} {:>10}  %{}\n", node.op->name,
                       groups_of(node).text(program.mesh), time.members, time.bytes, time.ready_s * 1e3,
                       time.begin_s * 1e3, time.end_s * 1e3, read, node.outputs[0]);
    end_s = std::max(end_s, time.end_s);
    all_s += time.end_s - time.begin_s;
  }
  const double compute_s = starts.back();
  return out + fmt::format("computing ends at {:.3f} ms, the last of these at {:.3f}; all take {:.3f} ms\n",
                           compute_s * 1e3, end_s * 1e3, all_s * 1e3);
}

}  // namespace trireme
