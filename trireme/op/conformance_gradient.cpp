// The numeric gradient. A random linear functional L of all floating results is differentiated
// twice: by the op's own rule, as a graph, and by central differences, both in f64.
//
// With D(h) = (L(x+h) - L(x-h)) / 2h, the value (4 D(h/2) - D(h)) / 3 is right to O(h^4), and
// |D(h/2) - D(h)| bounds its truncation error generously: the tolerance is that plus the rounding
// of L over h. Nothing is set by hand.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/op/conformance.h"
#include "trireme/op/interpret.h"
#include "trireme/op/structural.h"

namespace trireme::conformance {
namespace {

using Findings = std::vector<std::string>;

constexpr double kStep = 0x1p-10;
constexpr int64_t kProbes = 48;  // elements probed of one operand

std::vector<HostTensor> widened_all(std::span<const HostTensor> tensors) {
  std::vector<HostTensor> out;
  for (const HostTensor& tensor : tensors) out.push_back(widened(tensor));
  return out;
}

struct Functional {
  const OpDef& op;
  const Example& example;
  std::vector<TensorType> results;  // f64 for floating ones
  std::vector<HostTensor> weights;  // one per result; unused where a result is not weighted
  std::vector<char> weighted;

  struct Sum {
    double value = 0;
    double size = 0;  // of the terms: the scale of its rounding error
  };
  Sum operator()(std::span<const HostTensor> operands) const {
    std::vector<const HostTensor*> in;
    for (const HostTensor& operand : operands) in.push_back(&operand);
    Sum sum;
    const std::vector<HostTensor> out = run_reference(op, example.attrs, in, results);
    for (size_t r = 0; r < out.size(); ++r) {
      if (!weighted[r]) continue;
      for (int64_t i = 0; i < out[r].type().elements(); ++i) {
        const double term = element(out[r], i) * element(weights[r], i);
        sum.value += term;
        sum.size += std::abs(term);
      }
    }
    return sum;
  }
};

// The graph of the op's gradient rule for the wanted operands: operands x0.., cotangents dy0..,
// gradients dx0...
Graph gradient_graph(const Functional& f, const std::vector<char>& wanted, Findings& findings) {
  Graph graph("gradient");
  std::vector<Tensor> in, out, dout;
  std::vector<ValueId> ids;
  for (size_t i = 0; i < f.example.in.size(); ++i) {
    ids.push_back(graph.add_input(fmt::format("x{}", i), f.example.in[i], Role::kData));
    in.emplace_back(graph, ids.back());
  }
  const std::vector<TensorType> types = results_of(f.op, f.example);
  for (size_t r = 0; r < types.size(); ++r) {
    const bool given = f.weighted[r] != 0;
    dout.push_back(given ? Tensor(graph, graph.add_input(fmt::format("dy{}", r), types[r], Role::kData)) : Tensor());
  }
  const NodeId node = graph.add_node(f.op, f.example.attrs, ids, types);
  for (const ValueId id : graph.node(node).outputs) out.emplace_back(graph, id);
  const std::vector<Tensor> din = f.op.grad.get()({in, out, dout, wanted, f.example.attrs});
  if (din.size() != in.size()) {
    findings.push_back(fmt::format("gives {} gradients for {} operands", din.size(), in.size()));
    return graph;
  }
  for (size_t i = 0; i < din.size(); ++i) {
    if (!din[i] || !wanted[i]) continue;
    if (!is_gradient_type(din[i].type(), f.example.in[i])) {
      findings.push_back(fmt::format("gives a gradient {} for operand {} of {}", to_string(din[i].type()), i,
                                     to_string(f.example.in[i])));
      continue;
    }
    graph.add_output(fmt::format("dx{}", i), din[i].id());
  }
  return without_dead_nodes(graph);
}

// The numeric derivative along element `at` of operand `which`, and how far off it may be.
struct Slope {
  double value = 0;
  double truncation = 0;
  double rounding = 0;
};
Slope slope(const Functional& f, std::vector<HostTensor>& operands, size_t which, size_t at) {
  double& x = operands[which].as<double>()[at];
  const double middle = x;
  const auto difference_quotient = [&](double h, double& size) {
    x = middle + h;
    const auto up = f(operands);
    x = middle - h;
    const auto down = f(operands);
    x = middle;
    size = std::max({size, up.size, down.size});
    return (up.value - down.value) / (2 * h);
  };
  double size = 0;
  const double coarse = difference_quotient(kStep, size);
  const double fine = difference_quotient(kStep / 2, size);
  return {(4 * fine - coarse) / 3, std::abs(fine - coarse), 64 * 0x1p-52 * size / kStep};
}

std::string compare_operand(const Functional& f, std::vector<HostTensor>& operands, size_t which,
                            const HostTensor* gradient, uint64_t seed) {
  const int64_t n = operands[which].type().elements();
  for (int64_t probe = 0; probe < std::min(n, kProbes); ++probe) {
    const Stream stream{seed, which};
    const int64_t at =
        n <= kProbes
            ? probe
            : static_cast<int64_t>(random_bits(stream, static_cast<uint64_t>(probe), 0) % static_cast<uint64_t>(n));
    const Slope numeric = slope(f, operands, which, static_cast<size_t>(at));
    const double given = gradient == nullptr ? 0 : element(*gradient, at);
    if (numeric.truncation > 1e-3 * (1 + std::abs(numeric.value))) {
      return fmt::format(
          "operand {}, element {}: too rough for a numeric gradient; fill it with distinct values "
          "away "
          "from kinks",
          which, at);
    }
    const double allowed = numeric.truncation + numeric.rounding;
    if (std::abs(given - numeric.value) <= allowed) continue;
    return fmt::format("operand {}, element {}: the gradient is {} where the numeric one is {} (allowed {})", which, at,
                       given, numeric.value, allowed);
  }
  return "";
}

Findings check_one(const Functional& f, const std::vector<char>& wanted, std::vector<HostTensor>& operands,
                   uint64_t seed) {
  Findings findings;
  const Graph graph = gradient_graph(f, wanted, findings);
  if (!findings.empty()) return findings;
  std::map<std::string, HostTensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i) inputs.emplace(fmt::format("x{}", i), operands[i].clone());
  for (size_t r = 0; r < f.weights.size(); ++r) {
    if (f.weighted[r]) inputs.emplace(fmt::format("dy{}", r), f.weights[r].clone());
  }
  const auto gradients = interpret(graph, inputs, {.f64 = true});
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!wanted[i]) continue;
    const auto found = gradients.find(fmt::format("dx{}", i));
    std::string text = compare_operand(f, operands, i, found == gradients.end() ? nullptr : &found->second, seed);
    if (!text.empty()) findings.push_back(std::move(text));
  }
  return findings;
}

