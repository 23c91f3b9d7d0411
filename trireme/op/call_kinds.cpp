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
  mix(hash, static_cast<uint64_t>(type.dtype) << 8U | static_cast<uint64_t>(type.shape.rank()));
  for (const int64_t size : type.shape) mix(hash, static_cast<uint64_t>(size));
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

int CallKinds::find(const OpDef& op, const Attrs& attrs) {
  const int number = number_of(attrs);
  uint64_t hash = std::hash<const void*>()(&op);
  mix(hash, static_cast<uint64_t>(number));
  for (const TensorType* type : in_) mix(hash, *type);
  mix(hash, in_.size());
  for (const TensorType* type : out_) mix(hash, *type);
  const auto [first, end] = by_hash_.equal_range(hash);
  for (auto at = first; at != end; ++at) {
    const CallKind& kind = (*this)[at->second];
    const bool is_alike = kind.op == &op && attrs_of_[static_cast<size_t>(at->second)] == number;
    if (is_alike && are(kind.in, in_) && are(kind.out, out_)) return at->second;
  }
  const auto made = static_cast<int>(kinds_.size());
  attrs_of_.push_back(number);
  kinds_.push_back({&op, attrs, copied(in_), copied(out_)});
  by_hash_.emplace(hash, made);
  return made;
}

}  // namespace trireme
