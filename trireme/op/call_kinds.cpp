#include "trireme/op/call_kinds.h"

#include <algorithm>
#include <functional>

namespace trireme {
namespace {

void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  hash ^= hash >> 32U;
}

void mix(uint64_t& hash, const TensorType& type) {
  uint64_t own = static_cast<uint64_t>(type.dtype) << 8U | static_cast<uint64_t>(type.shape.rank());
  for (const int64_t size : type.shape) own = own * 0x100000001b3U + static_cast<uint64_t>(size);
  mix(hash, own);
}

}  // namespace

bool CallKinds::is_of(int kind, const OpDef& op, const Attrs& attrs, size_t operands) const {
  const CallKind& known = (*this)[kind];
  return known.op == &op && known.operands == operands && known.attrs == attrs &&
         std::ranges::equal(known.all, types_, [](const TensorType& a, const TensorType* b) { return a == *b; });
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
  for (const TensorType* type : types_) mix(hash, *type);
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
  kind.all.reserve(types_.size());
  for (const TensorType* type : types_) kind.all.push_back(*type);
  return made;
}

}  // namespace trireme
