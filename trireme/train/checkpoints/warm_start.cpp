#include "trireme/train/checkpoints/warm_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/words.h"
#include "trireme/ckpt/open_tensors.h"
#include "trireme/tensor/convert.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme {
namespace {

bool is_excepted(const std::vector<std::string>& except, std::string_view name) {
  return std::ranges::any_of(except, [&](const std::string& pattern) { return matches(pattern, name); });
}

// What a source has of a model without its optimizer.
std::vector<std::string> of_source(const ckpt::TensorSource& source) {
  std::vector<std::string> out;
  for (const std::string& name : source.names()) {
    if (!source.is_state_of_parameter(name)) out.push_back(name);
  }
  return out;
}

std::string listed(const std::vector<std::string>& names, const char* what) {
  constexpr size_t kMost = 12;
  const size_t shown = std::min(names.size(), kMost);
  return fmt::format("{} {} ({}{})", names.size(), what, joined_text(std::span(names).first(shown), ", "),
                     shown < names.size() ? ", ..." : "");
}

// Of floating-point elements; others are finite.
bool is_finite(const View& view) {
  if (!is_convertible(view.type.dtype)) return true;
  const auto all = [](const View& f32) {
    return std::ranges::all_of(f32.as<float>(), [](float value) { return std::isfinite(value); });
  };
  if (view.type.dtype == DType::kF32) return all(view);
  const HostTensor copy(TensorType{DType::kF32, view.type.shape});
  convert(view, copy.view());
  return all(copy.view());
}

void check_patterns(const std::vector<std::string>& except, const std::vector<const Input*>& wanted,
                    const std::vector<std::string>& stored, const std::string& source) {
  for (const std::string& pattern : except) {
    const bool any = std::ranges::any_of(wanted, [&](const Input* i) { return matches(pattern, i->name); }) ||
                     std::ranges::any_of(stored, [&](const std::string& name) { return matches(pattern, name); });
    require(any, "train.init_except: '{}' names nothing of the model or of {}; leave it out", pattern, source);
  }
}

// Of another shape than the source's, or another type that is not converted: "head.weight: f32[10,64] there, f32[3,64]
// here". Pieces that a model's own code has cut are compared where they are read.
std::string other_shape(const Session& session, const Input& input, const ckpt::TensorSource& source) {
  if (session.plan().by_hand && !input.piece.empty()) return "";
  TensorType here = session.compiled().graph.type(input.value);
  if (input.saved_as.rank() > 0) here.shape = input.saved_as;
  const TensorType& there = source.type(input.name);
  const bool fits = there.shape == here.shape &&
                    (there.dtype == here.dtype || (is_convertible(there.dtype) && is_convertible(here.dtype)));
  return fits ? ""
              : fmt::format("{}: {} there, {} here", input.name, trireme::to_string(there), trireme::to_string(here));
}

}  // namespace

std::vector<const Input*> inputs_of_model(const Graph& graph) {
  std::set<ValueId> states;
  for (const Update& update : graph.updates()) states.insert(update.states.begin(), update.states.end());
  std::vector<const Input*> out;
  for (const Input& input : graph.inputs()) {
    const bool is_buffer = input.role == Role::kState && !states.contains(input.value);
    if (input.role == Role::kParameter || is_buffer) out.push_back(&input);
  }
  return out;
}

std::unique_ptr<ckpt::TensorSource> warm_start_source(const std::string& named) {
  try {
    return ckpt::open_tensors(named);
  } catch (Error& e) {
    e.note("train.init_from (--init-from) names '" + named + "'");
    throw;
  }
}

WarmStart start_from(Session& session, const ckpt::TensorSource& source, const std::vector<std::string>& except) {
  const std::vector<const Input*> wanted = inputs_of_model(session.compiled().graph);
  const std::vector<std::string> stored = of_source(source);
  check_patterns(except, wanted, stored, source.text());
  WarmStart out;
  std::set<std::string, std::less<>> taken, known;
  std::vector<std::string> missing, more, shapes;
  for (const Input* input : wanted) {
    known.insert(input->name);
    if (is_excepted(except, input->name)) {
      out.anew.push_back(input->name);
    } else if (!source.has(input->name)) {
      missing.push_back(input->name);
    } else if (std::string other = other_shape(session, *input, source); !other.empty()) {
      shapes.push_back(std::move(other));
    } else {
      taken.insert(input->name);
      out.converted += source.type(input->name).dtype != session.compiled().graph.type(input->value).dtype ? 1 : 0;
    }
  }
  for (const std::string& name : stored) {
    if (is_excepted(except, name))
      out.left_out.push_back(name);
    else if (!known.contains(name))
      more.push_back(name);
  }
  std::vector<std::string> wrong;
  if (!missing.empty()) wrong.push_back(listed(missing, "are missing there"));
  if (!more.empty()) wrong.push_back(listed(more, "are not of this model"));
  if (!shapes.empty()) wrong.push_back(listed(shapes, "have another shape"));
  require(wrong.empty(),
          "train.init_from: {} is of another model: {}; name what is not to be taken from it, as in "
          "train.init_except = [\"head.*\"]",
          source.text(), joined_text(wrong, "; "));
  out.taken = taken.size();
  require(out.taken > 0, "train.init_from: train.init_except leaves nothing to take from {}", source.text());
  for (const PlanInput& input : session.persistent()) {
    if (!taken.contains(input.name)) continue;
    load_input(session, source, input, ckpt::TensorSource::Types::kConvertible);
    if (input.role == Role::kParameter && !is_finite(session.step().borrow_input(input.name).view))
      out.not_finite.push_back(input.name);
  }
  return out;
}

}  // namespace trireme
