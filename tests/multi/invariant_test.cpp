// numerics = "invariant": the same bits of losses, parameters and optimizer state however a job is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "tests/multi/invariant_runs.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/partition/partition.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme::invariant_test {
namespace {

using namespace invariant_runs;

std::vector<Case> cases() {
  return {{"one_rank_three_threads", 1, 1, 0, 3},
          {"dp2", 2},
          {"dp4_two_threads", 4, 1, 0, 2},
          {"dp8", 8},
          {"tp2", 2, 2},
          {"dp2_tp2", 4, 2},
          {"dp4_tp2_two_threads", 8, 2, 0, 2},
          {"zero1_dp2", 2, 1, 1},
          {"zero2_dp4", 4, 1, 2},
          {"zero3_dp4", 4, 1, 3},
          {"dp2_tp2_zero1", 4, 2, 1},
          {"dp2_tp2_zero2", 4, 2, 2},
          {"dp2_tp2_zero3_two_threads", 4, 2, 3, 2},
          {"accumulation8", 1, 1, 0, 1, 8},
          {"dp2_accumulation4", 2, 1, 0, 1, 4},
          {"dp4_accumulation2_two_threads", 4, 1, 0, 2, 2},
          {"dp2_tp2_accumulation4", 4, 2, 0, 1, 4},
          {"zero2_dp4_accumulation4", 4, 1, 2, 1, 4},
          {"dp2_tp2_zero3_accumulation8", 4, 2, 3, 1, 8},
          {"pp2", 2, 1, 0, 1, 4, 2},
          {"pp2_gpipe_dp2", 4, 1, 0, 1, 4, 2, "gpipe"},
          {"pp2_zb_h1_tp2", 4, 2, 0, 1, 2, 2, "zb-h1"},
          {"pp2_dp2_tp2_zero1_two_threads", 8, 2, 1, 2, 2, 2},
          {"tp2_interleave2", 2, 2, 0, 1, 1, 1, "1f1b", 2},
          {"dp2_tp2_zero3_interleave4", 4, 2, 3, 1, 1, 1, "1f1b", 4},
          {"pp2_zb_h1_dp2_zero2_interleave2", 4, 1, 2, 1, 2, 2, "zb-h1", 2}};
}

// Ranks that share the experts exchange samples of one micro-batch, which they cut once more.
std::vector<Case> cases_of_shared_experts() {
  return {{"ep2", 2, 1, 0, 1, 1, 1, "1f1b", 1, 2},
          {"ep2_accumulation4", 2, 1, 0, 1, 4, 1, "1f1b", 1, 2},
          {"dp2_ep2_zero3_accumulation4", 4, 1, 3, 1, 4, 1, "1f1b", 1, 2},
          {"pp2_ep2", 4, 1, 0, 1, 8, 2, "1f1b", 1, 2},
          {"pp2_zb_h1_dp2_ep2_zero2_two_threads", 8, 1, 2, 2, 4, 2, "zb-h1", 1, 2},
          {"pp2_zb_v_ep2_tp2_zero1", 8, 2, 1, 1, 4, 2, "zb-v", 1, 2},
          {"pp2_ep4_interleave2", 8, 1, 0, 1, 2, 2, "1f1b", 2, 4}};
}

std::vector<Case> deep_cases() {  // of more stages than an MLP has modules
  return {{"pp4_zb_h2", 4, 1, 0, 1, 4, 4, "zb-h2"},
          {"pp2_interleaved", 2, 1, 0, 1, 4, 2, "interleaved"},
          {"pp2_interleaved_delayed_zero2_dp2", 4, 1, 2, 1, 4, 2, "interleaved-delayed"},
          {"pp2_zb_v_tp2", 4, 2, 0, 1, 4, 2, "zb-v"},
          {"pp2_v_half_zero3_dp2", 4, 1, 3, 1, 4, 2, "v-half"},
          {"pp2_v_min", 2, 1, 0, 1, 8, 2, "v-min"},
          {"pp2_dualpipe_v_dp2_zero3_tp2", 8, 2, 3, 1, 4, 2, "dualpipe-v"}};
}

class Invariant : public testing::TestWithParam<std::tuple<std::string, Case>> {};

TEST_P(Invariant, HasTheBitsOfOneRank) {
  const auto& [model, c] = GetParam();
  const Trained whole = train(model, {}, nullptr, 1);
  ASSERT_NE(whole.losses.front(), whole.losses.back());
  const Parallel parallel = parallel_for(c, model);
  std::mutex mutex;
  comm::spawn_ranks(static_cast<int>(c.ranks), "threads", [&](comm::World& world) {
    const Trained mine = train(model, parallel, &world, c.threads);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(difference_of(mine, whole), "") << "rank " << world.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuts, Invariant,
                         testing::Combine(testing::Values("mlp", "gpt", "llama", "deepseek", "t5", "lamb"),
                                          testing::ValuesIn(cases())),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

INSTANTIATE_TEST_SUITE_P(UnevenSlices, Invariant,
                         testing::Combine(testing::Values("odd"),
                                          testing::Values(Case{"zero1_dp2", 2, 1, 1}, Case{"zero3_dp8", 8, 1, 3},
                                                          Case{"zero2_dp4_accumulation4", 4, 1, 2, 1, 4},
                                                          Case{"pp2_dp2_zero3", 4, 1, 3, 1, 2, 2})),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

INSTANTIATE_TEST_SUITE_P(SharedExperts, Invariant,
                         testing::Combine(testing::Values("experts"), testing::ValuesIn(cases_of_shared_experts())),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });

INSTANTIATE_TEST_SUITE_P(Pipelines, Invariant,
                         testing::Combine(testing::Values("gpt", "llama"), testing::ValuesIn(deep_cases())),
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param).name; });
// So that the tests above can fail: it is the mode that keeps the bits, not chance.
TEST(InvariantMode, FastHasOtherBitsSomewhere) {
  std::mutex mutex;
  std::string found;
  const Trained whole = train("gpt", {}, nullptr, 1, {.numerics = Numerics::kFast});
  for (const Case& c : {Case{"dp4", 4}, Case{"tp2", 2, 2}}) {
    comm::spawn_ranks(static_cast<int>(c.ranks), "threads", [&](comm::World& world) {
      const Trained mine = train("gpt", parallel_for(c, "gpt"), &world, 1, {.numerics = Numerics::kFast});
      const std::lock_guard lock(mutex);
      found += difference_of(mine, whole);
    });
  }
  EXPECT_NE(found, "");
}

std::string refusal(const Case& c, const std::string& model, const std::function<void(Parallel&)>& change = {}) {
  Parallel parallel = parallel_for(c, model);
  if (change) change(parallel);
  try {
    compile(step_of(model, Numerics::kInvariant),
            {.ranks = c.ranks, .parallel = parallel, .numerics = Numerics::kInvariant});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    return e.text();
  }
  return "";
}

TEST(InvariantErrors, SumsInPartsThatAreNoPowerOfTwoAreRefused) {
  EXPECT_THAT(refusal({"", 32}, "mlp"), testing::HasSubstr("the parts must be 2, 4, 8 or 16"));
}

TEST(InvariantErrors, SumsOverPositionsAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt", [](Parallel& parallel) { parallel.dataset = "[-, dp]"; }),
              testing::AllOf(testing::HasSubstr("numerics = 'invariant': "),
                             testing::HasSubstr("which it sums over in one piece"),
                             testing::HasSubstr("or use numerics = 'fast'")));
}

TEST(InvariantErrors, CutsThatSomeoneVouchesForAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt",
                      [](Parallel& parallel) {
                        parallel.ops = {{"h.0.mlp/gelu", "self_define_shard [dp,-,-] -> [dp,-,-]"}};
                      }),
              testing::HasSubstr("gelu of 'h.0.mlp' is cut as someone vouches for"));
}

