#include "trireme/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data::batches_test {
namespace {

using testing::HasSubstr;

// Sample i is the matrix i * 100 + [0, 12) of shape [3,4] and the number i; `broken` cannot be
// read.
class Counting final : public Source {
 public:
  explicit Counting(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}

  int64_t size() const override { return size_; }
  std::vector<FieldSpec> fields() const override {
    return {{"matrix", {DType::kF32, {3, 4}}}, {"number", {DType::kI32, {}}}};
  }
  void read(int64_t sample, std::span<const View> out) const override {
    if (sample == broken_) fail(ErrorKind::kIo, "sample {} cannot be read", sample);
    if (out[0].data != nullptr) {
      const auto to = out[0].as<float>();
      std::iota(to.begin(), to.end(), static_cast<float>(sample * 100));
    }
    if (out[1].data != nullptr) out[1].as<int32_t>()[0] = static_cast<int32_t>(sample);
    ++reads;
  }
  mutable std::atomic<int> reads = 0;

 private:
  int64_t size_;
  int64_t broken_;
};

// Reads parts of its matrix and counts their elements.
class Parts final : public Source {
 public:
  int64_t size() const override { return 8; }
  std::vector<FieldSpec> fields() const override { return {{"matrix", {DType::kF32, {3, 4}}}}; }
  void read(int64_t, std::span<const View>) const override { fail(ErrorKind::kInternal, "a whole sample is read"); }
  void read_parts(int64_t sample, std::span<const FieldPart> parts) const override {
    each_run({3, 4}, parts[0], [&](int64_t from, int64_t to, int64_t elements) {
      for (int64_t i = 0; i < elements; ++i) {
        parts[0].to.as<float>()[static_cast<size_t>(to + i)] = static_cast<float>(sample * 100 + from + i);
      }
      read_elements += elements;
    });
  }
  mutable std::atomic<int64_t> read_elements = 0;
};

struct Buffers {
  explicit Buffers(const Batches& batches) {
    for (const FieldSpec& field : batches.fields()) tensors.emplace_back(field.sample);
  }
  std::vector<View> views() const {
    std::vector<View> out;
    for (const HostTensor& tensor : tensors) out.push_back(tensor.view());
    return out;
  }
  std::vector<HostTensor> tensors;
};

template <class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(Permutation, IsABijectionForEverySizeUpToAThousand) {
  for (int64_t size = 1; size <= 1000; ++size) {
    const Permutation order(size, 7, 3);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = order(i);
      ASSERT_TRUE(at >= 0 && at < size) << size;
      ASSERT_FALSE(seen[static_cast<size_t>(at)]) << size;
      seen[static_cast<size_t>(at)] = true;
    }
  }
}

TEST(Permutation, IsABijectionForALargeSizeThatIsNoPowerOfTwo) {
  const int64_t size = 1234577;
  const Permutation order(size, 1, 2);
  std::vector<bool> seen(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(order(i));
    ASSERT_FALSE(seen[at]);
    seen[at] = true;
  }
}

TEST(Permutation, StaysInRangeForSizesBeyondThirtyTwoBits) {
  const int64_t size = (int64_t{1} << 40) + 12345;
  const Permutation order(size, 1, 2);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 10000; ++i) {
    const int64_t at = order(i * 1000003);
    ASSERT_TRUE(at >= 0 && at < size);
    seen.insert(at);
  }
  EXPECT_EQ(seen.size(), 10000U);
}

TEST(Permutation, LooksShuffledAndDependsOnSeedAndEpoch) {
  const int64_t size = 1000;
  const Permutation a(size, 1, 0);
  const Permutation b(size, 1, 1);
  const Permutation c(size, 2, 0);
  double distance = 0;
  int same_b = 0;
  int same_c = 0;
  for (int64_t i = 0; i < size; ++i) {
    distance += static_cast<double>(std::abs(a(i) - i)) / static_cast<double>(size);
    same_b += a(i) == b(i) ? 1 : 0;
    same_c += a(i) == c(i) ? 1 : 0;
  }
  EXPECT_NEAR(distance / size, 1.0 / 3, 0.03);  // the mean distance of two random points
  EXPECT_LT(same_b, 10);                        // one is expected
  EXPECT_LT(same_c, 10);
}

