#include "trireme/planner/solver/min_plus.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

std::vector<int64_t> MinPlusPowers::product(const std::vector<int64_t>& a, const std::vector<int64_t>& b) const {
  std::vector<int64_t> out(size_ * size_, kNever);
  for (size_t i = 0; i < size_; ++i) {
    int64_t* const to = out.data() + i * size_;
    for (size_t k = 0; k < size_; ++k) {
      const int64_t first = a[i * size_ + k];
      if (first >= kNever) continue;
      const int64_t* const second = b.data() + k * size_;
      for (size_t j = 0; j < size_; ++j) to[j] = std::min(to[j], first + second[j]);
    }
  }
  return out;
}

const std::vector<int64_t>& MinPlusPowers::of(int64_t times) {
  const auto known = powers_.find(times);
  if (known != powers_.end()) return known->second;
  const std::vector<int64_t>& less = of(times / 2);
  const std::vector<int64_t>& more = of(times - times / 2);
  return powers_.emplace(times, product(less, more)).first->second;
}

std::vector<int32_t> MinPlusPowers::path(int64_t times, int32_t first, int32_t last) {
  std::vector<int32_t> out{first};
  add_path(times, first, last, out);
  return out;
}

void MinPlusPowers::add_path(int64_t times, int32_t first, int32_t last, std::vector<int32_t>& out) {
  if (times == 1) {
    out.push_back(last);
    return;
  }
  const auto from = static_cast<size_t>(first);
  const auto to = static_cast<size_t>(last);
  const int64_t least = of(times)[from * size_ + to];
  const std::vector<int64_t>& a = of(times / 2);
  const std::vector<int64_t>& b = of(times - times / 2);
  for (size_t k = 0; k < size_; ++k) {
    if (a[from * size_ + k] + b[k * size_ + to] != least) continue;
    add_path(times / 2, first, static_cast<int32_t>(k), out);
    add_path(times - times / 2, static_cast<int32_t>(k), last, out);
    return;
  }
  invariant(false, "a run of {} blocks without a way from label {} to label {}", times, first, last);
}

}  // namespace trireme::solver
