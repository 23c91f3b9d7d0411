// The plan may change the speed, never the answer: random graphs, cut by random legal strategies
// over random meshes, compute on the ranks what one device computes; one case in eight to the bit (numerics =
// 'invariant').
//
//   equivalence_test                      2,500 cases, a test for every 250 of them
//   equivalence_test --cases=20000        so many, in one go; --seed=N starts elsewhere
//   equivalence_test --cases=N --device=cuda
//                                         those of fast numerics on that device; all that fail, as they are drawn
//   equivalence_test --replay=FILE        the case that a failure printed
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <span>
#include <sstream>

#include "tests/equivalence/run.h"
#include "tests/equivalence/shrink.h"
#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/op/registry.h"

namespace trireme::equivalence::equivalence_test {
namespace {

constexpr uint32_t kCasesOfOne = 250;

class Equivalence : public testing::TestWithParam<uint32_t> {};

constexpr uint32_t kGroups = 10;

// Later cases, for what is drawn too rarely for the others to reach it: the products of a convolution's weight
// gradient; zb-h1, zb-h2 and a step without a pipeline, repeated; rsqrt, exp and erf; the norm of a list of rows in
// f32; batch_norm in bf16; seq-1f1b with learned positions, repeated; orders that no schedule has, to the bit, in a
// training step, and of chunks of positions with one table of tokens and positions; seq-1f1b with such a table,
// repeated.
constexpr uint32_t kRare[] = {2890, 3138, 3217, 3729, 3859, 3873, 5950, 7377, 8005, 8192, 10897, 11241, 13393};

TEST_P(Equivalence, ranks_compute_together_what_one_device_computes) {
  const Tally tally = run_seeds(GetParam() * kCasesOfOne + 1, kCasesOfOne, true);
  EXPECT_EQ(tally.failure, "");
  // What is not compared must stay the exception.
  EXPECT_LE(tally.wild * 20, tally.cases);
  EXPECT_LE(tally.in_wide.vague * 9, tally.in_wide.compared);
  EXPECT_LE(tally.in_bf16.vague * 4, tally.in_bf16.compared);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Equivalence, testing::Range(0U, kGroups));

TEST(EquivalenceOfRareCases, ranks_compute_together_what_one_device_computes) {
  for (const uint32_t seed : kRare) EXPECT_EQ(run_seeds(seed, 1, true).failure, "");
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Equivalence, cases_that_once_went_wrong_agree) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/tests/equivalence/found")) {
    const Case test = parse_case(read(entry.path()));
    const Verdict verdict = run_cases({&test, 1}).front();
    EXPECT_EQ(verdict.text, "") << entry.path();
    EXPECT_EQ(verdict.vague, 0) << entry.path();
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

// Every op that can be cut is drawn, and cut; cuts whose bits must not differ are drawn of many ops, and of sums too,
// over ranks and micro-batches.
TEST(RandomCase, cuts_every_op_that_can_be_cut_and_much_of_what_keeps_its_bits) {
  std::set<std::string_view> cut, cut_in_bits, summed_in_bits;
  for (uint32_t seed = 1; seed <= kGroups * kCasesOfOne; ++seed) {
    const Case test = random_case(seed);
    const bool keeps_bits = test.numerics == Numerics::kInvariant;
    for (size_t i = 0; i < test.graph.nodes().size(); ++i) {
      const Node& node = test.graph.nodes()[i];
      const std::span<const Axes> axes = test.strategy.nodes[i].axes;
      const bool is_cut = std::ranges::any_of(axes, [](const Axes& each) { return !each.empty(); });
      if (!is_cut) continue;
      cut.insert(node.op->name);
      if (!keeps_bits) continue;
      cut_in_bits.insert(node.op->name);
      const ShardingRule rule = *rule_of(test.graph, node);
      for (size_t f = 0; f < rule.factors.size(); ++f) {
        if (!axes[f].empty() && is_summed(rule, static_cast<int>(f))) summed_in_bits.insert(node.op->name);
      }
    }
  }
  EXPECT_GE(cut_in_bits.size(), 60U);
  EXPECT_GE(summed_in_bits.size(), 8U);
  for (const OpDef* op : all_ops()) {
    if (!op->shard) continue;
    bool can_cut = false;
    for (const Example& example : op->examples()) {
      const std::vector<TensorType> results = op->infer.get()({example.in, example.attrs});
      for (const Factor& factor : op->shard.get()({example.in, results, example.attrs}).factors) {
        can_cut = can_cut || (factor.can_cut && factor.size > 1);
      }
    }
    EXPECT_TRUE(!can_cut || cut.contains(op->name)) << op->name;
  }
}

// "kernel matmul.bf16 if avx512_bf16" counts on machines with that instruction set, "if only avx512_bf16" where it is
// the best one.
bool counts_here(std::string& line) {
  const size_t at = line.find(" if ");
  if (at == std::string::npos) return true;
  std::string wanted = line.substr(at + 4);
  line.resize(at);
  constexpr std::string_view kOnly = "only ";
  const bool only = wanted.starts_with(kOnly);
  if (only) wanted.erase(0, kOnly.size());
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (to_string(isa) == wanted) return only ? trireme::isa() == isa : trireme::isa() >= isa;
  }
  ADD_FAILURE() << "coverage.txt: no instruction set '" << wanted << "'";
  return false;
}

// What the cases have reached before, coverage.txt, they reach still; prints what there is beyond it, and what they do
// not reach.
TEST(Coverage, does_not_fall) {
  std::set<std::string> reached;
  for (uint32_t seed = 1; seed <= kGroups * kCasesOfOne; ++seed) {
    reached.merge(reached_by(random_case(seed)));
  }
  for (const uint32_t seed : kRare) reached.merge(reached_by(random_case(seed)));
  std::set<std::string> recorded;
  std::stringstream lines(read(TRIREME_SOURCE_DIR "/tests/equivalence/coverage.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#') || !counts_here(line)) continue;
    recorded.insert(line);
    EXPECT_TRUE(reached.contains(line)) << "no case reaches: " << line;
  }
  std::cout << fmt::format("{} ops, kernels and options are reached, {} are recorded\n", reached.size(),
                           recorded.size());
  for (const std::string& name : reached) {
    if (!recorded.contains(name)) std::cout << "not recorded: " << name << '\n';
  }
  for (const OpDef* op : all_ops()) {
    for (const Kernel* kernel : kernels_of(*op)) {
      const bool is_op = reached.contains(fmt::format("op {}", op->name));
      const bool is_kernel = kernel->name == "reference" || reached.contains(fmt::format("kernel {}", kernel->name));
      if (!is_op || !is_kernel) std::cout << fmt::format("not reached: {} of {}\n", kernel->name, op->name);
    }
  }
}

TEST(Case, reads_back_as_it_was_printed) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const Case test = random_case(seed);
    const std::string text = to_string(test);
    EXPECT_EQ(to_string(parse_case(text)), text) << "seed " << seed;
  }
}

