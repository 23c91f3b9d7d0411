#include "trireme/exec/memory/place.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "trireme/exec/memory/byte_ranges_impl.h"
#include "trireme/exec/memory/bytes_in_use_impl.h"
#include "trireme/exec/memory/slots.h"

namespace trireme {
namespace {

constexpr size_t kFew = 2000;  // buffers that are placed by looking at all

// The slots of each size.
std::map<int64_t, Slots> slots_of_sizes(std::span<const Lifetime> buffers, int64_t alignment) {
  std::map<int64_t, std::vector<Lifetime>> of_size;
  for (const Lifetime& buffer : buffers) of_size[align_buffer(buffer.bytes, alignment)].push_back(buffer);
  std::map<int64_t, Slots> out;
  for (const auto& [bytes, all] : of_size) out.emplace(bytes, all);
  return out;
}

// Steps are counted from the first of all in 16 bits, so that twice as many are compared at a time.
using Step = int16_t;
constexpr int64_t kMostSteps = std::numeric_limits<Step>::max();

int first_step(std::span<const Lifetime> buffers) {
  return buffers.empty() ? 0 : std::ranges::min_element(buffers, {}, &Lifetime::first)->first;
}

// Buffers that have a place, in the order of their bytes.
class Placed {
 public:
  explicit Placed(std::span<const Lifetime> buffers)
      : begin_(first_step(buffers)),
        first_(buffers.size() + kAtATime, kMostSteps),
        last_(buffers.size() + kAtATime),
        ranges_(buffers.size()),
        beside_(buffers.size() + 1) {}

  // The bytes that are in use at any moment of the buffer's time, as ranges apart from each other in their order.
  std::span<const ByteRange> beside(const Lifetime& buffer) {
    ByteRange* into = beside_.data();
    ByteRange run{-1, -1};  // which no range touches
    each_beside(buffer, [&](const ByteRange& range) {
      const bool is_apart = range.begin > run.end;
      *into = run;
      into += is_apart ? 1 : 0;
      run = {is_apart ? range.begin : run.begin, std::max(run.end, range.end)};
    });
    *into = run;
    return std::span(beside_).first(static_cast<size_t>(into - beside_.data()) + 1).subspan(1);
  }

  // Where the smallest gap between these begins that holds so many bytes, of which there is one at least.
  int64_t smallest_gap(const Lifetime& buffer, int64_t bytes) const {
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), free_from = 0;
    each_beside(buffer, [&](const ByteRange& range) {
      const int64_t gap = range.begin - free_from;
      const bool is_better = gap >= bytes && gap < best_gap;
      best = is_better ? free_from : best;
      best_gap = is_better ? gap : best_gap;
      free_from = std::max(free_from, range.end);
    });
    return best >= 0 ? best : free_from;
  }

  void add(const Lifetime& buffer, ByteRange range) {
    const auto placed = std::span(ranges_).first(size_);
    const auto at =
        static_cast<size_t>(std::ranges::upper_bound(placed, range.begin, {}, &ByteRange::begin) - placed.begin());
    insert(ranges_, at, range);
    insert(first_, at, step(buffer.first));
    insert(last_, at, step(buffer.last));
    ++size_;
  }

 private:
  static constexpr size_t kAtATime = 64;

  Step step(int of) const { return static_cast<Step>(of - begin_); }

  template <class T>
  void insert(std::vector<T>& all, size_t at, const T& one) const {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
    std::move_backward(begin, all.begin() + static_cast<std::ptrdiff_t>(size_),
                       all.begin() + static_cast<std::ptrdiff_t>(size_ + 1));
    *begin = one;
  }

  // Those whose time has a moment of the buffer's. Many are compared at a time, and without a branch for each, which
  // nobody could foresee.
  template <class Do>
  void each_beside(const Lifetime& buffer, Do&& with) const {
    for (size_t at = 0; at < size_; at += kAtATime) {
      for (uint64_t left = are_beside(buffer, at); left != 0; left &= left - 1)
        with(ranges_[at + static_cast<size_t>(std::countr_zero(left))]);
    }
  }

