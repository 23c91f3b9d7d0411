// Weighted: a table with one number for each combination of labels, which is what elimination adds and minimises.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/planner/solver/problem.h"

namespace trireme::solver {

// What a price weighs: time * time_ps + bytes * bytes. Both 0 or more.
struct Weights {
  int64_t time = 1;
  int64_t bytes = 0;
  int64_t of(const Price& price) const { return time * price.time_ps + bytes * price.bytes; }
};

// The weight of labels that do not go together. Two of them and a sum of prices still fit.
inline constexpr int64_t kNever = int64_t{1} << 59;

// Most entries that one table of a search may have, for all combinations of labels or for those that go together.
inline constexpr int64_t kMostEntries = int64_t{1} << 24;

// Of all combinations of labels, or of those that go together in ascending order, whatever the variables are.
struct Entries {
  std::vector<int> sizes;  // of each variable, its number of labels
  bool is_dense = true;
  std::vector<int32_t> labels;  // sparse: of each row
  std::vector<int64_t> values;  // dense: the last variable goes fastest
};

// Tables of layers that are alike have their entries in common.
struct Weighted {
  std::vector<int> variables;  // ascending
  std::shared_ptr<const Entries> all;

  // `of` has the labels of all variables, by their numbers.
  int64_t at(std::span<const int32_t> of) const;
};

// Combinations of labels; more than kMostEntries count as one more than these.
int64_t combinations(std::span<const int> sizes);

// The same table over variables that have other numbers: the i-th becomes number[i].
Weighted renumbered(const Weighted& table, std::span<const int> number);

}  // namespace trireme::solver
