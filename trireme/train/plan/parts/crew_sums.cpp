#include "trireme/train/plan/parts/crew_sums.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/cost/price.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/op/message.h"
#include "trireme/op/move.h"
#include "trireme/op/op_def.h"
#include "trireme/op/structural.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/train/plan/parts/tied_weights.h"

namespace trireme {
namespace {

using PartField = int64_t PartPrice::*;

// Whether a message of a micro-batch to another crew needs the node: what crosses back are gradients of what came. (The
// sum of a weight's gradients that is sent once a step is waited for by no pass.)
std::vector<char> input_grads_of(const Graph& graph) {
  std::vector<char> needed(graph.nodes().size(), 0);
  for (size_t i = needed.size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kBackward) continue;
    if (is_message(def_of(node)) && !node.inputs.empty() && node.micro_batch >= 0) needed[i] = 1;
    if (needed[i] == 0) continue;
    for (const ValueId id : node.inputs) {
      const NodeId producer = graph.value(id).producer;
      if (producer >= 0) needed[static_cast<size_t>(producer)] = 1;
    }
  }
  return needed;
}

bool is_of_last(const Node& node) {
  return node.micro_batch == kMicroBatches - 1;
}

// A product of the last micro-batch that adds its term to those of the first.
bool makes_and_adds(const Graph& graph, const Node& node) {
  if (!is_of_last(node) || node.phase != Phase::kBackward || is_message(def_of(node))) return false;
  return std::ranges::any_of(node.inputs, [&](ValueId id) {
    const NodeId producer = graph.value(id).producer;
    return producer >= 0 && graph.node(producer).micro_batch == 0 && graph.node(producer).phase == Phase::kBackward &&
           graph.type(id) == graph.type(node.outputs[0]);
  });
}

// A sum over micro-batches, of which each but the first adds a term. One that only adds is of no micro-batch.
bool adds_up(const Graph& graph, const Node& node) {
  bool has_first = false, has_last = false;
  if (node.micro_batch >= 0) return makes_and_adds(graph, node);
  for (const ValueId id : node.inputs) {
    const NodeId producer = graph.value(id).producer;
    if (producer < 0) continue;
    has_first = has_first || graph.node(producer).micro_batch == 0;
    has_last = has_last || is_of_last(graph.node(producer));
  }
  return has_first && has_last;
}

// Gradients of parameters that a micro-batch's are added to: they are as large whatever rows it has, where what an op
// takes of all micro-batches at once to make a gradient of them is not. Of those that are added as they are made the
// time goes by the rows.
class AddedGradients {
 public:
  explicit AddedGradients(const Graph& graph) : graph_(graph) {
    for (const Update& update : graph.updates()) find_sums(update.gradient);
  }
  // Whether the node only adds to one of them.
  bool has(NodeId node) const { return sums_.count(node) > 0 && graph_.node(node).micro_batch < 0; }
  // What they lie in before the last micro-batch's are added.
  int64_t bytes() const {
    std::set<ValueId> all;
    for (const NodeId sum : sums_) {
      for (const ValueId id : graph_.node(sum).inputs) {
        const NodeId producer = graph_.value(id).producer;
        if (producer >= 0 && graph_.node(producer).micro_batch == 0) all.insert(id);
      }
    }
    int64_t out = 0;
    for (const ValueId id : all) out += graph_.type(id).bytes();
    return out;
  }

 private:
  // Back to sums over micro-batches from what the update makes of them, and what ranks exchange of them.
  void find_sums(ValueId value) {
    const NodeId id = graph_.value(value).producer;
    if (id < 0 || !looked_at_.insert(id).second) return;
    const Node& node = graph_.node(id);
    if (adds_up(graph_, node)) {
      sums_.insert(id);
    } else if (node.micro_batch < 0 && (node.phase == Phase::kUpdate || def_of(node).collective)) {
      for (const ValueId input : node.inputs) find_sums(input);
    }
  }

