#include "trireme/partition/micro_batch_steps.h"

#include <algorithm>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

constexpr int64_t kMostNodes = int64_t{1} << 24;  // of all micro-batches: about ten times those of 96 layers in 192

void check_number(const Program& program, int64_t count) {
  const auto nodes = static_cast<int64_t>(program.graph.nodes().size());
  require(count <= kMostNodes / std::max<int64_t>(nodes, 1),
          "{} of a step of {} operations are too many to be compiled; take fewer, larger ones",
          counted(count, "micro-batch"), nodes);
}

}  // namespace

MicroBatchSteps::MicroBatchSteps(const Program& program, int64_t count)
    : program_(program),
      graph_(program.graph),
      count_(count),
      axes_(micro_batch_axes(program.mesh)),
      chunk_axes_(seq_chunk_axes(program.mesh)),
      repeats_(graph_.nodes().size(), 0),
      gathers_(graph_.nodes().size(), 0),
      level_of_value_(graph_.values().size(), 0) {
  check_number(program, count);
  for (const Shared<Layout>& layout : program.layouts) of_values_.push_back(differs_along(*layout));
  for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
    classify(id);
    const auto level = static_cast<size_t>(level_of_.back());
    if (levels_.size() <= level) levels_.resize(level + 1);
    levels_[level].push_back(id);
  }
  keep_what_brings_no_gather();
}

bool MicroBatchSteps::is_ours(int axis) const {
  return std::ranges::find(axes_, axis) != axes_.end();
}

bool MicroBatchSteps::is_chunk(int axis) const {
  return std::ranges::find(chunk_axes_, axis) != chunk_axes_.end();
}

MicroBatchSteps::AxisSet MicroBatchSteps::set_of(const Axes& axes) const {
  AxisSet out = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (std::ranges::find(axes, axes_[i]) != axes.end()) out |= 1U << i;
  }
  return out;
}

MicroBatchSteps::AxisSet MicroBatchSteps::differs_along(const Layout& layout) const {
  AxisSet out = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (layout.uses(axes_[i])) out |= 1U << i;
  }
  return out;
}

MicroBatchSteps::AxisSet MicroBatchSteps::find_differs_along(const Node& node, Kind kind) const {
  AxisSet out = 0;
  for (const ValueId id : node.outputs) out |= differs_along(id);
  if (kind == Kind::kOrdinary) {
    for (const ValueId id : node.inputs) out |= differs_along(id);
  }
  return out;
}

bool MicroBatchSteps::is_of_one(NodeId id) const {
  const AxisSet along = of_nodes_[static_cast<size_t>(id)];
  const bool is_of_all = level_of(id) > 0 && (along & ~set_of(chunk_axes_)) == 0;
  return repeats(id) || (along != 0 && !is_of_all);
}

Axes MicroBatchSteps::axes_of(const Node& collective) const {
  const std::vector<int64_t>& axes = collective.attrs.as<CollectiveAttrs>().axes;
  return {axes.begin(), axes.end()};
}

const MicroBatchSteps::Likes& MicroBatchSteps::likes(AxisSet along) const {
  const auto [found, is_new] = likes_.try_emplace(along);
  if (!is_new) return found->second;
  Likes& out = found->second;
  out.all.resize(static_cast<size_t>(count_));
  for (int64_t m = 0; m < count_; ++m) {
    int64_t first = m;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const int64_t stride = program_.mesh.stride(axes_[i]);
      if ((along >> i & 1U) == 0) first -= m / stride % program_.mesh.axis(axes_[i]).size * stride;
    }
    out.first.push_back(first);
    out.all[static_cast<size_t>(first)].push_back(m);
  }
  return out;
}

int64_t MicroBatchSteps::turn_of(NodeId id, int64_t m, AxisSet along) const {
  int64_t out = first_like(m, along);
  const bool is_backward = graph_.node(id).phase == Phase::kBackward;
  const bool is_last = level_of_[static_cast<size_t>(id)] > 0;
  if (is_backward == is_last) return out;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (is_chunk(axes_[i]) && (along >> i & 1U) == 0)
      out += (program_.mesh.axis(axes_[i]).size - 1) * program_.mesh.stride(axes_[i]);
  }
  return out;
}

int64_t MicroBatchSteps::chunk_of(int64_t m) const {
  return program_.mesh.index_along(m, chunk_axes_);
}

