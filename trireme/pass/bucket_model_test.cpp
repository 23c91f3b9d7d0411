#include "trireme/pass/bucket_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace trireme::bucket_model_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::vector<BucketMember> random_members(std::mt19937& draw, size_t count) {
  std::vector<BucketMember> out;
  double ready = 0;
  for (size_t i = 0; i < count; ++i) {
    ready += (draw() % 100) * 1e-5;
    out.push_back({ready, static_cast<int64_t>(1 + draw() % 1'000'000), draw() % 4 == 0 ? i + draw() % 3 : count});
  }
  return out;
}

bool is_allowed(std::span<const BucketMember> members, const std::vector<size_t>& buckets, const BucketModel& model) {
  size_t first = 0;
  for (const size_t end : buckets) {
    int64_t bytes = 0;
    for (size_t i = first; i < end; ++i) {
      bytes += members[i].bytes;
      if (members[i].last < end - 1) return false;
    }
    if (end - first > 1 && static_cast<double>(bytes) > model.most_bytes()) return false;
    first = end;
  }
  return first == members.size();
}

// All cuts of `count` members into neighbours.
std::vector<std::vector<size_t>> all_cuts(size_t count) {
  std::vector<std::vector<size_t>> out;
  for (uint32_t mask = 0; mask < (1U << (count - 1)); ++mask) {
    std::vector<size_t> cut;
    for (size_t i = 1; i < count; ++i) {
      if ((mask >> (i - 1)) & 1U) cut.push_back(i);
    }
    cut.push_back(count);
    out.push_back(std::move(cut));
  }
  return out;
}

TEST(BucketModel, packing_keeps_apart_what_starting_would_join) {
  const std::vector<BucketMember> members(3, {.ready_s = 0, .bytes = 1000, .last = 3});
  const double no_bytes = std::numeric_limits<double>::infinity();
  EXPECT_THAT(best_buckets(members, {1e-3, no_bytes}), ElementsAre(3));
  EXPECT_THAT(best_buckets(members, {1e-3, no_bytes, 1e-8}), ElementsAre(3));
  EXPECT_THAT(best_buckets(members, {1e-3, no_bytes, 1e-3}), ElementsAre(1, 2, 3));
  // Nor where all is hidden either way: packing takes time from computing.
  std::vector<BucketMember> far_apart = members;
  for (size_t i = 0; i < 3; ++i) far_apart[i].ready_s = static_cast<double>(i);
  far_apart.push_back({.ready_s = 10, .bytes = 1, .last = 3});
  EXPECT_THAT(best_buckets(far_apart, {1e-3, no_bytes, 1e-5}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(best_buckets(far_apart, {1e-3, no_bytes, 1e-8}), ElementsAre(3, 4));
}

TEST(BucketModel, no_cut_of_all_ends_sooner) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    const std::vector<BucketMember> members = random_members(draw, 1 + draw() % 10);
    const BucketModel model{(draw() % 5) * 1e-4, 1e6 * std::pow(10.0, draw() % 5)};
    const std::vector<size_t> best = best_buckets(members, model);
    ASSERT_TRUE(is_allowed(members, best, model));
    const double end = end_of(members, best, model);
    for (const std::vector<size_t>& cut : all_cuts(members.size())) {
      if (is_allowed(members, cut, model)) EXPECT_GE(end_of(members, cut, model), end * (1 - 1e-9));
    }
  }
}

TEST(BucketModel, no_two_neighbours_could_be_one_without_ending_later) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    const std::vector<BucketMember> members = random_members(draw, 2 + draw() % 30);
    const BucketModel model{(1 + draw() % 5) * 1e-4, 1e8};
    const std::vector<size_t> best = best_buckets(members, model);
    const double end = end_of(members, best, model);
    for (size_t i = 0; i + 1 < best.size(); ++i) {
      std::vector<size_t> joined = best;
      joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(i));
      if (is_allowed(members, joined, model)) EXPECT_GT(end_of(members, joined, model), end * (1 + 1e-13));
    }
  }
}

std::vector<BucketMember> ten_a_millisecond_apart() {
  std::vector<BucketMember> out;
  for (size_t i = 0; i < 10; ++i) out.push_back({1e-3 * static_cast<double>(i + 1), 1'000'000, 9});
  return out;
}

TEST(BucketModel, without_latency_every_gradient_goes_alone) {
  EXPECT_THAT(best_buckets(ten_a_millisecond_apart(), {0, 1e9}), SizeIs(10));
}

TEST(BucketModel, where_bytes_cost_nothing_one_bucket_is_as_soon_as_any) {
  EXPECT_THAT(best_buckets(ten_a_millisecond_apart(), {1e-4, std::numeric_limits<double>::infinity()}),
              ElementsAre(10));
}

// A sum takes 0.1 ms and 1 ms a megabyte: of what is ready last as little as possible waits for the end, and what fits
// under the computing before it goes in one.
TEST(BucketModel, a_slow_link_keeps_busy_from_the_first_gradient_on) {
  const std::vector<BucketMember> members = ten_a_millisecond_apart();
  const BucketModel model{1e-4, 1e9};
  const std::vector<size_t> best = best_buckets(members, model);
  EXPECT_GT(best.size(), 1U);
  EXPECT_EQ(best.front(), 1U);
  const std::vector<size_t> one{10};
  EXPECT_LT(end_of(members, best, model), end_of(members, one, model));
}

TEST(BucketModel, no_gradients_have_no_buckets) {
  EXPECT_THAT(best_buckets({}, {1e-5, 1e9}), SizeIs(0));
}

}  // namespace
}  // namespace trireme::bucket_model_test
