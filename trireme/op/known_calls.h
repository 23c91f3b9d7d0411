// KnownCalls: what was found of calls, for all that are of one kind (op/call_kinds.h), in whatever program they are: a
// search compiles hundreds of programs, whose calls are of the same few thousand kinds. It may be asked by several
// threads. Once it has `most` kinds it forgets all of them, so that programs that read any number of graphs do not
// grow.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/op/call_kinds.h"

namespace trireme {

template <class T>
class KnownCalls {
 public:
  explicit KnownCalls(size_t most) : most_(most) {}

  // T(): nothing is known of it. A call is an op and its types, or a graph and a node.
  template <class... Call>
  T find(const Call&... call) {
    const std::lock_guard lock(mutex_);
    return known_of(call...);
  }
  void add(const OpDef& op, const TypeArgs& types, T known) {
    const std::lock_guard lock(mutex_);
    known_of(op, types) = std::move(known);
  }

 private:
  template <class... Call>
  T& known_of(const Call&... call) {
    if (kinds_.size() >= most_) {
      kinds_ = CallKinds();
      known_.clear();
    }
    const auto kind = static_cast<size_t>(kinds_.of(call...));
    if (known_.size() <= kind) known_.resize(kind + 1);
    return known_[kind];
  }

  size_t most_;
  std::mutex mutex_;
  CallKinds kinds_;
  std::vector<T> known_;  // by kind
};

}  // namespace trireme
