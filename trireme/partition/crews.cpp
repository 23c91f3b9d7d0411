#include "trireme/partition/crews.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/op/message.h"
#include "trireme/op/structural.h"
#include "trireme/partition/crew_units.h"

namespace trireme {
namespace {

// In which order a crew does its nodes and messages.
struct Step {
  enum class Kind { kNode, kSend, kRecv } kind = Kind::kNode;
  int32_t id = 0;       // a node; the value that a message is of
  int crew = 0;         // that it is sent to
  int64_t answer = -1;  // SendAttrs::answer
};

class Order {
 public:
  Order(const CrewUnits& stages, int crew)
      : stages_(stages),
        graph_(stages.program().graph),
        crew_(crew),
        units_(stages.timetable().crews[static_cast<size_t>(crew)]),
        has_(graph_.values().size(), 0),
        done_(graph_.nodes().size(), 0),
        missing_(graph_.nodes().size(), 0),
        is_waited_for_(graph_.values().size(), 0),
        waits_for_others_(graph_.nodes().size(), 0) {
    find_nodes();
  }

  std::vector<Step> run() {
    for (const Input& input : graph_.inputs()) {
      if (is_ours(input.value)) send(input.value);
    }
    for (const NodeId id : sent_first_) add(id);
    for (size_t i = 0; i < units_.size(); ++i) {
      at_ = static_cast<int>(i);
      ask_for(i);
      if (i + 1 < units_.size()) ask_for(i + 1);
      for (const NodeId id : of_unit_[i]) {
        add(id);
        if (stages_.copies() > 1) add_ready();  // else terms of all copies would be kept
      }
      add_ready();
    }
    at_ = static_cast<int>(units_.size());
    for (const bool waits : {false, true}) {
      for (const NodeId id : of_no_unit_) {
        if ((waits_for_others_[static_cast<size_t>(id)] != 0) == waits) add(id);
      }
    }
    for (const Output& output : graph_.outputs()) {
      if (output.updates == kNoValue || is_ours(output.updates)) need(output.value, -1);
    }
    return std::move(steps_);
  }

 private:
  bool is_ours(ValueId id) const { return stages_.crew_of_value(id) == crew_; }
  bool is_elsewhere(ValueId id) const {
    const int crew = stages_.crew_of_value(id);
    return crew >= 0 && crew != crew_;
  }

  void find_nodes() {
    of_unit_.resize(units_.size());
    incoming_.resize(units_.size());
    for (const NodeId id : stages_.nodes_of(crew_)) {
      const Node& node = graph_.node(id);
      const int unit = stages_.unit_of(id);
      if (unit >= 0) {
        of_unit_[static_cast<size_t>(unit)].push_back(id);
        for (const ValueId in : node.inputs) {
          if (is_elsewhere(in)) incoming_[static_cast<size_t>(unit)].push_back(in);
        }
        continue;
      }
      note_of_no_unit(id);
    }
    std::ranges::sort(readers_);
  }

  // A sum over micro-batches, and what is made of it, is ready when all is that it reads of units; what reads another
  // crew's values is left to the end.
  void note_of_no_unit(NodeId id) {
    const Node& node = graph_.node(id);
    const bool early =
        node.phase != Phase::kUpdate && std::ranges::none_of(node.inputs, [&](ValueId in) { return is_elsewhere(in); });
    if (!stages_.follows_unit(id) && node.phase != Phase::kUpdate) {  // where it is read
      const auto is_sent = [&](ValueId out) { return !stages_.readers_of(out).empty(); };
      if (std::ranges::any_of(node.outputs, is_sent)) sent_first_.push_back(id);
      return;
    }
    of_no_unit_.push_back(id);
    waits_for_others_[static_cast<size_t>(id)] = std::ranges::any_of(node.inputs, [&](ValueId in) {
      const NodeId producer = graph_.value(in).producer;
      return is_elsewhere(in) || (producer >= 0 && waits_for_others_[static_cast<size_t>(producer)] != 0);
    });
    if (!early) return;
    for (const ValueId in : node.inputs) {
      const NodeId producer = graph_.value(in).producer;
      if (producer < 0 || stages_.crew_of(producer) != crew_ || !stages_.follows_unit(producer)) continue;
      readers_.emplace_back(in, id);
      is_waited_for_[static_cast<size_t>(in)] = 1;
      ++missing_[static_cast<size_t>(id)];
    }
  }

  // What other crews make after something of this crew's that works on all micro-batches is not asked for here: that
  // comes first.
  void ask_for(size_t unit) {
    for (const ValueId id : incoming_[unit]) {
      const NodeId producer = graph_.value(id).producer;
      if (producer < 0 || !stages_.follows_whole(producer)) receive(id);
    }
  }

