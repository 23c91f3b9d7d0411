#include <algorithm>

#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"
#include "trireme/partition/moving_attrs_impl.h"

namespace trireme {
namespace {

bool waits_for_answer(const SendAttrs& attrs) {
  return attrs.answer >= 0 && attrs.answer < kStepsEnd;
}

}  // namespace

int micro_batch_of(const Program& program, const IsOfAll& is_of_all, const Node& node) {
  if (node.micro_batch >= 0) return node.micro_batch;
  const auto is_part = [&](ValueId id) {
    const auto& part = program.part_of(id);
    return part != nullptr && !is_of_all(*part);
  };
  const auto part = std::ranges::find_if(node.outputs, is_part);
  return part == node.outputs.end() ? -1 : static_cast<int>(program.part_of(*part)->micro_batch);
}

MovingAttrs::MovingAttrs(const Program& program, const IsOfAll& is_of_all, const Time& time, int of_each)
    : program_(program),
      graph_(program.graph),
      is_of_all_(is_of_all),
      time_(time),
      of_each_(of_each),
      are_marked_(std::ranges::any_of(graph_.nodes(), [](const Node& node) { return node.micro_batch >= 0; })) {}

bool MovingAttrs::note(NodeId id, bool next_is_after) {
  const Node& node = graph_.node(id);
  const Node& next = graph_.node(id + time_.length);
  if (node.op == &structural().slice) return note_slice(id);
  if (node.attrs == next.attrs) return true;
  if (node.op == &structural().send) {
    const auto &a = node.attrs.as<SendAttrs>(), &b = next.attrs.as<SendAttrs>();
    if (a.to != b.to || !note_tag(a.tag, b.tag)) return false;
    if (a.answer == b.answer) return true;
    if (!waits_for_answer(a)) return false;
    if (next_is_after) most_tag_ = std::max(most_tag_, a.answer);
    return next_is_after || note_tag(a.answer, b.answer);
  }
  if (node.op == &structural().recv) {
    const auto &a = node.attrs.as<RecvAttrs>(), &b = next.attrs.as<RecvAttrs>();
    return a.from == b.from && a.dtype == b.dtype && a.shape == b.shape && note_tag(a.tag, b.tag);
  }
  return false;
}

Attrs MovingAttrs::later(NodeId id, int times, int all) const {
  const Node& node = graph_.node(id);
  const auto moved = [&](int64_t tag) { return tag + (tag > most_tag_ ? all : times) * tags_; };
  if (node.op == &structural().send) {
    SendAttrs attrs = node.attrs.as<SendAttrs>();
    attrs.tag = moved(attrs.tag);
    if (waits_for_answer(attrs)) attrs.answer = moved(attrs.answer);
    return Attrs::of(attrs);
  }
  if (node.op == &structural().recv) {
    RecvAttrs attrs = node.attrs.as<RecvAttrs>();
    attrs.tag = moved(attrs.tag);
    return Attrs::of(attrs);
  }
  const std::vector<int64_t>* const step = times == 0 ? nullptr : step_of(id);
  if (step == nullptr) return node.attrs;
  SliceAttrs attrs = node.attrs.as<SliceAttrs>();
  for (size_t dim = 0; dim < step->size(); ++dim) attrs.starts[dim] += times * of_timetable() * (*step)[dim];
  return Attrs::of(attrs);
}

bool MovingAttrs::knows(NodeId id, ValueId first_moving) const {
  const Node& node = graph_.node(id);
  if (node.op == &structural().send) return node.attrs.as<SendAttrs>().tag >= least_tag_;
  if (node.op == &structural().recv) return node.attrs.as<RecvAttrs>().tag >= least_tag_;
  if (!is_cut_for_one(node)) return true;
  const auto found = begins_.find(cut_of(node, node.inputs[0] < first_moving ? node.inputs[0] : kNoValue));
  if (found == begins_.end() || !found->second.is_one) return false;
  const auto& [from, step, is_one] = found->second;
  const int64_t micro_batch = micro_batch_of(program_, is_of_all_, node) / of_each_;
  const std::vector<int64_t>& starts = node.attrs.as<SliceAttrs>().starts;
  for (size_t dim = 0; dim < starts.size(); ++dim) {
    if (starts[dim] != from[dim] + micro_batch * step[dim]) return false;
  }
  return true;
}

// Of what all micro-batches share; a slice of what is of one has its place in that.
bool MovingAttrs::is_cut_for_one(const Node& node) const {
  if (node.op != &structural().slice || (are_marked_ && node.micro_batch < 0)) return false;
  const auto is_of_one = [&](ValueId id) {
    const auto& part = program_.part_of(id);
    return part != nullptr && !is_of_all_(*part);
  };
  return is_of_one(node.outputs[0]) && !is_of_one(node.inputs[0]);
}

MovingAttrs::Cut MovingAttrs::cut_of(const Node& node, ValueId from) const {
  return {micro_batch_of(program_, is_of_all_, node) % of_each_, graph_.scope_of(node), from,
          &graph_.type(node.inputs[0]), node.attrs.as<SliceAttrs>().sizes};
}

bool MovingAttrs::note_slice(NodeId id) {
  const Node& node = graph_.node(id);
  const Node& next = graph_.node(id + time_.length);
  const auto &a = node.attrs.as<SliceAttrs>(), &b = next.attrs.as<SliceAttrs>();
  if (a.sizes != b.sizes || a.starts.size() != b.starts.size()) return false;
  if (!is_cut_for_one(node)) return a.starts == b.starts;
  const int64_t micro_batch = micro_batch_of(program_, is_of_all_, node) / of_each_;
  Begin begin;
  for (size_t dim = 0; dim < a.starts.size(); ++dim) {
    const int64_t more = b.starts[dim] - a.starts[dim];
    if (more % of_timetable() != 0) return false;
    begin.step.push_back(more / of_timetable());
    begin.from.push_back(a.starts[dim] - micro_batch * begin.step.back());
  }
  if (steps_.try_emplace(place_of(id), begin.step).first->second != begin.step) return false;
  const ValueId from = node.inputs[0] == next.inputs[0] ? node.inputs[0] : kNoValue;
  const auto [found, is_new] = begins_.try_emplace(cut_of(node, from), begin);
  if (!is_new && (found->second.from != begin.from || found->second.step != begin.step)) found->second.is_one = false;
  return true;
}

bool MovingAttrs::note_tag(int64_t tag, int64_t next) {
  if (tags_ == 0) tags_ = next - tag;
  least_tag_ = std::min(least_tag_, tag);
  most_tag_ = std::max(most_tag_, next);
  return next - tag == tags_ && tags_ > 0;
}

// By which a slice begins later with each micro-batch; null: it does not.
const std::vector<int64_t>* MovingAttrs::step_of(NodeId id) const {
  const Node& node = graph_.node(id);
  if (!is_cut_for_one(node)) return nullptr;
  if (id < time_.begin + time_.length) {
    const auto found = steps_.find(place_of(id));
    return found == steps_.end() ? nullptr : &found->second;
  }
  // knows() has found one; a value that all times share is what it is cut from, or one that each makes.
  const auto shared = begins_.find(cut_of(node, node.inputs[0]));
  return shared != begins_.end() ? &shared->second.step : &begins_.at(cut_of(node, kNoValue)).step;
}

size_t MovingAttrs::place_of(NodeId id) const {
  return static_cast<size_t>(((id - time_.begin) % time_.length + time_.length) % time_.length);
}

}  // namespace trireme
