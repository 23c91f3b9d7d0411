#include "trireme/op/ops_document.h"

#include "trireme/op/registry.h"

namespace trireme {
namespace {

// Operands by name: "a and b jointly", for the linear sets of a rule.
std::string linear_in(const OpDef& op, const ShardingRule& rule) {
  std::vector<std::string> names;
  std::string_view rest = op.inputs;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    names.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 2, rest.size()));
  }
  std::string out;
  for (const std::vector<int>& set : rule.linear) {
    std::string one;
    for (const int operand : set) {
      const auto i = static_cast<size_t>(operand);
      if (!one.empty()) one += " and ";
      one += i < names.size() ? names[i] : fmt::format("operand {}", operand);
    }
    out += (out.empty() ? "" : "; ") + one + (set.size() > 1 ? " jointly" : "");
  }
  return out;
}

std::string rule_lines(const OpDef& op, const Example& example) {
  const std::vector<TensorType> types = op.infer.get()({example.in, example.attrs});
  const ShardingRule rule = op.shard.get()({example.in, types, example.attrs});
  std::string in, out;
  for (const TensorType& type : example.in) in += (in.empty() ? "" : ", ") + to_string(type);
  for (const TensorType& type : types) out += (out.empty() ? "" : ", ") + to_string(type);
  std::string text = fmt::format("- rule for ({}) -> ({}): `{}`\n", in, out, to_string(rule));
  const std::string linear = linear_in(op, rule);
  if (!linear.empty()) text += fmt::format("- linear in: {}\n", linear);
  return text;
}

template <class Fn>
std::string absence(std::string_view what, const Facet<Fn>& facet) {
  return facet ? "" : fmt::format("- no {}: {}\n", what, facet.reason());
}

std::string section(const OpDef& op) {
  std::string out = fmt::format("\n## {}\n\n`{}({})`: {}\n\n", op.name, op.name, op.inputs, op.doc);
  const std::string attrs = op.parse_attrs("{}").text();
  if (attrs != "{}") out += fmt::format("- attributes and defaults: `{}`\n", attrs);
  const std::vector<Example> examples = op.examples == nullptr ? std::vector<Example>{} : op.examples();
  if (op.shard && !examples.empty()) out += rule_lines(op, examples.front());
  out += absence("gradient", op.grad) + absence("sharding rule", op.shard) + absence("cost", op.cost) +
         absence("reference kernel", op.kernel);
  return out;
}

}  // namespace

std::string ops_document() {
  std::string out =
      "# Ops\n\nWritten by `ops_document()` from the registry; a test compares. A rule names a "
      "factor for each "
      "dimension:\none in operands and results passes a cut through, one in operands only leaves a "
      "partial "
      "result, `!` may not be cut,\n`.` has no factor.\n";
  for (const OpDef* op : all_ops()) out += section(*op);
  return out;
}

}  // namespace trireme