  // Adds what other crews wait for before they can send the value: of this crew's nodes, those of no unit that it
  // depends on by way of other crews.
  void add_what_leads_to(ValueId id, NodeId reader) {
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0 || !stages_.follows_whole(producer) || !led_to_.insert(producer).second) return;
    for (const ValueId in : graph_.node(producer).inputs) {
      if (is_ours(in)) {
        need(in, reader);
      } else {
        add_what_leads_to(in, reader);
      }
    }
  }

  void receive(ValueId id) {
    if (has_[static_cast<size_t>(id)] != 0) return;
    has_[static_cast<size_t>(id)] = 1;
    steps_.push_back({Step::Kind::kRecv, id, 0});
  }

  void send(ValueId id) {
    if (!stages_.crosses(id)) return;
    for (const int crew : stages_.readers_of(id)) steps_.push_back({Step::Kind::kSend, id, crew});
  }

  void need(ValueId id, NodeId reader) {
    const NodeId producer = graph_.value(id).producer;
    if (is_elsewhere(id)) {
      add_what_leads_to(id, reader);
      return receive(id);
    }
    if (producer < 0 || has_[static_cast<size_t>(id)] != 0) return;
    if (stages_.unit_of(producer) > at_) check_early(producer, reader);
    add(producer);
  }

  // A unit that reads what a later one makes works on all micro-batches at once.
  void check_early(NodeId producer, NodeId reader) const {
    const auto is_forward = [](const Unit& unit) { return unit.pass == Unit::Pass::kForward; };
    const auto first_backward = std::ranges::find_if_not(units_, is_forward);
    const bool in_a_row = std::none_of(first_backward, units_.end(), is_forward);
    const Unit& here = units_[static_cast<size_t>(at_)];
    const Unit& there = units_[static_cast<size_t>(stages_.unit_of(producer))];
    const Node& node = graph_.node(reader < 0 ? producer : reader);
    require(in_a_row && is_forward(here) == is_forward(there),
            "{} of '{}' works on all micro-batches at once ({} reads what {} makes), which the schedule '{}' does not "
            "allow; use the schedule gpipe (others take experts with model.aux_loss_factor = 0, and as many "
            "model.expert_groups as the batch has parts: micro-batches times the ranks that share it)",
            node.op->name, graph_.scope_of(node), to_string(here), to_string(there), stages_.timetable().name);
  }

  void add(NodeId id) {
    if (done_[static_cast<size_t>(id)] != 0) return;
    done_[static_cast<size_t>(id)] = 1;
    const Node& node = graph_.node(id);
    for (const ValueId in : node.inputs) need(in, id);
    steps_.push_back({Step::Kind::kNode, id, 0});
    for (const ValueId out : node.outputs) {
      has_[static_cast<size_t>(out)] = 1;
      if (stages_.crew_of(id) == crew_) send(out);
      if (is_waited_for_[static_cast<size_t>(out)] == 0) continue;
      for (const auto& [value, reader] : std::ranges::equal_range(readers_, out, {}, &Waits::first)) {
        if (--missing_[static_cast<size_t>(reader)] == 0) ready_.insert(reader);
      }
    }
  }

  void add_ready() {
    while (!ready_.empty()) {
      const NodeId id = *ready_.begin();
      ready_.erase(ready_.begin());
      add(id);
    }
  }

  const CrewUnits& stages_;
  const Graph& graph_;
  int crew_;
  const std::vector<Unit>& units_;
  std::vector<char> has_;     // by value: it is made, or on its way
  std::vector<char> done_;    // by node
  std::vector<int> missing_;  // by node of no unit: operands that are still to be made
  using Waits = std::pair<ValueId, NodeId>;
  std::vector<Waits> readers_;                  // by value, in order: nodes of no unit that wait for it
  std::vector<char> is_waited_for_;             // by value, by those
  std::vector<std::vector<NodeId>> of_unit_;    // by unit
  std::vector<std::vector<ValueId>> incoming_;  // by unit
  std::vector<NodeId> of_no_unit_;
  std::vector<char> waits_for_others_;  // by node of no unit: it, or what it reads, reads what another crew makes
  std::vector<NodeId> sent_first_;      // what depends on parameters alone, and is read by other crews
  std::set<NodeId> ready_;
  std::unordered_set<NodeId> led_to_;  // nodes of other crews that have what they wait for
  std::vector<Step> steps_;
  int at_ = 0;  // the unit
};

// The sends of a crew's order, and where it asks for what others send and first reads it.
class Border {
 public:
  struct Receipt {
    size_t asked = 0;
    size_t read = 0;
  };

