#include "trireme/layout/deliveries.h"

#include <gtest/gtest.h>

namespace trireme::deliveries_test {
namespace {

const Mesh kMesh = parse_mesh("dp=2,tp=4");

std::string text(const std::vector<Delivery>& all) {
  std::string out;
  for (const Delivery& delivery : all) {
    out += delivery.kind == Delivery::Kind::kResize
               ? "resize " + to_string(delivery.old_size) + " to " + to_string(delivery.size)
               : to_string(delivery.step, kMesh);
    out += " of " + std::to_string(delivery.from) + "; ";
  }
  return out;
}

std::string text_of(const TensorType& type, const char* have, const std::vector<const char*>& wants) {
  ReshardPlanner planner(kMesh);
  std::vector<Layout> layouts;
  for (const char* want : wants) layouts.push_back(parse_layout(want, kMesh));
  return text(deliveries(parse_layout(have, kMesh), layouts, type, planner));
}

TEST(Deliveries, to_readers_that_ask_alike_are_one) {
  const TensorType type{DType::kF32, {64, 64}};

  EXPECT_EQ(text_of(type, "[dp, tp]", {"[dp, tp]"}), "");
  EXPECT_EQ(text_of(type, "[dp, tp]", {"[dp, -]", "[dp, -]", "[dp, tp]"}), "all_gather(dim 1 over tp) of 0; ");
}

TEST(Deliveries, go_on_from_what_an_earlier_one_made) {
  const TensorType type{DType::kF32, {64, 64}};

  EXPECT_EQ(text_of(type, "[dp, tp]", {"[-, -]", "[dp, -]"}),
            "all_gather(dim 1 over tp) of 0; all_gather(dim 0 over dp) of 1; ");
  EXPECT_EQ(text_of(type, "[-, -] partial(sum: tp)", {"[-, tp]", "[-, -]"}),
            "reduce_scatter(sum, dim 1 over tp) of 0; all_reduce(sum over tp) of 0; ");
}

TEST(Deliveries, cut_what_is_there_already_without_communication) {
  const TensorType type{DType::kF32, {64, 63}};

  EXPECT_EQ(text_of(type, "[dp, -]", {"[-, -]", "[tp, -]"}),
            "all_gather(dim 0 over dp) of 0; slice(dim 0 over tp) of 1; ");
  EXPECT_EQ(text_of(type, "[-, -] partial(sum: tp)", {"[-, -]", "[tp, -]"}),
            "all_reduce(sum over tp) of 0; slice(dim 0 over tp) of 1; ");
  EXPECT_EQ(text_of(type, "[-, -] partial(sum: tp)", {"[-, -]", "[-, tp]"}),
            "all_reduce(sum over tp) of 0; resize [64,63] to [64,64] of 1; slice(dim 1 over tp) of 2; ");
}

TEST(Deliveries, between_frames_go_by_way_of_the_whole_dimension) {
  const TensorType type{DType::kF32, {6, 8}};

  EXPECT_EQ(text_of(type, "[tp, -]", {"[dp, -]"}),
            "all_gather(dim 0 over tp) of 0; resize [8,8] to [6,8] of 1; slice(dim 0 over dp) of 2; ");
  EXPECT_EQ(text_of(type, "[dp, -]", {"[tp, -]", "[-, -]"}),
            "all_gather(dim 0 over dp) of 0; resize [6,8] to [8,8] of 1; slice(dim 0 over tp) of 2; ");
}

TEST(Deliveries, of_another_pass_are_made_again) {
  ReshardPlanner planner(kMesh);
  Deliveries all(parse_layout("[dp, -]", kMesh), {DType::kF32, {64, 64}}, planner);
  const Layout whole = parse_layout("[-, -]", kMesh);

  const int first = all.deliver(whole, 1, [](int reader) { return reader == 1; });
  const int again = all.deliver(whole, 1, [](int reader) { return reader == 1; });
  const int second = all.deliver(whole, 2, [](int reader) { return reader == 2; });

  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
  EXPECT_EQ(text(all.all()), "all_gather(dim 0 over dp) of 0; all_gather(dim 0 over dp) of 0; ");
}

}  // namespace
}  // namespace trireme::deliveries_test
