// Problem: what a search over strategies minimises, stripped of names. Variables take one of a few labels each (a
// label is a layout, or one way to run an op); tables say which labels go together and at what price; the price of a
// choice is the sum over all tables. Prices are integers, so that sums do not depend on their order and two solvers
// can be compared bit for bit.
//
// Such a sum of tables is a factor graph, or a weighted constraint satisfaction problem (Dechter, "Constraint
// Processing", 2003, chapter 13).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::solver {

struct Price {
  int64_t time_ps = 0;
  int64_t bytes = 0;  // that are held on each device

  Price& operator+=(const Price& other) {
    time_ps += other.time_ps;
    bytes += other.bytes;
    return *this;
  }
  friend bool operator==(const Price&, const Price&) = default;
};

// The rows of a table, whatever its variables are. Tables of layers that are alike have one object in common, so that
// what follows from it is computed once for all of them.
struct Rows {
  std::vector<int32_t> labels;  // of row r: as many as the table has variables, from r times that many on
  std::vector<Price> prices;    // of each row
};

// What some labels of some variables cost together. Labels without a row do not go together. Labels with several rows
// can be had in several ways, such as in less time or in fewer bytes.
struct Table {
  std::vector<int> variables;  // each once
  std::shared_ptr<Rows> all = std::make_shared<Rows>();

  const std::vector<int32_t>& labels() const { return all->labels; }
  const std::vector<Price>& prices() const { return all->prices; }
  size_t rows() const { return all->prices.size(); }
  std::span<const int32_t> row(size_t r) const {
    return std::span(all->labels).subspan(r * variables.size(), variables.size());
  }
  Rows& own_rows();  // to be changed; no other table has them any more
  void add(std::span<const int32_t> row, Price price);
  void add(std::initializer_list<int32_t> row, Price price) { add(std::span(row.begin(), row.size()), price); }
};

struct Run;

struct Problem {
  std::vector<int> labels;  // of each variable, their number
  std::vector<Table> tables;
  std::vector<Run> runs;

  int add_variable(int number_of_labels);
  Table& add_table(std::vector<int> variables);
};

// The same block several times over, laid end to end: `last` of each copy is `first` of the next. Copies choose
// independently of each other. A block has no runs of its own.
struct Run {
  Problem block;
  int64_t times = 1;
  int first = 0, last = 1;  // of the block's variables; not the same
  int from = 0, to = 1;     // of the problem's: `first` of the first copy, `last` of the last one; not the same
  // Variables that all copies have in common, as {of the block, of the problem}.
  std::vector<std::pair<int, int>> shared = {};
};

// One label for each variable and one row for each table.
struct Choice {
  Price price;
  std::vector<int32_t> labels;
  std::vector<int32_t> rows;
  std::vector<std::vector<Choice>> runs;  // of each run, each copy; their `price` is that of the copy alone
};

// Makes times that add up to too much for check() coarser: divides all of them by a power of two, which it returns; 1
// where they fit. Quotients are rounded down, so that no choice takes less than what its price says times the divisor.
int64_t make_times_fit(Problem& problem);

// The largest time and the most bytes of each of these tables.
std::vector<Price> largest_prices(const std::vector<Table>& tables);

// Throws kInvalidArgument naming the table or run: labels that a variable does not have, a variable twice, a negative
// price, prices whose sum would not fit, variables with unlike labels in a run.
void check(const Problem& problem);

// The price of a choice, summed from the tables; "" or what is wrong with the choice. Shares no code with the solvers.
Price price_of(const Problem& problem, const Choice& choice);
std::string why_not(const Problem& problem, const Choice& choice);

// The same problem without runs: copy c of run r has the variables variable_of[r][c][of the block] and the tables from
// first_table[r][c] on, in the order of the block's.
struct Unrolled {
  Problem problem;
  std::vector<std::vector<std::vector<int>>> variable_of;
  std::vector<std::vector<size_t>> first_table;
};
Unrolled unroll(const Problem& problem);
// The choice in the problem that was unrolled.
Choice roll_up(const Problem& problem, const Unrolled& unrolled, const Choice& choice);

}  // namespace trireme::solver
