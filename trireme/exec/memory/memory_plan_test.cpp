#include "trireme/exec/memory/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "trireme/base/error.h"
#include "trireme/exec/memory/place.h"
#include "trireme/exec/memory/repeated_lifetimes.h"

namespace trireme::memory_plan_test {
namespace {

TEST(MemoryPlan, buffers_that_are_never_live_together_share_bytes) {
  const MemoryPlan plan = plan_memory(std::vector<Lifetime>{{100, 0, 1}, {100, 2, 3}});
  EXPECT_EQ(plan.bytes, 128);
  EXPECT_EQ(plan.lower_bound, 128);
}

TEST(MemoryPlan, a_buffer_is_live_at_its_first_and_its_last_step) {
  const MemoryPlan plan = plan_memory(std::vector<Lifetime>{{64, 0, 2}, {64, 2, 3}});
  EXPECT_EQ(plan.bytes, 128);
}

TEST(MemoryPlan, nothing_needs_nothing) {
  const MemoryPlan plan = plan_memory({});
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.lower_bound, 0);
}

TEST(MemoryPlan, bytes_that_no_number_counts_are_refused) {
  const std::vector<Lifetime> most{{int64_t{1} << 61, 0, 1}, {(int64_t{1} << 61) - 128, 1, 2}};
  EXPECT_EQ(plan_memory(most).bytes, (int64_t{1} << 62) - 128);
  std::vector<Lifetime> more = most;
  more.push_back({int64_t{1} << 61, 3, 4});
  EXPECT_THROW(plan_memory(more), Error);
}

TEST(MemoryPlan, random_lifetimes_never_overlap_and_stay_near_the_bound) {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    std::mt19937 draw(seed);
    std::vector<Lifetime> buffers;
    const bool is_long = seed % 2 == 1;  // as in a pipeline: many steps, and values that live through several of them
    for (int i = 0; i < (is_long ? 600 : 120); ++i) {
      const int first = static_cast<int>(draw() % (is_long ? 2000 : 100)) - 1;
      const uint32_t steps = is_long && draw() % 4 == 0 ? 900 : 20;
      buffers.push_back({static_cast<int64_t>(draw() % 5000), first, first + static_cast<int>(draw() % steps)});
    }
    const MemoryPlan plan = plan_memory(buffers);
    for (size_t i = 0; i < buffers.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const bool in_time = buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool in_space = plan.offsets[i] < plan.offsets[j] + buffers[j].bytes &&
                              plan.offsets[j] < plan.offsets[i] + buffers[i].bytes;
        ASSERT_FALSE(in_time && in_space) << "seed " << seed << ": buffers " << i << " and " << j;
      }
      ASSERT_LE(plan.offsets[i] + buffers[i].bytes, plan.bytes);
      ASSERT_EQ(plan.offsets[i] % kBufferAlignment, 0);
    }
    EXPECT_GE(plan.bytes, plan.lower_bound);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.25 * static_cast<double>(plan.lower_bound)) << "seed " << seed;
  }
}

// Few buffers are placed by looking at all that have a place, many by an index over time.
TEST(MemoryPlan, both_ways_to_place_find_the_same_places) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(seed);
    const int begin = seed % 7 == 0 ? 100'000 : -1;
    const int stretch = seed % 5 == 0 ? 200 : 1;  // of the most steps that are looked at, nearly all
    const uint32_t sizes = seed % 3 == 0 ? 4 : 2000;
    std::vector<Lifetime> buffers;
    std::vector<size_t> order(1 + draw() % 120);
    for (size_t& at : order) {
      at = buffers.size();
      const int first = static_cast<int>(draw() % 100), length = static_cast<int>(draw() % (seed % 2 == 0 ? 60 : 5));
      buffers.push_back(
          {1 + 40 * static_cast<int64_t>(draw() % sizes), begin + stretch * first, begin + stretch * (first + length)});
    }
    std::ranges::shuffle(order, draw);
    for (const bool slots_first : {false, true}) {
      Placing how{kBufferAlignment, slots_first, std::numeric_limits<int64_t>::max()};
      const MemoryPlan by_index = place_by_index(buffers, order, how);
      const MemoryPlan by_looking = place_by_looking(buffers, order, how);
      ASSERT_EQ(by_looking.offsets, by_index.offsets) << "seed " << seed << ", slots first: " << slots_first;
      ASSERT_EQ(by_looking.bytes, by_index.bytes);
      how.most = by_index.bytes;
      EXPECT_GE(place_by_looking(buffers, order, how).bytes, how.most);
    }
  }
}