TEST(InvariantErrors, CopiesOnARankAreRefused) {
  EXPECT_THAT(refusal({"", 2}, "gpt",
                      [](Parallel& parallel) {
                        parallel.mesh = "dp=2,interleaved_parallel=2";
                        parallel.ops = {{"h.0.mlp.c_fc", "[dp*interleaved_parallel, -, -], [-, -]"}};
                      }),
              testing::HasSubstr("is computed in copies on each rank"));
}

TEST(InvariantErrors, ModelsThatAreCutByHandAreRefused) {
  Parallel parallel{.mesh = "dp=1", .by_hand = true};
  EXPECT_THAT(
      [&] { compile(step_of("mlp", Numerics::kInvariant), {.parallel = parallel, .numerics = Numerics::kInvariant}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("is not for models cut by hand")));
}

// Ranks' sums of single micro-batches, added later, are another tree.
TEST(InvariantErrors, SlicesOfGradientsAddedUpAfterTheSumOverRanksAreRefused) {
  EXPECT_THAT(
      refusal({"", 4, 1, 2, 1, 4}, "mlp", [](Parallel& parallel) { parallel.communication.shard_accumulation = true; }),
      testing::HasSubstr("is made in more than one step"));
}

TEST(InvariantErrors, SumsOverRanksThatCountOtherwiseThanTheMeshAreRefused) {
  Graph graph("step");
  const Tensor x = {graph, graph.add_input("x", {DType::kF32, {4, 8}}, Role::kData)};
  const Tensor w = {graph, graph.add_input("w", {DType::kF32, {8, 4}}, Role::kParameter)};
  graph.add_output("y", matmul(x, w).id());
  const auto refusal_of = [&](const std::vector<int>& axes) {
    const Mesh mesh = parse_mesh("a=2,b=2");
    Strategy strategy = propagate(graph, mesh, std::vector<Layout>(2, Layout::replicated(2)));
    const ShardingRule rule = *rule_of(graph, graph.nodes()[0]);
    const auto k = std::ranges::find(rule.factors, "k", &Factor::name) - rule.factors.begin();
    strategy.nodes[0].axes[static_cast<size_t>(k)] = {0, 1};
    strategy.outputs[0].dims[1] = axes;
    try {
      require_invariant(graph, strategy, cpu_device());
      require_invariant(partition(graph, strategy), cpu_device());
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(refusal_of({0, 1}), "");
  EXPECT_THAT(refusal_of({1, 0}), testing::HasSubstr("is made by mesh axes in another order than the mesh has them"));
}

}  // namespace
}  // namespace trireme::invariant_test
