// Few: a list that mostly has few elements, of numbers or other trivially copyable types. Up to N elements lie in the
// list itself, so making, copying and dropping it allocates nothing. More lie on the heap, as in a std::vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

template <class T, size_t N>
class Few {
  static_assert(std::is_trivially_copyable_v<T> && N > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  Few() = default;
  Few(std::initializer_list<T> values) : Few(values.begin(), values.end()) {}
  Few(std::span<const T> values) : Few(values.begin(), values.end()) {}   // NOLINT: a list of the same
  Few(const std::vector<T>& values) : Few(std::span<const T>(values)) {}  // NOLINT: a list of the same
  template <std::forward_iterator It>
  Few(It from, It to) {
    assign(from, to);
  }
  Few(const Few& other) : Few(other.begin(), other.end()) {}
  Few(Few&& other) noexcept { take(other); }
  Few& operator=(const Few& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  Few& operator=(Few&& other) noexcept {
    if (this == &other) return *this;
    drop();
    take(other);
    return *this;
  }
  ~Few() { drop(); }

  operator std::vector<T>() const { return std::vector<T>(begin(), end()); }  // NOLINT: the same

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return is_here() ? here_ : elsewhere_; }
  const T* data() const { return is_here() ? here_ : elsewhere_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t at) { return data()[at]; }
  const T& operator[](size_t at) const { return data()[at]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void reserve(size_t room) {
    if (room > room_) grow(room);
  }
  void push_back(T value) {
    if (size_ == room_) grow(2 * size_t{room_});
    data()[size_++] = value;
  }
  template <std::forward_iterator It>
  void assign(It from, It to) {
    clear();
    reserve(static_cast<size_t>(std::distance(from, to)));
    std::copy(from, to, data());
    size_ = static_cast<uint32_t>(std::distance(from, to));
  }
  T* erase(const T* from, const T* to) {
    T* const into = begin() + (from - begin());
    std::copy(to, static_cast<const T*>(end()), into);
    size_ -= static_cast<uint32_t>(to - from);
    return into;
  }
  T* erase(const T* at) { return erase(at, at + 1); }
  void clear() { size_ = 0; }

  friend bool operator==(const Few& a, const Few& b) { return std::ranges::equal(a, b); }

 private:
  bool is_here() const { return room_ == N; }
  void drop() {
    if (!is_here()) delete[] elsewhere_;
  }
  // `this` has nothing elsewhere.
  void take(Few& other) {
    size_ = other.size_;
    room_ = other.room_;
    if (is_here()) {
      std::copy_n(other.here_, size_, here_);
    } else {
      elsewhere_ = other.elsewhere_;
    }
    other.size_ = 0;
    other.room_ = N;
  }
  void grow(size_t room) {
    T* const made = new T[room];
    std::copy_n(data(), size_, made);
    drop();
    elsewhere_ = made;
    room_ = static_cast<uint32_t>(room);
  }

  uint32_t size_ = 0;
  uint32_t room_ = N;
  union {
    T here_[N];
    T* elsewhere_;
  };
};

}  // namespace trireme