  // Of kAtATime of them, a bit for each.
  uint64_t are_beside(const Lifetime& buffer, size_t from) const {
    std::array<uint8_t, kAtATime> is_beside;
    const Step first = step(buffer.first), last = step(buffer.last);
    for (size_t k = 0; k < kAtATime; ++k) {
      const bool is_begun = first_[from + k] <= last, is_left = first <= last_[from + k];
      is_beside[k] = static_cast<uint8_t>(is_begun & is_left);
    }
    uint64_t out = 0;
    for (size_t k = 0; k < kAtATime; k += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, &is_beside[k], sizeof eight);
      out |= (eight * kGatherBits >> 56U) << k;
    }
    return out;
  }
  // Of a word of eight bytes, each 0 or 1, the product with this has them as the bits of its highest byte.
  static constexpr uint64_t kGatherBits = 0x0102040810204080U;

  int begin_ = 0;                   // the step that is 0 in these
  std::vector<Step> first_, last_;  // of each, its time; after the last one there are some that never begin
  std::vector<ByteRange> ranges_;
  size_t size_ = 0;
  std::vector<ByteRange> beside_;  // after one that is none
};

// Places of one size, the one that was not used for the longest time first.
class PlacesOfSizes {
 public:
  std::vector<int64_t>& of(int64_t bytes) {
    for (auto& [size, places] : sizes_) {
      if (size == bytes) return places;
    }
    return sizes_.emplace_back(bytes, std::vector<int64_t>()).second;
  }

 private:
  std::vector<std::pair<int64_t, std::vector<int64_t>>> sizes_;
};

bool is_free(std::span<const ByteRange> in_use, ByteRange range) {
  const auto next = std::ranges::upper_bound(in_use, range.begin, {}, &ByteRange::end);
  return next == in_use.end() || next->begin >= range.end;
}

}  // namespace

int64_t align_buffer(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

MemoryPlan place_by_index(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  BytesInUse taken(buffers);
  std::map<int64_t, Slots> slots_of;  // by bytes
  if (how.slots_first) slots_of = slots_of_sizes(buffers, how.alignment);
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes, how.alignment);
    int64_t& offset = plan.offsets[id];
    if (how.slots_first) {
      Slots& slots = slots_of.at(bytes);
      int slot = slots.find(buffer, [&](int64_t at) { return taken.in_use(buffer, {at, at + bytes}); });
      if (slot < 0) slot = slots.add(smallest_gap(taken.beside(buffer), bytes));
      slots.use(slot, buffer);
      offset = slots.offset_of(slot);
    } else {
      offset = smallest_gap(taken.beside(buffer), bytes);
    }
    plan.bytes = std::max(plan.bytes, offset + bytes);
    if (plan.bytes >= how.most) return plan;
    taken.add(buffer, {offset, offset + bytes});
  }
  return plan;
}

MemoryPlan place_by_looking(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  Placed placed(buffers);
  PlacesOfSizes places_of;
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes, how.alignment);
    int64_t& offset = plan.offsets[id];
    if (how.slots_first) {
      const std::span<const ByteRange> in_use = placed.beside(buffer);
      std::vector<int64_t>& places = places_of.of(bytes);
      const auto found = std::ranges::find_if(places, [&](int64_t at) { return is_free(in_use, {at, at + bytes}); });
      offset = found == places.end() ? smallest_gap(in_use, bytes) : *found;
      if (found != places.end()) places.erase(found);
      places.push_back(offset);
    } else {
      offset = placed.smallest_gap(buffer, bytes);
    }
    plan.bytes = std::max(plan.bytes, offset + bytes);
    if (plan.bytes >= how.most) return plan;
    placed.add(buffer, {offset, offset + bytes});
  }
  return plan;
}

MemoryPlan place_each(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how) {
  const int64_t begin = first_step(buffers);
  const auto may_be_looked_at = [&](const Lifetime& buffer) {
    return buffer.bytes > 0 && buffer.last - begin < kMostSteps;
  };
  const bool is_small = buffers.size() <= kFew && std::ranges::all_of(buffers, may_be_looked_at);
  return is_small ? place_by_looking(buffers, order, how) : place_by_index(buffers, order, how);
}

}  // namespace trireme
