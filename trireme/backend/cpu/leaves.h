// Sums whose bits do not depend on how the tensors are cut.
//
// A dimension of size n that is summed over is cut in kLeaves leaves (op/kept_bits.h), of fixed boundaries. Each
// leaf is summed in a way that depends on its own size alone; the sums of the leaves are added in
// one fixed binary tree: neighbours first, then their sums. A rank that has a power of two of leaves, beginning at a
// multiple of their number, computes one node of that tree, and the sum over ranks (comm/reduce.h)
// goes on with the same tree: so the bits are those of one rank. Every sum begins with +0, so that
// a leaf without elements adds nothing, not even the sign of a zero. (The scheme of reproducible
// sums by a fixed tree: Villa et al., "Effects of floating-point non-associativity", CUG 2009.)
#pragma once

#include <cstdint>

#include "trireme/base/error.h"
#include "trireme/op/kept_bits.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

// The leaves that a piece [start, start + size) of a dimension of `whole` elements consists of.
class Leaves {
 public:
  Leaves(int64_t whole, int64_t start, int64_t size)
      : whole_(whole),
        start_(start),
        first_(whole == 0 ? 0 : start * kLeaves / whole),
        count_(whole == 0 || size == whole ? kLeaves : size * kLeaves / whole) {
    invariant(begin(0) == 0 && begin(count_) == size, "a piece of {} from {} of {} is not made of leaves", size, start,
              whole);
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

// Adds the sums of a power of two of leaves, all there: add(to, from) adds sum `from` to sum `to`;
// the whole is then sum 0.
template <class Add>
void add_in_tree(int64_t leaves, Add&& add) {
  for (int64_t apart = 1; apart < leaves; apart *= 2) {
    for (int64_t leaf = 0; leaf + apart < leaves; leaf += 2 * apart) add(leaf, leaf + apart);
  }
}

// The same as the sums come, a power of two of them up to kLeaves: the caller puts each into place
// next() and calls push(), whose `add(to, from)` adds between places 0 to kPlaces - 1. The whole is
// then in place 0.
class LeafTree {
 public:
  static constexpr int kPlaces = 5;  // the last leaf, and one waiting on each level
  static_assert(kLeaves == 1 << (kPlaces - 1));

  int next() const { return depth_; }
  template <class Add>
  void push(Add&& add) {
    for (int64_t done = leaf_++; (done & 1) != 0; done >>= 1) {
      --depth_;
      add(depth_, depth_ + 1);
    }
    ++depth_;
  }

 private:
  int depth_ = 0;
  int64_t leaf_ = 0;
};

}  // namespace trireme::cpu
