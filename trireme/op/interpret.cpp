#include "trireme/op/interpret.h"

#include "trireme/base/error.h"

namespace trireme {
namespace {

template <class T>
void widen_into(const HostTensor& from, const HostTensor& to) {
  const auto x = from.as<T>();
  const auto y = to.as<double>();
  for (size_t i = 0; i < y.size(); ++i) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      y[i] = static_cast<double>(static_cast<float>(x[i]));
    } else {
      y[i] = static_cast<double>(x[i]);
    }
  }
}

// The values of a graph while it runs: each is dropped after its last reader.
class Interpreter {
 public:
  Interpreter(const Graph& graph, const InterpretOptions& options)
      : graph_(graph), options_(options), values_(graph.values().size()), uses_(graph.use_counts()) {}

  void read(const std::map<std::string, HostTensor>& inputs) {
    for (const Input& input : graph_.inputs()) {
      const auto found = inputs.find(input.name);
      require(found != inputs.end(), "interpret: input '{}' of graph '{}' is not given", input.name, graph_.name());
      const TensorType want = type(input.value);
      HostTensor given = options_.f64 ? widened(found->second) : found->second.clone();
      require(given.type() == want, "interpret: input '{}' is {}; the graph takes {}", input.name,
              to_string(given.type()), to_string(want));
      at(input.value) = std::move(given);
    }
  }
  void run(const Node& node) {
    std::vector<const HostTensor*> operands;
    for (const ValueId id : node.inputs) operands.push_back(&at(id));
    std::vector<TensorType> types;
    for (const ValueId id : node.outputs) types.push_back(type(id));
    std::vector<HostTensor> results;
    try {
      results = run_reference(def_of(node), node.attrs, operands, types);
    } catch (Error& e) {
      e.note(fmt::format("while interpreting {} at '{}'", node.op->name, graph_.scope_of(node)));
      throw;
    }
    for (size_t i = 0; i < results.size(); ++i) at(node.outputs[i]) = std::move(results[i]);
    for (const ValueId id : node.inputs) {
      if (--uses_[static_cast<size_t>(id)] == 0) at(id) = {};
    }
  }
  std::map<std::string, HostTensor> write() {
    std::map<std::string, HostTensor> out;
    for (const Output& output : graph_.outputs()) out.emplace(output.name, at(output.value).clone());
    return out;
  }

 private:
  HostTensor& at(ValueId id) { return values_[static_cast<size_t>(id)]; }
  TensorType type(ValueId id) const { return options_.f64 ? widened(graph_.type(id)) : graph_.type(id); }

  const Graph& graph_;
  InterpretOptions options_;
  std::vector<HostTensor> values_;
  std::vector<int> uses_;
};

}  // namespace

TensorType widened(TensorType type) {
  if (is_floating(type.dtype)) type.dtype = DType::kF64;
  return type;
}

HostTensor widened(const HostTensor& tensor) {
  HostTensor out(widened(tensor.type()));
  switch (tensor.type().dtype) {
    case DType::kF32:
      widen_into<float>(tensor, out);
      break;
    case DType::kBF16:
      widen_into<BFloat16>(tensor, out);
      break;
    case DType::kF16:
      fail(ErrorKind::kUnsupported, "f16 is not computed with; use f32 or bf16");
    default:
      return tensor.clone();
  }
  return out;
}

std::vector<HostTensor> run_reference(const OpDef& op, const Attrs& attrs, std::span<const HostTensor* const> operands,
                                      std::span<const TensorType> results) {
  if (!op.kernel) fail(ErrorKind::kUnsupported, "{} has no reference kernel: {}", op.name, op.kernel.reason());
  std::vector<View> in, out;
  for (const HostTensor* operand : operands) in.push_back(operand->view());
  std::vector<HostTensor> made;
  for (const TensorType& result : results) made.emplace_back(result);
  for (const HostTensor& result : made) out.push_back(result.view());
  std::shared_ptr<void> state;
  op.kernel.get()(
      {.in = in, .out = out, .in_place = {}, .out_place = {}, .attrs = attrs, .scratch = {}, .state = &state});
  return made;
}

std::map<std::string, HostTensor> interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs,
                                            const InterpretOptions& options) {
  Interpreter interpreter(graph, options);
  interpreter.read(inputs);
  for (const Node& node : graph.nodes()) interpreter.run(node);
  return interpreter.write();
}

}  // namespace trireme