  const Graph& graph_;
  std::set<NodeId> looked_at_, sums_;
};

// Bytes that weight gradients read and something before them makes: what is left of a micro-batch for which only these
// are to be computed.
int64_t waiting_bytes(const Graph& graph, const std::vector<char>& input_grads) {
  const auto is_put_off = [&](NodeId id) {
    const auto i = static_cast<size_t>(id);
    return graph.nodes()[i].phase == Phase::kBackward && input_grads[i] == 0 && !is_message(def_of(graph.nodes()[i]));
  };
  std::set<ValueId> read;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!is_put_off(static_cast<NodeId>(i)) || !is_of_last(graph.nodes()[i])) continue;
    for (const ValueId id : graph.nodes()[i].inputs) {
      const NodeId producer = graph.value(id).producer;
      if (producer >= 0 && is_of_last(graph.node(producer)) && !is_put_off(producer)) read.insert(id);
    }
  }
  int64_t out = 0;
  for (const ValueId id : read) out += graph.type(id).bytes();
  return out;
}

// Whether it gathers a weight for both micro-batches. In the timetable of parts they lie side by side; in others
// something else is between them, and each gathers it.
class GathersForBoth {
 public:
  explicit GathersForBoth(const Graph& graph) : graph_(graph), read_by_(graph.values().size(), 0) {
    for (const Node& node : graph.nodes()) {
      if (node.micro_batch < 0) continue;
      for (const ValueId id : node.inputs) read_by_[static_cast<size_t>(id)] |= is_of_last(node) ? 2 : 1;
    }
  }
  bool has(const Node& node) const {
    return node.micro_batch >= 0 && does(node, ReshardStep::Kind::kAllGather) &&
           std::ranges::all_of(node.inputs, [&](ValueId id) { return is_as_stored(graph_, id); }) &&
           std::ranges::any_of(node.outputs, [&](ValueId id) { return read_by_[static_cast<size_t>(id)] == 3; });
  }

 private:
  const Graph& graph_;
  std::vector<char> read_by_;  // by value: 1: the first micro-batch; 2: the last; 3: both
};

// Whose micro-batch a buffer is; -1: of none, or of several.
std::vector<int> micro_batches_of_buffers(const CompiledCrew& crew) {
  constexpr int kUnknown = -2;
  std::vector<int> out(crew.plan.buffers.size(), kUnknown);
  const Graph& graph = crew.program.graph;
  for (size_t id = 0; id < crew.plan.values.size(); ++id) {
    const NodeId producer = graph.value(static_cast<ValueId>(id)).producer;
    const int of_value = producer < 0 ? -1 : graph.node(producer).micro_batch;
    int& of_buffer = out[static_cast<size_t>(crew.plan.values[id].buffer)];
    of_buffer = of_buffer == kUnknown || of_buffer == of_value ? of_value : -1;
  }
  return out;
}

// The first action of a backward pass, or of what is made again for it, when all forward passes are done: actions are
// the program's nodes.
int first_backward(const CompiledCrew& crew) {
  const std::vector<Node>& nodes = crew.program.graph.nodes();
  invariant(nodes.size() == crew.plan.actions.size(), "a program of {} nodes has a plan of {} actions", nodes.size(),
            crew.plan.actions.size());
  const auto is_first = [](const Node& node) {
    return is_for_backward(node) && node.micro_batch >= 0 && !is_message(def_of(node));
  };
  return static_cast<int>(std::ranges::find_if(nodes, is_first) - nodes.begin());
}

// Moves of what the forward pass of a micro-batch makes for its backward pass: away from the device, and back.
struct KeptMoves {
  std::vector<NodeId> away, back;
};

KeptMoves moves_of_kept(const Graph& graph) {
  KeptMoves out;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (!is_move(def_of(node)) || node.micro_batch < 0 || node.phase == Phase::kUpdate) continue;
    (move_of(node.attrs).to == Tier::kDevice ? out.back : out.away).push_back(id);
  }
  return out;
}

