#include "trireme/planner/solver/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::solver {
namespace {

constexpr int64_t kMostPrice = int64_t{1} << 57;  // of the largest rows of all tables together

void check_table(const Problem& problem, const Table& table, const std::string& what) {
  for (size_t i = 0; i < table.variables.size(); ++i) {
    const int variable = table.variables[i];
    require(variable >= 0 && static_cast<size_t>(variable) < problem.labels.size(),
            "{}: variable {} of a problem with {} variables", what, variable, problem.labels.size());
    require(std::count(table.variables.begin(), table.variables.end(), variable) == 1, "{}: variable {} appears twice",
            what, variable);
  }
  require(table.labels.size() == table.rows() * table.variables.size(), "{}: {} labels in {} rows of {}", what,
          table.labels.size(), table.rows(), table.variables.size());
  for (size_t r = 0; r < table.rows(); ++r) {
    for (size_t i = 0; i < table.variables.size(); ++i) {
      const int count = problem.labels[static_cast<size_t>(table.variables[i])];
      require(table.row(r)[i] >= 0 && table.row(r)[i] < count,
              "{}, row {}: label {} of variable {}, which has {} labels", what, r, table.row(r)[i], table.variables[i],
              count);
    }
    require(table.prices[r].time_ps >= 0 && table.prices[r].bytes >= 0,
            "{}, row {}: a price of {} ps and {} bytes; neither may be negative", what, r, table.prices[r].time_ps,
            table.prices[r].bytes);
  }
}

void check_plain(const Problem& problem, const std::string& what) {
  for (size_t v = 0; v < problem.labels.size(); ++v) {
    require(problem.labels[v] >= 1, "{}variable {} has {} labels; it needs one or more", what, v, problem.labels[v]);
  }
  for (size_t t = 0; t < problem.tables.size(); ++t)
    check_table(problem, problem.tables[t], fmt::format("{}table {}", what, t));
}

void check_run(const Problem& problem, const Run& run, const std::string& what) {
  require(run.block.runs.empty(), "{}: a block with runs of its own; give each of them as a run", what);
  require(run.times >= 1, "{}: {} copies; there must be one or more", what, run.times);
  require(run.first != run.last && run.from != run.to, "{}: it begins and ends in the same variable", what);
  std::vector<std::pair<int, int>> ends = run.shared;
  ends.insert(ends.end(), {{run.first, run.from}, {run.last, run.to}});
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto [inner, outer] = ends[i];
    require(inner >= 0 && static_cast<size_t>(inner) < run.block.labels.size() && outer >= 0 &&
                static_cast<size_t>(outer) < problem.labels.size(),
            "{}: no variable {} of the block, or {} of the problem", what, inner, outer);
    require(run.block.labels[static_cast<size_t>(inner)] == problem.labels[static_cast<size_t>(outer)],
            "{}: variable {} of the block has {} labels, variable {} of the problem {}", what, inner,
            run.block.labels[static_cast<size_t>(inner)], outer, problem.labels[static_cast<size_t>(outer)]);
    for (size_t j = 0; j < i; ++j) {
      require(ends[j].first != inner && ends[j].second != outer,
              "{}: variable {} of the block or {} of the problem is joined twice", what, inner, outer);
    }
  }
  require(run.block.labels[static_cast<size_t>(run.first)] == run.block.labels[static_cast<size_t>(run.last)],
          "{}: the block begins in a variable of {} labels and ends in one of {}", what,
          run.block.labels[static_cast<size_t>(run.first)], run.block.labels[static_cast<size_t>(run.last)]);
}

// Adds `times` times the largest row of each table, and refuses sums that would not fit.
void add_largest(const std::vector<Table>& tables, int64_t times, Price& sum) {
  const auto add = [times](int64_t& to, int64_t price, const char* what) {
    require(price <= (kMostPrice - to) / times, "{} that add up to 2^57 or more; sums of their weights would not fit",
            what);
    to += price * times;
  };
  for (const Table& table : tables) {
    Price largest;
    for (const Price& price : table.prices) {
      largest.time_ps = std::max(largest.time_ps, price.time_ps);
      largest.bytes = std::max(largest.bytes, price.bytes);
    }
    add(sum.time_ps, largest.time_ps, "times");
    add(sum.bytes, largest.bytes, "bytes");
  }
}