  Border(const Graph& graph, const std::vector<Step>& order) : end_(order.size()), comes_(graph.values().size(), 0) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].kind == Step::Kind::kSend) {
        sends_.push_back(i);
      } else if (order[i].kind == Step::Kind::kRecv) {
        receipts_[order[i].id] = {i, end_};
        comes_[static_cast<size_t>(order[i].id)] = 1;
      } else {
        for (const ValueId in : graph.node(order[i].id).inputs) note_read(in, i);
      }
    }
  }

  const std::vector<size_t>& sends() const { return sends_; }
  Receipt receipt_of(ValueId id) const {
    const auto found = receipts_.find(id);
    return found == receipts_.end() ? Receipt{end_, end_} : found->second;
  }

 private:
  void note_read(ValueId id, size_t at) {
    if (comes_[static_cast<size_t>(id)] == 0) return;
    Receipt& receipt = receipts_.at(id);
    receipt.read = std::min(receipt.read, at);
  }

  size_t end_;
  std::vector<size_t> sends_;
  std::unordered_map<ValueId, Receipt> receipts_;
  std::vector<char> comes_;  // whether it does, by value
};

// The messages of one crew to another, and where both have them in their orders.
class Messages {
 public:
  Messages(const std::vector<Step>& sender, const Border& from, const Border& receiver, int to) {
    for (const size_t i : from.sends()) {
      if (sender[i].crew != to) continue;
      const Border::Receipt receipt = receiver.receipt_of(sender[i].id);
      all_.push_back({i, receipt.asked, receipt.read, sender[i].id});
    }
  }

  struct Message {
    size_t sent = 0;   // in the sender's order
    size_t asked = 0;  // in the receiver's
    size_t read = 0;   // there, first
    ValueId value = kNoValue;
  };
  const std::vector<Message>& all() const { return all_; }

 private:
  std::vector<Message> all_;
};

// Gives each send of a crew the message by which it knows that it was asked for: of those that the other crew sends
// later than it asks, the one that is read first.
void find_answers(const Messages& there, const Messages& back, std::vector<Step>& order) {
  std::vector<size_t> first(back.all().size() + 1, back.all().size());  // of the messages from each on, the first read
  for (size_t i = back.all().size(); i-- > 0;) {
    const size_t next = first[i + 1];
    first[i] = next < back.all().size() && back.all()[next].read < back.all()[i].read ? next : i;
  }
  for (const Messages::Message& message : there.all()) {
    const auto later = std::ranges::upper_bound(back.all(), message.asked, {}, &Messages::Message::sent);
    const size_t answer = first[static_cast<size_t>(later - back.all().begin())];
    Step& send = order[message.sent];
    if (answer == back.all().size() || back.all()[answer].read == order.size()) {
      send.answer = kStepsEnd;
    } else if (back.all()[answer].read > message.sent) {
      send.answer = back.all()[answer].value;
    }
  }
}

// The crew's program, by its order.
class CrewProgram {
 public:
  CrewProgram(const CrewUnits& stages, int crew)
      : from_(stages.program()),
        stages_(stages),
        crew_(crew),
        to_{Graph(from_.graph.name()), from_.mesh, {}, {}, from_.by_hand, from_.micro_batches, from_.seq_chunks},
        map_(from_.graph.values().size(), kNoValue),
        made_of_(from_.graph.nodes().size(), -1) {}

