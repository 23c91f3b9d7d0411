// Which bytes of an arena are in use when. memory_plan.cpp places buffers by it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/exec/memory/byte_ranges_impl.h"
#include "trireme/exec/memory/lifetime.h"

namespace trireme {

// The bytes of buffers that have a place, by the time in which they are in use: a segment tree over blocks of steps. A
// node knows what is in use during all of its time, and what is at any moment of it; a block also the buffers that are
// in use for a part of it. So a search meets as many ranges as bytes lie apart, not as many as there are buffers.
class BytesInUse {
 public:
  explicit BytesInUse(std::span<const Lifetime> buffers) {
    int64_t begin = 0, end = 1;
    for (const Lifetime& buffer : buffers) {
      begin = std::min<int64_t>(begin, buffer.first);
      end = std::max<int64_t>(end, int64_t{buffer.last} + 1);
    }
    begin_ = begin;
    while (int64_t{blocks_} * kBlock < end - begin) blocks_ *= 2;
    throughout_.resize(2 * static_cast<size_t>(blocks_));
    sometime_.resize(2 * static_cast<size_t>(blocks_));
    changed_in_.assign(2 * static_cast<size_t>(blocks_), 0);
    in_part_.resize(static_cast<size_t>(blocks_));
    seen_in_.assign(2 * static_cast<size_t>(blocks_), 0);
  }

  void add(const Lifetime& buffer, ByteRange range) {
    if (range.begin == range.end) return;
    ++searches_;
    const auto add_sometime = [&](int64_t node) {  // also above, up to where it is known already
      while (node > 0 && is_new(node) && sometime_[static_cast<size_t>(node)].add(range)) node /= 2;
    };
    const Span span(*this, buffer);
    for (const int64_t block : span.in_part()) {
      std::vector<Part>& parts = in_part_[static_cast<size_t>(block)];
      if (parts.empty()) parts.reserve(kBlock);
      parts.push_back({buffer.first, buffer.last, range});
      add_sometime(block + blocks_);
    }
    each_node(span, [&](int64_t node) {
      throughout_[static_cast<size_t>(node)].add(range);
      changed_in_[static_cast<size_t>(node)] = searches_;
      add_sometime(node);
    });
  }

  // A period, a part of which is of the buffer's time, in which a byte of the range is in use throughout. Nothing where
  // the range is free during the buffer's time.
  std::optional<Period> in_use(const Lifetime& buffer, ByteRange range) {
    ++searches_;
    std::optional<Period> found;
    const auto look_above = [&](int64_t node) {
      for (; node > 0 && !found && is_new(node); node /= 2) {
        if (throughout_[static_cast<size_t>(node)].meets(range)) found = period_of(node);
      }
    };
    const Span span(*this, buffer);
    for (const int64_t block : span.in_part()) {
      if (!found) found = part_in_use(block, buffer, range);
      if (!found) look_above(block + blocks_);
    }
    each_node(span, [&](int64_t node) {
      if (!found && sometime_[static_cast<size_t>(node)].meets(range)) found = in_use_within(node, buffer, range);
      if (!found) look_above(node / 2);
    });
    return found;
  }

  // The bytes that are in use at any moment of the buffer's time, as ranges apart from each other in their order.
  std::span<const ByteRange> beside(const Lifetime& buffer) {
    parts_.clear();
    runs_.clear();
    ++searches_;
    const auto take = [&](std::span<const ByteRange> ranges) {
      if (!ranges.empty()) runs_.push_back(ranges);
    };
    const auto take_above = [&](int64_t node) {
      for (; node > 0 && is_new(node); node /= 2) take(throughout_[static_cast<size_t>(node)].ranges());
    };
    const Span span(*this, buffer);
    for (size_t i = 0; i < span.count; ++i) {
      for (const Part& part : in_part_[static_cast<size_t>(span.parts[i])]) {
        if (is_beside(part, buffer)) parts_.push_back(part.range);
      }
      take(throughout(span.parts[i], known_[i]));
    }
    each_node(span, [&](int64_t node) {
      take(sometime_[static_cast<size_t>(node)].ranges());
      take_above(node / 2);
    });
    std::ranges::sort(parts_, {}, &ByteRange::begin);
    runs_.emplace_back(parts_);
    return merged_.all(runs_);
  }

 private:
  static constexpr int64_t kBlock = 16;  // steps

  struct Part {
    int first = 0, last = 0;
    ByteRange range;
  };
  struct Throughout {
    int64_t block = -1;
    int64_t found_in = -1;  // the search
    std::vector<ByteRange> ranges;
  };

