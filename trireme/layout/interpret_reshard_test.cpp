#include "trireme/layout/interpret_reshard.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::interpret_reshard_test {
namespace {

HostTensor counting(const TensorType& type) {
  HostTensor out(type);
  auto values = out.as<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return out;
}

std::vector<float> values(const HostTensor& tensor) {
  const auto all = tensor.as<float>();
  return {all.begin(), all.end()};
}

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(Cut, gives_each_rank_its_part) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const auto pieces = cut(counting({DType::kF32, {2, 2}}), parse_layout("[a, b]", mesh), mesh);

  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(values(pieces[0]), std::vector<float>{1});
  EXPECT_EQ(values(pieces[1]), std::vector<float>{2});
  EXPECT_EQ(values(pieces[2]), std::vector<float>{3});
  EXPECT_EQ(values(pieces[3]), std::vector<float>{4});
}

TEST(Cut, replicas_of_a_term_hold_the_same_bits) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const auto pieces = cut(counting({DType::kF32, {8}}), parse_layout("[-] partial(sum: b)", mesh), mesh);

  EXPECT_EQ(values(pieces[0]), values(pieces[2]));
  EXPECT_EQ(values(pieces[1]), values(pieces[3]));
  EXPECT_NE(values(pieces[0]), values(pieces[1]));
}

TEST(Cut, terms_of_a_sum_add_up_and_are_not_the_whole_and_zeros) {
  const Mesh mesh({{"a", 3}});
  const HostTensor whole = counting({DType::kF32, {64}});
  const auto pieces = cut(whole, parse_layout("[-] partial(sum: a)", mesh), mesh);

  int zeros = 0;
  for (size_t i = 0; i < 64; ++i) {
    float sum = 0;
    for (const HostTensor& piece : pieces) {
      sum += piece.as<float>()[i];
      zeros += piece.as<float>()[i] == 0 ? 1 : 0;
    }
    EXPECT_EQ(sum, whole.as<float>()[i]);
  }
  EXPECT_LT(zeros, 64);
}

template <class T>
void expect_round_trip(std::vector<T> numbers, const char* reduction) {
  const Mesh mesh({{"a", 3}, {"b", 2}});
  const HostTensor whole = HostTensor::of<T>({static_cast<int64_t>(numbers.size())}, numbers);
  const Layout layout = parse_layout(fmt::format("[b] partial({}: a)", reduction), mesh);

  const HostTensor back = gather(cut(whole, layout, mesh), layout, mesh, whole.type());
  const auto raw = whole.view().raw();
  const auto raw_back = back.view().raw();
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), raw_back.begin())) << reduction;
}

TEST(CutAndGather, are_inverses_for_every_type_and_reduction) {
  for (const char* reduction : {"sum", "max", "min"}) {
    expect_round_trip<float>({1, -7, 100000, 0}, reduction);
    expect_round_trip<double>({1, -7, 1e9, 0}, reduction);
    expect_round_trip<int8_t>({1, -128, 127, 0}, reduction);
    expect_round_trip<uint8_t>({1, 255, 127, 0}, reduction);
    expect_round_trip<int32_t>({1, INT32_MIN, INT32_MAX, 0}, reduction);
    expect_round_trip<int64_t>({1, INT64_MIN, INT64_MAX, 0}, reduction);
    expect_round_trip<BFloat16>({BFloat16(1), BFloat16(-7), BFloat16(100), BFloat16(3)}, reduction);
  }
  const Mesh mesh({{"a", 3}});
  HostTensor flags({DType::kBool, {2}});
  flags.as<bool>()[1] = true;
  for (const char* text : {"[-] partial(max: a)", "[-] partial(min: a)"}) {
    const Layout layout = parse_layout(text, mesh);
    const HostTensor back = gather(cut(flags, layout, mesh), layout, mesh, flags.type());
    EXPECT_FALSE(back.as<bool>()[0]);
    EXPECT_TRUE(back.as<bool>()[1]);
  }
}

TEST(Gather, names_the_replicas_that_differ) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const Layout layout = parse_layout("[-, b]", mesh);
  auto pieces = cut(counting({DType::kF32, {2, 4}}), layout, mesh);
  pieces[3].as<float>()[2] = 9;

  EXPECT_EQ(error_of([&] {
              gather(pieces, layout, mesh, {DType::kF32, {2, 4}});
            }),
            "ranks 1 and 3 hold replicas of [0:2,2:4] that differ first at element 2: 7 against 9");
}

TEST(Gather, refuses_missing_or_wrong_pieces) {
  const Mesh mesh({{"a", 2}});
  const Layout layout = parse_layout("[a]", mesh);
  auto pieces = cut(counting({DType::kF32, {4}}), layout, mesh);
  const TensorType other{DType::kF32, {8}};

  EXPECT_EQ(error_of([&] { gather(pieces, layout, mesh, other); }),
            "rank 0 holds f32[2], but its piece of f32[8] under layout [a] is f32[4]");
  pieces.pop_back();
  EXPECT_EQ(error_of([&] {
              gather(pieces, layout, mesh, {DType::kF32, {4}});
            }),
            "1 pieces for mesh 'a=2' of 2 devices; give one per rank");
}

TEST(Cut, says_which_types_have_no_partial_terms) {
  const Mesh mesh({{"a", 2}});
  const Layout sum = parse_layout("[-] partial(sum: a)", mesh);

  EXPECT_EQ(error_of([&] {
              cut(HostTensor({DType::kF16, {2}}), sum, mesh);
            }),
            "simulate: no arithmetic on f16; use f32 or bf16");
  EXPECT_EQ(error_of([&] {
              cut(HostTensor({DType::kBool, {2}}), sum, mesh);
            }),
            "simulate: no sum of bool; take the maximum, which is 'or'");
}

TEST(Apply, moves_the_elements_of_each_step_as_defined) {
  const Mesh mesh({{"a", 2}});
  const TensorType type{DType::kF32, {2, 2}};
  const HostTensor whole = counting(type);
  const auto run = [&](ReshardStep step, const char* from) {
    const Layout before = parse_layout(from, mesh);
    step.axes = {0};
    step.after = layout_after(step, before);
    std::vector<std::vector<float>> out;
    for (const auto& piece : apply(step, cut(whole, before, mesh), before, type, mesh)) {
      out.push_back(values(piece));
    }
    return out;
  };
  using Kind = ReshardStep::Kind;
  using Expected = std::vector<std::vector<float>>;

  EXPECT_EQ(run({.kind = Kind::kSlice, .dim = 1}, "[-, -]"), (Expected{{1, 3}, {2, 4}}));
  EXPECT_EQ(run({.kind = Kind::kAllGather, .dim = 1}, "[-, a]"), (Expected{{1, 2, 3, 4}, {1, 2, 3, 4}}));
  EXPECT_EQ(run({.kind = Kind::kAllToAll, .dim = 1, .from_dim = 0}, "[a, -]"), (Expected{{1, 3}, {2, 4}}));
  EXPECT_EQ(run({.kind = Kind::kAllReduce}, "[-, -] partial(sum: a)"), (Expected{{1, 2, 3, 4}, {1, 2, 3, 4}}));
  EXPECT_EQ(run({.kind = Kind::kReduceScatter, .dim = 0}, "[-, -] partial(sum: a)"), (Expected{{1, 2}, {3, 4}}));
}

}  // namespace
}  // namespace trireme::interpret_reshard_test
