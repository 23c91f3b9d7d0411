#include "tests/equivalence/oracle.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/equivalence/draw.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/conformance.h"
#include "trireme/op/interpret.h"

namespace trireme::equivalence {
namespace {

constexpr double kFewRuns = 2;  // what random runs may miss of the worst
// An output that may lie this share of its own largest element off says little any more.
constexpr double kTooSensitive = 1e-2;
constexpr double kTooSensitiveInBf16 = 0.1;  // of graphs that compute in bf16

int64_t bound_of(const std::string& name) {
  const size_t at = name.find(".below");
  return at == std::string::npos ? 2 : std::stoll(name.substr(at + 6));
}

void fill(const HostTensor& tensor, const std::string& name, int64_t step, Draw& draw) {
  const DType dtype = tensor.type().dtype;
  const bool whole = name.find(".below") != std::string::npos;
  for (int64_t k = 0; k < tensor.type().elements(); ++k) {
    const auto i = static_cast<size_t>(k);
    const double value = name == "step"                 ? static_cast<double>(step)
                         : name == "lr"                 ? 0.1
                         : whole || !is_floating(dtype) ? static_cast<double>(draw.below(bound_of(name)))
                                                        : draw.between(-1, 1);
    switch (dtype) {
      case DType::kF32:
        tensor.as<float>()[i] = static_cast<float>(value);
        break;
      case DType::kBF16:
        tensor.as<BFloat16>()[i] = BFloat16(static_cast<float>(value));
        break;
      case DType::kF64:
        tensor.as<double>()[i] = value;
        break;
      case DType::kI32:
        tensor.as<int32_t>()[i] = static_cast<int32_t>(value);
        break;
      case DType::kI64:
        tensor.as<int64_t>()[i] = static_cast<int64_t>(value);
        break;
      case DType::kBool:
        tensor.as<bool>()[i] = value != 0;
        break;
      default:
        invariant(false, "inputs of {} are not drawn", to_string(tensor.type()));
    }
  }
}

double magnitude_of(const HostTensor& tensor) {
  return conformance::magnitude({&tensor, 1});
}

bool has_factor(const DimFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

// Terms that an element of a result is made of: its op sums over the factors of the rule that the
// result does not have, and may do so over those that cannot be cut and over dimensions without a
// factor. 0 where it has none of these: then each element stands alone.
int64_t terms_of(const Graph& graph, const Node& node, size_t result) {
  const ShardingRule rule = *rule_of(graph, node);
  bool alone = true;
  int64_t terms = 1;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].can_cut && has_factor(rule.out[result], static_cast<int>(f))) continue;
    alone = false;
    terms *= rule.factors[f].size;
  }
  int64_t longest = 1;
  for (size_t i = 0; i < rule.in.size(); ++i) {
    int64_t own = 1;
    for (size_t dim = 0; dim < rule.in[i].size(); ++dim) {
      if (!rule.in[i][dim].empty()) continue;
      alone = false;
      own *= graph.type(node.inputs[i]).shape[static_cast<int>(dim)];
    }
    longest = std::max(longest, own);
  }
  return alone ? 0 : terms * longest;
}

// How a result comes about.
struct Work {
  int64_t terms = 0;
  bool rounds_parts =
      false;  // in bf16: parts of the sum are rounded before they are added, by ranks or inside a kernel
};

Work work_of(const Graph& graph, NodeId id, size_t result, const Strategy& strategy) {
  const Node& node = graph.node(id);
  const ShardingRule rule = *rule_of(graph, node);
  const FactorCuts& cuts = strategy.nodes[static_cast<size_t>(id)];
  Work out{.terms = terms_of(graph, node, result), .rounds_parts = !cuts.through.empty()};
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (!cuts.axes[f].empty() && !has_factor(rule.out[result], static_cast<int>(f))) out.rounds_parts = true;
  }
  for (const Kernel* kernel : kernels_of(def_of(node)))
    out.rounds_parts = out.rounds_parts || kernel->name.ends_with(".pairs");
  return out;
}

