// Few: a list that mostly has few elements. Up to N of them lie in the list itself, so making, copying and dropping it
// allocates nothing, unless an element does. More lie on the heap, as in a std::vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

template <class T, size_t N>
class Few {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T> && N > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  Few() {}  // NOLINT(modernize-use-equals-default): a union of elements has no default
  explicit Few(size_t size) { resize(size); }
  Few(std::initializer_list<T> values) : Few(values.begin(), values.end()) {}
  Few(std::span<const T> values) : Few(values.begin(), values.end()) {}  // NOLINT: a list of the same
  template <class U>
  requires std::is_convertible_v<const U&, T> Few(const std::vector<U>& values)
      : Few(values.begin(), values.end()) {}  // NOLINT: a list of the same
  template <std::forward_iterator It>
  Few(It from, It to) {
    append(from, to);
  }
  Few(const Few& other) { append(other.begin(), other.end()); }
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
    std::construct_at(end(), std::move(value));
    ++size_;
  }
  void pop_back() { std::destroy_at(data() + --size_); }
  // What is added is T().
  void resize(size_t size) {
    reserve(size);
    while (size_ > size) pop_back();
    for (; size_ < size; ++size_) std::construct_at(end());
  }
  // Elements of another list.
  template <std::forward_iterator It>
  void append(It from, It to) {
    reserve(size_ + static_cast<size_t>(std::distance(from, to)));
    for (T* into = end(); from != to; ++from, ++into, ++size_) std::construct_at(into, *from);
  }
  template <std::forward_iterator It>
  void assign(It from, It to) {
    clear();
    append(from, to);
  }
  T* insert(const T* at, T value) {
    const auto place = at - begin();
    push_back(std::move(value));
    std::rotate(begin() + place, end() - 1, end());
    return begin() + place;
  }
  T* erase(const T* from, const T* to) {
    T* const into = begin() + (from - begin());
    std::move(begin() + (to - begin()), end(), into);
    resize(size_ - static_cast<size_t>(to - from));
    return into;
  }
  T* erase(const T* at) { return erase(at, at + 1); }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }

  friend bool operator==(const Few& a, const Few& b) {
    if (a.size_ != b.size_) return false;
    for (uint32_t i = 0; i < a.size_; ++i) {
      if (!(a[i] == b[i])) return false;
    }
    return true;
  }

 private:
  bool is_here() const { return room_ == N; }
  void drop() {
    std::destroy(begin(), end());
    if (!is_here()) std::allocator<T>().deallocate(elsewhere_, room_);
  }
  // `this` has no elements, and nothing elsewhere.
  void take(Few& other) {
    size_ = other.size_;
    room_ = other.room_;
    if (is_here()) {
      for (uint32_t i = 0; i < size_; ++i) std::construct_at(here_ + i, std::move(other.here_[i]));
      std::destroy_n(other.here_, size_);
    } else {
      elsewhere_ = other.elsewhere_;
    }
    other.size_ = 0;
    other.room_ = N;
  }
  void grow(size_t room) {
    T* const made = std::allocator<T>().allocate(room);
    std::uninitialized_move(begin(), end(), made);
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

// As std::erase_if does of a std::vector.
template <class T, size_t N, class Predicate>
size_t erase_if(Few<T, N>& list, Predicate predicate) {
  const size_t before = list.size();
  list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
  return before - list.size();
}

}  // namespace trireme