// The largest times of all tables together.
double largest_time(const std::vector<Table>& tables) {
  double out = 0;
  for (const Table& table : tables) {
    int64_t largest = 0;
    for (const Price& price : table.prices) largest = std::max(largest, price.time_ps);
    out += static_cast<double>(largest);
  }
  return out;
}

// What is wrong with the labels and rows of a choice in the tables; "" when nothing is.
std::string why_not_plain(const Problem& problem, const Choice& choice) {
  if (choice.labels.size() != problem.labels.size() || choice.rows.size() != problem.tables.size())
    return fmt::format("it has {} labels and {} rows for {} variables and {} tables", choice.labels.size(),
                       choice.rows.size(), problem.labels.size(), problem.tables.size());
  for (size_t v = 0; v < problem.labels.size(); ++v) {
    if (choice.labels[v] < 0 || choice.labels[v] >= problem.labels[v])
      return fmt::format("variable {} has no label {}", v, choice.labels[v]);
  }
  for (size_t t = 0; t < problem.tables.size(); ++t) {
    const Table& table = problem.tables[t];
    const auto r = static_cast<size_t>(choice.rows[t]);
    if (choice.rows[t] < 0 || r >= table.rows()) return fmt::format("table {} has no row {}", t, choice.rows[t]);
    for (size_t i = 0; i < table.variables.size(); ++i) {
      if (table.row(r)[i] != choice.labels[static_cast<size_t>(table.variables[i])])
        return fmt::format("row {} of table {} is for label {} of variable {}, which has {}", r, t, table.row(r)[i],
                           table.variables[i], choice.labels[static_cast<size_t>(table.variables[i])]);
    }
  }
  return "";
}

Price price_of_tables(const std::vector<Table>& tables, const std::vector<int32_t>& rows) {
  Price out;
  for (size_t t = 0; t < tables.size(); ++t) out += tables[t].prices[static_cast<size_t>(rows[t])];
  return out;
}

}  // namespace

void Table::add(std::span<const int32_t> row, Price price) {
  labels.insert(labels.end(), row.begin(), row.end());
  prices.push_back(price);
}

int Problem::add_variable(int number_of_labels) {
  labels.push_back(number_of_labels);
  return static_cast<int>(labels.size()) - 1;
}

Table& Problem::add_table(std::vector<int> variables) {
  tables.push_back({.variables = std::move(variables)});
  return tables.back();
}

int64_t make_times_fit(Problem& problem) {
  double sum = largest_time(problem.tables);
  for (const Run& run : problem.runs) sum += static_cast<double>(run.times) * largest_time(run.block.tables);
  constexpr auto kMost = static_cast<double>(kMostPrice / 2);
  int64_t divisor = 1;
  while (sum / static_cast<double>(divisor) >= kMost) divisor *= 2;
  const auto divide = [divisor](std::vector<Table>& tables) {
    for (Table& table : tables) {
      for (Price& price : table.prices) price.time_ps /= divisor;
    }
  };
  if (divisor == 1) return 1;
  divide(problem.tables);
  for (Run& run : problem.runs) divide(run.block.tables);
  return divisor;
}

void check(const Problem& problem) {
  check_plain(problem, "");
  Price largest;
  add_largest(problem.tables, 1, largest);
  for (size_t r = 0; r < problem.runs.size(); ++r) {
    const Run& run = problem.runs[r];
    const std::string what = fmt::format("run {}", r);
    check_plain(run.block, what + ", ");
    check_run(problem, run, what);
    add_largest(run.block.tables, run.times, largest);
  }
}

Price price_of(const Problem& problem, const Choice& choice) {
  Price out = price_of_tables(problem.tables, choice.rows);
  for (size_t r = 0; r < problem.runs.size(); ++r) {
    for (const Choice& copy : choice.runs[r]) out += price_of_tables(problem.runs[r].block.tables, copy.rows);
  }
  return out;
}

