// Moves what has another home than the device to it and back.
//
// Before: parameters and optimizer state lie in the device's memory all step, gradients until their updates, and what
// the forward pass makes for the backward pass until that has read it. After: what parallel.home puts elsewhere is
// moved to the device before the first op that reads it, and what replaces it is moved to its home when the last op has
// read it. What parallel.keep puts on the host or the disk leaves the device after its last reader in the forward pass,
// and comes back before its first reader after that.
//
// A parameter that has come goes again when a few others have been read without it, and comes anew for its next reader;
// so do gradients, which leave once. Rows of an input that an update takes alone (updates_in_parts.cpp) come and go as
// inputs do. What lies on the host, and is read in a narrower type alone while it is on the device, comes in that type,
// and the casts are left out. The moves run beside the ops. Those for one reader are begun before a reader that stands
// before it: the last one from which on the ops take as long as they do, by the machine's rates, but not more readers
// ahead than parallel.prefetch says, four without. What few ops are between stays.
#include <algorithm>
#include <map>
#include <set>

#include "trireme/ir/gradient_scope.h"
#include "trireme/op/move.h"
#include "trireme/op/structural.h"
#include "trireme/pass/home_trips_impl.h"
#include "trireme/pass/host_inputs.h"
#include "trireme/pass/lone_casts.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"
#include "trireme/pass/step_times.h"
#include "trireme/pass/what_stays_impl.h"

namespace trireme {
namespace {

// A visit ends when more ops than these have read parameters or state, and not this value.
constexpr int64_t kReadersPassedBy = 3;
// What is kept leaves where there are as many ops between its last reader in the forward pass and its next one.
constexpr NodeId kOpsApart = 4;

bool is_after_forward(const Node& node) {
  return is_for_backward(node) || node.phase == Phase::kUpdate;
}

class Homes {
 public:
  Homes(const Program& program, const PassOptions& options)
      : graph_(program.graph),
        options_(options),
        machine_(options.rates.machine ? *options.rates.machine : Machine::this_host()),
        rewrite_(program),
        homes_(homes_of_inputs(graph_, options.homes, host_nodes(graph_))),
        uses_(graph_.values().size()) {
    find_parts();
    find_uses();
    number_readers();
    add_inputs();
    add_gradients();
    if (options.recompute.keeps_elsewhere()) add_kept();
    if (!trips_.empty()) starts_ = start_times(program, options.rates);
    join_the_close();
    say_what_stays(graph_, options, trips_);
  }

  bool any() const { return !trips_.empty() || !returns_.empty(); }

  Program run() {
    std::multimap<NodeId, std::pair<const Trip*, const Visit*>> comes;
    std::multimap<NodeId, const Trip*> leaves;
    if (!trips_.empty()) updated_s_ = seconds_until_updated(graph_, starts_, machine_);
    for (const Trip& trip : trips_) {
      each_coming(trip, [&](const Visit& visit) {
        const bool waits = &visit == &trip.visits[0] && updated_s_.contains(trip.value);
        comes.emplace(waits ? begin_when_updated(trip, visit) : begin_of(visit), std::pair(&trip, &visit));
      });
      if (trip.is_made) leaves.emplace(trip.visits[0].last, &trip);
    }
    std::multimap<NodeId, ValueId> returns;
    for (const auto& [value, back] : returns_) returns.emplace(back.last_user, value);
    const auto each = [](const auto& map, NodeId id, auto&& visit) {
      for (auto [at, end] = map.equal_range(id); at != end; ++at) visit(at->second);
    };
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      each(comes, id, [&](const auto& come) { bring(*come.first, *come.second); });
      copy(id);
      // In a phase of which any later visit may be: an early update may have been the last of the first.
      each(leaves, id,
           [&](const Trip* trip) { at_home_[trip->value] = moved(trip->value, trip->home, trip->visits[0].earliest); });
      each(returns, id, [&](ValueId value) { at_home_[value] = moved(value, returns_.at(value).home, id); });
    }
    for (const auto& [value, back] : returns_) rewrite_.same(value, at_home_.at(value));
    return rewrite_.finish();
  }

 private:
  struct Uses {
    std::vector<NodeId> nodes;  // the op that makes it, and those that read it
    bool is_output = false;
  };
  static size_t at(ValueId id) { return static_cast<size_t>(id); }

