#include "trireme/exec/memory/place.h"

#include <algorithm>
#include <map>

#include "trireme/exec/memory/byte_ranges_impl.h"
#include "trireme/exec/memory/bytes_in_use_impl.h"
#include "trireme/exec/memory/slots.h"

namespace trireme {
namespace {

constexpr size_t kFew = 1000;  // buffers that are placed by looking at all

// The slots of each size.
std::map<int64_t, Slots> slots_of_sizes(std::span<const Lifetime> buffers, int64_t alignment) {
  std::map<int64_t, std::vector<Lifetime>> of_size;
  for (const Lifetime& buffer : buffers) of_size[align_buffer(buffer.bytes, alignment)].push_back(buffer);
  std::map<int64_t, Slots> out;
  for (const auto& [bytes, all] : of_size) out.emplace(bytes, all);
  return out;
}

// Buffers that have a place, in the order of their bytes.
class Placed {
 public:
  explicit Placed(size_t most) : found_(most) {
    for (std::vector<int>* times : {&first_, &last_}) times->reserve(most);
    ranges_.reserve(most);
    beside_.reserve(most);
  }

  // The bytes that are in use at any moment of the buffer's time, as ranges apart from each other in their order.
  std::span<const ByteRange> beside(const Lifetime& buffer) {
    size_t count = 0;
    for (size_t i = 0; i < ranges_.size(); ++i) {  // without a branch, which nobody could foresee
      found_[count] = i;
      count += static_cast<size_t>(first_[i] <= buffer.last) & static_cast<size_t>(buffer.first <= last_[i]);
    }
    beside_.clear();
    for (size_t k = 0; k < count; ++k) {
      const ByteRange& range = ranges_[found_[k]];
      if (!beside_.empty() && range.begin <= beside_.back().end) {
        beside_.back().end = std::max(beside_.back().end, range.end);
      } else {
        beside_.push_back(range);
      }
    }
    return beside_;
  }

  void add(const Lifetime& buffer, ByteRange range) {
    const auto at = std::ranges::upper_bound(ranges_, range.begin, {}, &ByteRange::begin) - ranges_.begin();
    ranges_.insert(ranges_.begin() + at, range);
    first_.insert(first_.begin() + at, buffer.first);
    last_.insert(last_.begin() + at, buffer.last);
  }

 private:
  std::vector<ByteRange> ranges_;
  std::vector<int> first_, last_;  // of each, its time
  std::vector<size_t> found_;      // numbers of ranges that the search met
  std::vector<ByteRange> beside_;
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
  Placed placed(buffers.size());
  PlacesOfSizes places_of;
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes, how.alignment);
    const std::span<const ByteRange> in_use = placed.beside(buffer);
    int64_t& offset = plan.offsets[id];
    if (how.slots_first) {
      std::vector<int64_t>& places = places_of.of(bytes);
      const auto found = std::ranges::find_if(places, [&](int64_t at) { return is_free(in_use, {at, at + bytes}); });
      offset = found == places.end() ? smallest_gap(in_use, bytes) : *found;
      if (found != places.end()) places.erase(found);
      places.push_back(offset);
    } else {
      offset = smallest_gap(in_use, bytes);
    }
    plan.bytes = std::max(plan.bytes, offset + bytes);
    if (plan.bytes >= how.most) return plan;
    placed.add(buffer, {offset, offset + bytes});
  }
  return plan;
}

MemoryPlan place_each(std::span<const Lifetime> buffers, const std::vector<size_t>& order, const Placing& how) {
  const bool is_small =
      buffers.size() <= kFew && std::ranges::all_of(buffers, [](const Lifetime& buffer) { return buffer.bytes > 0; });
  return is_small ? place_by_looking(buffers, order, how) : place_by_index(buffers, order, how);
}

}  // namespace trireme
