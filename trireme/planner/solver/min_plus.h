// Powers of a square matrix in the algebra of (min, +): entry [i][j] of the k-th power is the least weight of k blocks
// laid end to end, where the first begins with label i and the last ends with label j.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace trireme::solver {

class MinPlusPowers {
 public:
  MinPlusPowers() = default;
  // `matrix` row by row; kNever where two labels do not go together.
  MinPlusPowers(std::vector<int64_t> matrix, size_t size) : size_(size) { powers_.emplace(1, std::move(matrix)); }

  // From 2 * log2(times) products or fewer, which are kept.
  const std::vector<int64_t>& of(int64_t times);
  // The labels between the blocks of a cheapest run: times + 1 of them, the first and last as given. What `of` gives
  // for these must be less than kNever.
  std::vector<int32_t> path(int64_t times, int32_t first, int32_t last);

 private:
  std::vector<int64_t> product(const std::vector<int64_t>& a, const std::vector<int64_t>& b) const;
  void add_path(int64_t times, int32_t first, int32_t last, std::vector<int32_t>& out);

  size_t size_ = 0;
  std::map<int64_t, std::vector<int64_t>> powers_;
};

}  // namespace trireme::solver
