#include "trireme/exec/memory/memory_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/exec/memory/bytes_in_use_impl.h"
#include "trireme/exec/memory/place.h"
#include "trireme/exec/memory/repeated_lifetimes.h"

namespace trireme {
namespace {

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

// The buffers in each order that is asked for, sorted once for those that differ in slots alone.
class SortedBuffers {
 public:
  explicit SortedBuffers(std::span<const Lifetime> buffers) : buffers_(buffers) {}

  const std::vector<size_t>& of(const PlacingOrder& how) {
    const auto is_same = [&](const auto& known) {
      return known.first.by == how.by && known.first.class_bits == how.class_bits;
    };
    const auto known = std::ranges::find_if(known_, is_same);
    return known != known_.end() ? known->second : known_.emplace_back(how, sorted(buffers_, how)).second;
  }

 private:
  std::span<const Lifetime> buffers_;
  std::deque<std::pair<PlacingOrder, std::vector<size_t>>> known_;
};

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

namespace {

// Places groups of buffers one by one, each at the smallest gap that is there throughout the times of all its members,
// which are as large as each other.
class Groups {
 public:
  Groups(std::span<const Lifetime> buffers, std::span<const std::vector<size_t>> groups, int64_t alignment)
      : buffers_(buffers), groups_(groups), alignment_(alignment), taken_(buffers) {}

  MemoryPlan place(const PlacingOrder& how, int64_t most) {
    std::vector<Lifetime> last;
    for (const std::vector<size_t>& group : groups_) last.push_back(buffers_[group.back()]);
    MemoryPlan plan;
    plan.offsets.assign(buffers_.size(), 0);
    for (const size_t at : sorted(last, how)) {
      const std::vector<size_t>& group = groups_[at];
      const int64_t bytes = align_buffer(last[at].bytes, alignment_);
      const int64_t offset = smallest_gap(beside(group), bytes);
      for (const size_t id : group) {
        plan.offsets[id] = offset;
        taken_.add(buffers_[id], {offset, offset + bytes});
      }
      plan.bytes = std::max(plan.bytes, offset + bytes);
      if (plan.bytes >= most) break;
    }
    return plan;
  }

 private:
  std::span<const ByteRange> beside(const std::vector<size_t>& group) {
    if (group.size() == 1) return taken_.beside(buffers_[group[0]]);
    found_.resize(std::max(found_.size(), group.size()));
    std::vector<std::span<const ByteRange>> runs;
    for (size_t i = 0; i < group.size(); ++i) {
      const std::span<const ByteRange> found = taken_.beside(buffers_[group[i]]);
      found_[i].assign(found.begin(), found.end());
      runs.emplace_back(found_[i]);
    }
    return merged_.all(runs);
  }

  std::span<const Lifetime> buffers_;
  std::span<const std::vector<size_t>> groups_;
  int64_t alignment_;
  BytesInUse taken_;
  std::vector<std::vector<ByteRange>> found_;  // of the members that are looked at
  Merged merged_;
};

// Of buffers that repeat, by places that repeat: where that takes little more than the least.
std::optional<MemoryPlan> place_repeated(std::span<const Lifetime> buffers, int64_t alignment, int64_t bound) {
  const std::optional<RepeatedLifetimes> repeated = repeated_lifetimes(buffers);
  if (!repeated) return std::nullopt;
  MemoryPlan few;
  few.bytes = bound + bound / 32 + 1;
  for (const PlacingOrder& how : {kByTime[0], kByTime[2], kByTime[1]}) {
    MemoryPlan placed = Groups(repeated->lifetimes, repeated->groups, alignment).place(how, few.bytes);
    if (placed.bytes < few.bytes) few = std::move(placed);
    if (few.bytes <= bound + bound / 64) break;
  }
  if (few.offsets.empty()) return std::nullopt;
  MemoryPlan plan;
  plan.bytes = few.bytes;
  for (const size_t as : repeated->as) plan.offsets.push_back(few.offsets[as]);
  return plan;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> buffers, int64_t alignment) {
  check_sum(buffers, alignment);
  const int64_t bound = most_live(buffers, alignment);
  if (buffers.size() > kMany) {
    if (std::optional<MemoryPlan> plan = place_repeated(buffers, alignment, bound)) {
      plan->lower_bound = bound;
      return std::move(*plan);
    }
  }
  const int64_t near = buffers.size() > kVeryMany ? bound / 128 : 0;  // where more orders would take long
  MemoryPlan best;
  best.bytes = std::numeric_limits<int64_t>::max();
  int tried = 0;
  SortedBuffers in_order(buffers);
  for (const PlacingOrder& how : orders_for(buffers.size())) {
    MemoryPlan plan = place_each(buffers, in_order.of(how), {alignment, how.slots_first, best.bytes});
    if (plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes <= bound + near * std::min(++tried, 2)) break;
  }
  best.lower_bound = bound;
  return best;
}

}  // namespace trireme
