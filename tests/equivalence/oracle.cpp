#include "tests/equivalence/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "tests/equivalence/draw.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/layout/interpret_reshard.h"
#include "trireme/op/conformance.h"
#include "trireme/op/structural.h"

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
    if (def_of(graph.nodes()[id]).collective) continue;
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

void put(const HostTensor& tensor, int64_t i, double value) {
  const auto at = static_cast<size_t>(i);
  if (tensor.type().dtype == DType::kF32) tensor.as<float>()[at] = static_cast<float>(value);
  if (tensor.type().dtype == DType::kF64) tensor.as<double>()[at] = value;
  if (tensor.type().dtype == DType::kBF16) tensor.as<BFloat16>()[at] = BFloat16(static_cast<float>(value));
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
  std::vector<double> made;
  for (int64_t i = 0; i < result.type().elements(); ++i) made.push_back(conformance::element(result, i));
  if ((are_whole_numbers(known) && are_whole_numbers(made)) || is_selection(result, known)) return;
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
    put(result, k, x + (relative ? own : narrow ? most + own : most) * draw.between(-1, 1));
  }
}

// A sum over ranks, whose terms are rounded as they are added.
void disturb_sum(const std::vector<const HostTensor*>& terms, const HostTensor& result, Draw& draw) {
  if (!is_floating(result.type().dtype)) return;
  double largest = 0;  // of any partial sum
  bool exact = true;
  for (const HostTensor* term : terms) {
    largest += magnitude_of(*term);
    std::vector<double> elements;
    for (int64_t i = 0; i < term->type().elements(); ++i) elements.push_back(conformance::element(*term, i));
    exact = exact && are_whole_numbers(elements);
  }
  if (exact) return;
  const auto count = static_cast<int64_t>(terms.size());
  const double most = result.type().dtype == DType::kBF16
                          ? 0x1p-8 * largest * std::bit_width(static_cast<uint64_t>(count))
                          : conformance::tolerance(result.type().dtype, count, largest);
  for (int64_t i = 0; i < result.type().elements(); ++i) {
    put(result, i, conformance::element(result, i) + most * draw.between(-1, 1));
  }
}

// Disturbs what is made of a graph, on all ranks alike.
class Disturbance {
 public:
  Disturbance(const Graph& graph, const Strategy& strategy) : graph_(graph), work_(work_of_all(graph, strategy)) {}

  void begin(uint32_t seed) { draw_ = Draw(seed); }
  Change change() {
    return [this](const Made& made) { disturb_result(made); };
  }

 private:
  void disturb_result(const Made& made) {
    if (made.result == 0 && made.rank == 0) before_ = draw_;
    if (made.result == 0 && made.rank > 0) draw_ = before_;
    const Node& node = graph_.node(made.node);
    if (!def_of(node).collective) {
      return disturb(made.operands, made.tensor, work_[static_cast<size_t>(made.node)][made.result], draw_);
    }
    if (adds_up(node)) disturb_sum(made.operands, made.tensor, draw_);
  }

  static bool adds_up(const Node& node) {
    if (node.op->name == "add_windows") return true;
    const bool reduces = node.op->name == "all_reduce" || node.op->name == "reduce_scatter";
    return reduces && node.attrs.as<CollectiveAttrs>().reduction == "sum";
  }

  const Graph& graph_;
  std::vector<std::vector<Work>> work_;  // of each node's results
  Draw draw_{0}, before_{0};
};

Mesh mesh_of(const Case& test) {
  return test.by_hand ? test.strategy.mesh : Mesh();
}

// Puts each rank's pieces of the wholes in place of what it has.
void cut_to(const Graph& graph, const Mesh& mesh, const Tensors& wholes, std::vector<Tensors>& now) {
  for (const Input& input : graph.inputs()) {
    const auto whole = wholes.find(input.name);
    if (whole == wholes.end()) continue;
    std::vector<HostTensor> pieces = cut(whole->second, layout_of(graph, input, mesh), mesh);
    for (size_t rank = 0; rank < now.size(); ++rank) now[rank].insert_or_assign(input.name, std::move(pieces[rank]));
  }
}

