// Cuts: how a user asks for one op to be cut, by its operands and, after "->", its results. It has two forms:
//   {{4, 2}, {2, 1}}             for each tensor the number of parts of each dimension
//   [dp, tp], [tp, -]            for each tensor a layout by the mesh's axes
// A scalar is {} or []. Results are given where one is wanted in a different layout from the one in which the op leaves
// it: "-> [dp*tp, -]" turns a partial sum into a reduce-scatter. The reserved axis "interleaved_parallel" of the mesh,
// last in a dimension ("[dp*interleaved_parallel, -]"), cuts it no further over ranks: each rank computes its piece in
// that many copies, part by part. What the cuts mean for an op is in parallel/propagate/op_cuts.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/layout/named_layout.h"

namespace trireme {

using PartsOfDims = std::vector<int64_t>;  // of each dimension of a tensor, from 1

// Of several tensors, all by numbers or all by layouts.
using TensorCuts = std::variant<std::vector<PartsOfDims>, std::vector<NamedLayout>>;
size_t count_of(const TensorCuts& cuts);
std::vector<int> ranks_of(const TensorCuts& cuts);  // the number of dimensions of each

struct Cuts {
  TensorCuts operands;
  std::optional<TensorCuts> results;
  std::string text;  // as it was written, for messages and for the text forms that hold it

  Cuts() = default;  // nothing is asked
  template <Text T>
  Cuts(const T& written) : Cuts(read(written)) {}  // NOLINT: written as text; throws kInvalidArgument
  static Cuts by_parts(std::vector<PartsOfDims> operands);

  bool empty() const { return text.empty(); }
  friend bool operator==(const Cuts& a, const Cuts& b) { return a.text == b.text; }

 private:
  static Cuts read(std::string_view text);
};

// "[dp, -], [-, tp]"
std::vector<NamedLayout> parse_named_layouts(std::string_view text);
// "{{4, 1}, {4}}"
std::vector<PartsOfDims> parse_parts(std::string_view text);

}  // namespace trireme
