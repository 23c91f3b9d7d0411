#include "trireme/parallel/batch_layouts.h"

#include <algorithm>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {

bool BatchLayouts::has_data_axis() const {
  return std::ranges::any_of(mesh_.user_axes(), [](const MeshAxis& axis) { return axis.name == "dp"; });
}

std::string BatchLayouts::why(const Input& input) const {
  const LayoutRule* rule = rule_of(input.name);
  return rule != nullptr ? fmt::format("field rule '{}'", rule->pattern)
                         : fmt::format("dataset strategy '{}'", parallel_.dataset.text);
}

bool BatchLayouts::is_asked(const Input& input) const {
  return rule_of(input.name) != nullptr || !parallel_.dataset.is(DatasetStrategy::Named::kDataParallel);
}

// A batch that nothing cuts is worked on by every rank, which is never what somebody means who does not say so.
void BatchLayouts::require_data_axis() const {
  if (mesh_.devices() == 1 || has_data_axis()) return;
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh_.user_axes()) {
    if (axis.size > 1) names.push_back(axis.name);
  }
  fail(ErrorKind::kInvalidArgument,
       "the mesh '{}' has no axis 'dp', over which the dataset strategy data_parallel cuts the batch; name the axis "
       "'dp', or set how the batch is cut: parallel.dataset = '[{}]', or 'full_batch' where every rank works on all "
       "of it",
       to_string(mesh_), names.front());
}

const LayoutRule* BatchLayouts::rule_of(std::string_view name) const {
  const LayoutRule* found = nullptr;
  for (const LayoutRule& rule : parallel_.fields) {
    if (matches(rule.pattern, name)) found = &rule;
  }
  return found;
}

void BatchLayouts::cut_leading(Layout& layout, const NamedLayout& how, const std::string& who) const {
  Layout asked;
  try {
    asked = how.on(mesh_);
  } catch (Error& e) {
    e.note(fmt::format("it is asked for by the {}", who));
    throw;
  }
  for (size_t dim = 0; dim < std::min(asked.dims.size(), layout.dims.size()); ++dim) layout.dims[dim] = asked.dims[dim];
}

void BatchLayouts::check_rules() const {
  std::vector<std::string> names;
  for (const Input& input : graph_.inputs()) {
    if (input.role == Role::kData) names.push_back(input.name);
  }
  for (const LayoutRule& rule : parallel_.fields) {
    const bool any = std::ranges::any_of(names, [&](const std::string& name) { return matches(rule.pattern, name); });
    require(any, "field rule '{}' matches no field of the batch.{}", rule.pattern, suggestion(rule.pattern, names));
    check_entries(rule.layout, rule.pattern, fmt::format("field rule '{}'", rule.pattern));
  }
  if (const auto* layout = std::get_if<NamedLayout>(&parallel_.dataset.how))
    check_entries(*layout, "*", fmt::format("dataset strategy '{}'", parallel_.dataset.text));
}

// Fields of fewer dimensions take the first entries. One that no field has would cut nothing, and nobody would know.
void BatchLayouts::check_entries(const NamedLayout& layout, std::string_view pattern, const std::string& who) const {
  require(!layout.is_partial(), "{}: what is read from data is no partial sum; leave 'partial' out", who);
  const Input* most = nullptr;
  for (const Input& input : graph_.inputs()) {
    if (input.role != Role::kData || !matches(pattern, input.name)) continue;
    if (most == nullptr || graph_.type(input.value).shape.rank() > graph_.type(most->value).shape.rank()) most = &input;
  }
  if (most == nullptr) return;
  const TensorType& type = graph_.type(most->value);
  require(layout.rank() <= type.shape.rank(),
          "{} has entries for {} dimensions, and no field that it is for has so many: '{}' is {}", who, layout.rank(),
          most->name, to_string(type));
}

Layout BatchLayouts::of(const Input& input, size_t index) const {
  const Shape& shape = graph_.type(input.value).shape;
  Layout layout = Layout::replicated(shape.rank());
  if (const LayoutRule* rule = rule_of(input.name)) {
    cut_leading(layout, rule->layout, why(input));
    check(layout, shape, mesh_, fmt::format("data input '{}' by the rule for fields '{}'", input.name, rule->pattern));
    return layout;
  }
  const DatasetStrategy& asked = parallel_.dataset;
  if (asked.is(DatasetStrategy::Named::kFullBatch)) return layout;
  if (asked.is(DatasetStrategy::Named::kDataParallel)) {
    require_data_axis();
    if (has_data_axis()) cut_batch(input, layout);
    return layout;
  }
  if (const auto* numbers = std::get_if<std::vector<PartsOfDims>>(&asked.how)) {
    layout.dims = axes_for_cuts(numbers_for(*numbers, input, index), mesh_);
  } else {
    cut_leading(layout, std::get<NamedLayout>(asked.how), why(input));
  }
  check(layout, shape, mesh_, fmt::format("data input '{}' by dataset strategy '{}'", input.name, asked.text));
  return layout;
}

const PartsOfDims& BatchLayouts::numbers_for(const std::vector<PartsOfDims>& all, const Input& input,
                                             size_t index) const {
  require(index < all.size(), "dataset strategy '{}' has {}; '{}' is one more", parallel_.dataset.text,
          counted(std::ssize(all), "input"), input.name);
  const int rank = graph_.type(input.value).shape.rank();
  require(all[index].size() == static_cast<size_t>(rank), "dataset strategy '{}': '{}' has {} dimensions ({}), not {}",
          parallel_.dataset.text, input.name, rank, to_string(graph_.type(input.value)), all[index].size());
  return all[index];
}

void BatchLayouts::cut_batch(const Input& input, Layout& layout) const {
  const Shape& shape = graph_.type(input.value).shape;
  require(shape.rank() >= 1, "data input '{}' is a scalar; its first dimension must be the batch", input.name);
  layout.dims[0] = mesh_.find("dp");
  const int64_t parts = mesh_.size_of(layout.dims[0]);
  if (shape[0] % parts == 0) return;
  const int64_t below = shape[0] / parts * parts;
  int64_t fewer = parts;  // the most ranks that share it alike
  while (shape[0] % fewer != 0) --fewer;
  fail(ErrorKind::kInvalidArgument, "the batch of {} ('{}' {}) does not divide over {} ranks; use {}{} samples, or {}",
       counted(shape[0], "sample"), input.name, to_string(graph_.type(input.value)), parts,
       below > 0 ? fmt::format("{} or ", below) : "", below + parts, counted(fewer, "rank"));
}

}  // namespace trireme