// A case as it is computed, step by step.
class Steps {
 public:
  Steps(const Case& test, const CaseInputs& inputs) : test_(test), inputs_(inputs), mesh_(mesh_of(test)) {
    Graph evaluation = test.evaluates ? evaluation_of(test) : Graph();
    if (evaluation.outputs().empty()) return;
    evaluation_ = std::move(evaluation);
    evaluation_work_.emplace(*evaluation_, evaluation_strategy(test, *evaluation_));
  }

  // The outputs of the last step on each rank. seed: of a disturbance; 0: none.
  std::vector<Tensors> run(uint32_t seed) {
    step_work_.begin(seed);
    std::vector<Tensors> now(static_cast<size_t>(mesh_.devices())), out;
    for (size_t step = 0; step < inputs_.steps.size(); ++step) {
      cut_to(test_.graph, mesh_, inputs_.steps[step], now);
      out = run_in_lockstep(test_.graph, mesh_, now, seed == 0 ? Change{} : step_work_.change());
      update(now, out);
    }
    if (evaluation_) evaluate(seed, std::move(now), out);
    return out;
  }

 private:
  void update(std::vector<Tensors>& now, const std::vector<Tensors>& out) const {
    for (const Output& output : test_.graph.outputs()) {
      if (output.updates == kNoValue) continue;
      const auto input = static_cast<size_t>(test_.graph.value(output.updates).index);
      for (size_t rank = 0; rank < now.size(); ++rank) {
        now[rank].insert_or_assign(test_.graph.inputs()[input].name, out[rank].at(output.name).clone());
      }
    }
  }

  void evaluate(uint32_t seed, std::vector<Tensors> now, std::vector<Tensors>& out) {
    evaluation_work_->begin(seed);
    cut_to(*evaluation_, mesh_, inputs_.evaluation, now);
    std::vector<Tensors> found =
        run_in_lockstep(*evaluation_, mesh_, now, seed == 0 ? Change{} : evaluation_work_->change());
    for (size_t rank = 0; rank < now.size(); ++rank) {
      for (auto& [name, tensor] : found[rank]) out[rank].insert_or_assign(evaluated(name), std::move(tensor));
    }
  }

  const Case& test_;
  const CaseInputs& inputs_;
  Mesh mesh_;
  Disturbance step_work_{test_.graph, test_.strategy};
  std::optional<Graph> evaluation_;
  std::optional<Disturbance> evaluation_work_;
};

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

// On each rank, its pieces of wholes.
std::vector<Tensors> pieces_of(const Graph& graph, const Mesh& mesh, const Tensors& wholes) {
  std::vector<Tensors> out(static_cast<size_t>(mesh.devices()));
  cut_to(graph, mesh, wholes, out);
  return out;
}

// The loss with the inputs moved by `step` along a direction.
double loss_at(const Graph& graph, const Mesh& mesh, const Tensors& inputs, const Tensors& direction, double step) {
  Tensors moved;
  for (const auto& [name, tensor] : inputs) {
    HostTensor copy = tensor.clone();
    if (const auto along = direction.find(name); along != direction.end()) {
      for (size_t i = 0; i < copy.as<double>().size(); ++i)
        copy.as<double>()[i] += step * along->second.as<double>()[i];
    }
    moved.emplace(name, std::move(copy));
  }
  return run_in_lockstep(graph, mesh, pieces_of(graph, mesh, moved))[0].at("loss").as<double>()[0];
}

HostTensor random_whole(const Graph& graph, const Input& input, const Mesh& mesh, uint32_t seed, int step) {
  HostTensor out(TensorType{graph.type(input.value).dtype, whole_of(graph, input, mesh)});
  // By its name, so that a case keeps its values while it is shrunk.
  uint32_t mixed = seed * 2654435761U + static_cast<uint32_t>(step);
  for (const char c : input.name) mixed = mixed * 16777619U ^ static_cast<uint32_t>(c);
  Draw draw(mixed);
  if (input.role != Role::kState) fill(out, input.name, step + 1, draw);
  return out;
}

bool is_kept(const Input& input) {
  return input.role == Role::kParameter || input.role == Role::kState;
}

}  // namespace

std::string evaluated(const std::string& output) {
  return "evaluation/" + output;
}

