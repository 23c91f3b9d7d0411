// Shared: an immutable value with many holders. Equal values are one object, which lives as long as the program, so
// copying and comparing cost as much as for a pointer. It is meant for types with few distinct values, and reads like
// the value itself. The type needs a function `hash`.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <unordered_set>

namespace trireme {

template <class T>
class Shared {
 public:
  Shared() : value_(none()) {}
  Shared(const T& value) : value_(&one_of(value)) {}  // NOLINT: a value is one that is shared

  operator const T&() const { return *value_; }  // NOLINT: the same the other way round
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_; }

  friend bool operator==(const Shared& a, const Shared& b) { return a.value_ == b.value_; }
  friend bool operator==(const Shared& a, const T& b) { return *a.value_ == b; }

 private:
  struct Hash {
    size_t operator()(const T& value) const { return hash(value); }
  };

  static const T* none() {
    static const T* const value = &one_of(T());
    return value;
  }

  static const T& one_of(const T& value) {
    thread_local std::array<const T*, 256> seen{};  // so that what a thread has asked for takes no lock
    const T*& known = seen[Hash()(value) % seen.size()];
    if (known == nullptr || !(*known == value)) known = &find_or_add(value);
    return *known;
  }

  // Of all threads.
  static const T& find_or_add(const T& value) {
    static std::mutex mutex;
    static auto* const all = new std::unordered_set<T, Hash>;  // for as long as anybody may ask
    const std::lock_guard lock(mutex);
    return *all->insert(value).first;
  }

  const T* value_;
};

}  // namespace trireme