// All sets of weighted results to try: all at once, and each alone.
std::vector<std::vector<char>> subsets(const std::vector<char>& all) {
  std::vector<std::vector<char>> out = {all};
  if (std::count(all.begin(), all.end(), 1) < 2) return out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    out.emplace_back(all.size(), 0);
    out.back()[i] = 1;
  }
  return out;
}

Findings check_example(const OpDef& op, const Example& example, uint64_t seed) {
  Functional f{op, example, {}, {}, {}};
  for (const TensorType& type : results_of(op, example)) {
    f.results.push_back(widened(type));
    f.weighted.push_back(is_floating(type.dtype) ? 1 : 0);
    f.weights.push_back(filled(widened(type), {}, seed * 7 + f.weights.size()));
  }
  std::vector<char> wanted;
  for (const TensorType& type : example.in) wanted.push_back(is_floating(type.dtype) ? 1 : 0);
  const auto any = [](const std::vector<char>& flags) { return std::count(flags.begin(), flags.end(), 1) > 0; };
  if (!any(wanted) || !any(f.weighted)) return {};
  std::vector<HostTensor> operands = widened_all(operands_of(example, seed));
  Findings findings;
  for (const auto& weighted : subsets(f.weighted)) {
    f.weighted = weighted;
    for (const auto& some : subsets(wanted)) {
      for (std::string& text : check_one(f, some, operands, seed)) findings.push_back(std::move(text));
    }
  }
  return findings;
}

}  // namespace

std::vector<std::string> check_gradient(const OpDef& op, uint64_t seed) {
  if (!op.grad)
    return std::string_view(op.grad.reason()).empty() ? Findings{"has no gradient and no reason"} : Findings{};
  if (!op.kernel) return {};
  Findings out;
  for (const Example& example : op.examples()) {
    if (!example.skip_gradient.empty()) continue;
    for (const std::string& text : check_example(op, example, seed)) {
      out.push_back(describe(op, example) + ": " + text);
    }
  }
  return out;
}

}  // namespace trireme::conformance