std::vector<std::vector<Work>> work_of_all(const Graph& graph, const Strategy& strategy) {
  std::vector<std::vector<Work>> out(graph.nodes().size());
  for (size_t id = 0; id < out.size(); ++id) {
    for (size_t i = 0; i < graph.nodes()[id].outputs.size(); ++i)
      out[id].push_back(work_of(graph, static_cast<NodeId>(id), i, strategy));
  }
  return out;
}

// What one op's rounding may do to a result: sums of so many terms, each a product of an element of
// every operand. What an op computes on the way to a result that cancels is as large as that.
double rounding_of(const std::vector<const HostTensor*>& operands, const HostTensor& result, int64_t terms) {
  double largest = 0;
  double product = 1;
  for (const HostTensor* operand : operands) {
    const double magnitude = magnitude_of(*operand);
    largest = std::max(largest, magnitude);
    product *= std::max(magnitude, 1.0);
  }
  if (largest > 1) largest = product;
  // Sums of bf16 are taken in f32.
  if (result.type().dtype == DType::kBF16) return conformance::tolerance(DType::kF32, terms, largest);
  return conformance::tolerance(result.type().dtype, terms, std::max(largest, magnitude_of(result)));
}

bool are_whole_numbers(const std::vector<double>& elements) {
  return std::all_of(elements.begin(), elements.end(), [](double x) { return x == std::trunc(x); });
}

// Whether the op only picks elements of its operands: then it is exact. (Zeros alone say nothing:
// they may be what is left of terms that cancel.)
bool is_selection(const HostTensor& result, const std::vector<double>& known) {
  bool any = false;
  for (int64_t i = 0; i < result.type().elements(); ++i) {
    const double x = conformance::element(result, i);
    if (!std::binary_search(known.begin(), known.end(), x)) return false;
    any = any || x != 0;
  }
  return any;
}

// Moves the elements that the op has computed; what is picked, and sums of whole numbers, are
// exact.
void disturb(const std::vector<const HostTensor*>& operands, const HostTensor& result, const Work& work, Draw& draw) {
  if (!is_floating(result.type().dtype)) return;
  std::vector<double> known;
  for (const HostTensor* operand : operands) {
    for (int64_t i = 0; i < operand->type().elements(); ++i) {
      known.push_back(conformance::element(*operand, i));
    }
  }
  std::sort(known.begin(), known.end());
  if (are_whole_numbers(known) || is_selection(result, known)) return;
  const bool narrow = result.type().dtype == DType::kBF16;
  const double most =
      rounding_of(operands, result, work.terms) + (narrow && work.rounds_parts ? 0x1p-8 * magnitude_of(result) : 0);
  for (int64_t k = 0; k < result.type().elements(); ++k) {
    const double x = conformance::element(result, k);
    const bool stands_alone = work.terms == 0;
    if (stands_alone && std::binary_search(known.begin(), known.end(), x)) continue;
    // Without sums the error is relative to each element, and keeps its sign; so is that of the one rounding of a sum
    // to bf16.
    const double own = narrow ? 0x1p-8 * std::fabs(x) : conformance::tolerance(result.type().dtype, 4, std::fabs(x));
    const bool relative = stands_alone && !(narrow && work.rounds_parts);
    const double y = x + (relative ? own : narrow ? most + own : most) * draw.between(-1, 1);
    const auto i = static_cast<size_t>(k);
    if (result.type().dtype == DType::kF32) result.as<float>()[i] = static_cast<float>(y);
    if (result.type().dtype == DType::kF64) result.as<double>()[i] = y;
    if (result.type().dtype == DType::kBF16) result.as<BFloat16>()[i] = BFloat16(static_cast<float>(y));
  }
}

// How a graph is disturbed.
struct Disturbance {
  Draw draw;
  std::vector<std::vector<Work>> work;  // of each node's results
};