TEST(Sampler, EachEpochHasEverySampleOnce) {
  const Sampler sampler(37, 5);
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 37; ++i) order.push_back(sampler.sample(epoch * 37 + i));
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < 37; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << epoch;
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Batches, RanksTogetherReadWhatOneRankReads) {
  const auto source = std::make_shared<Counting>(50);
  const Batches whole(source, {.global_batch = 12, .seed = 3});
  Buffers expected(whole);
  whole.read(7, expected.views());
  const auto all = expected.tensors[0].as<float>();

  std::vector<float> together;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const Batches part(source, {.global_batch = 12, .seed = 3, .slices = row_slices(*source, rank * 3, rank * 3 + 3)});
    Buffers mine(part);
    part.read(7, mine.views());
    const auto values = mine.tensors[0].as<float>();
    together.insert(together.end(), values.begin(), values.end());
  }

  EXPECT_EQ(together, std::vector<float>(all.begin(), all.end()));
}

TEST(Batches, ASliceOfEveryDimensionEqualsTheSliceOfTheWholeBatch) {
  const auto source = std::make_shared<Counting>(50);
  const Batches whole(source, {.global_batch = 6, .seed = 1});
  Buffers expected(whole);
  whole.read(2, expected.views());
  const auto all = expected.tensors[0].as<float>();
  const Batches part(source, {.global_batch = 6, .seed = 1, .slices = {{{2, 1, 1}, {3, 2, 2}}, {{0}, {0}}}});
  Buffers mine(part);

  part.read(2, mine.views());

  const auto values = mine.tensors[0].as<float>();
  for (size_t b = 0; b < 3; ++b) {
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        EXPECT_EQ(values[b * 4 + i * 2 + j], all[(b + 2) * 12 + (i + 1) * 4 + j + 1]);
      }
    }
  }
}

TEST(Batches, FieldsMayTakeDifferentRows) {
  const auto source = std::make_shared<Counting>(50);
  const Batches part(source, {.global_batch = 6, .shuffle = false, .slices = {{{0, 0, 0}, {2, 3, 4}}, {{3}, {3}}}});
  Buffers mine(part);

  part.read(1, mine.views());

  EXPECT_EQ(mine.tensors[0].as<float>()[12], 700.0F);
  EXPECT_THAT(mine.tensors[1].as<int32_t>(), testing::ElementsAre(9, 10, 11));
}

TEST(Batches, ResumingWithAnotherBatchSizeGoesOnWithTheSameSequence) {
  const auto source = std::make_shared<Counting>(10);
  const Batches before(source, {.global_batch = 4, .seed = 9});
  const Batches after(source, {.global_batch = 3, .seed = 9, .start_position = before.position(2)});
  const Sampler sampler(10, 9);

  std::vector<int64_t> seen;
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t row = 0; row < 4; ++row) seen.push_back(before.sample(step, row));
  }
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t row = 0; row < 3; ++row) seen.push_back(after.sample(step, row));
  }

  ASSERT_EQ(seen.size(), 20U);
  for (int64_t p = 0; p < 20; ++p) EXPECT_EQ(seen[static_cast<size_t>(p)], sampler.sample(p)) << p;
  std::sort(seen.begin(), seen.end());
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i / 2));
}

TEST(Batches, TheReadingThreadReturnsStepsInOrderWithTheSameData) {
  const auto source = std::make_shared<Counting>(64);
  Batches batches(source, {.global_batch = 8, .queue = 3});
  std::vector<Buffers> ahead;
  for (int i = 0; i < 3; ++i) ahead.emplace_back(batches);
  Buffers expected(batches);

  for (int64_t step = 0; step < 3; ++step) batches.request(step, ahead[static_cast<size_t>(step)].views());
  for (int64_t step = 0; step < 40; ++step) {
    ASSERT_EQ(batches.wait(), step);
    const Buffers& got = ahead[static_cast<size_t>(step % 3)];
    batches.read(step, expected.views());
    ASSERT_TRUE(std::ranges::equal(got.tensors[0].as<float>(), expected.tensors[0].as<float>())) << step;
    ASSERT_TRUE(std::ranges::equal(got.tensors[1].as<int32_t>(), expected.tensors[1].as<int32_t>()));
    batches.request(step + 3, got.views());
  }
  for (int64_t step = 40; step < 43; ++step) ASSERT_EQ(batches.wait(), step);
}