  Program run(const std::vector<Step>& steps) {
    to_.graph.take_scopes(from_.graph);
    to_.graph.expect_nodes(steps.size());
    to_.layouts.reserve(steps.size() + from_.graph.inputs().size());
    to_.whole.reserve(to_.layouts.capacity());
    add_inputs(steps);
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::kNode) add(step.id);
      if (step.kind == Step::Kind::kSend) send(step);
      if (step.kind == Step::Kind::kRecv) receive(step.id);
    }
    add_outputs();
    return std::move(to_);
  }

 private:
  bool is_ours(ValueId id) const { return stages_.crew_of_value(id) == crew_; }

  void define(ValueId old_id, ValueId id) {
    const auto at = static_cast<size_t>(old_id);
    map_[at] = id;
    to_.set_part_of(id, from_.part_of(old_id));
    to_.layouts.push_back(from_.layouts[at]);
    to_.whole.push_back(from_.whole[at]);
  }

  // Parameters and state that lie here, and of the rest what is read.
  void add_inputs(const std::vector<Step>& steps) {
    std::vector<char> is_read(map_.size(), 0);
    for (const Step& step : steps) {
      if (step.kind != Step::Kind::kNode) continue;
      for (const ValueId in : from_.graph.node(step.id).inputs) is_read[static_cast<size_t>(in)] = 1;
    }
    for (const Input& input : from_.graph.inputs()) {
      const bool kept = input.role == Role::kParameter || input.role == Role::kState;
      if (kept ? !is_ours(input.value) : is_read[static_cast<size_t>(input.value)] == 0) continue;
      define(input.value, to_.graph.add_input(input.name, from_.graph.type(input.value), input.role, input.init,
                                              input.saved_as, input.piece));
    }
  }

  ValueId here(ValueId old_id) const {
    const ValueId id = map_[static_cast<size_t>(old_id)];
    invariant(id != kNoValue, "crew {} reads %{} before it has it", crew_, old_id);
    return id;
  }

  void add(NodeId old_id) {
    const Node& node = from_.graph.node(old_id);
    inputs_.clear();
    types_.clear();
    for (const ValueId in : node.inputs) inputs_.push_back(here(in));
    for (const ValueId out : node.outputs) types_.push_back(from_.graph.shared_type(out));
    to_.graph.mark_as(from_.graph, node, node.gradient_of < 0 ? -1 : made_of_[static_cast<size_t>(node.gradient_of)]);
    const NodeId made = to_.graph.add_node(*node.op, node.attrs, inputs_, types_);
    made_of_[static_cast<size_t>(old_id)] = made;
    for (size_t i = 0; i < node.outputs.size(); ++i) define(node.outputs[i], to_.graph.node(made).outputs[i]);
  }

  // Messages carry the marks of what makes their value, whose number in the program of all stages is their tag.
  void mark_message(ValueId id) {
    const NodeId producer = from_.graph.value(id).producer;
    if (producer < 0) return to_.graph.set_mark({});
    to_.graph.mark_as(from_.graph, from_.graph.node(producer), -1);
  }

  void send(const Step& step) {
    mark_message(step.id);
    const ValueId sent = here(step.id);
    to_.graph.add_node(structural().send, Attrs::of(SendAttrs{step.crew, step.id, step.answer}), {&sent, 1},
                       std::span<const TensorType>());
  }

  void receive(ValueId id) {
    mark_message(id);
    const Shared<TensorType>& type = from_.graph.shared_type(id);
    const Attrs attrs = Attrs::of(RecvAttrs{stages_.crew_of_value(id), id, type->dtype, type->shape});
    define(id, to_.graph.node(to_.graph.add_node(structural().recv, attrs, {}, {&type, 1})).outputs[0]);
  }

  void add_outputs() {
    for (const Output& output : from_.graph.outputs()) {
      if (output.updates == kNoValue) {
        to_.graph.add_output(output.name, here(output.value));
      } else if (is_ours(output.updates)) {
        to_.graph.add_output(output.name, here(output.value), here(output.updates));
      }
    }
    to_.graph.carry_gradients(from_.graph, map_);
    for (Update update : from_.graph.updates()) {
      if (!is_ours(update.parameter)) continue;
      update = {here(update.parameter), here(update.gradient), std::move(update.states)};
      for (ValueId& state : update.states) state = here(state);
      to_.graph.add_update(std::move(update));
    }
  }

  const Program& from_;
  const CrewUnits& stages_;
  int crew_;
  Program to_;
  std::vector<ValueId> map_;
  std::vector<NodeId> made_of_;
  std::vector<ValueId> inputs_;            // of the node that is added
  std::vector<Shared<TensorType>> types_;  // of its results
};

}  // namespace

std::vector<Program> in_crews(const Program& program, const Timetable& timetable) {
  std::vector<size_t> all(timetable.crews.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return in_crews(program, timetable, all);
}

std::vector<Program> in_crews(const Program& program, const Timetable& timetable, std::span<const size_t> crews) {
  require(program.micro_batches % (timetable.micro_batches * timetable.seq_chunks) == 0 &&
              program.seq_chunks == timetable.seq_chunks,
          "the timetable '{}' is for {}{}; the program has {}", timetable.name,
          counted(timetable.micro_batches, "micro-batch"),
          timetable.seq_chunks > 1 ? fmt::format(" of {} chunks of positions each", timetable.seq_chunks) : "",
          counted(program.micro_batches, "micro-batch"));
  const CrewUnits stages(program, timetable);
  const auto count = static_cast<int>(timetable.crews.size());
  std::vector<std::vector<Step>> orders;
  std::vector<Border> borders;
  for (int crew = 0; crew < count; ++crew) {
    orders.push_back(Order(stages, crew).run());
    borders.emplace_back(program.graph, orders.back());
  }
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      const Border &of_a = borders[static_cast<size_t>(a)], &of_b = borders[static_cast<size_t>(b)];
      const Messages there(orders[static_cast<size_t>(a)], of_a, of_b, b);
      const Messages back(orders[static_cast<size_t>(b)], of_b, of_a, a);
      find_answers(there, back, orders[static_cast<size_t>(a)]);
      find_answers(back, there, orders[static_cast<size_t>(b)]);
    }
  }
  std::vector<Program> out;
  out.reserve(crews.size());
  for (const size_t crew : crews) out.push_back(CrewProgram(stages, static_cast<int>(crew)).run(orders[crew]));
  return out;
}

}  // namespace trireme
