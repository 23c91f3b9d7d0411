// A mixture of experts over ranks (contracts 10): tokens go to the ranks of their experts and back by all-to-all, in
// the bytes of its formula; which tokens find a place does not depend on the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/contract_support.h"
#include "tests/worst.h"
#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/nn/moe.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::expert_parallel_test {
namespace {

using namespace testing_support;

constexpr int64_t kTokens = 48, kWidth = 6, kHidden = 10;

struct Case {
  std::string name;
  int ranks;
  std::string mesh;
  nn::MoeOptions options;
};

// A mixture of tokens that come cut over dp and ep, its result and the gradients of all that it reads.
Graph graph_of(const Case& c) {
  Graph graph("moe");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {kTokens, kWidth}}, Role::kParameter));
  nn::Trace trace(graph);
  nn::Moe moe(kWidth, kHidden, c.options);
  const Tensor y = moe(x);
  graph.add_output("y", y.id());
  std::vector<Tensor> wanted = trace.parameters();
  wanted.push_back(x);
  const Tensor loss = add(reduce_sum(square(y)), trace.losses()[0]);
  const std::vector<Tensor> d = gradients(loss, wanted);
  for (size_t i = 0; i < d.size(); ++i) graph.add_output(fmt::format("d{}", i), d[i].id());
  return graph;
}

Parallel cuts_of(const Case& c) {
  Parallel out;
  out.mesh = c.mesh;
  out.dataset = "full_batch";
  out.parameters = {{"x", "[dp*ep, -]"}};
  out.ops = {{"moe.up/matmul", "[ep, dp, -], [ep, -, -]"},
             {"moe.down/matmul", "[ep, dp, -], [ep, -, -]"},
             {"moe/gather_rows", "[dp*ep, -, -], [dp*ep, -]"}};
  return out;
}

class ExpertParallel : public testing::TestWithParam<Case> {};

// Results, dropped tokens included, and gradients: sums over the batch in another order.
TEST_P(ExpertParallel, results_order_of_tokens_and_gradients_are_one_ranks_contracts_10) {
  const Graph graph = graph_of(GetParam());
  const OnRanks one = run_on_ranks(graph, 1, {});
  const OnRanks ranks = run_on_ranks(graph, GetParam().ranks, cuts_of(GetParam()));
  for (const auto& [name, expected] : one.outputs) {
    const double largest = largest_of(expected);
    const std::vector<float>& found = ranks.outputs.at(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 4 * kTokens * 0x1p-24 * largest) << name << " " << i;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const auto& [name, ranks, mesh] :
       {std::tuple{"ep2", 2, "dp=1,ep=2"}, {"ep4", 4, "dp=1,ep=4"}, {"dp2_ep2", 4, "dp=2,ep=2"}}) {
    for (const double factor : {0.5, 1.25, 4.0}) {  // most are dropped, some, none
      for (const int64_t k : {1, 2}) {
        out.push_back({fmt::format("{}_top{}_factor{}", name, k, static_cast<int>(100 * factor)),
                       ranks,
                       mesh,
                       {.name = "moe",
                        .experts = 4,
                        .top_k = k,
                        .capacity_factor = factor,
                        .groups = 4,
                        .gated = k == 1,
                        .init_std = 0.5}});
      }
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cuts, ExpertParallel, testing::ValuesIn(cases()),
                         [](const auto& about) { return about.param.name; });

// There and back, forward and backward: of its piece of the places a rank keeps what is for its own experts. Nothing
// else of the size of tokens is sent.
TEST(ExpertParallelBytes, are_two_exchanges_of_the_places_in_each_direction_contracts_10) {
  for (const int n : {2, 4}) {
    const Case c{
        "", n, fmt::format("dp=1,ep={}", n), {.name = "moe", .experts = 4, .groups = 4, .aux_loss_factor = 0.01}};
    const nn::Moe moe(kWidth, kHidden, c.options);
    const int64_t places = c.options.groups * c.options.experts * moe.capacity(kTokens / c.options.groups);
    const int64_t piece = places / n * kWidth * 4;
    const OnRanks ranks = run_on_ranks(graph_of(c), n, cuts_of(c));
    EXPECT_EQ(ranks.bytes.at("all_to_all"), 4 * piece * (n - 1) / n);
    EXPECT_EQ(ranks.calls.at("all_to_all"), 4);
    EXPECT_EQ(ranks.calls.count("reduce_scatter"), 0U);
  }
}

TEST(ExpertParallel, groups_that_ranks_cannot_share_are_refused) {
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.ep = 2;
  set_keys(config, {"model.experts=4", "model.expert_groups=3"});
  try {
    parallel_of(config, 4);
    FAIL() << "4 ranks share 3 groups";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("model.expert_groups = 3 does not divide over 4 ranks that have parts of the "
                                   "batch; use a multiple of 4, or 1"));
  }
}

}  // namespace
}  // namespace trireme::expert_parallel_test