  // Rows of inputs that lie elsewhere, and what is joined to replace one of these.
  void find_parts() {
    const std::map<ValueId, Tier> elsewhere = homes_of_inputs_elsewhere();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (node.op != &structural().part) continue;
      if (const auto whole = elsewhere.find(node.inputs[0]); whole != elsewhere.end())
        parts_.emplace(node.outputs[0], whole->second);
    }
    for (const Output& output : graph_.outputs()) {
      const NodeId producer = graph_.value(output.value).producer;
      if (producer < 0 || !def_of(graph_.node(producer)).traits.joins_in_place) continue;
      if (const auto whole = elsewhere.find(output.updates); whole != elsewhere.end())
        joins_.emplace(producer, whole->second);
    }
  }

  void find_uses() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (!is_on_device(id)) continue;
      const auto use = [&](ValueId value) {
        std::vector<NodeId>& nodes = uses_[at(value)].nodes;
        if (nodes.empty() || nodes.back() != id) nodes.push_back(id);
      };
      for (const ValueId operand : node.inputs) use(operand);
      for (const ValueId made : node.outputs) use(made);
    }
    for (const Output& output : graph_.outputs()) uses_[at(output.value)].is_output = true;
  }

  // Not an op on the host, or a move for one, which find inputs at home, nor a look at a part of one there.
  bool is_on_device(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.on_host || joins_.contains(id)) return false;
    if (node.outputs.size() == 1 && parts_.contains(node.outputs[0])) return false;
    return !is_move(def_of(node)) || move_of(node.attrs).from == Tier::kDevice;
  }

  const Input& input_of(ValueId value) const { return graph_.inputs()[at(graph_.value(value).index)]; }

  Tier home_of(Held what, ValueId parameter) const {
    return trireme::home_of(options_.homes, what, input_of(parameter).name);
  }

  // Where inputs lie that have another home than the device.
  std::map<ValueId, Tier> homes_of_inputs_elsewhere() const {
    std::map<ValueId, Tier> out;
    for (size_t i = 0; i < homes_.size(); ++i) {
      const Input& input = graph_.inputs()[i];
      const bool stays = input.role == Role::kParameter || input.role == Role::kState;
      if (stays && homes_[i] != Tier::kDevice) out.emplace(input.value, homes_[i]);
    }
    return out;
  }

  // The ops that read parameters and state, in their order.
  void number_readers() {
    std::set<NodeId> readers;
    for (const Input& input : graph_.inputs()) {
      if (input.role != Role::kParameter && input.role != Role::kState) continue;
      const std::vector<NodeId>& nodes = uses_[at(input.value)].nodes;
      readers.insert(nodes.begin(), nodes.end());
    }
    for (const auto& [part, home] : parts_) readers.insert(uses_[at(part)].nodes.begin(), uses_[at(part)].nodes.end());
    for (const NodeId id : readers) number_of_reader_.emplace(id, static_cast<int64_t>(number_of_reader_.size()));
  }

  // How many of them stand before the op.
  int64_t readers_before(NodeId id) const {
    const auto next = number_of_reader_.lower_bound(id);
    return next == number_of_reader_.end() ? static_cast<int64_t>(number_of_reader_.size()) : next->second;
  }

  // The node itself; of a collective of several values, which may be of several phases, one of the earliest that reads
  // one of its results.
  NodeId of_earliest_phase(NodeId id) const {
    const Node& node = graph_.node(id);
    if (!def_of(node).collective || node.outputs.size() < 2) return id;
    NodeId out = id;
    for (const ValueId made : node.outputs) {
      for (const NodeId reader : uses_[at(made)].nodes) {
        if (graph_.node(reader).phase < graph_.node(out).phase) out = reader;
      }
    }
    return out;
  }

  void join(Visit& visit, const Visit& next) const {
    visit.last = next.last;
    if (graph_.node(next.earliest).phase < graph_.node(visit.earliest).phase) visit.earliest = next.earliest;
  }

  std::vector<Visit> visits_of(const std::vector<NodeId>& uses) const {
    std::vector<Visit> out;
    for (const NodeId id : uses) {
      const bool goes_on = !out.empty() && readers_before(id) - readers_before(out.back().last) <= kReadersPassedBy;
      if (goes_on) {
        join(out.back(), {id, id, of_earliest_phase(id)});
      } else {
        out.push_back({id, id, of_earliest_phase(id)});
      }
    }
    return out;
  }

  void add_inputs() {
    const std::vector<char> once = that_come_once(graph_, options_.homes, host_nodes(graph_));
    for (const auto& [input, home] : homes_of_inputs_elsewhere()) {
      const std::vector<NodeId>& uses = uses_[at(input)].nodes;
      if (!uses.empty()) {
        std::vector<Visit> visits = visits_of(uses);
        while (visits.size() > 1 && once[at(graph_.value(input).index)] != 0) {
          join(visits[0], visits[1]);
          visits.erase(visits.begin() + 1);
        }
        trips_.push_back({.value = input, .home = home, .visits = std::move(visits)});
      }
      for (const Output& output : graph_.outputs()) {
        if (output.updates == input && is_made_here(output.value))
          returns_.emplace(output.value, Return{home, uses_[at(output.value)].nodes.back()});
      }
    }
    for (const auto& [part, home] : parts_) {
      const std::vector<NodeId>& uses = uses_[at(part)].nodes;
      if (!uses.empty()) trips_.push_back({.value = part, .home = home, .visits = visits_of(uses)});
    }
    for (const auto& [join, home] : joins_) {
      for (const ValueId part : graph_.node(join).inputs) {
        if (is_made_here(part)) returns_.emplace(part, Return{home, uses_[at(part)].nodes.back()});
      }
    }
  }

  // Gradients until their updates read them, and the parts of sums over micro-batches.
  void add_gradients() {
    std::map<ValueId, Tier> homes;
    for (const Update& update : graph_.updates()) {
      const Tier home = home_of(Held::kGradient, update.parameter);
      if (home != Tier::kDevice) homes.emplace(update.parameter, home);
    }
    if (homes.empty()) return;
    std::set<ValueId> known;
    for (const Update& update : graph_.updates()) {
      if (homes.contains(update.parameter)) add_gradient(update.gradient, homes.at(update.parameter), known);
    }
    for (const auto& [gradient, of] : graph_.gradients()) {
      if (homes.contains(of)) add_gradient(gradient, homes.at(of), known);
    }
  }

  void add_gradient(ValueId value, Tier home, std::set<ValueId>& known) {
    const NodeId producer = graph_.value(value).producer;
    if (producer < 0 || !known.insert(value).second) return;
    const Node& node = graph_.node(producer);
    if (may_leave(value)) {
      std::vector<Visit> visits = visits_of(uses_[at(value)].nodes);
      if (visits.size() > 1)
        trips_.push_back({.value = value, .home = home, .is_made = true, .visits = std::move(visits)});
    }
    if (node.phase != Phase::kBackward || node.gradient_of >= 0) return;
    for (const ValueId term : node.inputs) {  // of a sum
      if (graph_.type(term) == graph_.type(value)) add_gradient(term, home, known);
    }
  }

  // By an op on the device. What comes from the host, or leaves for it, has its place (on_host.cpp).
  bool is_made_here(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer >= 0 && !graph_.node(producer).on_host && !is_move(def_of(graph_.node(producer))) &&
           !joins_.contains(producer);
  }

  // Not what a step reports, what is one of a collective's results, which may be of several phases, or a look at an
  // input.
  bool may_leave(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    if (!is_made_here(id) || uses_[at(id)].is_output) return false;
    const Node& node = graph_.node(producer);
    return !(def_of(node).collective && node.outputs.size() > 1) && !looks_at_an_input(id);
  }

  void add_kept() {
    const std::vector<RecomputeAsked> asked = recompute_asked(graph_, options_.recompute);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) {
      const NodeId producer = graph_.value(id).producer;
      if (producer < 0 || graph_.type(id).bytes() < options_.recompute.fewest_bytes || !may_leave(id)) continue;
      const Tier home = asked[at(producer)].home;
      if (is_after_forward(graph_.node(producer)) || home == Tier::kDevice) continue;
      const std::vector<NodeId>& uses = uses_[at(id)].nodes;
      const auto late = std::ranges::find_if(uses, [&](NodeId use) { return is_after_forward(graph_.node(use)); });
      const bool is_kept = late != uses.end() && std::none_of(late, uses.end(), [&](NodeId use) {
                             return !is_after_forward(graph_.node(use));
                           });
      if (!is_kept) continue;
      Visit back{*late, *late, of_earliest_phase(*late), *(late - 1) + 1};
      for (auto use = late; use != uses.end(); ++use) join(back, {*use, *use, of_earliest_phase(*use)});
      trips_.push_back({id, home, true, {{uses.front(), *(late - 1), uses.front()}, back}});
    }
  }

  bool looks_at_an_input(ValueId id) const {
    NodeId producer = graph_.value(id).producer;
    while (producer >= 0 && def_of(graph_.node(producer)).traits.zero_cost_view) {
      id = graph_.node(producer).inputs[0];
      producer = graph_.value(id).producer;
    }
    return producer < 0;
  }

  template <class Each>
  void each_coming(const Trip& trip, Each&& each) const {
    for (size_t i = trip.is_made ? 1 : 0; i < trip.visits.size(); ++i) each(trip.visits[i]);
  }

  // Readers that something comes for, in the program's order, and how long that takes.
  void find_readers() {
    std::map<NodeId, double> seconds;
    for (const Trip& trip : trips_) {
      each_coming(trip, [&](const Visit& visit) {
        const std::vector<NodeId> casts = casts_of(trip, visit);
        const ValueId comes = casts.empty() ? trip.value : graph_.node(casts[0]).outputs[0];
        seconds[visit.first] += move_seconds({trip.home, Tier::kDevice}, graph_.type(comes).bytes(), machine_);
      });
    }
    readers_.assign(seconds.begin(), seconds.end());
  }

  // Before this op the value begins to come.
  NodeId begin_of(const Visit& visit) const {
    const auto reader = std::ranges::lower_bound(readers_, visit.first, {}, &std::pair<NodeId, double>::first);
    if (reader == readers_.begin()) return std::max(0, visit.first - 1);
    const auto ahead_s = [&](NodeId id) {
      return starts_[static_cast<size_t>(visit.first)] - starts_[static_cast<size_t>(id)];
    };
    const Node& node = graph_.node(visit.first);
    const std::ptrdiff_t most = readers_ahead(options_.tier_ways.prefetch, module_scope(graph_, node), node.op->name);
    auto begin = reader - 1;
    while (begin != readers_.begin() && reader - begin < most && ahead_s(begin->first) < reader->second) --begin;
    return std::max(begin->first, visit.after);
  }

  // What is kept goes and comes between the visits, where there are ops enough; of micro-batches in turn nothing else
  // need come meanwhile.
  bool are_apart(const Visit& before, const Visit& next) const {
    return next.after < 0 ? begin_of(next) > before.last : next.first - next.after >= kOpsApart;
  }

  // A move is started when what it reads is there, and what stands after it waits until then: so not before readers for
  // which all is there.
  NodeId begin_when_updated(const Trip& trip, const Visit& visit) {
    NodeId begin = begin_of(visit);
    const double updated_s = updated_s_.at(trip.value);
    while (begin < visit.first && starts_[at(begin)] < updated_s) {
      const auto next = std::ranges::upper_bound(readers_, begin, {}, &std::pair<NodeId, double>::first);
      begin = next == readers_.end() ? visit.first : std::min(next->first, visit.first);
    }
    return begin;
  }

  // Joins visits where the second would begin before the end of the first, or there are few ops for what is kept to
  // leave.
  bool join_visits(Trip& trip) const {
    bool any = false;
    for (size_t i = 1; i < trip.visits.size();) {
      Visit& before = trip.visits[i - 1];
      if (are_apart(before, trip.visits[i])) {
        ++i;
        continue;
      }
      join(before, trip.visits[i]);
      trip.visits.erase(trip.visits.begin() + static_cast<std::ptrdiff_t>(i));
      any = true;
    }
    return any;
  }

  void join_the_close() {
    for (bool any = true; any;) {
      find_readers();
      any = false;
      for (Trip& trip : trips_) any = join_visits(trip) || any;
      std::erase_if(trips_, [](const Trip& trip) { return trip.is_made && trip.visits.size() == 1; });
    }
  }

  ValueId moved(ValueId value, Tier home, NodeId beside) {
    const ValueId out = rewrite_.new_value_like(value);
    rewrite_.insert(structural().move, attrs_of({Tier::kDevice, home}), like(value, beside), {{value}}, {{out}});
    return out;
  }

  // The readers of the visit, where they are casts in whose type the value may come.
  std::vector<NodeId> casts_of(const Trip& trip, const Visit& visit) const {
    if (trip.home != Tier::kHost || graph_.value(trip.value).producer >= 0) return {};
    const std::vector<NodeId>& uses = uses_[at(trip.value)].nodes;
    const auto first = std::ranges::lower_bound(uses, visit.first), last = std::ranges::upper_bound(uses, visit.last);
    return lone_casts(graph_, trip.value, {first, last});
  }

  void bring(const Trip& trip, const Visit& visit) {
    if (const std::vector<NodeId> casts = casts_of(trip, visit); !casts.empty()) {
      left_out_.insert(casts.begin(), casts.end());
      return bring_in_type_of(casts, graph_, rewrite_);
    }
    const ValueId here = rewrite_.new_value_like(trip.value);
    const ValueId from = trip.is_made ? at_home_.at(trip.value) : trip.value;
    const NodeId beside =
        reads_with_others(trip.value, visit) ? graph_.value(trip.value).producer : like(trip.value, visit.earliest);
    rewrite_.insert(structural().move, attrs_of({trip.home, Tier::kDevice}), beside, {{from}}, {{here}});
    here_[trip.value] = here;
  }

  // Whether a collective of several values, which may be of several phases, reads it.
  bool reads_with_others(ValueId value, const Visit& visit) const {
    if (graph_.value(value).producer < 0) return false;
    return std::ranges::any_of(uses_[at(value)].nodes, [&](NodeId use) {
      const Node& node = graph_.node(use);
      return use >= visit.first && use <= visit.last && def_of(node).collective && node.outputs.size() > 1;
    });
  }

  // The op that makes it, by way of collectives of several values, whose results are of the phases of their operands.
  NodeId maker_of(ValueId value) const {
    NodeId id = graph_.value(value).producer;
    while (id >= 0) {
      const Node& node = graph_.node(id);
      if (!def_of(node).collective || node.outputs.size() < 2 || node.inputs.size() != node.outputs.size()) break;
      value = node.inputs[static_cast<size_t>(std::ranges::find(node.outputs, value) - node.outputs.begin())];
      if (graph_.value(value).producer < 0) break;
      id = graph_.value(value).producer;
    }
    return id;
  }

  // The op whose phase a move of the value is of: the one that it stands beside, but not one of a phase before that of
  // the value, as an op of the forward pass under which a weight is gathered for the backward pass.
  NodeId like(ValueId value, NodeId beside) const {
    const NodeId producer = maker_of(value);
    const bool is_before = producer >= 0 && graph_.node(beside).phase < graph_.node(producer).phase;
    return is_before ? producer : beside;
  }

  void copy(NodeId id) {
    if (left_out_.contains(id)) return;
    Few<ValueId, 4> in = graph_.node(id).inputs;
    for (ValueId& operand : in) {
      if (const auto left = at_home_.find(operand); joins_.contains(id) && left != at_home_.end())
        operand = left->second;
      if (!is_on_device(id)) continue;
      if (const auto here = here_.find(operand); here != here_.end()) operand = here->second;
    }
    rewrite_.copy(id, in, graph_.node(id).outputs);
  }

  const Graph& graph_;
  const PassOptions& options_;
  Machine machine_;
  Rewrite rewrite_;
  std::vector<Tier> homes_;                     // of inputs
  std::map<ValueId, Tier> parts_;               // looks at rows of inputs that lie elsewhere, and where
  std::map<NodeId, Tier> joins_;                // what makes those that replace such inputs of parts, and where
  std::vector<Uses> uses_;                      // by value
  std::map<NodeId, int64_t> number_of_reader_;  // of ops that read parameters and state
  std::vector<Trip> trips_;
  std::map<ValueId, Return> returns_;  // by value
  std::vector<std::pair<NodeId, double>> readers_;
  std::vector<double> starts_;           // of ops, in the modelled step
  std::map<ValueId, double> updated_s_;  // by input that is updated on the host
  std::map<ValueId, ValueId> here_;      // by value: the same that came to the device
  std::map<ValueId, ValueId> at_home_;   // by value: the same that left it
  std::set<NodeId> left_out_;            // casts of what has come in their type
};

}  // namespace

namespace pass {
extern const Pass homes{
    .name = "homes",
    .doc = "what has another home than the device is moved there before it is read, and back",
    .asked_for =
        [](const PassOptions& o) {
          return !o.homes.empty() || o.recompute.keeps_elsewhere() || o.on_host.is_asked_for();
        },
    .by_homes = true,
    .run =
        [](Program program, const PassOptions& o) {
          Homes moving(program, o);
          return moving.any() ? moving.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