// Every node in turn; `by`, if given, disturbs what it computes.
Tensors run_once(const Graph& graph, const Tensors& inputs, Disturbance* by) {
  std::vector<HostTensor> values(graph.values().size());
  for (const Input& input : graph.inputs()) {
    values[static_cast<size_t>(input.value)] = inputs.at(input.name).clone();
  }
  for (const Node& node : graph.nodes()) {
    std::vector<const HostTensor*> in;
    for (const ValueId id : node.inputs) in.push_back(&values[static_cast<size_t>(id)]);
    std::vector<TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(graph.type(id));
    std::vector<HostTensor> results = run_reference(def_of(node), node.attrs, in, types);
    for (size_t i = 0; i < results.size(); ++i) {
      if (by != nullptr)
        disturb(in, results[i], by->work[static_cast<size_t>(&node - graph.nodes().data())][i], by->draw);
      values[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
    }
  }
  Tensors out;
  for (const Output& output : graph.outputs()) {
    out.insert_or_assign(output.name, values[static_cast<size_t>(output.value)].clone());
  }
  return out;
}

Tensors run_steps(const Graph& graph, const std::vector<Tensors>& inputs, Disturbance* by) {
  Tensors now, results;
  for (const Tensors& step : inputs) {
    for (const auto& [name, tensor] : step) now.insert_or_assign(name, tensor.clone());
    results = run_once(graph, now, by);
    for (const Output& output : graph.outputs()) {
      if (output.updates == kNoValue) continue;
      const Value& updated = graph.value(output.updates);
      now.insert_or_assign(graph.inputs()[static_cast<size_t>(updated.index)].name, results.at(output.name).clone());
    }
  }
  return results;
}

double distance(const HostTensor& a, const HostTensor& b) {
  double out = 0;
  for (int64_t i = 0; i < a.type().elements(); ++i) {
    const double d = std::fabs(conformance::element(a, i) - conformance::element(b, i));
    out = std::isfinite(d) ? std::max(out, d) : INFINITY;
  }
  return out;
}

bool is_tame(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& named) {
    for (int64_t i = 0; i < named.second.type().elements(); ++i) {
      if (!(std::fabs(conformance::element(named.second, i)) < 1e5)) return false;
    }
    return true;
  });
}

// The loss with the inputs moved by `step` along a direction.
double loss_at(const Graph& graph, const Tensors& inputs, const Tensors& direction, double step) {
  Tensors moved;
  for (const auto& [name, tensor] : inputs) {
    HostTensor copy = tensor.clone();
    if (const auto along = direction.find(name); along != direction.end()) {
      for (size_t i = 0; i < copy.as<double>().size(); ++i)
        copy.as<double>()[i] += step * along->second.as<double>()[i];
    }
    moved.emplace(name, std::move(copy));
  }
  return run_once(graph, moved, nullptr).at("loss").as<double>()[0];
}

}  // namespace

std::vector<Tensors> random_inputs(const Graph& graph, uint32_t seed, int steps) {
  std::vector<Tensors> out(static_cast<size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    for (const Input& input : graph.inputs()) {
      const bool kept = input.role == Role::kParameter || input.role == Role::kState;
      if (kept && step > 0) continue;
      HostTensor tensor(graph.type(input.value));
      // By its name, so that a case keeps its values while it is shrunk.
      uint32_t mixed = seed * 2654435761U + static_cast<uint32_t>(step);
      for (const char c : input.name) mixed = mixed * 16777619U ^ static_cast<uint32_t>(c);
      Draw draw(mixed);
      if (input.role != Role::kState) fill(tensor, input.name, step + 1, draw);
      out[static_cast<size_t>(step)].emplace(input.name, std::move(tensor));
    }
  }
  return out;
}

bool computes_in_bf16(const Graph& graph) {
  return std::ranges::any_of(graph.values(), [](const Value& value) { return value.type.dtype == DType::kBF16; });
}

