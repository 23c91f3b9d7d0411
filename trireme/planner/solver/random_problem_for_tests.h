// Problems for tests: small random ones with all their choices, and layers like those of a transformer.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <random>

#include "trireme/planner/solver/problem.h"

namespace trireme::solver {

inline int draw_int(std::mt19937_64& rng, int from, int to) {
  return from + static_cast<int>(rng() % static_cast<uint64_t>(to - from + 1));
}

inline Price draw_price(std::mt19937_64& rng) {
  return {draw_int(rng, 0, 60), draw_int(rng, 0, 60)};
}

// Calls fn with the labels of each combination.
inline void each_combination(const std::vector<int>& sizes,
                             const std::function<void(const std::vector<int32_t>&)>& fn) {
  std::vector<int32_t> labels(sizes.size(), 0);
  for (;;) {
    fn(labels);
    size_t i = 0;
    while (i < sizes.size() && ++labels[i] == sizes[i]) labels[i++] = 0;
    if (i == sizes.size()) return;
  }
}

// Every combination with this chance, some in two ways.
inline void fill_table(std::mt19937_64& rng, Problem& problem, std::vector<int> variables, int percent) {
  std::vector<int> sizes;
  for (const int variable : variables) sizes.push_back(problem.labels[static_cast<size_t>(variable)]);
  Table& table = problem.add_table(std::move(variables));
  each_combination(sizes, [&](const std::vector<int32_t>& labels) {
    if (draw_int(rng, 1, 100) > percent) return;
    table.add(labels, draw_price(rng));
    if (draw_int(rng, 1, 5) == 1) table.add(labels, draw_price(rng));
  });
}

inline Problem draw_problem(std::mt19937_64& rng, int most_variables, int most_labels) {
  Problem problem;
  const int variables = draw_int(rng, 1, most_variables);
  for (int v = 0; v < variables; ++v) problem.add_variable(draw_int(rng, 1, most_labels));
  const int tables = draw_int(rng, 1, variables + 3);
  for (int t = 0; t < tables; ++t) {
    std::vector<int> scope;
    for (int k = draw_int(rng, 0, 3); k > 0; --k) {
      const int variable = draw_int(rng, 0, variables - 1);
      if (std::find(scope.begin(), scope.end(), variable) == scope.end()) scope.push_back(variable);
    }
    fill_table(rng, problem, scope, draw_int(rng, 0, 3) == 0 ? 50 : 95);
  }
  return problem;
}

// The cheapest price within the bytes, from all choices; nothing where there is none.
inline std::optional<Price> brute_force(const Problem& problem, int64_t bytes) {
  std::optional<Price> best;
  each_combination(problem.labels, [&](const std::vector<int32_t>& labels) {
    std::vector<Price> sums{{}};
    for (const Table& table : problem.tables) {
      std::vector<Price> next;
      for (size_t r = 0; r < table.rows(); ++r) {
        bool is_it = true;
        for (size_t i = 0; i < table.variables.size(); ++i)
          is_it = is_it && table.row(r)[i] == labels[static_cast<size_t>(table.variables[i])];
        if (!is_it) continue;
        for (Price sum : sums) next.push_back(sum += table.prices()[r]);
      }
      sums = std::move(next);
    }
    for (const Price& sum : sums) {
      if (sum.bytes <= bytes && (!best || sum.time_ps < best->time_ps)) best = sum;
    }
  });
  return best;
}

// A layer of a transformer between two activations of `labels` layouts: two branches of four ops each, conversions of
// layouts between them, and a sum with what the branch began with.
inline Run layer(std::mt19937_64& rng, int labels, int64_t times) {
  Run run{.times = times};
  Problem& block = run.block;
  std::vector<int64_t> conversion(static_cast<size_t>(labels * labels));
  for (size_t i = 0; i < conversion.size(); ++i)
    conversion[i] = i % static_cast<size_t>(labels + 1) == 0 ? 0 : draw_int(rng, 20'000'000, 400'000'000);
  const auto convert = [&](int from, int to) {
    Table& table = block.add_table({from, to});
    for (int a = 0; a < labels; ++a) {
      for (int b = 0; b < labels; ++b) table.add({a, b}, {conversion[static_cast<size_t>(a * labels + b)], 0});
    }
  };
  const auto op = [&](int from, int to) {
    Table& table = block.add_table({from, to});
    for (int k = 0; k < 3 * labels; ++k) {
      const int cut = draw_int(rng, 1, 8);
      table.add({draw_int(rng, 0, labels - 1), draw_int(rng, 0, labels - 1)},
                {4'000'000'000 / cut + draw_int(rng, 0, 50'000'000), draw_int(rng, 1, 64) * (int64_t{16} << 20) / cut});
    }
    for (int a = 0; a < labels; ++a) table.add({a, a}, {8'000'000'000, int64_t{1} << 30});
  };
  run.first = block.add_variable(labels);
  int at = run.first;
  for (int branch = 0; branch < 2; ++branch) {
    const int begin = at;
    for (int k = 0; k < 4; ++k) {
      const int in = block.add_variable(labels);
      convert(at, in);
      at = block.add_variable(labels);
      op(in, at);
    }
    const int sum = block.add_variable(labels);
    convert(at, sum);
    convert(begin, sum);
    at = sum;
  }
  run.last = at;
  return run;
}

}  // namespace trireme::solver
