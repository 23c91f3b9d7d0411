// Random choices that are the same on every machine for the same seed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "trireme/op/registry.h"

namespace trireme::equivalence {

class Draw {
 public:
  explicit Draw(uint32_t seed) : bits_(seed) {}

  // Choices of their own: those of this one stay what they are.
  Draw beside(uint32_t stream) const {
    std::mt19937 bits = bits_;
    return Draw(static_cast<uint32_t>(bits()) * 2246822519U + stream);
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(bits_() >> 8) / static_cast<double>(1 << 24);
  }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }
  int64_t of(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + below(static_cast<int64_t>(choices.size())));
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  std::mt19937 bits_;
};

// All ops but those that stand in programs alone: messages between plans, moves between tiers of memory, looks at
// parts of values, and their joins, and lists of rows.
inline const std::vector<const OpDef*>& ops_of_one_plan() {
  static const std::vector<const OpDef*> kOps = [] {
    std::vector<const OpDef*> ops(all_ops().begin(), all_ops().end());
    std::erase_if(ops, [](const OpDef* op) {
      const bool is_lazy = op->name == "lazy_adam_update";  // of lookups (tests/multi/sparse_updates_test)
      return op->traits.message || is_lazy || (!op->shard && !op->collective);
    });
    return ops;
  }();
  return kOps;
}

}  // namespace trireme::equivalence
