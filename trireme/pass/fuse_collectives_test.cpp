#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"

namespace trireme::fuse_collectives_test {
namespace {

Program fuse(const Program& program, const PassOptions& options = {}) {
  return find_pass("fuse_collectives").run(program, options);
}
Program fuse(const Program& program, const FusionOfKind& all_reduce) {
  return fuse(program, PassOptions{.fusion = {.all_reduce = all_reduce}});
}

using testing::ElementsAre;
using testing::IsEmpty;

// A program written by hand: every value whole, sums over the axis "dp" (0) or "tp" (1).
struct Hand {
  Program program{Graph("hand"), Mesh({{"dp", 2}, {"tp", 2}}), {}, {}};

  Tensor input(const std::string& name, int64_t elements, DType dtype = DType::kF32) {
    return note({program.graph, program.graph.add_input(name, {dtype, {elements}}, Role::kData)});
  }
  Tensor note(const Tensor& value) {
    program.layouts.push_back(Layout::replicated(1));
    program.whole.push_back(value.shape());
    return value;
  }
  Tensor reduce(const Tensor& x, int axis = 0) {
    return note(all_reduce(std::vector<Tensor>{x}, {.axes = {axis}, .size = 2})[0]);
  }
  void output(const std::string& name, const Tensor& value) { program.graph.add_output(name, value.id()); }
};

// How many operands each all-reduce has, in order.
std::vector<size_t> buckets(const Program& program) {
  EXPECT_THAT(verify(program), IsEmpty());
  std::vector<size_t> out;
  for (const Node& node : program.graph.nodes()) {
    if (node.op->name == "all_reduce") out.push_back(node.inputs.size());
  }
  return out;
}

std::vector<std::string> ops(const Program& program) {
  std::vector<std::string> out;
  for (const Node& node : program.graph.nodes()) out.emplace_back(node.op->name);
  return out;
}

TEST(FuseCollectives, neighbours_become_one) {
  Hand hand;
  std::vector<Tensor> sums;
  for (const char* name : {"a", "b", "c"}) sums.push_back(hand.reduce(hand.input(name, 4)));
  for (size_t i = 0; i < sums.size(); ++i) hand.output(fmt::format("y{}", i), sums[i]);
  const Program fused = fuse(hand.program);
  EXPECT_THAT(buckets(fused), ElementsAre(3));
  const Node& node = fused.graph.nodes()[0];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(node.inputs[static_cast<size_t>(i)], fused.graph.inputs()[static_cast<size_t>(i)].value);
    EXPECT_EQ(fused.graph.outputs()[static_cast<size_t>(i)].value, node.outputs[static_cast<size_t>(i)]);
  }
}

TEST(FuseCollectives, a_bucket_closes_before_it_grows_past_its_size) {
  Hand hand;
  for (const char* name : {"a", "b", "c", "d", "e"}) hand.output(name, hand.reduce(hand.input(name, 4)));  // 16 bytes
  EXPECT_THAT(buckets(fuse(hand.program, FusionOfKind{.bytes = 32})), ElementsAre(2, 2, 1));
  EXPECT_THAT(buckets(fuse(hand.program, FusionOfKind{.bytes = 31})), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(buckets(fuse(hand.program, FusionOfKind{.bytes = 80})), ElementsAre(5));
}

TEST(FuseCollectives, contracts_15_4_2_and_3_sizes_and_numbers_end_buckets) {
  Hand ten, eight;
  for (int i = 0; i < 10; ++i) {
    const std::string name = fmt::format("g{}", i);
    ten.output(name, ten.reduce(ten.input(name, 10 << 18)));  // 10 MiB
  }
  for (int i = 0; i < 8; ++i) {
    const std::string name = fmt::format("g{}", i);
    eight.output(name, eight.reduce(eight.input(name, 4)));
  }
  EXPECT_THAT(buckets(fuse(ten.program, FusionOfKind{.bytes = 32 << 20})), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(buckets(fuse(ten.program, FusionOfKind{.bytes = 64 << 20})), ElementsAre(6, 4));
  EXPECT_THAT(buckets(fuse(eight.program, FusionOfKind{.ends = {2, 5}})), ElementsAre(2, 3, 3));
}

// Ten gradients of 4 MiB, each made by an op that moves 8 MiB.
Hand backward() {
  Hand hand;
  for (int i = 0; i < 10; ++i) {
    const std::string name = fmt::format("g{}", i);
    hand.output(name, hand.reduce(hand.note(exp(hand.input(name, 1 << 20)))));
  }
  return hand;
}

PassOptions over(LinkCost link) {
  return {.rates = {.links = {.link = link, .step_s = 0}}};
}

TEST(FuseCollectives, the_model_cuts_by_the_links) {
  const Program program = backward().program;
  EXPECT_THAT(buckets(fuse(program, over({.latency_s = 0, .bytes_per_s = 1e9}))), testing::SizeIs(10));
  EXPECT_THAT(buckets(fuse(program, over({.latency_s = 1, .bytes_per_s = 1e9}))), ElementsAre(10));
}

TEST(FuseCollectives, what_the_model_chooses_ends_no_later_than_one_or_all) {
  const Program program = backward().program;
  for (const double latency_s : {0.0, 1e-5, 1e-4, 1e-3, 1e-2}) {
    for (const double bytes_per_s : {1e8, 1e9, 1e10}) {
      const PassOptions options = over({latency_s, bytes_per_s});
      const auto end = [&](const Program& fused) { return step_times(fused, options.rates).beside.back().end_s; };
      const double chosen = end(fuse(program, options));
      EXPECT_LE(chosen, end(program) * (1 + 1e-9));
      // No more than a 64th is given away by cutting buckets that gain next to nothing.
      EXPECT_LE(chosen, end(fuse(program, FusionOfKind{.bytes = 1 << 30})) * (1 + 1.0 / 64));
    }
  }
}

TEST(FuseCollectives, one_larger_than_the_bucket_stays_alone) {
  Hand hand;
  hand.output("a", hand.reduce(hand.input("a", 4)));
  hand.output("b", hand.reduce(hand.input("b", 400)));
  hand.output("c", hand.reduce(hand.input("c", 4)));
  EXPECT_THAT(buckets(fuse(hand.program, FusionOfKind{.bytes = 64})), ElementsAre(1, 1, 1));
}

TEST(FuseCollectives, other_types_and_other_ranks_stay_apart) {
  Hand hand;
  hand.output("a", hand.reduce(hand.input("a", 4), 0));
  hand.output("b", hand.reduce(hand.input("b", 4), 1));
  hand.output("c", hand.reduce(hand.input("c", 4, DType::kBF16), 0));
  hand.output("d", hand.reduce(hand.input("d", 4), 0));
  hand.output("e", hand.reduce(hand.input("e", 4), 1));
  const Program fused = fuse(hand.program);
  EXPECT_THAT(buckets(fused), ElementsAre(1, 2, 2));
}

TEST(FuseCollectives, no_member_moves_past_its_first_reader) {
  Hand hand;
  const Tensor first = hand.reduce(hand.input("a", 4));
  const Tensor reader = hand.note(exp(first));
  const Tensor second = hand.reduce(hand.input("b", 4));
  const Tensor third = hand.reduce(reader);
  hand.output("second", second);
  hand.output("third", third);
  const Program fused = fuse(hand.program);
  EXPECT_THAT(ops(fused), ElementsAre("all_reduce", "exp", "all_reduce"));
  EXPECT_THAT(buckets(fused), ElementsAre(1, 2));
}

TEST(FuseCollectives, a_sum_of_a_sum_is_not_fused_with_it) {
  Hand hand;
  hand.output("y", hand.reduce(hand.reduce(hand.input("a", 4))));
  EXPECT_THAT(buckets(fuse(hand.program)), ElementsAre(1, 1));
}

TEST(FuseCollectives, without_neighbours_nothing_changes) {
  Hand hand;
  hand.output("y", hand.reduce(hand.input("a", 4)));
  EXPECT_EQ(to_string(fuse(hand.program)), to_string(hand.program));
}

}  // namespace
}  // namespace trireme::fuse_collectives_test
