#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ops/run_op_for_tests.h"

namespace trireme::cached_attention_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

MATCHER(Near, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-6;
}

HostTensor heads(Shape shape, const std::vector<float>& values) {
  return HostTensor::of<float>(shape, values);
}

HostTensor number(int64_t at) {
  return HostTensor::of<int64_t>({}, std::vector<int64_t>{at});
}

TEST(CachedAttention, keeps_the_tokens_rows_and_leaves_the_others) {
  const auto out =
      run_op("cached_attention", {heads({1, 2, 1, 1}, {0, 0}), heads({1, 2, 1, 1}, {5, 6}), heads({1, 2, 1, 1}, {7, 8}),
                                  heads({1, 4, 1, 1}, {1, 2, 3, 4}), heads({1, 4, 1, 1}, {10, 20, 30, 40}), number(1)});
  EXPECT_THAT(values(out[1]), ElementsAre(1, 5, 6, 4));
  EXPECT_THAT(values(out[2]), ElementsAre(10, 7, 8, 40));
  // Scores are all zero: means of the values that each token sees.
  EXPECT_THAT(values(out[0]), Pointwise(Near(), {17.0 / 2, 25.0 / 3}));
}

// What it is for: token by token it gives what causal attention of the whole sequence gives.
TEST(CachedAttention, of_each_token_is_causal_attention_of_all) {
  constexpr int64_t kTokens = 5, kHeads = 4, kKeyHeads = 2, kSize = 3;
  const auto made = [](int64_t width, float from) {
    std::vector<float> out(static_cast<size_t>(kTokens * width));
    for (size_t i = 0; i < out.size(); ++i) out[i] = from + static_cast<float>(i * 7 % 11) / 5;
    return out;
  };
  const std::vector<float> q = made(kHeads * kSize, -1), k = made(kKeyHeads * kSize, -0.7F),
                           v = made(kKeyHeads * kSize, -2);
  const Shape of_q{1, kTokens, kHeads, kSize}, of_k{1, kTokens, kKeyHeads, kSize};
  const std::vector<double> whole =
      values(run_op("attention", {heads(of_q, q), heads(of_k, k), heads(of_k, v)}, "{causal=true}")[0]);

  HostTensor keys = heads(of_k, std::vector<float>(k.size(), 99)), kept = heads(of_k, std::vector<float>(k.size(), 99));
  for (int64_t at = 0; at < kTokens; ++at) {
    const auto row = [&](const std::vector<float>& from, int64_t count) {
      const auto first = from.begin() + at * count * kSize;
      return heads({1, 1, count, kSize}, {first, first + count * kSize});
    };
    auto out = run_op("cached_attention", {row(q, kHeads), row(k, kKeyHeads), row(v, kKeyHeads), std::move(keys),
                                           std::move(kept), number(at)});
    const auto first = whole.begin() + at * kHeads * kSize;
    EXPECT_THAT(values(out[0]), Pointwise(Near(), std::vector<double>(first, first + kHeads * kSize)))
        << "token " << at;
    keys = std::move(out[1]);
    kept = std::move(out[2]);
  }
}

TEST(CachedAttention, says_what_does_not_fit) {
  const auto call = [](Shape q, Shape k, Shape keys, int64_t at) {
    return error_text([&] {
      const auto zeros = [](Shape shape) {
        return heads(shape, std::vector<float>(static_cast<size_t>(shape.elements())));
      };
      run_op("cached_attention", {zeros(q), zeros(k), zeros(k), zeros(keys), zeros(keys), number(at)});
    });
  };
  EXPECT_THAT(call({1, 1, 1, 2}, {1, 1, 1, 2}, {1, 4, 1, 2}, 4),
              HasSubstr("cached_attention: 1 tokens at 4 of 4; use 0 to 3"));
  EXPECT_THAT(call({1, 2, 1, 2}, {1, 2, 1, 2}, {1, 4, 1, 2}, -1),
              HasSubstr("cached_attention: 2 tokens at -1 of 4; use 0 to 2"));
  EXPECT_THAT(call({1, 1, 3, 2}, {1, 1, 2, 2}, {1, 4, 2, 2}, 0),
              HasSubstr("cached_attention: 3 query heads are not a multiple of 2 key heads"));
  EXPECT_THAT(call({1, 5, 1, 2}, {1, 5, 1, 2}, {1, 4, 1, 2}, 0),
              HasSubstr("cached_attention: 5 tokens where there is room for 4"));
  EXPECT_THAT(call({1, 1, 1, 2}, {1, 2, 1, 2}, {1, 4, 1, 2}, 0), HasSubstr("tokens, key heads or head sizes differ"));
}

TEST(RotaryAt, turns_by_positions_that_count_from_its_number_on) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<double> whole = values(run_op("rotary", {heads({1, 3, 1, 4}, x)})[0]);
  const std::vector<double> last =
      values(run_op("rotary_at", {heads({1, 2, 1, 4}, {x.begin() + 4, x.end()}), number(1)})[0]);
  EXPECT_THAT(last, Pointwise(Near(), std::vector<double>(whole.begin() + 4, whole.end())));
}

TEST(RotaryAt, takes_one_number) {
  EXPECT_THAT(
      error_text([] {
        run_op("rotary_at", {heads({1, 1, 1, 2}, {1, 2}), HostTensor::of<int64_t>({1}, std::vector<int64_t>{1})});
      }),
      HasSubstr("rotary_at: at must be one number, i32 or i64 (at i64[1])"));
}

}  // namespace
}  // namespace trireme::cached_attention_test
