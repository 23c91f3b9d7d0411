#include "trireme/exec/memory_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/exec/slots.h"

namespace trireme {
namespace {

// Bytes [begin, end) of the arena.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

constexpr size_t kUsual = 8;  // ranges of a cover, for which there is room from the first on

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
      if (ranges_.empty()) ranges_.reserve(kUsual);
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

// Where the smallest gap that holds so many bytes begins.
int64_t smallest_gap(std::span<const ByteRange> ranges, int64_t bytes) {
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

// In which order buffers are placed.
struct PlacingOrder {
  enum class By {
    kBytes,   // the largest first, then the longest lived
    kLength,  // the longest lived first, then the largest
    kBoth,    // by bytes times length
    kLater,   // classes of length, the longest first; in a class what is used last comes first
    kEarlier  // the same; what is used first comes first
  };
  By by = By::kBytes;
  bool slots_first = false;
  int class_bits = 1;  // lengths of one class differ by no more than a factor of 2 to this power
};

// What lives for a similar time is of one kind, as activations of micro-batches are, and the gradients of one: placed
// along time, in one direction, it lies tight, as on a stack.
constexpr std::array kByBytes{
    PlacingOrder{PlacingOrder::By::kBytes, true}, PlacingOrder{PlacingOrder::By::kLength, true},
    PlacingOrder{PlacingOrder::By::kBoth, true},  PlacingOrder{PlacingOrder::By::kBytes},
    PlacingOrder{PlacingOrder::By::kLength},      PlacingOrder{PlacingOrder::By::kBoth}};
constexpr std::array kByTime{PlacingOrder{PlacingOrder::By::kLater}, PlacingOrder{PlacingOrder::By::kEarlier},
                             PlacingOrder{PlacingOrder::By::kLater, false, 2},
                             PlacingOrder{PlacingOrder::By::kLater, false, 4}};

constexpr size_t kFew = 1000, kMany = 4000, kVeryMany = 16000;

// The orders that are tried for so many buffers: all would take too long for the programs of many micro-batches. Those
// that were found to be the closest are first, since a later one ends as soon as it takes more.
std::vector<PlacingOrder> orders_for(size_t buffers) {
  std::vector<PlacingOrder> out;
  if (buffers > kVeryMany) return {kByTime[0], kByTime[1], kByBytes[2], kByBytes[0]};
  if (buffers > kFew) out.assign(kByTime.begin(), kByTime.end());
  out.insert(out.end(), kByBytes.begin(), buffers > kMany ? kByBytes.begin() + 3 : kByBytes.end());
  return out;
}

// By what a buffer's place in an order goes: the smallest first.
struct PlaceInOrder {
  int64_t first = 0, then = 0;
  size_t id = 0;
};

PlaceInOrder place_in_order(const Lifetime& buffer, const PlacingOrder& how, size_t id) {
  using By = PlacingOrder::By;
  const int64_t length = static_cast<int64_t>(buffer.last) - buffer.first + 1;
  if (how.by == By::kBytes) return {-buffer.bytes, -length, id};
  if (how.by == By::kLength) return {-length, -buffer.bytes, id};
  if (how.by == By::kBoth) {
    int64_t both = 0;
    if (__builtin_mul_overflow(buffer.bytes, length, &both)) both = std::numeric_limits<int64_t>::max();
    return {-both, 0, id};
  }
  const int length_class = static_cast<int>(std::bit_width(static_cast<uint64_t>(length))) / how.class_bits;
  return {-int64_t{length_class}, how.by == By::kLater ? -int64_t{buffer.last} : int64_t{buffer.first}, id};
}

std::vector<size_t> sorted(std::span<const Lifetime> buffers, const PlacingOrder& how) {
  std::vector<PlaceInOrder> places;
  places.reserve(buffers.size());
  for (size_t id = 0; id < buffers.size(); ++id) places.push_back(place_in_order(buffers[id], how, id));
  std::ranges::sort(places, [](const PlaceInOrder& a, const PlaceInOrder& b) {
    return std::tie(a.first, a.then, a.id) < std::tie(b.first, b.then, b.id);
  });
  std::vector<size_t> out;
  out.reserve(places.size());
  for (const PlaceInOrder& place : places) out.push_back(place.id);
  return out;
}

// The slots of each size.
std::map<int64_t, Slots> slots_of_sizes(std::span<const Lifetime> buffers, int64_t alignment) {
  std::map<int64_t, std::vector<Lifetime>> of_size;
  for (const Lifetime& buffer : buffers) of_size[align_buffer(buffer.bytes, alignment)].push_back(buffer);
  std::map<int64_t, Slots> out;
  for (const auto& [bytes, all] : of_size) out.emplace(bytes, all);
  return out;
}

// Places buffers one by one, each in the smallest gap among those it overlaps in time that holds it. With
// `slots_first`, before that, where one of its size is that was not used for the longest time, as far as the order of
// placing goes. Stops where it will not take fewer bytes than `most`.
MemoryPlan place(std::span<const Lifetime> buffers, const std::vector<size_t>& order, int64_t alignment,
                 bool slots_first, int64_t most) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  BytesInUse taken(buffers);
  std::map<int64_t, Slots> slots_of;  // by bytes
  if (slots_first) slots_of = slots_of_sizes(buffers, alignment);
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes, alignment);
    int64_t& offset = plan.offsets[id];
    if (slots_first) {
      Slots& slots = slots_of.at(bytes);
      int slot = slots.find(buffer, [&](int64_t at) { return taken.in_use(buffer, {at, at + bytes}); });
      if (slot < 0) slot = slots.add(smallest_gap(taken.beside(buffer), bytes));
      slots.use(slot, buffer);
      offset = slots.offset_of(slot);
    } else {
      offset = smallest_gap(taken.beside(buffer), bytes);
    }
    plan.bytes = std::max(plan.bytes, offset + bytes);
    if (plan.bytes >= most) return plan;
    taken.add(buffer, {offset, offset + bytes});
  }
  return plan;
}

