// The solver against COIN-OR's branch and cut (cbc), which knows nothing of factor graphs: the same problems as integer
// programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "trireme/base/file.h"
#include "trireme/planner/solver/budget.h"
#include "trireme/planner/solver/random_problem_for_tests.h"

namespace trireme::solver::against_cbc_test {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;

// One binary variable for each row of each table, `r<table>_<row>`, of which one is taken; rows with a label of a
// variable are taken as often as the label is, `x<variable>_<label>`.
std::string linear_program(const Problem& problem, int64_t bytes) {
  std::ostringstream objective, constraints, binaries;
  std::string budget;
  for (size_t t = 0; t < problem.tables.size(); ++t) {
    const Table& table = problem.tables[t];
    const auto name = [&](size_t row) { return fmt::format("r{}_{}\n", t, row); };
    std::string one_of = " + 0 unused\n";
    for (size_t r = 0; r < table.rows(); ++r) {
      one_of += " + " + name(r);
      objective << fmt::format(" + {} {}", table.prices()[r].time_ps, name(r));
      if (bytes < kNoLimit) budget += fmt::format(" + {} {}", table.prices()[r].bytes, name(r));
      binaries << " " << name(r);
    }
    constraints << one_of << " = 1\n";
    for (size_t i = 0; i < table.variables.size(); ++i) {
      const int variable = table.variables[i];
      for (int label = 0; label < problem.labels[static_cast<size_t>(variable)]; ++label) {
        constraints << fmt::format(" - x{}_{}\n", variable, label);
        for (size_t r = 0; r < table.rows(); ++r) {
          if (table.row(r)[i] == label) constraints << " + " << name(r);
        }
        constraints << " = 0\n";
      }
    }
  }
  for (size_t v = 0; v < problem.labels.size(); ++v) {
    for (int label = 0; label < problem.labels[v]; ++label) {
      constraints << fmt::format(" + x{}_{}\n", v, label);
      binaries << fmt::format(" x{}_{}\n", v, label);
    }
    constraints << " = 1\n";
  }
  if (!budget.empty()) constraints << budget << fmt::format(" <= {}\n", bytes);
  return "Minimize\n obj: 0 unused\n" + objective.str() + "Subject To\n" + constraints.str() + "Binaries\n unused\n" +
         binaries.str() + "End\n";
}

// What cbc takes, priced in integers by its rows; nothing where it says that there is no choice.
std::optional<Price> by_cbc(const Problem& problem, int64_t bytes = kNoLimit) {
  const TempDirectory folder;
  const auto path = [&](const char* name) { return fmt::format("{}/{}", folder.path(), name); };
  std::ofstream(path("problem.lp")) << linear_program(problem, bytes);
  const std::string command = fmt::format("timeout 60 cbc {} -ratioGap 0 -allowableGap 0 -solve -solution {} > {}",
                                          path("problem.lp"), path("solution"), path("log"));
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream solution(path("solution"));
  std::string line;
  std::getline(solution, line);
  if (line.starts_with("Infeasible") || line.starts_with("Integer infeasible")) return std::nullopt;
  EXPECT_THAT(line, testing::StartsWith("Optimal")) << read_file(path("log"));
  Price out;
  std::string number, name;
  double value = 0, unused = 0;
  while (solution >> number >> name >> value >> unused) {
    if (value < 0.5 || name[0] != 'r') continue;
    size_t table = 0, row = 0;
    EXPECT_EQ(std::sscanf(name.c_str(), "r%zu_%zu", &table, &row), 2) << name;
    out += problem.tables.at(table).prices().at(row);
  }
  return out;
}

class AgainstCbc : public testing::Test {
  void SetUp() override {
    if (std::system("command -v cbc > /dev/null") != 0) GTEST_SKIP() << "cbc (coinor-cbc) is not installed";
  }
};

TEST_F(AgainstCbc, random_problems_have_the_same_least_time) {
  int impossible = 0;
  for (uint64_t seed = 20'000; seed < 20'100; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 12, 6);

    const std::optional<Choice> ours = cheapest(problem);

    const std::optional<Price> theirs = by_cbc(problem);
    ASSERT_EQ(ours.has_value(), theirs.has_value()) << "seed " << seed;
    if (ours) {
      ASSERT_EQ(ours->price.time_ps, theirs->time_ps) << "seed " << seed;
    }
    impossible += ours ? 0 : 1;
  }
  EXPECT_LT(impossible, 75);
}

TEST_F(AgainstCbc, random_problems_have_the_same_least_time_within_bytes) {
  int none_fits = 0;
  for (uint64_t seed = 30'000; seed < 30'100; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 10, 5);
    const int64_t bytes = draw_int(rng, 0, 60 * static_cast<int>(problem.tables.size()));

    const std::optional<Found> ours = cheapest_within(problem, {.bytes = bytes});

    const std::optional<Price> theirs = by_cbc(problem, bytes);
    ASSERT_EQ(ours && ours->fits, theirs.has_value()) << "seed " << seed;
    if (theirs) {
      ASSERT_EQ(ours->choice.price.time_ps, theirs->time_ps) << "seed " << seed;
      ASSERT_LE(theirs->bytes, bytes) << "seed " << seed;
    }
    none_fits += theirs ? 0 : 1;
  }
  EXPECT_GT(none_fits, 5);
  EXPECT_LT(none_fits, 75);
}

TEST_F(AgainstCbc, one_to_four_layers_of_a_transformer_have_the_same_least_time) {
  for (int count = 1; count <= 4; ++count) {
    std::mt19937_64 rng(static_cast<uint64_t>(count));
    Problem problem{.labels = {6, 6}};
    problem.runs.push_back(layer(rng, 6, count));
    const Problem plain = unroll(problem).problem;

    const Choice ours = cheapest(problem).value();

    EXPECT_EQ(ours.price.time_ps, by_cbc(plain).value().time_ps) << count << " layers";
  }
}

}  // namespace
}  // namespace trireme::solver::against_cbc_test
