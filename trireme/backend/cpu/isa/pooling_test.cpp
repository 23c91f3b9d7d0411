// What max pooling makes of what is not a number, and of windows of nothing but -infinity.
#include "trireme/backend/cpu/isa/pooling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trireme/backend/cpu/cases/isas_for_tests.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/base/rng.h"

namespace trireme::cpu::pooling_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class PoolingOfIsa : public testing::TestWithParam<TestIsa> {
 protected:
  void SetUp() override {
    if (!GetParam().is_there()) GTEST_SKIP() << "this machine has no " << GetParam().name();
    GetParam().use();
  }
  void TearDown() override { use_machine_isa(); }
};

INSTANTIATE_TEST_SUITE_P(Isa, PoolingOfIsa, testing::ValuesIn(all_test_isas()),
                         [](const auto& each) { return each.param.name(); });

// Side by side, of few channels and of many; and overlapping, over the edges.
const std::vector<Pool> kPools{
    {.rows = {8, 4, 2, 2, 0}, .columns = {10, 5, 2, 2, 0}, .channels = 3},
    {.rows = {8, 4, 2, 2, 0}, .columns = {10, 5, 2, 2, 0}, .channels = 20},
    {.rows = {7, 4, 3, 2, 1}, .columns = {9, 5, 3, 2, 1}, .channels = 19},
};

// Calls fn(place in x, place in y) for each tap inside the image, in their order.
template <class Fn>
void each_tap(const Pool& k, Fn&& fn) {
  for (int64_t y = 0; y < k.rows.windows * k.columns.windows * k.channels; ++y) {
    const int64_t c = y % k.channels, wx = y / k.channels % k.columns.windows, wy = y / k.channels / k.columns.windows;
    for (int64_t tap = 0; tap < k.rows.kernel * k.columns.kernel; ++tap) {
      const int64_t row = wy * k.rows.stride - k.rows.before + tap / k.columns.kernel;
      const int64_t column = wx * k.columns.stride - k.columns.before + tap % k.columns.kernel;
      if (row < 0 || row >= k.rows.size || column < 0 || column >= k.columns.size) continue;
      fn(static_cast<size_t>((row * k.columns.size + column) * k.channels + c), static_cast<size_t>(y));
    }
  }
}

TEST_P(PoolingOfIsa, the_first_that_is_no_number_is_the_largest_of_a_window_and_takes_the_gradient) {
  for (const Pool& k : kPools) {
    std::vector<float> x(static_cast<size_t>(k.rows.size * k.columns.size * k.channels));
    for (size_t i = 0; i < x.size(); ++i) {
      const float u = uniform01({11, 0}, i, 0);
      x[i] = u < 0.1F ? std::nanf("") : u < 0.7F ? -kInf : u;
    }
    const auto size = static_cast<size_t>(k.rows.windows * k.columns.windows * k.channels);
    std::vector<float> y(size), dy(size), dx(x.size()), want_dx(x.size());
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    std::vector<size_t> where(size, kNone);
    each_tap(k, [&](size_t from, size_t to) {
      size_t& best = where[to];
      if (best == kNone || (!std::isnan(x[best]) && !(x[from] <= x[best]))) best = from;
    });
    for (size_t i = 0; i < size; ++i) {
      dy[i] = static_cast<float>(i % 7 + 1);
      want_dx[where[i]] += dy[i];
    }
    loops().f32.max_pool(k, x.data(), y.data());
    std::vector<int32_t> taps(size);
    const bool overlap = k.rows.stride < k.rows.kernel;
    loops().f32.max_pool_grad(k, x.data(), dy.data(), overlap ? taps.data() : nullptr, dx.data());
    int nans = 0;
    for (size_t i = 0; i < size; ++i) {
      const float want = x[where[i]];
      nans += std::isnan(want) ? 1 : 0;
      EXPECT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want))) << i << ": " << y[i] << " and not " << want;
    }
    EXPECT_GT(nans, 0);
    EXPECT_EQ(dx, want_dx) << k.channels << " channels";
  }
}

}  // namespace
}  // namespace trireme::cpu::pooling_test
