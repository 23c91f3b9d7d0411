#include "trireme/planner/solver/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/memo.h"

namespace trireme::solver {
namespace {

constexpr int64_t kMostPrice = int64_t{1} << 57;  // of the largest rows of all tables together

// `prefix`: of which block it is, for messages.
void check_rows(const Problem& problem, const Table& table, const std::string& prefix, size_t t) {
  require(table.labels().size() == table.rows() * table.variables.size(), "{}table {}: {} labels in {} rows of {}",
          prefix, t, table.labels().size(), table.rows(), table.variables.size());
  for (size_t r = 0; r < table.rows(); ++r) {
    for (size_t i = 0; i < table.variables.size(); ++i) {
      const int count = problem.labels[static_cast<size_t>(table.variables[i])];
      require(table.row(r)[i] >= 0 && table.row(r)[i] < count,
              "{}table {}, row {}: label {} of variable {}, which has {} labels", prefix, t, r, table.row(r)[i],
              table.variables[i], count);
    }
    const Price& price = table.prices()[r];
    require(price.time_ps >= 0 && price.bytes >= 0,
            "{}table {}, row {}: a price of {} ps and {} bytes; neither may be negative", prefix, t, r, price.time_ps,
            price.bytes);
  }
}

void check_variables(const Problem& problem, const Table& table, const std::string& prefix, size_t t) {
  for (const int variable : table.variables) {
    require(variable >= 0 && static_cast<size_t>(variable) < problem.labels.size(),
            "{}table {}: variable {} of a problem with {} variables", prefix, t, variable, problem.labels.size());
    require(std::count(table.variables.begin(), table.variables.end(), variable) == 1,
            "{}table {}: variable {} appears twice", prefix, t, variable);
  }
}

void check_plain(const Problem& problem, const std::string& prefix) {
  for (size_t v = 0; v < problem.labels.size(); ++v) {
    require(problem.labels[v] >= 1, "{}variable {} has {} labels; it needs one or more", prefix, v, problem.labels[v]);
  }
  Memo<bool> checked;  // by rows, and the numbers of labels that their variables have
  MemoKey key;
  for (size_t t = 0; t < problem.tables.size(); ++t) {
    const Table& table = problem.tables[t];
    check_variables(problem, table, prefix, t);
    key.assign({memo_number(table.all.get())});
    for (const int variable : table.variables)
      key.push_back(static_cast<uint64_t>(problem.labels[static_cast<size_t>(variable)]));
    checked.of(key, [&] {
      check_rows(problem, table, prefix, t);
      return true;
    });
  }
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
  for (const Price& largest : largest_prices(tables)) {
    add(sum.time_ps, largest.time_ps, "times");
    add(sum.bytes, largest.bytes, "bytes");
  }
}

// The largest times of all tables together.
double largest_time(const std::vector<Table>& tables) {
  double out = 0;
  for (const Price& largest : largest_prices(tables)) out += static_cast<double>(largest.time_ps);
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
  for (size_t t = 0; t < tables.size(); ++t) out += tables[t].prices()[static_cast<size_t>(rows[t])];
  return out;
}

}  // namespace

Rows& Table::own_rows() {
  if (all.use_count() > 1) all = std::make_shared<Rows>(*all);
  return *all;
}

void Table::add(std::span<const int32_t> row, Price price) {
  Rows& rows = own_rows();
  rows.labels.insert(rows.labels.end(), row.begin(), row.end());
  rows.prices.push_back(price);
}

int Problem::add_variable(int number_of_labels) {
  labels.push_back(number_of_labels);
  return static_cast<int>(labels.size()) - 1;
}

Table& Problem::add_table(std::vector<int> variables) {
  tables.push_back({.variables = std::move(variables)});
  return tables.back();
}

std::vector<Price> largest_prices(const std::vector<Table>& tables) {
  std::unordered_map<const Rows*, Price> known;
  std::vector<Price> out;
  out.reserve(tables.size());
  for (const Table& table : tables) {
    const auto [found, is_new] = known.try_emplace(table.all.get());
    for (size_t r = 0; is_new && r < table.rows(); ++r) {
      found->second.time_ps = std::max(found->second.time_ps, table.prices()[r].time_ps);
      found->second.bytes = std::max(found->second.bytes, table.prices()[r].bytes);
    }
    out.push_back(found->second);
  }
  return out;
}

int64_t make_times_fit(Problem& problem) {
  double sum = largest_time(problem.tables);
  for (const Run& run : problem.runs) sum += static_cast<double>(run.times) * largest_time(run.block.tables);
  constexpr auto kMost = static_cast<double>(kMostPrice / 2);
  int64_t divisor = 1;
  while (sum / static_cast<double>(divisor) >= kMost) divisor *= 2;
  const auto divide = [divisor](std::vector<Table>& tables) {
    std::map<std::shared_ptr<Rows>, std::shared_ptr<Rows>> divided;
    for (Table& table : tables) {
      std::shared_ptr<Rows>& rows = divided[table.all];
      if (rows == nullptr) {
        rows = std::make_shared<Rows>(*table.all);
        for (Price& price : rows->prices) price.time_ps /= divisor;
      }
      table.all = rows;
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
