#include "trireme/planner/solver/elimination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/planner/solver/budget.h"
#include "trireme/planner/solver/random_problem_for_tests.h"

namespace trireme::solver::elimination_test {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

TEST(Elimination, of_10000_random_problems_finds_what_all_choices_have_least) {
  int impossible = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 8, seed % 4 == 0 ? 4 : 3);

    const std::optional<Choice> choice = cheapest(problem);

    const std::optional<Price> best = brute_force(problem, kNoLimit);
    ASSERT_EQ(choice.has_value(), best.has_value()) << "seed " << seed;
    if (!choice) {
      ++impossible;
      continue;
    }
    ASSERT_EQ(choice->price.time_ps, best->time_ps) << "seed " << seed;
    ASSERT_EQ(why_not(problem, *choice), "") << "seed " << seed;
  }
  EXPECT_GT(impossible, 100);
  EXPECT_LT(impossible, 8000);
}

// One run in a problem of two variables and a third that its copies share, with the tables of draw_problem.
Problem draw_run(std::mt19937_64& rng, int64_t times, bool shares) {
  const int labels = draw_int(rng, 1, 5);
  Problem problem{.labels = {labels, labels, 2}};
  Run run{.times = times, .from = 0, .to = 1};
  run.block.labels = {labels, labels, 3, 2};
  fill_table(rng, run.block, {0, 2}, 80);
  fill_table(rng, run.block, {2, 1}, 80);
  fill_table(rng, run.block, {0, 1}, 95);
  fill_table(rng, run.block, {3, 2}, 95);
  if (shares) run.shared = {{3, 2}};
  problem.runs.push_back(run);
  fill_table(rng, problem, {0}, 95);
  fill_table(rng, problem, {1, 2}, 95);
  return problem;
}

TEST(Elimination, of_a_run_is_that_of_its_copies_laid_end_to_end) {
  for (int64_t times = 1; times <= 128; ++times) {
    for (const bool shares : {false, true}) {
      std::mt19937_64 rng(static_cast<uint64_t>(times));
      const Problem problem = draw_run(rng, times, shares);
      const Unrolled unrolled = unroll(problem);

      const std::optional<Choice> rolled = cheapest(problem);

      const std::optional<Choice> plain = cheapest(unrolled.problem);
      ASSERT_EQ(rolled.has_value(), plain.has_value()) << times << " copies";
      if (!rolled) continue;
      ASSERT_EQ(rolled->price.time_ps, plain->price.time_ps) << times << " copies";
      ASSERT_EQ(why_not(problem, *rolled), "") << times << " copies";
      ASSERT_EQ(why_not(problem, roll_up(problem, unrolled, *plain)), "") << times << " copies";
    }
  }
}

TEST(Elimination, does_not_depend_on_the_order_of_variables_tables_and_labels) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 rng(seed);
    const Problem problem = draw_problem(rng, 8, 4);
    std::vector<int> number(problem.labels.size());
    std::iota(number.begin(), number.end(), 0);
    std::shuffle(number.begin(), number.end(), rng);
    Problem other{.labels = problem.labels, .tables = problem.tables};
    std::shuffle(other.tables.begin(), other.tables.end(), rng);
    for (size_t v = 0; v < number.size(); ++v) other.labels[static_cast<size_t>(number[v])] = problem.labels[v];
    for (Table& table : other.tables) {
      std::vector<int32_t>& labels = table.own_rows().labels;
      for (size_t k = 0; k < labels.size(); ++k) {
        const int variable = table.variables[k % table.variables.size()];
        labels[k] = problem.labels[static_cast<size_t>(variable)] - 1 - labels[k];
      }
      for (int& variable : table.variables) variable = number[static_cast<size_t>(variable)];
    }

    const std::optional<Choice> a = cheapest(problem);
    const std::optional<Choice> b = cheapest(other);

    ASSERT_EQ(a.has_value(), b.has_value()) << "seed " << seed;
    if (a) {
      ASSERT_EQ(a->price.time_ps, b->price.time_ps) << "seed " << seed;
    }
  }
}

TEST(Elimination, with_one_more_row_never_finds_worse) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 rng(seed);
    Problem problem = draw_problem(rng, 7, 4);
    const std::optional<Choice> before = cheapest(problem);
    Table& table = problem.tables[rng() % problem.tables.size()];
    std::vector<int32_t> row;
    for (const int variable : table.variables)
      row.push_back(draw_int(rng, 0, problem.labels[static_cast<size_t>(variable)] - 1));
    table.add(row, draw_price(rng));

    const std::optional<Choice> after = cheapest(problem);

    if (!before) continue;
    ASSERT_TRUE(after) << "seed " << seed;
    ASSERT_LE(after->price.time_ps, before->price.time_ps) << "seed " << seed;
  }
}