Expected one_device(const Case& test, const std::vector<Tensors>& inputs, int disturbed_runs) {
  const Graph& graph = test.graph;
  Expected out;
  out.outputs = run_steps(graph, inputs, nullptr);
  out.finite = is_tame(out.outputs);
  if (!out.finite) return out;
  Disturbance by{Draw(0), work_of_all(graph, test.strategy)};
  std::map<std::string, double> sensitivity;
  for (int run = 0; run < disturbed_runs; ++run) {
    by.draw = Draw(static_cast<uint32_t>(run + 1));
    const Tensors disturbed = run_steps(graph, inputs, &by);
    for (const auto& [name, tensor] : out.outputs) {
      sensitivity[name] = std::max(sensitivity[name], distance(tensor, disturbed.at(name)));
    }
  }
  const double too_sensitive = computes_in_bf16(graph) ? kTooSensitiveInBf16 : kTooSensitive;
  for (const auto& [name, tensor] : out.outputs) {
    const double magnitude = magnitude_of(tensor);
    const double allowed = kFewRuns * sensitivity[name] + conformance::tolerance(tensor.type().dtype, 4, magnitude);
    out.allowed[name] = allowed;
    if (allowed > too_sensitive * magnitude) out.vague.insert(name);
  }
  return out;
}

namespace {

// Whether gradients leave the loss's slope on purpose: as the op is, or with these attributes as its examples say.
bool leaves_the_slope(const Node& node) {
  if (node.op->name == "stop_gradient") return true;
  return std::ranges::any_of(def_of(node).examples(), [&](const Example& example) {
    return !example.skip_gradient.empty() && example.attrs.text() == node.attrs.text();
  });
}

}  // namespace

std::string check_gradients(const Graph& graph, const Tensors& inputs, uint32_t seed) {
  const bool has_loss = std::any_of(graph.outputs().begin(), graph.outputs().end(),
                                    [](const Output& output) { return output.name == "loss"; });
  if (!has_loss) return "";
  Graph forward(graph);
  forward.clear_outputs();
  forward.add_output("loss", graph.output("loss").value);
  forward = without_dead_nodes(forward);
  if (std::ranges::any_of(forward.nodes(), leaves_the_slope)) return "";
  if (forward.type(forward.output("loss").value) != TensorType{DType::kF64, {}}) return "";
  Draw draw(seed);
  const Tensors results = run_once(graph, inputs, nullptr);
  Tensors direction;
  double slope = 0;
  double terms = 1e-3;
  for (const Output& output : graph.outputs()) {
    if (!output.name.starts_with("grad.")) continue;
    const std::string name = output.name.substr(5);
    HostTensor along(graph.type(output.value));
    fill(along, name, 0, draw);
    const HostTensor& gradient = results.at(output.name);
    for (size_t i = 0; i < along.as<double>().size(); ++i) {
      const double term = along.as<double>()[i] * gradient.as<double>()[i];
      slope += term;
      terms += std::fabs(term);
    }
    direction.emplace(name, std::move(along));
  }
  if (direction.empty()) return "";
  const auto loss = [&](double h) { return loss_at(forward, inputs, direction, h); };
  const auto difference = [&](double h) { return (loss(h) - loss(-h)) / (2 * h); };
  constexpr double kStep = 5e-7;
  const double coarse = difference(4 * kStep);
  const double fine = difference(kStep);
  const double allowed = 1e-5 * terms;  // far above the differences' own error, far below a term left out
  if (!(std::fabs(coarse - fine) < 0.1 * allowed) || std::fabs(slope - fine) <= allowed) return "";
  // At a kink, where any slope between those of its two sides is right, the two sides differ.
  const double kink = std::fabs(loss(kStep) - 2 * loss(0) + loss(-kStep)) / kStep;
  if (kink > 0.5 * std::fabs(slope - fine)) return "";
  return fmt::format("the loss changes by {} along a direction; its gradients say {}", fine, slope);
}

}  // namespace trireme::equivalence