TEST(Shrink, keeps_what_matters_and_little_else) {
  const auto has_product = [](const Case& test) {
    for (size_t i = 0; i < test.graph.nodes().size(); ++i) {
      if (test.graph.nodes()[i].op->name != "matmul") continue;
      for (const Axes& axes : test.strategy.nodes[i].axes) {
        if (!axes.empty()) return true;
      }
    }
    return false;
  };
  int found = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const Case test = random_case(seed);
    if (!has_product(test)) continue;
    ++found;
    const Case small = shrunk(test, has_product);
    EXPECT_EQ(small.graph.nodes().size(), 1U) << "seed " << seed << "\n" << to_string(small);
    EXPECT_EQ(small.strategy.mesh.axes(), 1) << "seed " << seed;
    EXPECT_EQ(small.steps, 1) << "seed " << seed;
    EXPECT_FALSE(run_cases({&small, 1}).front().is_bad()) << "seed " << seed << "\n" << to_string(small);
  }
  EXPECT_GT(found, 5);
}

}  // namespace

int run_many(uint32_t first, uint32_t count) {
  const Tally tally = run_seeds(first, count, true);
  const auto outputs = [](const Tally::Outputs& of) {
    return fmt::format("{} outputs compared, {} of them too sensitive to tell much", of.compared, of.vague);
  };
  std::cout << fmt::format("{} cases from seed {}, {} out of bounds; {}; in bf16 {}\n", tally.cases, first, tally.wild,
                           outputs(tally.in_wide), outputs(tally.in_bf16))
            << tally.failure;
  return tally.failure.empty() ? 0 : 1;
}

int run_on_device(uint32_t first, uint32_t count, const std::string& device) {
  uint32_t bad = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const Tally tally = run_seeds(seed, 1, false, device);
    bad += tally.failure.empty() ? 0 : 1;
    std::cout << tally.failure;
  }
  std::cout << fmt::format("{} cases from seed {} on {}, {} of them wrong\n", count, first, device, bad);
  return bad == 0 ? 0 : 1;
}

int replay(const std::string& path) {
  const Case test = parse_case(read(path));
  const Verdict verdict = run_cases({&test, 1}).front();
  std::cout << (verdict.is_bad() ? verdict.text : "agrees") << '\n';
  return verdict.is_bad() ? 1 : 0;
}

}  // namespace trireme::equivalence::equivalence_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  uint32_t cases = 0;
  uint32_t seed = 1;
  std::string device;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--cases=")) cases = static_cast<uint32_t>(std::stoul(std::string(arg.substr(8))));
    if (arg.starts_with("--seed=")) seed = static_cast<uint32_t>(std::stoul(std::string(arg.substr(7))));
    if (arg.starts_with("--device=")) device = arg.substr(9);
    if (arg.starts_with("--replay=")) return trireme::equivalence::equivalence_test::replay(std::string(arg.substr(9)));
  }
  if (!device.empty()) return trireme::equivalence::equivalence_test::run_on_device(seed, std::max(cases, 1U), device);
  return cases > 0 ? trireme::equivalence::equivalence_test::run_many(seed, cases) : RUN_ALL_TESTS();
}
