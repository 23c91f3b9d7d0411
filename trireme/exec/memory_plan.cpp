#include "trireme/exec/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/seeded_defect.h"

namespace trireme {
namespace {

// Places buffers one by one, each in the smallest gap among those it overlaps in time that holds it.
MemoryPlan place(std::span<const Lifetime> buffers, const std::vector<size_t>& order) {
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;  // sorted by offset
  placed.reserve(buffers.size());
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    const int64_t bytes = align_buffer(buffer.bytes);
    int64_t best = -1;
    int64_t best_gap = 0;
    int64_t free_from = 0;
    for (const size_t other : placed) {
      if (seeded_defect("memory: lifetimes that touch share bytes") && buffers[other].last == buffer.first) continue;
      if (buffers[other].last < buffer.first || buffer.last < buffers[other].first) continue;
      const int64_t gap = plan.offsets[other] - free_from;
      const int64_t need = seeded_defect("memory: a gap half as large will do") ? bytes / 2 : bytes;
      if (gap >= need && (best < 0 || gap < best_gap)) {
        best = free_from;
        best_gap = gap;
      }
      free_from = std::max(free_from, plan.offsets[other] + align_buffer(buffers[other].bytes));
    }
    plan.offsets[id] = best >= 0 ? best : free_from;
    plan.bytes = std::max(plan.bytes, plan.offsets[id] + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  id);
  }
  return plan;
}

int64_t most_live(std::span<const Lifetime> buffers) {
  std::vector<std::pair<int, int64_t>> events;  // at a step, bytes that come alive (freed at last + 1)
  for (const Lifetime& buffer : buffers) {
    events.emplace_back(buffer.first, align_buffer(buffer.bytes));
    events.emplace_back(buffer.last + 1, -align_buffer(buffer.bytes));
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

int64_t align_buffer(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

MemoryPlan plan_memory(std::span<const Lifetime> buffers) {
  const int64_t bound = most_live(buffers);
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
    MemoryPlan plan = place(buffers, order);
    if (best.bytes < 0 || plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes <= bound) break;
  }
  best.lower_bound = bound;
  return best;
}

}  // namespace trireme
