#include "trireme/exec/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

// The buffers that have a place, in the order of their offsets: all, and those alive in each of kPeriods parts of the
// time. Most live for a moment, so that those of one part or two are all they can meet.
class Placed {
 public:
  Placed(std::span<const Lifetime> buffers, const std::vector<int64_t>& offsets)
      : buffers_(buffers), offsets_(offsets), periods_(kPeriods) {
    for (const Lifetime& buffer : buffers) {
      begin_ = std::min<int64_t>(begin_, buffer.first);
      end_ = std::max<int64_t>(end_, int64_t{buffer.last} + 1);
    }
  }

  void add(size_t id) {
    insert(all_, id);
    for (size_t p = period_of(buffers_[id].first); p <= period_of(buffers_[id].last); ++p) insert(periods_[p], id);
  }

  // Visits all that live while `buffer` does, by offset; others too, and some twice.
  template <class Visit>
  void each_beside(const Lifetime& buffer, Visit&& visit) const {
    const std::vector<size_t>& a = periods_[period_of(buffer.first)];
    const std::vector<size_t>& b = periods_[period_of(buffer.last)];
    if (period_of(buffer.last) > period_of(buffer.first) + 1) {
      for (const size_t id : all_) visit(id);
    } else if (&a == &b) {
      for (const size_t id : a) visit(id);
    } else {
      for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        const bool first = j == b.size() || (i < a.size() && offsets_[a[i]] <= offsets_[b[j]]);
        visit(first ? a[i++] : b[j++]);
      }
    }
  }

 private:
  static constexpr int64_t kPeriods = 128;

  size_t period_of(int64_t step) const { return static_cast<size_t>((step - begin_) * kPeriods / (end_ - begin_)); }
  void insert(std::vector<size_t>& ids, size_t id) const {
    const auto at =
        std::upper_bound(ids.begin(), ids.end(), id, [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    ids.insert(at, id);
  }

  std::span<const Lifetime> buffers_;
  const std::vector<int64_t>& offsets_;
  int64_t begin_ = 0, end_ = 1;
  std::vector<size_t> all_;
  std::vector<std::vector<size_t>> periods_;
};

// Places buffers one by one, each in the smallest gap among those it overlaps in time that holds it.
MemoryPlan place(std::span<const Lifetime> buffers, const std::vector<size_t>& order, int64_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  Placed placed(buffers, plan.offsets);
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes, alignment);
    int64_t best = -1;
    int64_t best_gap = 0;
    int64_t free_from = 0;
    placed.each_beside(buffer, [&](size_t other) {
      if (buffers[other].last < buffer.first || buffer.last < buffers[other].first) return;
      const int64_t gap = plan.offsets[other] - free_from;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = free_from;
        best_gap = gap;
      }
      free_from = std::max(free_from, plan.offsets[other] + align_buffer(buffers[other].bytes, alignment));
    });
    plan.offsets[id] = best >= 0 ? best : free_from;
    plan.bytes = std::max(plan.bytes, plan.offsets[id] + bytes);
    placed.add(id);
  }
  return plan;
}

int64_t most_live(std::span<const Lifetime> buffers, int64_t alignment) {
  std::vector<std::pair<int, int64_t>> events;  // at a step, bytes that come alive (freed at last + 1)
  for (const Lifetime& buffer : buffers) {
    events.emplace_back(buffer.first, align_buffer(buffer.bytes, alignment));
    events.emplace_back(buffer.last + 1, -align_buffer(buffer.bytes, alignment));
  }
  std::sort(events.begin(), events.end());
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [step, bytes] : events) {
    live += bytes;
    most = std::max(most, live);
  }
  return most;
}

}  // namespace

int64_t align_buffer(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

MemoryPlan plan_memory(std::span<const Lifetime> buffers, int64_t alignment) {
  const int64_t bound = most_live(buffers, alignment);
  const auto length = [](const Lifetime& b) { return static_cast<int64_t>(b.last) - b.first + 1; };
  MemoryPlan best;
  best.bytes = -1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::vector<size_t> order(buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
      const Lifetime& a = buffers[i];
      const Lifetime& b = buffers[j];
      if (attempt == 0) return a.bytes != b.bytes ? a.bytes > b.bytes : length(a) > length(b);
      if (attempt == 1) return length(a) != length(b) ? length(a) > length(b) : a.bytes > b.bytes;
      return a.bytes * length(a) > b.bytes * length(b);
    });
    MemoryPlan plan = place(buffers, order, alignment);
    if (best.bytes < 0 || plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes <= bound) break;
  }
  best.lower_bound = bound;
  return best;
}

}  // namespace trireme
