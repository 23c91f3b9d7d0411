// Growing: a list that grows at its end and whose elements stay at their addresses, as in a std::deque. It is stored in
// runs, each twice as long as the one before, so a long list needs few allocations, and an element is found in a few
// instructions.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace trireme {

template <class T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  using value_type = T;

  class const_iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using reference = const T&;
    using pointer = const T*;
    using iterator_category = std::forward_iterator_tag;

    const_iterator() = default;
    const_iterator(const Growing& list, size_t at) : list_(&list), at_(at) {}
    const T& operator*() const { return (*list_)[at_]; }
    const T* operator->() const { return &(*list_)[at_]; }
    const_iterator& operator++() {
      ++at_;
      return *this;
    }
    const_iterator operator++(int) {
      const_iterator before = *this;
      ++at_;
      return before;
    }
    friend bool operator==(const const_iterator&, const const_iterator&) = default;

   private:
    const Growing* list_ = nullptr;
    size_t at_ = 0;
  };

  Growing() = default;
  Growing(const Growing& other) { add_all(other); }
  Growing(Growing&& other) noexcept : runs_(std::exchange(other.runs_, {})), size_(std::exchange(other.size_, 0)) {}
  Growing& operator=(const Growing& other) {
    if (this == &other) return *this;
    size_ = 0;
    add_all(other);
    return *this;
  }
  Growing& operator=(Growing&& other) noexcept {
    if (this == &other) return *this;
    drop();
    runs_ = std::exchange(other.runs_, {});
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~Growing() { drop(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t at) const { return *place_of(at); }
  const T& back() const { return (*this)[size_ - 1]; }
  const_iterator begin() const { return {*this, 0}; }
  const_iterator end() const { return {*this, size_}; }

  void push_back(const T& value) {
    const size_t run = run_of(size_);
    if (runs_[run] == nullptr) runs_[run] = std::allocator<T>().allocate(kFirst << run);
    std::construct_at(place_of(size_), value);
    ++size_;
  }

 private:
  static constexpr size_t kFirst = 8;  // elements of the first run
  static constexpr size_t kFirstBits = std::bit_width(kFirst);

  static size_t run_of(size_t at) { return static_cast<size_t>(std::bit_width(at + kFirst)) - kFirstBits; }
  T* place_of(size_t at) const { return runs_[run_of(at)] + (at + kFirst - (kFirst << run_of(at))); }

  void add_all(const Growing& other) {
    for (const T& value : other) push_back(value);
  }
  void drop() {
    for (size_t run = 0; run < runs_.size() && runs_[run] != nullptr; ++run) {
      std::allocator<T>().deallocate(runs_[run], kFirst << run);
    }
  }

  std::array<T*, 40> runs_{};
  size_t size_ = 0;
};

}  // namespace trireme