// So that no sum of some of them is too large for a number.
void check_sum(std::span<const Lifetime> buffers, int64_t alignment) {
  constexpr int64_t kMost = int64_t{1} << 62;
  int64_t sum = 0;
  for (const Lifetime& buffer : buffers) {
    require(buffer.bytes <= kMost - sum - alignment,
            "the tensors of a step take more than 2^62 bytes on a rank, one of them {} bytes; take a smaller batch or "
            "model",
            buffer.bytes);
    sum += align_buffer(buffer.bytes, alignment);
  }
}

int64_t most_live(std::span<const Lifetime> buffers, int64_t alignment) {
  if (buffers.empty()) return 0;
  const int begin = std::ranges::min_element(buffers, {}, &Lifetime::first)->first;
  const int end = std::ranges::max_element(buffers, {}, &Lifetime::last)->last;
  std::vector<int64_t> change(static_cast<size_t>(int64_t{end} - begin) + 2, 0);  // of live bytes, by step
  const auto change_at = [&](int64_t step) -> int64_t& { return change[static_cast<size_t>(step - begin)]; };
  for (const Lifetime& buffer : buffers) {
    const int64_t bytes = align_buffer(buffer.bytes, alignment);
    change_at(buffer.first) += bytes;
    change_at(int64_t{buffer.last} + 1) -= bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (const int64_t each : change) {
    live += each;
    most = std::max(most, live);
  }
  return most;
}

}  // namespace

int64_t align_buffer(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

MemoryPlan plan_memory(std::span<const Lifetime> buffers, int64_t alignment) {
  check_sum(buffers, alignment);
  const int64_t bound = most_live(buffers, alignment);
  const int64_t near = buffers.size() > kVeryMany ? bound / 128 : 0;  // where more orders would take long
  MemoryPlan best;
  best.bytes = std::numeric_limits<int64_t>::max();
  int tried = 0;
  for (const PlacingOrder& how : orders_for(buffers.size())) {
    MemoryPlan plan = place(buffers, sorted(buffers, how), alignment, how.slots_first, best.bytes);
    if (plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes <= bound + near * std::min(++tried, 2)) break;
  }
  best.lower_bound = bound;
  return best;
}

}  // namespace trireme