std::vector<int64_t> MicroBatchSteps::chunks_with(int64_t m) const {
  return program_.mesh.group_of(m, chunk_axes_);
}

bool MicroBatchSteps::goes_by_chunks(const Node& node) const {
  if (chunk_axes_.empty() || def_of(node).ring == nullptr) return false;
  const auto is_cut = [&](ValueId id) {
    return std::ranges::any_of(chunk_axes_, [&](int axis) { return layout_of(id).uses(axis); });
  };
  return std::ranges::any_of(node.inputs, is_cut);
}

bool MicroBatchSteps::moves_ours(const Node& node) const {
  const std::vector<int64_t> axes = groups_of(node).axes;
  const auto ours = std::ranges::count_if(axes, [&](int64_t axis) { return is_ours(static_cast<int>(axis)); });
  invariant(ours == 0 || ours == static_cast<int64_t>(axes.size()), "{} is over ranks and micro-batches at once",
            node.op->name);
  return ours > 0;
}

MicroBatchSteps::Kind MicroBatchSteps::find_kind(const Node& node) const {
  if (!def_of(node).collective || !moves_ours(node)) return Kind::kOrdinary;
  if (does(node, ReshardStep::Kind::kAllReduce)) return Kind::kSum;
  if (does(node, ReshardStep::Kind::kAllGather)) return Kind::kGather;
  if (does(node, ReshardStep::Kind::kSlice)) return Kind::kSlice;
  fail(
      ErrorKind::kUnsupported,
      "{} of '{}' would need parts of several micro-batches at once, as it is cut there; ask for another cut of it, or "
      "use 1 micro-batch",
      node.op->name, graph_.scope_of(node));
}

void MicroBatchSteps::classify(NodeId id) {
  const Node& node = graph_.node(id);
  const Kind kind = find_kind(node);
  int level = 0;
  for (const ValueId in : node.inputs) level = std::max(level, level_of_value_[static_cast<size_t>(in)]);
  const int after = level + (kind == Kind::kSum || kind == Kind::kGather ? 1 : 0);
  for (const ValueId out : node.outputs) level_of_value_[static_cast<size_t>(out)] = after;
  level_of_.push_back(kind == Kind::kGather ? after : level);
  kinds_.push_back(kind);
  of_nodes_.push_back(find_differs_along(node, kind));
  summed_over_.push_back(kind == Kind::kSum ? set_of(axes_of(node)) : 0);
  if (kind != Kind::kOrdinary || !brings_parameter(node)) return;
  repeats_[static_cast<size_t>(id)] = 1;
  const auto is_gathered = [&](ValueId in) {
    const NodeId producer = graph_.value(in).producer;
    return producer >= 0 && gathers_[static_cast<size_t>(producer)] != 0;
  };
  const bool gathers = does(node, ReshardStep::Kind::kAllGather) || std::ranges::any_of(node.inputs, is_gathered);
  gathers_[static_cast<size_t>(id)] = gathers ? 1 : 0;
}

// Whether it is a step that brings a weight from where it is stored, or reads nothing but what such steps bring.
bool MicroBatchSteps::brings_parameter(const Node& node) const {
  const auto is_part = [&](ValueId id) { return differs_along(id) != 0; };
  if (node.inputs.empty() || std::ranges::any_of(node.outputs, is_part)) return false;
  bool any = brings_pieces(node);
  for (const ValueId in : node.inputs) {
    if (is_part(in)) return false;
    if (is_as_stored(graph_, in)) continue;
    if (!repeats(graph_.value(in).producer)) return false;
    any = true;
  }
  return any;
}

// Of steps that bring something, those are done once whose results no gather reads: what they make takes no more room
// than what is stored.
void MicroBatchSteps::keep_what_brings_no_gather() {
  std::vector<char> is_needed = gathers_;  // each time
  for (auto id = static_cast<NodeId>(graph_.nodes().size()); id-- > 0;) {
    char& repeats = repeats_[static_cast<size_t>(id)];
    if (is_needed[static_cast<size_t>(id)] == 0) repeats = 0;
    if (repeats == 0) continue;
    for (const ValueId in : graph_.node(id).inputs) {
      if (const NodeId producer = graph_.value(in).producer; producer >= 0)
        is_needed[static_cast<size_t>(producer)] = 1;
    }
  }
}

}  // namespace trireme
