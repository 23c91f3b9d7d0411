// Sums whose bits do not depend on how the tensors are cut.
//
// A dimension of size n that is summed over is cut in kLeaves leaves, of fixed boundaries. Each
// leaf is summed in the order of its elements; the sums of the leaves are added in one fixed binary
// tree: neighbours first, then their sums. A rank that has a power of two of leaves, beginning at a
// multiple of their number, computes one node of that tree, and the sum over ranks (comm/reduce.h)
// goes on with the same tree: so the bits are those of one rank. Every sum begins with +0, so that
// a leaf without elements adds nothing, not even the sign of a zero. (The scheme of reproducible
// sums by a fixed tree: Villa et al., "Effects of floating-point non-associativity", CUG 2009.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

// A rank of up to so many may hold a part of a sum.
inline constexpr int64_t kLeaves = 16;

// The leaves that a piece [start, start + size) of a dimension of `whole` elements consists of.
class Leaves {
 public:
  Leaves(int64_t whole, int64_t start, int64_t size)
      : whole_(whole),
        start_(start),
        first_(whole == 0 ? 0 : start * kLeaves / whole),
        count_(whole == 0 || size == whole ? kLeaves : size * kLeaves / whole) {
    invariant(begin(0) == 0 && begin(count_) == size,
              "a piece of {} from {} of {} is not made of leaves", size, start, whole);
  }
  int64_t count() const { return count_; }
  // First element of leaf i of the piece, counted in the piece; begin(count()) is its size.
  int64_t begin(int64_t i) const { return (first_ + i) * whole_ / kLeaves - start_; }
  int64_t size(int64_t i) const { return begin(i + 1) - begin(i); }

 private:
  int64_t whole_, start_, first_, count_;
};

// The leading dimensions of an operand, all summed over: in leaves of the first that is longer than one element in the
// whole, `inner` rows a step.
struct LeafRows {
  int64_t whole = 1, start = 0, size = 1;
  int64_t inner = 1;

  Leaves leaves() const { return {whole, start, size}; }
};
inline LeafRows leaf_rows(const KernelArgs& args, size_t operand, int leading) {
  LeafRows rows;
  int dim = 0;
  while (dim < leading && args.in_whole(operand)[dim] == 1) ++dim;
  if (dim == leading) return rows;
  const Shape& here = args.in[operand].type.shape;
  rows = {args.in_whole(operand)[dim], args.in_start(operand, dim), here[dim], 1};
  while (++dim < leading) rows.inner *= here[dim];
  return rows;
}

// Adds the sums of leaves as they come, in the order of the tree. At most levels() sums wait at a
// time: `merge(to, from)` adds sum `from` to sum `to`, both places in 0..levels()-1; the caller
// puts leaf i into place next() before push().
class LeafTree {
 public:
  static constexpr int levels() { return 6; }  // of up to 2^5 leaves
  int next() const { return depth_; }
  template <class Merge>
  void push(Merge&& merge) {
    for (int64_t done = leaf_++; (done & 1) != 0; done >>= 1) {
      --depth_;
      merge(depth_, depth_ + 1);
    }
    ++depth_;
  }
  // Brings what is left into place 0; for a power of two of leaves nothing is left.
  template <class Merge>
  void finish(Merge&& merge) {
    for (; depth_ > 1; --depth_) merge(depth_ - 2, depth_ - 1);
  }

 private:
  int depth_ = 0;
  int64_t leaf_ = 0;
};

}  // namespace trireme::cpu
