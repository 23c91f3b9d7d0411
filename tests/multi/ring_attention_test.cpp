// Attention over a cut sequence, in a ring (contracts 6.4, 6.5.5): the result of one device, in two pieces of keys and
// values, with the bytes of its formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/multi/contract_support.h"
#include "tests/worst.h"
#include "trireme/base/error.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/grad/gradients.h"

namespace trireme::ring_attention_test {
namespace {

using namespace testing_support;

struct Sizes {
  int64_t batch = 2, queries = 24, keys = 24, heads = 4, key_heads = 2, size = 8;
};
struct Case {
  std::string name;
  int ranks;
  std::string mesh;
  std::string q, k;  // layouts
  bool causal;
  bool gradient;
  Sizes n = {};
};

// Attention of inputs that come cut, its result, and if asked for the gradients of its weighted sum.
Graph graph_of(const Case& c) {
  Graph graph("attention");
  const auto input = [&](const char* name, int64_t length, int64_t heads) {
    return Tensor(graph, graph.add_input(name, {DType::kF32, {c.n.batch, length, heads, c.n.size}}, Role::kParameter));
  };
  const Tensor q = input("q", c.n.queries, c.n.heads);
  const Tensor k = input("k", c.n.keys, c.n.key_heads);
  const Tensor v = input("v", c.n.keys, c.n.key_heads);
  const Attention a = attention_with_lse(q, k, v, {.causal = c.causal});
  graph.add_output("out", a.out.id());
  graph.add_output("lse", a.lse.id());
  if (!c.gradient) return graph;
  const Tensor weights = input("weights", c.n.queries, c.n.heads);
  const Tensor sum = add(reduce_sum(mul(a.out, weights)), reduce_sum(square(a.lse)));
  const std::vector<Tensor> wanted{q, k, v};
  const std::vector<Tensor> d = gradients(sum, wanted);
  for (size_t i = 0; i < d.size(); ++i) graph.add_output(fmt::format("d{}", i), d[i].id());
  return graph;
}

Parallel cuts_of(const Case& c) {
  Parallel out;
  out.mesh = c.mesh;
  out.dataset = "full_batch";
  out.parameters = {{"q", c.q}, {"k", c.k}, {"v", c.k}};
  return out;
}

class RingAttention : public testing::TestWithParam<Case> {};

// Sums over the keys in another order: for each key a unit of rounding of the largest result, and of exponentials.
TEST_P(RingAttention, gives_what_one_rank_gives_contracts_6_5_5) {
  const Case& c = GetParam();
  const Graph graph = graph_of(c);
  const OnRanks one = run_on_ranks(graph, 1, {});
  const OnRanks ranks = run_on_ranks(graph, c.ranks, cuts_of(c));
  EXPECT_GT(ranks.bytes.at("ring_shift"), 0);
  for (const auto& [name, expected] : one.outputs) {
    const double largest = largest_of(expected);
    const double bound = 4 * static_cast<double>(c.n.keys) * 0x1p-24 * largest;
    EXPECT_LT(bound, 1e-5 * std::max(1.0, largest)) << "the promise of 6.5.5 for " << name;
    const std::vector<float>& found = ranks.outputs.at(name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound) << name << " " << i;
  }
}

std::vector<Case> cases() {
  const std::string cp = "[-, cp, -, -]";
  std::vector<Case> out;
  for (const int n : {2, 3, 4}) {
    for (const bool causal : {false, true}) {
      for (const bool gradient : {false, true}) {
        out.push_back({fmt::format("{}_ranks_{}_{}", n, causal ? "causal" : "all", gradient ? "gradient" : "forward"),
                       n, fmt::format("cp={}", n), cp, cp, causal, gradient});
      }
    }
  }
  out.push_back({"with_dp_and_tp", 8, "dp=2,cp=2,tp=2", "[dp, cp, tp, -]", "[dp, cp, tp, -]", true, true});
  out.push_back({"over_two_axes", 4, "a=2,b=2", "[-, b*a, -, -]", "[-, b*a, -, -]", true, true});
  out.push_back({"more_keys_than_queries", 3, "cp=3", cp, cp, false, true, {.queries = 6, .keys = 12}});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cuts, RingAttention, testing::ValuesIn(cases()),
                         [](const auto& about) { return about.param.name; });

int64_t piece_bytes(const Case& c) {
  return c.n.batch * c.n.keys / c.ranks * c.n.key_heads * c.n.size * 4;
}

// A piece of K and of V goes N - 1 places forward; back they do so again, and what is due to them follows.
TEST(RingAttentionBytes, are_2_pieces_for_each_step_forward_and_4_back) {
  for (const int n : {2, 4}) {
    Case c{"", n, fmt::format("cp={}", n), "[-, cp, -, -]", "[-, cp, -, -]", true, false};
    EXPECT_EQ(run_on_ranks(graph_of(c), n, cuts_of(c)).bytes.at("ring_shift"), 2 * (n - 1) * piece_bytes(c));
    Graph graph("attention");
    const auto input = [&](const char* name, int64_t heads) {
      return Tensor(graph,
                    graph.add_input(name, {DType::kF32, {c.n.batch, c.n.keys, heads, c.n.size}}, Role::kParameter));
    };
    const std::vector<Tensor> in{input("q", c.n.heads), input("k", c.n.key_heads), input("v", c.n.key_heads)};
    const Tensor out = attention(in[0], in[1], in[2], {.causal = true});
    const std::vector<Tensor> d = gradients(reduce_sum(mul(out, input("weights", c.n.heads))), in);
    for (size_t i = 0; i < d.size(); ++i) graph.add_output(fmt::format("d{}", i), d[i].id());
    EXPECT_EQ(run_on_ranks(graph, n, cuts_of(c)).bytes.at("ring_shift"), 6 * (n - 1) * piece_bytes(c));
  }
}

// K and V are made in the step, so that their buffers are the step's; no more than two pieces of them, the one that is
// computed with and the one that arrives, are there at any action.
TEST(RingAttentionMemory, holds_two_pieces_of_keys_and_values_contracts_6_5_5) {
  const int n = 4;
  const Case c{"", n, "cp=4", "[-, cp, -, -]", "[-, cp, -, -]", true, false};
  Graph graph("attention");
  const auto input = [&](const char* name, int64_t heads) {
    return Tensor(graph,
                  graph.add_input(name, {DType::kF32, {c.n.batch, c.n.keys, heads, c.n.size}}, Role::kParameter));
  };
  const Tensor q = input("q", c.n.heads);
  const Tensor k = scale(input("k", c.n.key_heads), 2);
  const Tensor v = scale(input("v", c.n.key_heads), 3);
  graph.add_output("out", attention(q, k, v).id());
  const Program program = run_passes(partition(graph, semi_auto(graph, n, cuts_of(c))));
  const ExecutionPlan plan = plan_execution(program);
  std::set<int> holds_keys;  // buffers of K and V, own and passed on
  for (const Action& action : plan.actions) {
    if (action.op->name != "attention") continue;
    for (const size_t operand : {size_t{1}, size_t{2}}) {
      holds_keys.insert(plan.values[static_cast<size_t>(action.in[operand])].buffer);
    }
  }
  ASSERT_EQ(holds_keys.size(), 2U * n);
  int64_t most = 0;
  for (int at = 0; at < static_cast<int>(plan.actions.size()); ++at) {
    int64_t live = 0;
    for (const int id : holds_keys) {
      const Buffer& buffer = plan.buffers[static_cast<size_t>(id)];
      if (buffer.first <= at && at <= buffer.last) live += buffer.bytes;
    }
    most = std::max(most, live);
  }
  EXPECT_EQ(most, 2 * 2 * piece_bytes(c));
}

TEST(RingAttention, queries_and_keys_are_cut_alike_or_not_at_all) {
  const Case c{"", 2, "cp=2", "[-, cp, -, -]", "[-, -, -, -]", true, false};
  Parallel parallel = cuts_of(c);
  parallel.ops = {{"/attention", "[-, cp, -, -], [-, -, -, -], [-, -, -, -]"}};
  try {
    semi_auto(graph_of(c), 2, parallel);
    FAIL() << "only queries are cut";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("factors 's' and 't' are cut over the same axes, in a ring, or not at all"));
  }
}

// Under a causal mask with more keys than queries a piece of the keys may be partly behind a rank's queries.
TEST(RingAttention, unequal_lengths_under_a_mask_are_gathered) {
  const Case c{"", 2, "cp=2", "[-, cp, -, -]", "[-, cp, -, -]", true, false, {.queries = 6, .keys = 12}};
  const OnRanks ranks = run_on_ranks(graph_of(c), 2, cuts_of(c));
  EXPECT_EQ(ranks.bytes.count("ring_shift"), 0U);
  EXPECT_EQ(ranks.outputs.at("out").size(), run_on_ranks(graph_of(c), 1, {}).outputs.at("out").size());
}

}  // namespace
}  // namespace trireme::ring_attention_test
