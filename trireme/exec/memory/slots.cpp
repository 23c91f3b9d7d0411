#include "trireme/exec/memory/slots.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

constexpr size_t kWordBits = 64;

void unite(std::span<uint64_t> into, std::span<const uint64_t> other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] |= other[i];
}

// The same sets in twice as many words.
std::vector<uint64_t> widened(const std::vector<uint64_t>& sets, size_t words) {
  std::vector<uint64_t> out(2 * sets.size(), 0);
  for (size_t at = 0; at < sets.size(); at += words) {
    std::copy_n(sets.begin() + static_cast<std::ptrdiff_t>(at), words,
                out.begin() + static_cast<std::ptrdiff_t>(2 * at));
  }
  return out;
}

}  // namespace

Slots::Slots(std::span<const Lifetime> buffers) {
  for (const Lifetime& buffer : buffers) {
    steps_.push_back(buffer.first);
    steps_.push_back(buffer.last);
  }
  std::ranges::sort(steps_);
  steps_.erase(std::ranges::unique(steps_).begin(), steps_.end());
  leaves_ = std::bit_ceil(std::max<size_t>(steps_.size(), 1));
  throughout_.assign(2 * leaves_, 0);
  sometime_.assign(2 * leaves_, 0);
}

size_t Slots::place_of(int step) const {
  return static_cast<size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
}

int Slots::add(int64_t offset) {
  if (slots_.size() == words_ * kWordBits) {
    throughout_ = widened(throughout_, words_);
    sometime_ = widened(sometime_, words_);
    words_ *= 2;
  }
  slots_.push_back({offset, 0});
  return static_cast<int>(slots_.size()) - 1;
}

void Slots::find_free(const Lifetime& buffer) {
  const size_t first = place_of(buffer.first) + leaves_, last = place_of(buffer.last) + leaves_;
  busy_.assign(words_, 0);
  for (size_t from = first, to = last + 1; from < to; from /= 2, to /= 2) {
    if (from % 2 != 0) unite(busy_, of_node(sometime_, from++));
    if (to % 2 != 0) unite(busy_, of_node(sometime_, --to));
  }
  for (size_t node = first; node > 0; node /= 2) unite(busy_, of_node(throughout_, node));
  for (size_t node = last; node > 0; node /= 2) unite(busy_, of_node(throughout_, node));
  free_.clear();
  for (size_t word = 0; word * kWordBits < slots_.size(); ++word) {
    uint64_t free = ~busy_[word];
    if (slots_.size() - word * kWordBits < kWordBits) free &= (uint64_t{1} << (slots_.size() % kWordBits)) - 1;
    for (; free != 0; free &= free - 1) {
      free_.push_back(static_cast<int>(word * kWordBits) + std::countr_zero(free));
    }
  }
  std::ranges::make_heap(free_, [&](int a, int b) { return is_older(b, a); });
}

int Slots::pop_oldest() {
  std::ranges::pop_heap(free_, [&](int a, int b) { return is_older(b, a); });
  const int out = free_.back();
  free_.pop_back();
  return out;
}

void Slots::use(int slot, const Lifetime& buffer) {
  slots_[static_cast<size_t>(slot)].used = ++uses_;
  mark(slot, {buffer.first, buffer.last});
}

void Slots::mark(int slot, const Period& period) {
  const size_t word = static_cast<size_t>(slot) / kWordBits;
  const uint64_t bit = uint64_t{1} << (static_cast<size_t>(slot) % kWordBits);
  const auto mark_node = [&](size_t node) {
    of_node(throughout_, node)[word] |= bit;
    for (; node > 0 && (of_node(sometime_, node)[word] & bit) == 0; node /= 2) of_node(sometime_, node)[word] |= bit;
  };
  const auto after = std::ranges::upper_bound(steps_, period.last) - steps_.begin();
  size_t from = place_of(period.first) + leaves_, to = static_cast<size_t>(after) + leaves_;
  for (; from < to; from /= 2, to /= 2) {
    if (from % 2 != 0) mark_node(from++);
    if (to % 2 != 0) mark_node(--to);
  }
}

}  // namespace trireme
