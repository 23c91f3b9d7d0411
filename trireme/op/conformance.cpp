#include "trireme/op/conformance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/op/build.h"
#include "trireme/op/interpret.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/registry.h"

namespace trireme::conformance {
namespace {

using Findings = std::vector<std::string>;

constexpr std::array<Property, 6> kProperties = {{{"shapes", check_shapes},
                                                  {"gradient", check_gradient},
                                                  {"sharding", check_sharding},
                                                  {"cost", check_cost},
                                                  {"text", check_text},
                                                  {"memory", check_memory}}};

void set_element(const View& view, int64_t i, double value) {
  const auto at = static_cast<size_t>(i);
  switch (view.type.dtype) {
    case DType::kF32:
      view.as<float>()[at] = static_cast<float>(value);
      return;
    case DType::kF64:
      view.as<double>()[at] = value;
      return;
    case DType::kBF16:
      view.as<BFloat16>()[at] = BFloat16(static_cast<float>(value));
      return;
    case DType::kI8:
      view.as<int8_t>()[at] = static_cast<int8_t>(value);
      return;
    case DType::kU8:
      view.as<uint8_t>()[at] = static_cast<uint8_t>(value);
      return;
    case DType::kI32:
      view.as<int32_t>()[at] = static_cast<int32_t>(value);
      return;
    case DType::kI64:
      view.as<int64_t>()[at] = static_cast<int64_t>(value);
      return;
    case DType::kBool:
      view.as<bool>()[at] = value != 0;
      return;
    case DType::kF16:
      fail(ErrorKind::kUnsupported, "f16 is not computed with; use f32 or bf16");
  }
}

// 0 .. n-1 in random order.
std::vector<int64_t> shuffled(int64_t n, Stream stream) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    const auto j = random_bits(stream, static_cast<uint64_t>(i), 0) % static_cast<uint64_t>(i + 1);
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

// A tensor with guard bytes on both sides of its data, all bytes of `pattern` at first.
class Guarded {
 public:
  Guarded(const TensorType& type, std::byte pattern)
      : type_(type), pattern_(pattern), bytes_(static_cast<size_t>(type.bytes()) + 2 * kGuard, pattern) {}
  // The vector's storage is aligned for any element, and so is 64 bytes into it.
  View view() { return {bytes_.data() + kGuard, type_}; }
  bool intact() const {
    const auto clean = [&](std::byte b) { return b == pattern_; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuard, clean) &&
           std::all_of(bytes_.end() - kGuard, bytes_.end(), clean);
  }

 private:
  static constexpr size_t kGuard = 64;
  TensorType type_;
  std::byte pattern_;
  std::vector<std::byte> bytes_;
};

struct GuardedRun {
  std::vector<HostTensor> results;
  Findings findings;
};

// Runs a kernel on copies of the operands with guards around operands and results. `state` is kept
// by the caller.
GuardedRun run_guarded(const OpDef& op, KernelFn* kernel, const Example& example, std::span<const HostTensor> operands,
                       std::byte pattern, std::shared_ptr<void>* state) {
  GuardedRun run;
  std::vector<Guarded> in, out;
  for (const HostTensor& operand : operands) {
    in.emplace_back(operand.type(), pattern);
    std::ranges::copy(operand.view().raw(), in.back().view().raw().begin());
  }
  for (const TensorType& type : results_of(op, example)) out.emplace_back(type, pattern);
  std::vector<View> in_views, out_views;
  for (Guarded& g : in) in_views.push_back(g.view());
  for (Guarded& g : out) out_views.push_back(g.view());
  kernel({.in = in_views,
          .out = out_views,
          .in_place = {},
          .out_place = {},
          .attrs = example.attrs,
          .scratch = {},
          .state = state});
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].intact()) run.findings.push_back(fmt::format("writes outside operand {}", i));
    if (!std::ranges::equal(in_views[i].raw(), operands[i].view().raw())) {
      run.findings.push_back(fmt::format("changes operand {}", i));
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i].intact()) run.findings.push_back(fmt::format("writes outside result {}", i));
    run.results.emplace_back(out_views[i].type);
    std::ranges::copy(out_views[i].raw(), run.results.back().view().raw().begin());
  }
  return run;
}

