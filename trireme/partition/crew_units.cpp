#include "trireme/partition/crew_units.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ir/readers.h"
#include "trireme/parallel/asked/stages.h"

namespace trireme {
namespace {

bool has_parts(const Timetable& timetable) {
  return std::ranges::any_of(timetable.crews, [](const std::vector<Unit>& units) {
    return std::ranges::any_of(units, [](const Unit& unit) { return unit.pass == Unit::Pass::kInputGrad; });
  });
}

}  // namespace

CrewUnits::CrewUnits(const Program& program, const Timetable& timetable)
    : program_(program),
      graph_(program.graph),
      timetable_(timetable),
      crews_(crews_of_stages(timetable)),
      index_(timetable),
      copies_(static_cast<int>(program.micro_batches / timetable.micro_batches / timetable.seq_chunks)),
      in_parts_(has_parts(timetable)) {
  find_stages();
  if (in_parts_) find_input_grads();
  find_units();
  find_readers();
}

int CrewUnits::crew_of(NodeId id) const {
  const int stage = node(id).stage;
  return stage < 0 ? -1 : crews_[static_cast<size_t>(stage)];
}

int CrewUnits::crew_of_value(ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.producer >= 0) return crew_of(value.producer);
  const int stage = of_inputs_[static_cast<size_t>(value.index)];
  return stage < 0 ? -1 : crews_[static_cast<size_t>(stage)];
}

const std::set<int>& CrewUnits::readers_of(ValueId id) const {
  static const std::set<int> kNone;
  const auto found = readers_.find(id);
  return found == readers_.end() ? kNone : found->second;
}

Unit::Pass CrewUnits::pass_of(NodeId id, Unit unit) const {
  if (node(id).phase == Phase::kForward) return Unit::Pass::kForward;
  unit.pass = Unit::Pass::kBackward;
  const bool is_whole = index_.place_of(unit).crew >= 0;
  if (!in_parts_ || is_whole) return Unit::Pass::kBackward;
  return is_input_grad_[static_cast<size_t>(id)] != 0 ? Unit::Pass::kInputGrad : Unit::Pass::kWeightGrad;
}

void CrewUnits::find_stages() {
  std::vector<int> of_nodes;
  for (const Node& n : graph_.nodes()) {
    require(n.stage < timetable_.stages, "{} of '{}' is of stage {}; the timetable '{}' has {}", n.op->name,
            graph_.scope_of(n), n.stage, timetable_.name, timetable_.stages);
    of_nodes.push_back(n.stage);
    for (const ValueId in : n.inputs) {
      const NodeId producer = graph_.value(in).producer;
      invariant(n.stage >= 0 || producer < 0 || node(producer).stage < 0, "{} of '{}' is of no stage and reads what is",
                n.op->name, graph_.scope_of(n));
    }
  }
  of_inputs_ = stages_of_inputs(graph_, of_nodes);
  nodes_.resize(timetable_.crews.size());
  for (NodeId id = 0; id < nodes(); ++id) {
    if (const int crew = crew_of(id); crew >= 0) nodes_[static_cast<size_t>(crew)].push_back(id);
  }
}

// What the gradient of another op depends on, or another stage. Goes back through the nodes, readers first.
void CrewUnits::find_input_grads() {
  is_input_grad_.assign(graph_.nodes().size(), 0);
  const Readers readers(graph_);
  for (auto id = nodes(); id-- > 0;) {
    const Node& n = node(id);
    if (n.phase != Phase::kBackward) continue;
    const auto leads_on = [&](NodeId reader) {
      const Node& r = node(reader);
      if (r.phase != Phase::kBackward || r.micro_batch != n.micro_batch) return false;
      const bool of_another = r.gradient_of >= 0 && r.gradient_of != n.gradient_of;
      return r.stage != n.stage || of_another || is_input_grad_[static_cast<size_t>(reader)] != 0;
    };
    is_input_grad_[static_cast<size_t>(id)] =
        std::ranges::any_of(n.outputs, [&](ValueId out) { return std::ranges::any_of(readers.of(out), leads_on); });
  }
}

int CrewUnits::place_of(NodeId id) const {
  const Node& n = node(id);
  if (n.stage < 0 || n.phase == Phase::kUpdate) return -1;
  if (program_.micro_batches > 1 && n.micro_batch < 0) return -1;
  Unit unit{.stage = n.stage};
  if (program_.micro_batches > 1) {
    unit.seq_chunk = n.micro_batch % timetable_.seq_chunks;
    unit.micro_batch = n.micro_batch / timetable_.seq_chunks / copies_;
  }
  unit.pass = pass_of(id, unit);
  const UnitIndex::Place place = index_.place_of(unit);
  invariant(place.crew == crew_of(id), "the timetable '{}' has no unit for {} of '{}'", timetable_.name, n.op->name,
            graph_.scope_of(n));
  return place.at;
}

void CrewUnits::find_units() {
  for (NodeId id = 0; id < nodes(); ++id) {
    units_.push_back(place_of(id));
    bool follows_unit = units_.back() >= 0;
    bool follows_whole = false;
    for (const ValueId in : node(id).inputs) {
      const NodeId producer = graph_.value(in).producer;
      if (producer < 0) continue;
      follows_unit |= this->follows_unit(producer);
      follows_whole |= this->follows_whole(producer) || (this->follows_unit(producer) && unit_of(producer) < 0);
    }
    follows_unit_.push_back(follows_unit ? 1 : 0);
    follows_whole_.push_back(follows_whole ? 1 : 0);
  }
}

void CrewUnits::find_readers() {
  crosses_.assign(graph_.values().size(), 0);
  const auto read = [&](ValueId id, int crew) {
    const int own = crew_of_value(id);
    if (own < 0 || crew < 0 || crew == own) return;
    readers_[id].insert(crew);
    crosses_[static_cast<size_t>(id)] = 1;
  };
  for (NodeId id = 0; id < nodes(); ++id) {
    for (const ValueId in : node(id).inputs) read(in, crew_of(id));
  }
  for (const Output& output : graph_.outputs()) {
    if (output.updates != kNoValue) {
      read(output.value, crew_of_value(output.updates));
    } else {
      for (int crew = 0; crew < static_cast<int>(timetable_.crews.size()); ++crew) read(output.value, crew);
    }
  }
}

}  // namespace trireme