// Of the micro-batch for which they take longest.
int64_t longest_of_each(const Graph& graph, const std::vector<NodeId>& moves, const std::vector<int64_t>& prices) {
  std::array<int64_t, kMicroBatches> out{};
  for (const NodeId id : moves) out[static_cast<size_t>(graph.node(id).micro_batch)] += prices[static_cast<size_t>(id)];
  return *std::ranges::max_element(out);
}

// What the moves put on the host or the disk, of the micro-batch that puts most there.
int64_t kept_bytes_elsewhere(const CompiledCrew& crew, const KeptMoves& moves, Tier keep) {
  std::array<int64_t, kMicroBatches> out{};
  for (const NodeId id : moves.away) {
    const Node& node = crew.program.graph.node(id);
    const int64_t bytes = crew.program.graph.type(node.outputs[0]).bytes();
    out[static_cast<size_t>(node.micro_batch)] +=
        keep == Tier::kDisk ? bytes_on_disk(bytes) : align_buffer(bytes, crew.plan.alignment);
  }
  return *std::ranges::max_element(out);
}

// What of it is on the device beside what the part works on: a micro-batch's on its way out, or what four readers ahead
// have come for, which may be of four micro-batches.
int64_t window_bytes(const CompiledCrew& crew, const KeptMoves& moves, int64_t of_each) {
  constexpr int64_t kReadersAhead = 4;
  int64_t largest = 0;
  for (const NodeId id : moves.away) {
    const int64_t bytes = crew.program.graph.type(crew.program.graph.node(id).outputs[0]).bytes();
    largest = std::max(largest, align_buffer(bytes, crew.plan.alignment));
  }
  return std::max(of_each, kReadersAhead * largest);
}

// Of each buffer of the device whether what is in it leaves, or has come back.
std::vector<char> buffers_of_moves(const CompiledCrew& crew, const KeptMoves& moves) {
  std::vector<char> out(crew.plan.buffers.size(), 0);
  const auto mark = [&](ValueId id) { out[static_cast<size_t>(crew.plan.values[static_cast<size_t>(id)].buffer)] = 1; };
  for (const NodeId id : moves.away) mark(crew.program.graph.node(id).inputs[0]);
  for (const NodeId id : moves.back) mark(crew.program.graph.node(id).outputs[0]);
  return out;
}

// How many micro-batches' forward passes come before the first backward pass.
int micro_batches_in_flight(const CompiledCrew& crew) {
  std::set<int> out;
  const int before = first_backward(crew);
  for (int i = 0; i < before; ++i) {
    const Node& node = crew.program.graph.node(i);
    if (node.micro_batch >= 0 && node.phase == Phase::kForward && !is_message(def_of(node)))
      out.insert(node.micro_batch);
  }
  return std::max<int>(1, static_cast<int>(out.size()));
}

// Of each buffer whether a weight lies in it as it was brought to its readers, which is of one part at a time.
std::vector<char> buffers_of_brought(const CompiledCrew& crew) {
  std::vector<char> out(crew.plan.buffers.size(), 0);
  const Graph& graph = crew.program.graph;
  for (const Node& node : graph.nodes()) {
    if (!brings_pieces(node) || node.micro_batch < 0 || brought_parameter(graph, node.outputs[0]) == kNoValue) continue;
    out[static_cast<size_t>(crew.plan.values[static_cast<size_t>(node.outputs[0])].buffer)] = 1;
  }
  return out;
}