  // Whether the search meets the node for the first time.
  bool is_new(int64_t node) { return std::exchange(seen_in_[static_cast<size_t>(node)], searches_) != searches_; }

  // What is in use throughout a block: its own, and what all above it know. Most buffers live for less than a block or
  // two, and those that are placed one after the other live about when each other do, so that it is kept.
  std::span<const ByteRange> throughout(int64_t block, std::array<Throughout, 8>& all_known) {
    Throughout& known = all_known[static_cast<size_t>(block) % all_known.size()];
    int64_t changed = 0;
    for (int64_t node = block + blocks_; node > 0; node /= 2) {
      is_new(node);
      changed = std::max(changed, changed_in_[static_cast<size_t>(node)]);
    }
    if (known.block == block && known.found_in > changed) return known.ranges;
    std::vector<std::span<const ByteRange>> runs;
    for (int64_t node = block + blocks_; node > 0; node /= 2) {
      const Cover& cover = throughout_[static_cast<size_t>(node)];
      if (!cover.ranges().empty()) runs.emplace_back(cover.ranges());
    }
    const std::span<const ByteRange> all = runs.empty() ? std::span<const ByteRange>() : merged_.all(runs);
    known.block = block;
    known.found_in = searches_;
    known.ranges.assign(all.begin(), all.end());
    return known.ranges;
  }

  Period period_of(int64_t node) const {
    int64_t from = node, to = node + 1;
    for (; from < blocks_; from *= 2, to *= 2) {
    }
    const auto step = [&](int64_t block) { return static_cast<int>(begin_ + (block - blocks_) * kBlock); };
    return {step(from), step(to) - 1};
  }

  static bool is_beside(const Part& part, const Lifetime& buffer) {
    return part.first <= buffer.last && buffer.first <= part.last;
  }

  std::optional<Period> part_in_use(int64_t block, const Lifetime& buffer, ByteRange range) const {
    for (const Part& part : in_part_[static_cast<size_t>(block)]) {
      const bool meets = part.range.begin < range.end && range.begin < part.range.end;
      if (meets && is_beside(part, buffer)) return Period{part.first, part.last};
    }
    return std::nullopt;
  }

  // A byte of the range is in use at some moment of the node's time, all of which is the buffer's.
  std::optional<Period> in_use_within(int64_t node, const Lifetime& buffer, ByteRange range) const {
    while (!throughout_[static_cast<size_t>(node)].meets(range)) {
      if (node >= blocks_) return part_in_use(node - blocks_, buffer, range);
      node = 2 * node + (sometime_[static_cast<size_t>(2 * node)].meets(range) ? 0 : 1);
    }
    return period_of(node);
  }

  // A lifetime as the blocks [from, to) that it takes whole, and the one or two that it takes a part of.
  struct Span {
    Span(const BytesInUse& bytes, const Lifetime& buffer) {
      const int64_t first = buffer.first - bytes.begin_, last = buffer.last - bytes.begin_;
      from = (first + kBlock - 1) / kBlock;
      to = (last + 1) / kBlock;
      const int64_t first_block = first / kBlock, last_block = last / kBlock;
      if (first_block < from) parts[count++] = first_block;
      if (last_block >= to && (count == 0 || last_block != first_block)) parts[count++] = last_block;
    }
    std::span<const int64_t> in_part() const { return std::span(parts).first(count); }

    int64_t from = 0, to = 0;
    std::array<int64_t, 2> parts{};
    size_t count = 0;
  };

  template <class Visit>
  void each_node(const Span& span, Visit&& visit) const {
    for (int64_t from = span.from + blocks_, to = span.to + blocks_; from < to; from /= 2, to /= 2) {
      if (from % 2 != 0) visit(from++);
      if (to % 2 != 0) visit(--to);
    }
  }

  int64_t begin_ = 0;
  int64_t blocks_ = 1;
  std::vector<Cover> throughout_, sometime_;        // by node: 1 is the root, and those from blocks_ on are the blocks
  std::vector<int64_t> changed_in_;                 // by node, the last search that changed `throughout_`
  std::array<std::array<Throughout, 8>, 2> known_;  // of a search's first and second block in part
  std::vector<std::vector<Part>> in_part_;
  std::vector<ByteRange> parts_;  // of the search
  std::vector<std::span<const ByteRange>> runs_;
  Merged merged_;
  std::vector<int64_t> seen_in_;  // by node, the last search that met it
  int64_t searches_ = 0;
};

}  // namespace trireme
