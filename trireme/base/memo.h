// Memo: results by what they follow from, a row of numbers. Layers that are alike ask for the same results, so each is
// computed once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trireme {

// Addresses among the numbers are of things that outlive the memo.
using MemoKey = std::vector<uint64_t>;

inline uint64_t memo_number(const void* address) {
  return reinterpret_cast<uintptr_t>(address);  // NOLINT: equal things have equal addresses
}

struct MemoHash {
  size_t operator()(const MemoKey& key) const noexcept {
    uint64_t hash = key.size();
    for (const uint64_t each : key) {
      hash = (hash ^ each) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 32U;
    }
    return hash;
  }
};

template <class Result>
class Memo {
 public:
  // What `make` returns, which is asked for it once. The reference stays good until clear().
  template <class Make>
  const Result& of(const MemoKey& key, Make&& make) {
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    return known_.emplace(key, make()).first->second;
  }
  void clear() { known_.clear(); }

 private:
  std::unordered_map<MemoKey, Result, MemoHash> known_;
};

}  // namespace trireme