// Of activations and data that each micro-batch in flight keeps, before its backward pass: of the one that has the
// most, as the other may be on its way. Of data, which lie in one buffer, each has half. What leaves the device, or has
// come back, is in buffers that work needs.
int64_t kept_bytes(const CompiledCrew& crew, const std::vector<char>& of_moves) {
  const int before = first_backward(crew);
  const std::vector<int> of_buffers = micro_batches_of_buffers(crew);
  const std::vector<char> of_brought = buffers_of_brought(crew);
  std::array<int64_t, kMicroBatches> kept{};
  int64_t of_both = 0;
  for (size_t i = 0; i < crew.plan.buffers.size(); ++i) {
    const Buffer& buffer = crew.plan.buffers[i];
    const bool is_data = buffer.holding == Holding::kData;
    if ((!is_data && buffer.holding != Holding::kActivation) || buffer.tier != Tier::kDevice) continue;
    if (buffer.offset < 0 || buffer.first >= before || buffer.last < before || of_moves[i] != 0) continue;
    if (of_brought[i] != 0) continue;
    const int64_t bytes = align_buffer(buffer.bytes, crew.plan.alignment);
    if (of_buffers[i] >= 0) {
      kept[static_cast<size_t>(of_buffers[i])] += bytes;
    } else if (is_data) {
      of_both += bytes;
    }
  }
  return *std::ranges::max_element(kept) + of_both / kMicroBatches;
}

// Inputs that lie elsewhere and come with one move, for all micro-batches.
std::set<NodeId> moves_of_inputs(const Graph& graph) {
  std::map<ValueId, std::pair<NodeId, int>> moves;  // by input: the first, and how many
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!is_move(def_of(node)) || graph.value(node.inputs[0]).producer >= 0) continue;
    ++moves.emplace(node.inputs[0], std::pair(static_cast<NodeId>(i), 0)).first->second.second;
  }
  std::set<NodeId> out;
  for (const auto& [input, move] : moves) {
    if (move.second == 1) out.insert(move.first);
  }
  return out;
}

// Of what a part has on the device for all micro-batches, beside gradients, before a backward pass: weights that came
// for the step, and what is made of weights once. What comes from another crew is not a matter of this part: a tied
// weight, which a stage that has both its readers does not send.
int64_t held_bytes(const CompiledCrew& crew, const std::set<NodeId>& comes) {
  const int before = first_backward(crew);
  const Graph& graph = crew.program.graph;
  std::vector<char> is_of_others(crew.plan.buffers.size(), 0);  // of a micro-batch, or of another crew
  for (size_t id = 0; id < crew.plan.values.size(); ++id) {
    const NodeId producer = graph.value(static_cast<ValueId>(id)).producer;
    if (producer >= 0 && (graph.node(producer).micro_batch >= 0 || is_message(def_of(graph.node(producer)))))
      is_of_others[static_cast<size_t>(crew.plan.values[id].buffer)] = 1;
  }
  std::set<int> come;
  for (const NodeId id : comes) come.insert(crew.plan.values[static_cast<size_t>(graph.node(id).outputs[0])].buffer);
  int64_t out = 0;
  for (size_t i = 0; i < crew.plan.buffers.size(); ++i) {
    const Buffer& buffer = crew.plan.buffers[i];
    if (buffer.tier != Tier::kDevice || buffer.offset < 0 || buffer.first >= before || buffer.last < before) continue;
    const bool is_made_once = buffer.holding == Holding::kActivation && is_of_others[i] == 0;
    if (is_made_once || come.contains(static_cast<int>(i))) out += align_buffer(buffer.bytes, crew.plan.alignment);
  }
  return out;
}

// Of each buffer the last node that reads what is in it, where the step's results are read at the end. What is being
// sent stays longer.
std::vector<int> last_readers(const CompiledCrew& crew) {
  const Graph& graph = crew.program.graph;
  std::vector<int> out(crew.plan.buffers.size(), -1);
  const auto buffer_of = [&](ValueId id) {
    return static_cast<size_t>(crew.plan.values[static_cast<size_t>(id)].buffer);
  };
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    for (const ValueId id : graph.nodes()[static_cast<size_t>(i)].inputs) out[buffer_of(id)] = i;
  }
  for (const Output& output : graph.outputs()) out[buffer_of(output.value)] = static_cast<int>(graph.nodes().size());
  return out;
}