// Of the processor: other programs do not count.
double milliseconds(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(Elimination, of_96_layers_alike_with_35_layouts_takes_about_a_millisecond) {
  std::mt19937_64 rng(1);
  Problem problem{.labels = {35, 35}};
  problem.runs.push_back(layer(rng, 35, 96));
  std::optional<Choice> choice;

  const double taken_ms = milliseconds([&] {
                            for (int k = 0; k < 10; ++k) choice = cheapest(problem);
                          }) /
                          10;

  ASSERT_TRUE(choice);
  EXPECT_EQ(why_not(problem, *choice), "");
  RecordProperty("milliseconds", std::to_string(taken_ms));
  EXPECT_LT(taken_ms, 20);  // 1 ms where nothing else runs
}

TEST(Elimination, of_1000_layers_of_which_no_two_are_alike_takes_seconds) {
  Problem problem;
  for (int k = 0; k <= 1000; ++k) problem.add_variable(35);
  for (int k = 0; k < 1000; ++k) {
    std::mt19937_64 rng(static_cast<uint64_t>(k));
    solver::Run run = layer(rng, 35, 1);
    run.from = k;
    run.to = k + 1;
    problem.runs.push_back(std::move(run));
  }
  problem = unroll(problem).problem;
  std::optional<Choice> choice;

  const double taken_ms = milliseconds([&] { choice = cheapest(problem); });

  ASSERT_TRUE(choice);
  EXPECT_EQ(why_not(problem, *choice), "");
  RecordProperty("milliseconds", std::to_string(taken_ms));
  EXPECT_LT(taken_ms, 10000);
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Problem, says_what_is_wrong_with_it) {
  const auto why = [](const std::function<void(Problem&)>& change) {
    Problem problem{.labels = {2, 3}};
    problem.add_table({0, 1}).add({1, 2}, {10, 20});
    problem.runs.push_back({.block = {.labels = {2, 2}}});
    problem.labels.push_back(2);
    problem.runs[0].to = 2;
    problem.runs[0].block.add_table({0, 1}).add({0, 0}, {1, 1});
    change(problem);
    return error_of([&] { check(problem); });
  };

  EXPECT_EQ(why([](Problem&) {}), "");
  EXPECT_THAT(why([](Problem& p) { p.labels[1] = 0; }), testing::HasSubstr("variable 1 has 0 labels"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].variables[1] = 5; }),
              testing::HasSubstr("table 0: variable 5 of a problem with 3 variables"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].variables[1] = 0; }), testing::HasSubstr("variable 0 appears twice"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].own_rows().labels[1] = 3; }),
              testing::HasSubstr("table 0, row 0: label 3 of variable 1, which has 3 labels"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].own_rows().labels.pop_back(); }),
              testing::HasSubstr("1 labels in 1 rows of 2"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].own_rows().prices[0].bytes = -1; }),
              testing::HasSubstr("10 ps and -1 bytes; neither may be negative"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].own_rows().prices[0].time_ps = int64_t{1} << 58; }),
              testing::HasSubstr("times that add up to 2^57 or more"));
  EXPECT_THAT(why([](Problem& p) { p.tables[0].own_rows().prices[0].bytes = int64_t{1} << 58; }),
              testing::HasSubstr("bytes that add up to 2^57 or more"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].times = int64_t{1} << 58; }), testing::HasSubstr("2^57 or more"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].times = 0; }), testing::HasSubstr("run 0: 0 copies"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].to = 1; }),
              testing::HasSubstr("variable 1 of the block has 2 labels, variable 1 of the problem 3"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].last = 0; }), testing::HasSubstr("begins and ends in the same variable"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].shared = {{1, 0}}; }), testing::HasSubstr("joined twice"));
  EXPECT_THAT(why([](Problem& p) { p.runs[0].block.runs.resize(1); }),
              testing::HasSubstr("a block with runs of its own"));
}

TEST(Problem, a_choice_that_is_changed_is_no_longer_right) {
  std::mt19937_64 rng(7);
  const Problem problem = draw_run(rng, 3, true);
  const Choice right = *cheapest(problem);
  const auto why = [&](const std::function<void(Choice&)>& change) {
    Choice choice = right;
    change(choice);
    return why_not(problem, choice);
  };

  EXPECT_EQ(why([](Choice&) {}), "");
  EXPECT_THAT(why([](Choice& c) { ++c.price.time_ps; }), testing::HasSubstr("and costs"));
  EXPECT_THAT(why([](Choice& c) { c.labels[2] ^= 1; }), testing::Not(""));
  EXPECT_THAT(why([](Choice& c) { c.rows[0] = 99; }), testing::HasSubstr("table 0 has no row 99"));
  EXPECT_THAT(why([](Choice& c) { c.labels.pop_back(); }), testing::HasSubstr("2 labels"));
  EXPECT_THAT(why([](Choice& c) { c.runs[0].pop_back(); }), testing::HasSubstr("run 0 has 2 copies for 3"));
  EXPECT_THAT(why([](Choice& c) { c.runs.clear(); }), testing::HasSubstr("0 runs for 1"));
}

// As many variables of 30 labels as given, each two of which are in a table.
Problem all_pairs(int variables) {
  Problem problem{.labels = std::vector<int>(static_cast<size_t>(variables), 30)};
  for (int a = 0; a < variables; ++a) {
    for (int b = 0; b < a; ++b) {
      Table& table = problem.add_table({a, b});
      for (int i = 0; i < 900; ++i) table.add({i / 30, i % 30}, {i % 29, 0});
    }
  }
  return problem;
}

TEST(Elimination, refuses_a_table_that_would_not_fit) {
  EXPECT_TRUE(cheapest(all_pairs(4)));
  EXPECT_THAT(
      error_of([&] { cheapest(all_pairs(8)); }),
      testing::HasSubstr("a table over 7 variables of 21870000000 combinations or more; at most 4194304 are searched"));
}

TEST(Elimination, keeps_of_a_large_table_the_rows_that_go_together) {
  Problem problem;
  for (int k = 0; k < 7; ++k) problem.add_variable(200);
  for (const int first : {0, 3}) {
    Table& table = problem.add_table({first, first + 1, first + 2, 6});
    for (int label = 0; label < 200; ++label) table.add({label, label, label, label}, {label, 0});
  }
  Table& ends = problem.add_table({0, 1, 2, 3, 4, 5});
  for (int label = 50; label < 200; ++label) ends.add({label, label, label, label, label, label}, {1, 0});

  const std::optional<Choice> choice = cheapest(problem);

  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->price.time_ps, 101);
}

}  // namespace
}  // namespace trireme::solver::elimination_test