// Two runs over different old bytes must leave the same new ones.
GuardedRun run_twice(const OpDef& op, KernelFn* kernel, const Example& example, std::span<const HostTensor> operands) {
  std::shared_ptr<void> state;
  GuardedRun run = run_guarded(op, kernel, example, operands, std::byte{0}, &state);
  const GuardedRun again = run_guarded(op, kernel, example, operands, std::byte{1}, &state);
  for (const std::string& finding : again.findings) run.findings.push_back(finding + " on the second run");
  for (size_t i = 0; i < run.results.size(); ++i) {
    if (!std::ranges::equal(run.results[i].view().raw(), again.results[i].view().raw())) {
      run.findings.push_back(fmt::format("result {} depends on what was in its bytes before, or on the run", i));
    }
  }
  return run;
}

// Runs the reference kernel with result `result` over the bytes of operand `operand`.
std::string check_overwrite(const OpDef& op, const Example& example, std::span<const HostTensor> operands,
                            std::span<const HostTensor> want, std::pair<int, int> which) {
  const auto [result, operand] = which;
  if (operands[static_cast<size_t>(operand)].type().bytes() != want[static_cast<size_t>(result)].type().bytes()) {
    return "";
  }
  std::vector<HostTensor> in, out;
  std::vector<View> in_views, out_views;
  for (const HostTensor& tensor : operands) in.push_back(tensor.clone());
  for (const HostTensor& tensor : want) out.emplace_back(tensor.type());
  for (const HostTensor& tensor : in) in_views.push_back(tensor.view());
  for (const HostTensor& tensor : out) out_views.push_back(tensor.view());
  View& shared = out_views[static_cast<size_t>(result)];
  shared.data = in_views[static_cast<size_t>(operand)].data;
  std::shared_ptr<void> state;
  op.kernel.get()({.in = in_views,
                   .out = out_views,
                   .in_place = {},
                   .out_place = {},
                   .attrs = example.attrs,
                   .scratch = {},
                   .state = &state});
  for (size_t i = 0; i < out.size(); ++i) {
    if (!std::ranges::equal(out_views[i].raw(), want[i].view().raw())) {
      return fmt::format("result {} differs when result {} is written over operand {}", i, result, operand);
    }
  }
  return "";
}

// A graph with the example's one node, under a name scope.
Graph graph_of(const OpDef& op, const Example& example) {
  Graph graph(std::string(op.name));
  std::vector<ValueId> in;
  for (size_t i = 0; i < example.in.size(); ++i) {
    in.push_back(graph.add_input(fmt::format("x{}", i), example.in[i], Role::kData));
  }
  graph.set_scope("some.scope");
  const NodeId node = graph.add_node(op, example.attrs, in, results_of(op, example));
  for (size_t i = 0; i < graph.node(node).outputs.size(); ++i) {
    graph.add_output(fmt::format("y{}", i), graph.node(node).outputs[i]);
  }
  return graph;
}

// The operand types of an example with one thing about them changed.
std::vector<std::vector<TensorType>> distortions(const std::vector<TensorType>& types) {
  std::vector<std::vector<TensorType>> out;
  for (size_t i = 0; i < types.size(); ++i) {
    const auto with = [&](TensorType type) {
      out.push_back(types);
      out.back()[i] = type;
    };
    const TensorType& type = types[i];
    with({type.dtype, {}});
    with({type.dtype, {5}});
    with({type.dtype, {3, 5, 2, 1}});
    for (const DType dtype : {DType::kF32, DType::kI64, DType::kBool, DType::kF16}) with({dtype, type.shape});
    for (int dim = 0; dim < type.shape.rank(); ++dim) {
      TensorType grown = type;
      ++grown.shape[dim];
      with(grown);
      grown.shape[dim] = 0;
      with(grown);
    }
  }
  return out;
}

// Whether the op takes these types soundly: an error of the caller's, or types with a rule and a
// cost.
std::string try_types(const OpDef& op, std::span<const TensorType> in, const Attrs& attrs) {
  std::string what;
  for (const TensorType& type : in) what += (what.empty() ? "" : ", ") + to_string(type);
  try {
    Graph graph;
    std::vector<Tensor> operands;
    for (const TensorType& type : in) {
      operands.emplace_back(graph, graph.add_input(fmt::format("x{}", graph.inputs().size()), type, Role::kData));
    }
    const std::vector<Tensor> results = apply(op, operands, attrs);
    std::vector<TensorType> out;
    for (const Tensor& result : results) out.push_back(result.type());
    if (op.shard) op.shard.get()({in, out, attrs});
    if (op.cost) op.cost.get()({in, out, attrs});
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInvalidArgument || e.kind() == ErrorKind::kUnsupported) return "";
    return fmt::format("({}) gives an error of kind {}: {}", what, to_string(e.kind()), e.text());
  } catch (const std::exception& e) {
    return fmt::format("({}) throws something else than Error: {}", what, e.what());
  }
  return "";
}