// Of gradients that a part has from one micro-batch to the next: the fewest while the last one's backward pass has
// added to none of them. What comes and goes while terms are made, sent and added is of one part at a time.
int64_t gradient_bytes(const CompiledCrew& crew) {
  const std::vector<Node>& nodes = crew.program.graph.nodes();
  const auto begin = std::ranges::find_if(nodes, [&](const Node& node) {
    return node.phase == Phase::kBackward && is_of_last(node) && !is_message(def_of(node));
  });
  const auto end =
      std::find_if(begin, nodes.end(), [&](const Node& node) { return adds_up(crew.program.graph, node); });
  if (end == nodes.end()) return 0;
  std::vector<int64_t> live(nodes.size() + 1, 0);  // changes
  const std::vector<int> last_reader = last_readers(crew);
  for (size_t i = 0; i < crew.plan.buffers.size(); ++i) {
    const Buffer& buffer = crew.plan.buffers[i];
    if (buffer.offset < 0 || buffer.holding != Holding::kGradient || buffer.tier != Tier::kDevice) continue;
    const int64_t bytes = align_buffer(buffer.bytes, crew.plan.alignment);
    const int last = std::max(buffer.first, std::min(buffer.last, last_reader[i]));
    live[static_cast<size_t>(std::max(buffer.first, 0))] += bytes;
    live[static_cast<size_t>(std::clamp<int64_t>(last, 0, std::ssize(nodes) - 1)) + 1] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  // The first node may be a product that adds: in the place of what it adds to.
  const auto past = std::max(end, begin + 1);
  return *std::min_element(live.begin() + (begin - nodes.begin()), live.begin() + (past - nodes.begin()));
}

// Whether it moves what updates read or make, or a weight that comes once.
bool is_move_of_step(const Node& node, bool comes_once, const std::vector<char>& read_by_updates) {
  if (!is_move(def_of(node))) return false;
  return node.phase == Phase::kUpdate || comes_once || read_by_updates[static_cast<size_t>(node.outputs[0])] != 0;
}

std::vector<char> that_updates_read(const Graph& graph) {
  std::vector<char> out(graph.values().size(), 0);
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kUpdate) continue;
    for (const ValueId id : node.inputs) out[static_cast<size_t>(id)] = 1;
  }
  return out;
}

// Which of a part's prices a node adds to. What updates do for each micro-batch is part of its backward pass, but for
// those on the host, and moves between tiers.
PartField field_of(const Node& node, bool is_input_grad, bool is_move_of_step) {
  if (is_move_of_step)
    return move_of(node.attrs).to < move_of(node.attrs).from ? &PartPrice::coming : &PartPrice::going;
  if (node.on_host && node.phase == Phase::kUpdate) return &PartPrice::updating;
  const bool moves = is_communication(def_of(node)) || is_move(def_of(node));
  if (node.phase == Phase::kForward && !node.again) return moves ? &PartPrice::moving_forward : &PartPrice::forward;
  if (moves) return &PartPrice::moving_backward;
  if (node.phase == Phase::kForward) return &PartPrice::again;
  return node.phase == Phase::kBackward && is_input_grad ? &PartPrice::input_grad : &PartPrice::weight_grad;
}

void add_message(const Graph& graph, const Node& node, CrewSums& out) {
  if (node.inputs.empty()) return;  // one that comes
  ++out.messages;
  for (const ValueId id : node.inputs) out.message_bytes += graph.type(id).bytes();
}

}  // namespace