std::string why_not(const Problem& problem, const Choice& choice) {
  if (const std::string why = why_not_plain(problem, choice); !why.empty()) return why;
  if (choice.runs.size() != problem.runs.size())
    return fmt::format("it has {} runs for {}", choice.runs.size(), problem.runs.size());
  for (size_t r = 0; r < problem.runs.size(); ++r) {
    const Run& run = problem.runs[r];
    const std::vector<Choice>& copies = choice.runs[r];
    const auto at = [](const Choice& of, int variable) { return of.labels[static_cast<size_t>(variable)]; };
    if (static_cast<int64_t>(copies.size()) != run.times)
      return fmt::format("run {} has {} copies for {}", r, copies.size(), run.times);
    for (size_t c = 0; c < copies.size(); ++c) {
      if (const std::string why = why_not_plain(run.block, copies[c]); !why.empty())
        return fmt::format("run {}, copy {}: {}", r, c, why);
      const int32_t before = c == 0 ? at(choice, run.from) : at(copies[c - 1], run.last);
      bool joined = at(copies[c], run.first) == before;
      if (c + 1 == copies.size()) joined = joined && at(copies[c], run.last) == at(choice, run.to);
      for (const auto& [inner, outer] : run.shared) joined = joined && at(copies[c], inner) == at(choice, outer);
      if (!joined) return fmt::format("run {}, copy {}: its ends have other labels than what they join", r, c);
    }
  }
  const Price price = price_of(problem, choice);
  if (price == choice.price) return "";
  return fmt::format("it says {} ps and {} bytes, and costs {} ps and {} bytes", choice.price.time_ps,
                     choice.price.bytes, price.time_ps, price.bytes);
}

Unrolled unroll(const Problem& problem) {
  Unrolled out;
  out.problem.labels = problem.labels;
  out.problem.tables = problem.tables;
  for (const Run& run : problem.runs) {
    auto& variables = out.variable_of.emplace_back();
    auto& tables = out.first_table.emplace_back();
    for (int64_t copy = 0; copy < run.times; ++copy) {
      std::vector<int> of(run.block.labels.size(), -1);
      for (const auto& [inner, outer] : run.shared) of[static_cast<size_t>(inner)] = outer;
      of[static_cast<size_t>(run.first)] = copy == 0 ? run.from : variables.back()[static_cast<size_t>(run.last)];
      if (copy + 1 == run.times) of[static_cast<size_t>(run.last)] = run.to;
      for (size_t v = 0; v < of.size(); ++v) {
        if (of[v] < 0) of[v] = out.problem.add_variable(run.block.labels[v]);
      }
      tables.push_back(out.problem.tables.size());
      for (Table table : run.block.tables) {
        for (int& variable : table.variables) variable = of[static_cast<size_t>(variable)];
        out.problem.tables.push_back(std::move(table));
      }
      variables.push_back(std::move(of));
    }
  }
  return out;
}

Choice roll_up(const Problem& problem, const Unrolled& unrolled, const Choice& choice) {
  Choice out{.price = choice.price};
  out.labels.assign(choice.labels.begin(), choice.labels.begin() + static_cast<int64_t>(problem.labels.size()));
  out.rows.assign(choice.rows.begin(), choice.rows.begin() + static_cast<int64_t>(problem.tables.size()));
  for (size_t r = 0; r < problem.runs.size(); ++r) {
    const Problem& block = problem.runs[r].block;
    auto& copies = out.runs.emplace_back();
    for (size_t c = 0; c < unrolled.variable_of[r].size(); ++c) {
      Choice& copy = copies.emplace_back();
      for (const int variable : unrolled.variable_of[r][c])
        copy.labels.push_back(choice.labels[static_cast<size_t>(variable)]);
      const auto first = choice.rows.begin() + static_cast<int64_t>(unrolled.first_table[r][c]);
      copy.rows.assign(first, first + static_cast<int64_t>(block.tables.size()));
      copy.price = price_of_tables(block.tables, copy.rows);
    }
  }
  return out;
}

}  // namespace trireme::solver