CaseInputs random_inputs(const Case& test) {
  const Mesh mesh = mesh_of(test);
  CaseInputs out{.steps = std::vector<Tensors>(static_cast<size_t>(test.steps)), .evaluation = {}};
  for (int step = 0; step < test.steps; ++step) {
    for (const Input& input : test.graph.inputs()) {
      if (is_kept(input) && step > 0) continue;
      out.steps[static_cast<size_t>(step)].emplace(input.name, random_whole(test.graph, input, mesh, test.seed, step));
    }
  }
  for (const Input& input : test.graph.inputs()) {  // a batch of its own
    if (!test.evaluates || is_kept(input)) continue;
    out.evaluation.emplace(input.name, random_whole(test.graph, input, mesh, test.seed, test.steps));
  }
  return out;
}

bool computes_in_bf16(const Graph& graph) {
  return std::ranges::any_of(graph.values(), [](const Value& value) { return value.type->dtype == DType::kBF16; });
}

Expected one_device(const Case& test, const CaseInputs& inputs, int disturbed_runs) {
  Expected out;
  Steps steps(test, inputs);
  out.outputs = steps.run(0);
  out.finite = std::ranges::all_of(out.outputs, is_tame);
  if (!out.finite) return out;
  std::map<std::string, double> sensitivity;
  for (int run = 0; run < disturbed_runs; ++run) {
    const std::vector<Tensors> disturbed = steps.run(static_cast<uint32_t>(run + 1));
    for (size_t rank = 0; rank < disturbed.size(); ++rank) {
      for (const auto& [name, tensor] : out.outputs[rank]) {
        sensitivity[name] = std::max(sensitivity[name], distance(tensor, disturbed[rank].at(name)));
      }
    }
  }
  const double too_sensitive = computes_in_bf16(test.graph) ? kTooSensitiveInBf16 : kTooSensitive;
  for (const auto& [name, tensor] : out.outputs[0]) {
    double magnitude = 0;
    for (const Tensors& of_rank : out.outputs) magnitude = std::max(magnitude, magnitude_of(of_rank.at(name)));
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

// What the loss changes by along a direction, as the gradients say, and the terms that make it.
struct Slope {
  Tensors direction;  // by input, on wholes
  double slope = 0;
  double terms = 1e-3;
};

Slope slope_of(const Graph& graph, const Mesh& mesh, const Tensors& inputs, uint32_t seed) {
  Slope out;
  Draw draw(seed);
  const std::vector<Tensors> results = run_in_lockstep(graph, mesh, pieces_of(graph, mesh, inputs));
  for (const Output& output : graph.outputs()) {
    if (!output.name.starts_with("grad.")) continue;
    const Input& input = graph.input(output.name.substr(5));
    HostTensor along(TensorType{DType::kF64, whole_of(graph, input, mesh)});
    fill(along, input.name, 0, draw);
    const Layout layout = layout_of(graph, input, mesh);
    const std::vector<HostTensor> pieces = cut(along, layout, mesh);
    // All who hold the same of a parameter have the sum of their gradients.
    const int64_t holders = input.role == Role::kParameter ? mesh.size_of(layout.replica_axes(mesh)) : 1;
    for (size_t rank = 0; rank < pieces.size(); ++rank) {
      const HostTensor& gradient = results[rank].at(output.name);
      for (size_t i = 0; i < pieces[rank].as<double>().size(); ++i) {
        const double term = pieces[rank].as<double>()[i] * gradient.as<double>()[i] / static_cast<double>(holders);
        out.slope += term;
        out.terms += std::fabs(term);
      }
    }
    out.direction.emplace(input.name, std::move(along));
  }
  return out;
}

}  // namespace

std::string check_gradients(const Case& test, const Tensors& inputs) {
  const Graph& graph = test.graph;
  const Mesh mesh = mesh_of(test);
  const bool has_loss = std::any_of(graph.outputs().begin(), graph.outputs().end(),
                                    [](const Output& output) { return output.name == "loss"; });
  if (!has_loss) return "";
  Graph forward(graph);
  forward.clear_outputs();
  forward.add_output("loss", graph.output("loss").value);
  forward = without_dead_nodes(forward);
  if (std::ranges::any_of(forward.nodes(), leaves_the_slope)) return "";
  if (forward.type(forward.output("loss").value) != TensorType{DType::kF64, {}}) return "";
  const auto [direction, slope, terms] = slope_of(graph, mesh, inputs, test.seed);
  if (direction.empty()) return "";
  const auto loss = [&, &along = direction](double h) { return loss_at(forward, mesh, inputs, along, h); };
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
