// Readers of values, and numbers of layouts and of readers: equal ones have one number, from 0, in the order in which
// they come. What follows from them is then known by a row of numbers (base/memo.h).
#pragma once

#include <unordered_map>
#include <vector>

#include "trireme/layout/layout.h"
#include "trireme/op/structural.h"

namespace trireme {

// Who reads a value. Readers stand in the order of the graph, outputs last.
struct ValueReader {
  Layout layout;
  Phase phase = Phase::kForward;
  int stage = -1;
  std::vector<WindowAttrs> windows = {};
};

class LayoutNumbers {
 public:
  int of(const Layout& layout);
  const Layout& operator[](int number) const { return all_[static_cast<size_t>(number)]; }

 private:
  std::unordered_map<Layout, int, LayoutHash> numbers_;
  std::vector<Layout> all_;
};

class ReaderNumbers {
 public:
  int of(const ValueReader& reader);
  const ValueReader& operator[](int number) const { return all_[static_cast<size_t>(number)]; }

 private:
  std::unordered_map<Layout, std::vector<int>, LayoutHash> numbers_;  // of all that want the layout
  std::vector<ValueReader> all_;
};

}  // namespace trireme