namespace {

// Times and bytes of what is kept elsewhere.
void add_kept_elsewhere(const CompiledCrew& crew, const std::vector<int64_t>& prices, const KeptMoves& moves, Tier keep,
                        CrewSums& out) {
  out.in_flight = micro_batches_in_flight(crew);
  out.last.leaving = longest_of_each(crew.program.graph, moves.away, prices);
  out.last.returning = longest_of_each(crew.program.graph, moves.back, prices);
  int64_t& each = keep == Tier::kHost ? out.last.kept_host : out.last.kept_disk;
  int64_t& all = keep == Tier::kHost ? out.all.host : out.all.disk;
  each = kept_bytes_elsewhere(crew, moves, keep);
  all = std::max<int64_t>(0, all - out.in_flight * each);
  if (keep == Tier::kDisk) out.all.host *= 2;  // staging of moves of several micro-batches at a time
  out.all.work += window_bytes(crew, moves, each);
}

// What a stage that has the other readers as well takes otherwise. It has one sum for two of them; where each
// micro-batch's is scattered, it needs as much for those that are made and packed.
void add_tied(const Graph& graph, const std::vector<int64_t>& prices, bool scatters_each, CrewSums& out) {
  const TiedGradients gradients = tied_gradients(graph, prices);
  if (scatters_each && gradients.scatters_ps > 0) {
    out.last.tied = gradients.scatters_ps;
  } else {
    out.last.tied_sums = gradients.came_bytes;
  }
  const TiedGathers gathers = tied_gathers(graph, prices, kMicroBatches - 1);
  out.last.tied_forward = gathers.forward_ps;
  out.last.tied_backward = gathers.backward_ps;
}

}  // namespace

CrewSums sums_of_crew(const CompiledCrew& crew, const Rates& rates, const PartWay& way) {
  const Tier keep = way.keep;
  const Graph& graph = crew.program.graph;
  const CostModel model(crew.program.mesh, rates);
  const std::vector<int64_t> prices = node_prices_ps(crew.program, model);
  const std::vector<char> input_grads = input_grads_of(graph);
  const bool is_single = crew.program.micro_batches == 1;
  const auto is_each = [&](const Node& node) {
    return is_single ? node.phase != Phase::kUpdate : is_of_last(node) || adds_up(graph, node);
  };
  const AddedGradients added(graph);
  const GathersForBoth for_both(graph);
  const std::set<NodeId> comes = moves_of_inputs(graph);
  const std::vector<char> read_by_updates = that_updates_read(graph);
  const KeptMoves kept = keep == Tier::kDevice ? KeptMoves() : moves_of_kept(graph);
  std::set<NodeId> of_kept(kept.away.begin(), kept.away.end());
  of_kept.insert(kept.back.begin(), kept.back.end());
  CrewSums out;
  for (size_t i = 0; i < prices.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (is_message(def_of(node))) {
      if (is_of_last(node)) add_message(graph, node, out);
      continue;
    }
    if (of_kept.contains(static_cast<NodeId>(i))) continue;
    const bool comes_once = comes.contains(static_cast<NodeId>(i));
    const PartField field = field_of(node, input_grads[i] != 0, is_move_of_step(node, comes_once, read_by_updates));
    const bool is_for_both = way.gathers_each && !is_single && for_both.has(node);
    out.all.*field += is_for_both ? 2 * prices[i] : prices[i];
    if (is_each(node) || is_for_both) out.last.*field += prices[i];
    if (field == &PartPrice::weight_grad && added.has(static_cast<NodeId>(i))) out.last.adding += prices[i];
  }
  out.last.kept = is_single ? 0 : kept_bytes(crew, buffers_of_moves(crew, kept));
  // A sum of values, without moments.
  out.last.waiting = std::max(out.last.kept, waiting_bytes(graph, input_grads));
  out.all.persistent = crew.plan.arena().persistent;
  out.all.held = held_bytes(crew, comes);
  out.all.gradients = gradient_bytes(crew);
  out.last.sums = std::min(out.all.gradients, added.bytes());
  out.all.host = crew.plan.arena(Tier::kHost).bytes;
  out.all.disk = crew.plan.arena(Tier::kDisk).bytes;
  out.all.work = crew.plan.arena().bytes;
  if (!is_single) add_tied(graph, prices, way.scatters_each, out);
  if (keep != Tier::kDevice) add_kept_elsewhere(crew, prices, kept, keep, out);
  return out;
}

}  // namespace trireme