TEST(MemoryPlan, few_buffers_of_many_steps_are_placed_by_the_index) {
  const std::vector<Lifetime> buffers{{64, 0, 40'000}, {64, 39'000, 100'000}, {64, 99'000, 140'000}};
  const std::vector<size_t> order{0, 1, 2};
  const Placing how{kBufferAlignment, false, std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(place_each(buffers, order, how).offsets, (std::vector<int64_t>{0, 64, 0}));
}

// A part of a pipeline in one forward and one backward by turns: activations live until their micro-batch comes back,
// the terms of gradients until the end of their backward pass, and the sums of gradients until the step's end.
class PipelinePart {
 public:
  std::vector<Lifetime> buffers(int ahead, int micro_batches) {
    for (int m = 0; m < micro_batches + ahead; ++m) {
      if (m < micro_batches) forward();
      if (m >= ahead) backward(m - ahead);
    }
    for (const size_t sum : sums_) buffers_[sum].last = step_;
    return buffers_;
  }

 private:
  static constexpr int kLayers = 6;
  static constexpr int64_t kBytes = 1 << 20;

  size_t made(int64_t bytes, int steps) {
    buffers_.push_back({bytes, step_, step_ + steps});
    return buffers_.size() - 1;
  }
  void forward() {
    auto& kept = kept_.emplace_back();
    for (int layer = 0; layer < kLayers; ++layer) {
      kept.push_back(made(kBytes, 0));
      ++step_;
      kept.push_back(made(kBytes * 3 + 192, 0));
      made(kBytes * 2, 1);
      ++step_;
      kept.push_back(made(kBytes * 4, 0));
      ++step_;
    }
  }
  void backward(int micro_batch) {
    auto& kept = kept_[static_cast<size_t>(micro_batch)];
    std::vector<size_t> terms;
    for (int layer = kLayers; layer-- > 0;) {
      for (int i = 0; i < 3; ++i) {
        made(kBytes * (4 - i), 1);
        terms.push_back(made(kBytes * 5, 0));
        buffers_[kept.back()].last = step_++;
        kept.pop_back();
      }
    }
    if (sums_.empty()) {
      sums_ = terms;
    } else {
      for (const size_t term : terms) buffers_[term].last = step_++;
    }
  }

  int step_ = 0;
  std::vector<Lifetime> buffers_;
  std::vector<std::vector<size_t>> kept_;  // by micro-batch
  std::vector<size_t> sums_;
};

void expect_apart(const std::vector<Lifetime>& buffers, const MemoryPlan& plan) {
  std::vector<size_t> order(buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t id) { return buffers[id].first; });
  std::vector<size_t> alive;
  for (const size_t id : order) {
    const Lifetime& buffer = buffers[id];
    std::erase_if(alive, [&](size_t other) { return buffers[other].last < buffer.first; });
    for (const size_t other : alive) {
      ASSERT_FALSE(plan.offsets[id] < plan.offsets[other] + buffers[other].bytes &&
                   plan.offsets[other] < plan.offsets[id] + buffer.bytes)
          << "buffers " << id << " and " << other;
    }
    ASSERT_LE(plan.offsets[id] + buffer.bytes, plan.bytes);
    alive.push_back(id);
  }
}

// Of so many that their places repeat.
TEST(MemoryPlan, places_of_parts_of_pipelines_repeat) {
  for (const int ahead : {0, 1, 3, 7}) {
    const std::vector<Lifetime> buffers = PipelinePart().buffers(ahead, 160);
    const std::optional<RepeatedLifetimes> repeated = repeated_lifetimes(buffers);
    ASSERT_TRUE(repeated.has_value()) << ahead << " ahead";
    EXPECT_LT(2 * repeated->lifetimes.size(), buffers.size());
    const MemoryPlan plan = plan_memory(buffers);
    expect_apart(buffers, plan);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.03 * static_cast<double>(plan.lower_bound)) << ahead << " ahead";
  }
}

// A random part over and over, some of which lives for several times of it, between what is there once.
TEST(MemoryPlan, any_placing_of_fewer_buffers_that_repeat_is_one_of_all) {
  int repeat = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(seed);
    const int steps = 5 + static_cast<int>(draw() % 20), times = 60 + static_cast<int>(draw() % 40);
    const int longest = seed % 2 == 0 ? steps : 3 * steps;
    std::vector<Lifetime> buffers;
    for (int i = 0; i < 10; ++i) {
      const bool stays = draw() % 2 == 0;
      buffers.push_back(
          {64 * (1 + static_cast<int64_t>(draw() % 9)), 0, stays ? 2000000 : static_cast<int>(draw() % 9)});
    }
    const size_t of_time = 3 + draw() % 30;
    std::vector<Lifetime> part;
    for (size_t i = 0; i < of_time; ++i) {
      const int first = 10 + static_cast<int>(draw() % static_cast<uint32_t>(steps));
      part.push_back({64 * (1 + static_cast<int64_t>(draw() % 9)), first,
                      first + static_cast<int>(draw() % static_cast<uint32_t>(longest))});
    }
    for (int time = 0; time < times; ++time) {
      for (const Lifetime& each : part)
        buffers.push_back({each.bytes, each.first + time * steps, each.last + time * steps});
    }
    for (int i = 0; i < 10; ++i) buffers.push_back({64, times * steps + 5 + i, times * steps + 9 + i});
    const std::optional<RepeatedLifetimes> repeated = repeated_lifetimes(buffers);
    if (!repeated) continue;
    ++repeat;
    // Each group where nothing else ever is, but for one that draws a place of another it is never beside.
    std::vector<int64_t> offsets(repeated->lifetimes.size(), -1);
    std::vector<std::vector<size_t>> at;  // by place, who is there
    for (const std::vector<size_t>& group : repeated->groups) {
      const auto is_free = [&](const std::vector<size_t>& there) {
        return std::ranges::none_of(there, [&](size_t other) {
          return std::ranges::any_of(group, [&](size_t id) {
            const Lifetime &a = repeated->lifetimes[id], &b = repeated->lifetimes[other];
            return a.first <= b.last && b.first <= a.last;
          });
        });
      };
      auto place = std::ranges::find_if(at, is_free);
      if (place == at.end()) place = at.insert(at.end(), std::vector<size_t>());
      place->insert(place->end(), group.begin(), group.end());
      for (const size_t id : group) offsets[id] = 1024 * (place - at.begin());
    }
    MemoryPlan plan{.offsets = {}, .bytes = 1024 * static_cast<int64_t>(at.size())};
    for (const size_t as : repeated->as) plan.offsets.push_back(offsets[as]);
    expect_apart(buffers, plan);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  EXPECT_GT(repeat, 100);
}

TEST(MemoryPlan, parts_of_pipelines_lie_tight) {
  for (const int ahead : {1, 3, 7}) {
    const std::vector<Lifetime> buffers = PipelinePart().buffers(ahead, 64);
    ASSERT_GT(buffers.size(), 1000U);
    const MemoryPlan plan = plan_memory(buffers);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.02 * static_cast<double>(plan.lower_bound)) << ahead << " ahead";
  }
}

}  // namespace
}  // namespace trireme::memory_plan_test
