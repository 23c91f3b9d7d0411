// Runs of bytes of an arena, and what they cover together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

// Bytes [begin, end) of the arena.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Where the smallest gap that holds so many bytes begins, among ranges apart from each other in their order.
inline int64_t smallest_gap(std::span<const ByteRange> ranges, int64_t bytes) {
  int64_t best = -1;
  int64_t best_gap = 0;
  int64_t free_from = 0;
  for (const ByteRange& range : ranges) {
    const int64_t gap = range.begin - free_from;
    if (gap >= bytes && (best < 0 || gap < best_gap)) {
      best = free_from;
      best_gap = gap;
    }
    free_from = std::max(free_from, range.end);
  }
  return best >= 0 ? best : free_from;
}

inline constexpr size_t kUsualRanges = 8;  // ranges of a cover, for which there is room from the first on

// What ranges cover together, as ranges apart from each other in their order.
class Cover {
 public:
  // Whether the range was not all in it.
  bool add(ByteRange range) {
    const auto first = ranges_.begin() + static_cast<std::ptrdiff_t>(first_past(range.begin - 1));
    if (first != ranges_.end() && first->begin <= range.begin && range.end <= first->end) return false;
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
      range = {std::min(range.begin, last->begin), std::max(range.end, last->end)};
    }
    if (first == last) {
      const std::ptrdiff_t at = first - ranges_.begin();
      if (ranges_.empty()) ranges_.reserve(kUsualRanges);
      ranges_.insert(ranges_.begin() + at, range);
    } else {
      *first = range;
      ranges_.erase(first + 1, last);
    }
    return true;
  }
  bool meets(ByteRange range) const {
    const size_t at = first_past(range.begin);
    return at < ranges_.size() && ranges_[at].begin < range.end;
  }
  const std::vector<ByteRange>& ranges() const { return ranges_; }

 private:
  // The first range that ends after `at`. Without branches, which nobody could predict.
  size_t first_past(int64_t at) const {
    const ByteRange* first = ranges_.data();
    size_t left = ranges_.size();
    while (left > 1) {
      const size_t half = left / 2;
      first = first[half - 1].end <= at ? first + half : first;
      left -= half;
    }
    const bool is_past = left == 0 || first->end > at;
    return static_cast<size_t>(first - ranges_.data()) + (is_past ? 0 : 1);
  }

  std::vector<ByteRange> ranges_;
};

// Joins runs of ranges in the order of their begins, two by two, which become fewer where they touch.
class Merged {
 public:
  std::span<const ByteRange> all(std::vector<std::span<const ByteRange>>& runs) {
    size_t ranges = 0;
    for (const auto& run : runs) ranges += run.size();
    for (std::vector<ByteRange>& room : rooms_) room.resize(std::max(room.size(), ranges));
    std::ranges::sort(runs, {}, [](const auto& run) { return run.size(); });
    for (size_t turn = 0; turn == 0 || runs.size() > 1; ++turn) {
      size_t from = 0, count = 0;
      for (size_t i = 0; i < runs.size(); i += 2) {
        const std::span<ByteRange> room = std::span(rooms_[turn % 2]).subspan(from);
        const size_t size = join(runs[i], i + 1 < runs.size() ? runs[i + 1] : std::span<const ByteRange>(), room);
        runs[count++] = room.first(size);
        from += size;
      }
      runs.resize(count);
    }
    return runs[0];
  }

 private:
  static size_t join(std::span<const ByteRange> a, std::span<const ByteRange> b, std::span<ByteRange> to) {
    size_t count = 0;
    const auto add = [&](const ByteRange& range) {
      if (count > 0 && to[count - 1].end >= range.begin) {
        to[count - 1].end = std::max(to[count - 1].end, range.end);
      } else {
        to[count++] = range;
      }
    };
    size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) add(a[i].begin <= b[j].begin ? a[i++] : b[j++]);
    while (i < a.size()) add(a[i++]);
    while (j < b.size()) add(b[j++]);
    return count;
  }

  std::array<std::vector<ByteRange>, 2> rooms_;
};

}  // namespace trireme
