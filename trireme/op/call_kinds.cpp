#include "trireme/op/call_kinds.h"

#include <algorithm>
#include <functional>

namespace trireme {
namespace {

void mix(uint64_t& hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  hash ^= hash >> 32U;
}

void mix(uint64_t& hash, const std::vector<const TensorType*>& types) {
  for (const TensorType* type : types) {
    uint64_t own = static_cast<uint64_t>(type->dtype) << 8U | static_cast<uint64_t>(type->shape.rank());
    for (const int64_t size : type->shape) own = own * 0x100000001b3U + static_cast<uint64_t>(size);
    mix(hash, own);
  }
  mix(hash, types.size());
}

bool are(const std::vector<TensorType>& types, const std::vector<const TensorType*>& others) {
  return std::ranges::equal(types, others, [](const TensorType& a, const TensorType* b) { return a == *b; });
}

std::vector<TensorType> copied(const std::vector<const TensorType*>& types) {
  std::vector<TensorType> out;
  for (const TensorType* type : types) out.push_back(*type);
  return out;
}

}  // namespace

int CallKinds::number_of(const Attrs& attrs) {
  const auto [known, is_new] = by_place_.try_emplace(&attrs.text(), 0);
  if (!is_new) return known->second;
  attrs_.push_back(attrs);
  return known->second = by_text_.try_emplace(attrs.text(), static_cast<int>(by_text_.size())).first->second;
}

bool CallKinds::is_of(int kind, const OpDef& op) const {
  const CallKind& known = (*this)[kind];
  return known.op == &op && are(known.in, in_) && are(known.out, out_);
}

CallKinds::Met& CallKinds::place_of(const OpDef& op, const std::string* attrs, uint64_t hash) {
  for (size_t at = hash;; ++at) {
    Met& met = met_[at & (met_.size() - 1)];
    if (met.kind < 0 || (met.hash == hash && met.attrs == attrs && is_of(met.kind, op))) return met;
  }
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

int CallKinds::find(const OpDef& op, const Attrs& attrs) {
  uint64_t hash = std::hash<const void*>()(&op);
  mix(hash, std::hash<const void*>()(&attrs.text()));
  mix(hash, in_);
  mix(hash, out_);
  if (2 * count_met_ >= met_.size()) make_room();
  Met& met = place_of(op, &attrs.text(), hash);
  if (met.kind >= 0) return met.kind;
  ++count_met_;
  met = {&attrs.text(), hash, find_by_text(op, attrs)};
  return met.kind;
}

int CallKinds::find_by_text(const OpDef& op, const Attrs& attrs) {
  const int number = number_of(attrs);
  uint64_t hash = std::hash<const void*>()(&op);
  mix(hash, static_cast<uint64_t>(number));
  mix(hash, in_);
  mix(hash, out_);
  const auto [first, end] = by_hash_.equal_range(hash);
  for (auto at = first; at != end; ++at) {
    if (attrs_of_[static_cast<size_t>(at->second)] == number && is_of(at->second, op)) return at->second;
  }
  const auto made = static_cast<int>(kinds_.size());
  attrs_of_.push_back(number);
  kinds_.push_back({&op, attrs, copied(in_), copied(out_)});
  by_hash_.emplace(hash, made);
  return made;
}

}  // namespace trireme
