// Buckets: a problem prepared for elimination. Variables are numbered by their places in the order, and every table is
// in the bucket of the first of its variables that is eliminated. What a bucket leaves goes to the bucket of its first
// remaining variable. So the buckets form a tree (bucket elimination: Dechter, 1999).
#pragma once

#include <memory>
#include <vector>

#include "trireme/planner/solver/order.h"
#include "trireme/planner/solver/problem.h"
#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

// Rows of a table, of which those with the same labels stand together.
struct RowGroups {
  std::vector<int32_t> labels;  // of each group, ascending
  std::vector<uint32_t> begin;  // of each group, its first place in `rows` and `prices`; and the end
  std::vector<int32_t> rows;    // of the problem's table
  std::vector<Price> prices;

  size_t groups() const { return begin.size() - 1; }
};

// Tables of the same rows, whose variables are eliminated in the same order, have their groups in common.
struct Grouped {
  std::vector<int> variables;  // ascending
  std::shared_ptr<const RowGroups> all;
};

struct Bucket {
  std::vector<int> tables;
  std::vector<int> runs;
  std::vector<int> children;  // buckets whose results stand here
  std::vector<int> over;      // what it leaves a table over, ascending
  int parent = -1;            // -1: what it leaves is over nothing
};

struct Buckets {
  Order order;
  std::vector<int> sizes;       // by number
  std::vector<Grouped> tables;  // of problem.tables, by number
  std::vector<std::vector<int>> run_scopes;
  // One for each number that is eliminated, and one for all that are kept.
  std::vector<Bucket> buckets;
};

Buckets make_buckets(const Problem& problem, const std::vector<int>& keep);

// The least weight of each group; `sizes` are those of the table's variables.
Entries weigh(const RowGroups& table, std::vector<int> sizes, Weights weights);

// Variables of the problem that the run is between, in the order first, last, shared; and those of its block.
std::vector<int> outer_ends(const Run& run);
std::vector<int> inner_ends(const Run& run);

}  // namespace trireme::solver