Findings check_arities(const OpDef& op, const Example& example) {
  Findings out;
  const bool any_number = op.inputs.ends_with("...");
  for (const int change : {-1, 1}) {
    std::vector<TensorType> in = example.in;
    if (change < 0) in.pop_back();
    if (change > 0) in.push_back(example.in.front());
    std::string finding = try_types(op, in, example.attrs);
    if (!finding.empty()) out.push_back(std::move(finding));
    if (any_number || in.empty()) continue;
    try {
      Graph graph;
      std::vector<Tensor> operands;
      for (const TensorType& type : in) {
        operands.emplace_back(graph, graph.add_input(fmt::format("x{}", graph.inputs().size()), type, Role::kData));
      }
      apply(op, operands, example.attrs);
      out.push_back(fmt::format("{} operands are accepted; its signature is ({})", in.size(), op.inputs));
    } catch (const Error&) {
      continue;
    }
  }
  return out;
}

}  // namespace

std::span<const Property> all_properties() {
  return kProperties;
}

double tolerance(DType dtype, int64_t reduction_length, double magnitude) {
  constexpr double kF32 = 0x1p-23;
  constexpr double kF64 = 0x1p-52;
  const auto length = static_cast<double>(reduction_length);
  switch (dtype) {
    case DType::kF64:
      return (4 + length) * kF64 * magnitude;
    case DType::kF32:
      return (4 + length) * kF32 * magnitude;
    case DType::kF16:
      return (4 * 0x1p-10 + length * kF32) * magnitude;
    case DType::kBF16:
      return (4 * 0x1p-7 + length * kF32) * magnitude;
    default:
      return 0;
  }
}

double element(const HostTensor& tensor, int64_t i) {
  const auto at = static_cast<size_t>(i);
  switch (tensor.type().dtype) {
    case DType::kF32:
      return tensor.as<float>()[at];
    case DType::kF64:
      return tensor.as<double>()[at];
    case DType::kBF16:
      return static_cast<float>(tensor.as<BFloat16>()[at]);
    case DType::kI8:
      return tensor.as<int8_t>()[at];
    case DType::kU8:
      return tensor.as<uint8_t>()[at];
    case DType::kI32:
      return tensor.as<int32_t>()[at];
    case DType::kI64:
      return static_cast<double>(tensor.as<int64_t>()[at]);
    case DType::kBool:
      return tensor.as<bool>()[at] ? 1 : 0;
    case DType::kF16:
      break;
  }
  fail(ErrorKind::kUnsupported, "f16 is not computed with; use f32 or bf16");
}

double magnitude(std::span<const HostTensor> tensors) {
  double out = 0;
  for (const HostTensor& tensor : tensors) {
    if (!is_floating(tensor.type().dtype)) continue;
    for (int64_t i = 0; i < tensor.type().elements(); ++i) {
      const double x = std::abs(element(tensor, i));
      if (std::isfinite(x)) out = std::max(out, x);
    }
  }
  return out;
}

std::string difference(const HostTensor& got, const HostTensor& want, double allowed) {
  if (got.type() != want.type()) {
    return fmt::format("is {} where {} is right", to_string(got.type()), to_string(want.type()));
  }
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    const double a = element(got, i);
    const double b = element(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= allowed) continue;
    return fmt::format("element {} is {} where {} is right (allowed {})", i, a, b, allowed);
  }
  return "";
}

HostTensor filled(const TensorType& type, const Fill& fill, uint64_t seed) {
  HostTensor out(type);
  const Stream stream{seed, 1};
  const int64_t n = type.elements();
  const double width = fill.high - fill.low;
  std::vector<int64_t> order;
  if (fill.kind == Fill::Kind::kDistinct) order = shuffled(n, stream);
  for (int64_t i = 0; i < n; ++i) {
    const double u = uniform01(stream, static_cast<uint64_t>(i), 0);
    double value = fill.low + width * u;
    if (fill.kind == Fill::Kind::kIntegers) {
      value = std::min(std::floor(value), fill.high - 1);
    } else if (fill.kind == Fill::Kind::kDistinct) {
      // A third of a step in, so that a symmetric range has no zero.
      value =
          fill.low + width * (static_cast<double>(order[static_cast<size_t>(i)]) + 1.0 / 3) / static_cast<double>(n);
    }
    set_element(out.view(), i, value);
  }
  return out;
}