TEST(Batches, AnErrorOfTheReadingThreadReachesTheWaitAndLaterStepsStillCome) {
  const auto source = std::make_shared<Counting>(12, 5);
  Batches batches(source, {.global_batch = 4, .shuffle = false});
  Buffers buffers(batches);

  batches.request(0, buffers.views());
  EXPECT_EQ(batches.wait(), 0);
  batches.request(1, buffers.views());
  EXPECT_EQ(text_of([&] { batches.wait(); }), "sample 5 cannot be read");
  batches.request(2, buffers.views());
  EXPECT_EQ(batches.wait(), 2);
}

TEST(Batches, EndsCleanlyWithRequestsStillOpen) {
  const auto source = std::make_shared<Counting>(1000);
  const Buffers memory(Batches(source, {.global_batch = 100}));
  for (int i = 0; i < 50; ++i) {
    Batches batches(source, {.global_batch = 100, .queue = 4});
    for (int64_t step = 0; step < 4; ++step) batches.request(step, memory.views());
    if (i % 2 == 0) batches.wait();
  }
  EXPECT_LT(source->reads, 50 * 400 + 1);
}

TEST(Batches, RefusesWhatCannotBeReadAndSaysTheSizes) {
  const auto source = std::make_shared<Counting>(10);
  Batches good(source, {.global_batch = 4});
  Buffers buffers(good);
  auto wrong = buffers.views();
  wrong[0].type.shape = {4, 4, 3};

  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 16}); }),
            "global batch 16 is larger than the data set of 10 samples; use a batch of at most 10");
  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 0}); }), "global batch 0; it must be positive");
  EXPECT_EQ(text_of([&] { Batches(std::make_shared<Counting>(0), {.global_batch = 1}); }),
            "a sampler needs at least one sample, the source has 0");
  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 4, .start_position = -1}); }),
            "batches: the start position -1 is negative; it is the number of samples already taken");
  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 4, .queue = 0}); }),
            "a queue of 0 requests; it must be positive");
  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 4, .slices = row_slices(*source, 3, 5)}); }),
            "slice of 'matrix' takes [3, 5) of dim 0, which has size 4");
  EXPECT_EQ(text_of([&] {
              Batches(source, {.global_batch = 4, .slices = {{{0}, {4}}, {{0}, {4}}}});
            }),
            "slice of 'matrix' has 1 starts and 1 sizes; the batch [4,3,4] needs 3 of each");
  EXPECT_EQ(text_of([&] { Batches(source, {.global_batch = 4, .slices = {{{0}, {4}}}}); }), "1 slices for 2 fields");
  EXPECT_EQ(text_of([&] { good.read(0, wrong); }), "view of field 'matrix' is f32[4,4,3]; the batch is f32[4,3,4]");
  EXPECT_EQ(text_of([&] { good.read(0, std::span(wrong).first(1)); }), "1 views for 2 fields");
  EXPECT_EQ(text_of([&] { good.read(-1, buffers.views()); }), "step -1 is negative");
  EXPECT_EQ(text_of([&] { good.request(-1, buffers.views()); }), "step -1 is negative");
  EXPECT_EQ(text_of([&] { good.wait(); }), "waiting for a batch, but none was requested");
  EXPECT_EQ(good.steps_per_epoch(), 2);
}

// Contracts 4.2 and 4.3: a tile of two dimensions, of half the rows of the batch.
TEST(Batches, contracts_4_3_a_rank_reads_its_tile_of_its_samples_and_nothing_else) {
  const auto source = std::make_shared<Parts>();
  const Batches batches(source, {.global_batch = 4, .shuffle = false, .slices = {{{2, 1, 2}, {2, 2, 2}}}});
  const Buffers buffers(batches);
  batches.read(1, buffers.views());
  EXPECT_THAT(buffers.tensors[0].as<float>(), testing::ElementsAre(606, 607, 610, 611, 706, 707, 710, 711));
  EXPECT_EQ(source->read_elements, 8);
}

TEST(OnePass, TakesEverySampleOnceInPartsThatFillTheBatchEvenly) {
  for (int64_t size = 1; size <= 60; ++size) {
    for (int64_t batch = 1; batch <= 40; ++batch) {
      int64_t next = 0;
      for (const SampleRange& part : one_pass(size, batch)) {
        ASSERT_EQ(part.first, next);
        ASSERT_EQ(batch % part.count, 0);
        next += part.count;
      }
      ASSERT_EQ(next, size);
    }
  }
  EXPECT_EQ(one_pass(1000, 32).back(), (SampleRange{992, 8}));
  EXPECT_THAT(text_of([] { one_pass(0, 4); }), HasSubstr("one pass over 0 samples in batches of 4"));
}

}  // namespace
}  // namespace trireme::data::batches_test
