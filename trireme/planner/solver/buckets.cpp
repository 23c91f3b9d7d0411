#include "trireme/planner/solver/buckets.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "trireme/base/memo.h"

namespace trireme::solver {
namespace {

// The columns of a table in the order in which their variables are eliminated.
std::vector<size_t> columns_in_order(const Table& table, const std::vector<int>& position) {
  std::vector<size_t> out(table.variables.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = i;
  const auto place = [&](size_t i) { return position[static_cast<size_t>(table.variables[i])]; };
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  return out;
}

RowGroups row_groups_of(const Table& table, const std::vector<size_t>& order) {
  const auto compare = [&](size_t a, size_t b) {
    for (const size_t i : order) {
      if (table.row(a)[i] != table.row(b)[i]) return table.row(a)[i] < table.row(b)[i] ? -1 : 1;
    }
    return 0;
  };
  std::vector<size_t> rows(table.rows());
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = r;
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return compare(a, b) < 0; });
  RowGroups out;
  for (size_t k = 0; k < rows.size(); ++k) {
    if (k == 0 || compare(rows[k - 1], rows[k]) != 0) {
      out.begin.push_back(static_cast<uint32_t>(k));
      for (const size_t i : order) out.labels.push_back(table.row(rows[k])[i]);
    }
    out.rows.push_back(static_cast<int32_t>(rows[k]));
    out.prices.push_back(table.prices()[rows[k]]);
  }
  out.begin.push_back(static_cast<uint32_t>(rows.size()));
  return out;
}

// Of all tables, those that are alike once.
std::vector<Grouped> grouped(const std::vector<Table>& tables, const std::vector<int>& position) {
  Memo<std::shared_ptr<const RowGroups>> known;
  MemoKey key;
  std::vector<Grouped> out;
  out.reserve(tables.size());
  for (const Table& table : tables) {
    const std::vector<size_t> order = columns_in_order(table, position);
    key.assign({memo_number(table.all.get())});
    key.insert(key.end(), order.begin(), order.end());
    Grouped& made = out.emplace_back();
    for (const size_t i : order) made.variables.push_back(position[static_cast<size_t>(table.variables[i])]);
    made.all = known.of(key, [&] { return std::make_shared<const RowGroups>(row_groups_of(table, order)); });
  }
  return out;
}

// The bucket of a table over these numbers: that of the first, or the last one where all are kept.
size_t bucket_of(const std::vector<int>& variables, int eliminated) {
  int first = eliminated;
  for (const int variable : variables) first = std::min(first, variable);
  return static_cast<size_t>(first);
}

void add_to(std::vector<int>& set, const std::vector<int>& more) {
  set.insert(set.end(), more.begin(), more.end());
}

}  // namespace

std::vector<int> outer_ends(const Run& run) {
  std::vector<int> out{run.from, run.to};
  for (const auto& [inner, outer] : run.shared) out.push_back(outer);
  return out;
}

std::vector<int> inner_ends(const Run& run) {
  std::vector<int> out{run.first, run.last};
  for (const auto& [inner, outer] : run.shared) out.push_back(inner);
  return out;
}

Buckets make_buckets(const Problem& problem, const std::vector<int>& keep) {
  std::vector<std::vector<int>> scopes;
  for (const Table& table : problem.tables) scopes.push_back(table.variables);
  for (const Run& run : problem.runs) scopes.push_back(outer_ends(run));
  Buckets out{.order = min_fill(problem.labels, scopes, keep)};
  const Order& order = out.order;
  out.sizes.resize(problem.labels.size());
  for (size_t v = 0; v < problem.labels.size(); ++v)
    out.sizes[static_cast<size_t>(order.position[v])] = problem.labels[v];
  out.buckets.resize(static_cast<size_t>(order.eliminated) + 1);
  out.tables = grouped(problem.tables, order.position);
  for (size_t t = 0; t < out.tables.size(); ++t) {
    Bucket& bucket = out.buckets[bucket_of(out.tables[t].variables, order.eliminated)];
    bucket.tables.push_back(static_cast<int>(t));
    add_to(bucket.over, out.tables[t].variables);
  }
  for (size_t r = 0; r < problem.runs.size(); ++r) {
    std::vector<int>& scope = out.run_scopes.emplace_back();
    for (const int variable : outer_ends(problem.runs[r]))
      scope.push_back(order.position[static_cast<size_t>(variable)]);
    Bucket& bucket = out.buckets[bucket_of(scope, order.eliminated)];
    bucket.runs.push_back(static_cast<int>(r));
    add_to(bucket.over, scope);
  }
  for (int v = 0; v <= order.eliminated; ++v) {
    std::vector<int>& over = out.buckets[static_cast<size_t>(v)].over;
    if (v == order.eliminated) {
      over.clear();
      for (size_t k = 0; k < keep.size(); ++k) over.push_back(v + static_cast<int>(k));
      break;
    }
    std::sort(over.begin(), over.end());
    over.erase(std::unique(over.begin(), over.end()), over.end());
    std::erase(over, v);
    const size_t parent = bucket_of(over, order.eliminated);
    out.buckets[static_cast<size_t>(v)].parent = static_cast<int>(parent);
    out.buckets[parent].children.push_back(v);
    if (parent < static_cast<size_t>(order.eliminated)) add_to(out.buckets[parent].over, over);
  }
  return out;
}

Entries weigh(const RowGroups& table, std::vector<int> sizes, Weights weights) {
  Entries out{.sizes = std::move(sizes)};
  const int64_t entries = combinations(out.sizes);
  out.is_dense = entries <= 64 || (entries <= kMostEntries && entries <= static_cast<int64_t>(4 * table.groups()));
  if (out.is_dense) {
    out.values.assign(static_cast<size_t>(entries), kNever);
  } else {
    out.labels = table.labels;
  }
  const size_t width = out.sizes.size();
  for (size_t group = 0; group < table.groups(); ++group) {
    int64_t least = kNever;
    for (uint32_t k = table.begin[group]; k < table.begin[group + 1]; ++k)
      least = std::min(least, weights.of(table.prices[k]));
    if (!out.is_dense) {
      out.values.push_back(least);
      continue;
    }
    size_t index = 0;
    for (size_t i = 0; i < width; ++i)
      index = index * static_cast<size_t>(out.sizes[i]) + static_cast<size_t>(table.labels[group * width + i]);
    out.values[index] = least;
  }
  return out;
}

}  // namespace trireme::solver