std::vector<HostTensor> operands_of(const Example& example, uint64_t seed) {
  std::vector<HostTensor> out;
  for (size_t i = 0; i < example.in.size(); ++i) {
    Fill fill = i < example.fill.size() ? example.fill[i] : Fill{};
    if (i >= example.fill.size() && !is_floating(example.in[i].dtype)) fill = {Fill::Kind::kIntegers, 0, 2};
    out.push_back(filled(example.in[i], fill, seed * 1000 + i));
  }
  return out;
}

std::vector<TensorType> results_of(const OpDef& op, const Example& example) {
  return op.infer.get()({example.in, example.attrs});
}

std::string describe(const OpDef& op, const Example& example) {
  std::string types;
  for (const TensorType& type : example.in) types += (types.empty() ? "" : ", ") + to_string(type);
  return fmt::format("{}({}) {}", op.name, types, example.attrs.text());
}

std::vector<std::string> check_shapes(const OpDef& op, uint64_t seed) {
  if (op.examples == nullptr) return {"has no examples"};
  Findings out;
  for (const Example& example : op.examples()) {
    const auto report = [&](const std::string& text) {
      if (!text.empty()) out.push_back(describe(op, example) + ": " + text);
    };
    const std::vector<HostTensor> operands = operands_of(example, seed);
    std::vector<const HostTensor*> in;
    for (const HostTensor& operand : operands) in.push_back(&operand);
    const std::vector<TensorType> types = results_of(op, example);
    if (op.kernel) {
      for (const HostTensor& result : run_reference(op, example.attrs, in, types)) {
        for (int64_t i = 0; i < result.type().elements(); ++i) {
          if (std::isfinite(element(result, i))) continue;
          report(fmt::format("element {} of a result is {}", i, element(result, i)));
          break;
        }
      }
    }
    if (example.in.empty()) continue;
    for (const auto& types_in : distortions(example.in)) report(try_types(op, types_in, example.attrs));
    for (const std::string& finding : check_arities(op, example)) report(finding);
  }
  return out;
}

std::vector<std::string> check_text(const OpDef& op, uint64_t) {
  Findings out;
  for (const Example& example : op.examples()) {
    const auto report = [&](const std::string& text) { out.push_back(describe(op, example) + ": " + text); };
    if (!(op.parse_attrs(example.attrs.text()) == example.attrs)) {
      report(fmt::format("attributes read back as {}", op.parse_attrs(example.attrs.text()).text()));
    }
    const Graph graph = graph_of(op, example);
    for (const std::string& finding : verify(graph)) report(finding);
    const std::string text = to_string(graph);
    const Graph back = parse_graph(text, [](std::string_view name) { return find_op_base(name); });
    if (to_string(back) != text) report(fmt::format("the graph\n{}reads back as\n{}", text, to_string(back)));
    if (!(back.node(0).attrs == example.attrs)) report("the node's attributes do not compare equal");
  }
  return out;
}

std::vector<std::string> check_memory(const OpDef& op, uint64_t seed) {
  if (!op.kernel) return {};
  Findings out;
  for (const Example& example : op.examples()) {
    const auto report = [&](const std::string& text) {
      if (!text.empty()) out.push_back(describe(op, example) + ": " + text);
    };
    const std::vector<HostTensor> operands = operands_of(example, seed);
    const GuardedRun run = run_twice(op, op.kernel.get(), example, operands);
    for (const std::string& finding : run.findings) report(finding);
    for (const auto& pair : overwrites_of(op, {example.in, results_of(op, example), example.attrs}))
      report(check_overwrite(op, example, operands, run.results, pair));
    if (!op.traits.zero_cost_view) continue;
    if (!std::ranges::equal(run.results[0].view().raw(), operands[0].view().raw())) {
      report("is called a view, but its bytes are not the operand's");
    }
  }
  return out;
}

std::vector<std::string> check_kernel(const OpDef& op, const Example& example, KernelFn* kernel, uint64_t seed) {
  const std::vector<HostTensor> operands = operands_of(example, seed);
  const GuardedRun want = run_twice(op, op.kernel.get(), example, operands);
  GuardedRun got = run_twice(op, kernel, example, operands);
  int64_t length = 1;
  for (const TensorType& type : example.in) length = std::max(length, type.elements());
  const double size = std::max(magnitude(operands), magnitude(want.results));
  for (size_t i = 0; i < want.results.size(); ++i) {
    const double allowed = tolerance(want.results[i].type().dtype, length, size);
    const std::string found = difference(got.results[i], want.results[i], allowed);
    if (!found.empty()) got.findings.push_back(fmt::format("result {} {}", i, found));
  }
  for (std::string& finding : got.findings) finding = describe(op, example) + ": " + finding;
  return got.findings;
}

}  // namespace trireme::conformance
