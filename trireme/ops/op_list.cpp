// The registry: every line of op_list.def, declared and tabulated.
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/op/registry.h"

namespace trireme {
namespace ops {

#define OP(name) extern const OpDef name;
#include "trireme/ops/op_list.def"
#undef OP

}  // namespace ops

std::span<const OpDef* const> all_ops() {
  static const OpDef* const kOps[] = {
#define OP(name) &ops::name,
#include "trireme/ops/op_list.def"
#undef OP
  };
  return kOps;
}

const OpDef* find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const OpDef*> kByName = [] {
    std::unordered_map<std::string_view, const OpDef*> map;
    for (const OpDef* def : all_ops()) map.emplace(def->name, def);
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

const OpDef& op(std::string_view name) {
  if (const OpDef* def = find_op(name)) return *def;
  std::vector<std::string> names;
  for (const OpDef* def : all_ops()) names.emplace_back(def->name);
  const std::string near = closest(name, names);
  fail(ErrorKind::kNotFound, "no op named '{}'.{}", name, near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
}

const OpBase* find_op_base(std::string_view name) {
  return find_op(name);
}

}  // namespace trireme
