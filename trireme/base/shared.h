// Shared: a value that many hold and nobody changes, so that copies of it cost a pointer. It reads as the value.
#pragma once

#include <memory>
#include <utility>

namespace trireme {

template <class T>
class Shared {
 public:
  Shared() : value_(none()) {}
  Shared(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT: a value is one that is shared

  operator const T&() const { return *value_; }  // NOLINT: the same the other way round
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }

  friend bool operator==(const Shared& a, const Shared& b) { return a.value_ == b.value_ || *a.value_ == *b.value_; }
  friend bool operator==(const Shared& a, const T& b) { return *a.value_ == b; }

 private:
  static const std::shared_ptr<const T>& none() {
    static const auto value = std::make_shared<const T>();
    return value;
  }

  std::shared_ptr<const T> value_;
};

}  // namespace trireme
