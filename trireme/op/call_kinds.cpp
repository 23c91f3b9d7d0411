#include "trireme/op/call_kinds.h"

#include <algorithm>
#include <functional>

namespace trireme {
namespace {

void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  hash ^= hash >> 32U;
}

}  // namespace

bool CallKinds::is_of(int kind, const OpDef& op, const Attrs& attrs, size_t operands) const {
  const CallKind& known = (*this)[kind];
  const std::span types = std::span(types_of_kinds_).subspan(first_type_[static_cast<size_t>(kind)], known.all.size());
  return known.op == &op && known.operands == operands && std::ranges::equal(types, types_) && known.attrs == attrs;
}

void CallKinds::make_room() {
  constexpr size_t kFirst = 256;
  std::vector<Met> before(std::max(kFirst, 2 * met_.size()));
  before.swap(met_);
  for (const Met& met : before) {
    if (met.kind < 0) continue;
    size_t at = met.hash;
    while (met_[at & (met_.size() - 1)].kind >= 0) ++at;
    met_[at & (met_.size() - 1)] = met;
  }
}

int CallKinds::find(const OpDef& op, const Attrs& attrs, size_t operands) {
  uint64_t hash = std::hash<const void*>()(&op);
  mix(hash, attrs.hash());
  mix(hash, operands);
  for (const TensorType& type : types_) mix(hash, reinterpret_cast<uintptr_t>(&type));  // NOLINT: of a shared one
  if (2 * kinds_.size() >= met_.size()) make_room();
  size_t at = hash;
  for (;; ++at) {
    const Met& met = met_[at & (met_.size() - 1)];
    if (met.kind < 0) break;
    if (met.hash == hash && is_of(met.kind, op, attrs, operands)) return met.kind;
  }
  const auto made = static_cast<int>(kinds_.size());
  met_[at & (met_.size() - 1)] = {hash, made};
  CallKind& kind = kinds_.emplace_back(CallKind{.op = &op, .attrs = attrs, .all = {}, .operands = operands});
  first_type_.push_back(types_of_kinds_.size());
  types_of_kinds_.insert(types_of_kinds_.end(), types_.begin(), types_.end());
  kind.all.reserve(types_.size());
  for (const TensorType& type : types_) kind.all.push_back(type);
  return made;
}

}  // namespace trireme
