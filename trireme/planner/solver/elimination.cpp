#include "trireme/planner/solver/elimination.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/memo.h"
#include "trireme/planner/solver/join.h"

namespace trireme::solver {

// A run's block, eliminated but for its ends, and its powers: one for each combination of labels of what the copies
// share.
struct Elimination::RunSolver {
  explicit RunSolver(const Run& run) : block(run.block, inner_ends(run)) {}

  Elimination block;
  std::vector<MinPlusPowers> powers = {};
  Weighted between = {};  // by the problem's numbers
};

Elimination::Elimination(Elimination&&) noexcept = default;
Elimination::~Elimination() = default;

Elimination::Elimination(const Problem& problem, std::vector<int> keep)
    : problem_(problem), keep_(std::move(keep)), buckets_(make_buckets(problem, keep_)) {
  for (const Run& run : problem.runs) runs_.push_back(std::make_unique<RunSolver>(run));
}

std::vector<const Weighted*> Elimination::tables_in(const Bucket& bucket) const {
  std::vector<const Weighted*> out;
  for (const int table : bucket.tables) out.push_back(&tables_[static_cast<size_t>(table)]);
  for (const int run : bucket.runs) out.push_back(&runs_[static_cast<size_t>(run)]->between);
  for (const int child : bucket.children) out.push_back(&left_[static_cast<size_t>(child)]);
  return out;
}

void Elimination::solve(Weights weights) {
  weights_ = weights;
  weigh_tables();
  for (size_t run = 0; run < runs_.size(); ++run) solve_run(run, weights);
  left_.assign(buckets_.buckets.size(), {});
  Joins joins;
  for (size_t v = 0; v < left_.size(); ++v) {
    const Bucket& bucket = buckets_.buckets[v];
    left_[v] = joins.join(tables_in(bucket), bucket.over, buckets_.sizes);
  }
}

void Elimination::weigh_tables() {
  Memo<std::shared_ptr<const Entries>> known;
  MemoKey key;
  tables_.clear();
  for (const Grouped& table : buckets_.tables) {
    key.assign({memo_number(table.all.get())});
    for (const int variable : table.variables)
      key.push_back(static_cast<uint64_t>(buckets_.sizes[static_cast<size_t>(variable)]));
    tables_.push_back({table.variables, known.of(key, [&] {
                         std::vector<int> sizes(key.begin() + 1, key.end());
                         return std::make_shared<const Entries>(weigh(*table.all, std::move(sizes), weights_));
                       })});
  }
}

void Elimination::solve_run(size_t run, Weights weights) {
  RunSolver& solver = *runs_[run];
  solver.block.solve(weights);
  const Weighted block = solver.block.over_kept();
  const std::vector<int>& sizes = block.all->sizes;
  const auto size = static_cast<size_t>(sizes[0]);
  const int64_t shared = combinations(std::span(sizes).subspan(2));
  require(combinations(sizes) <= kMostEntries, "a run whose copies share variables of {} combinations of labels",
          shared);
  Entries between{.sizes = sizes};
  between.values.assign(size * size * static_cast<size_t>(shared), kNever);
  solver.powers.clear();
  std::vector<int32_t> labels(sizes.size(), 0);
  for (size_t s = 0; s < static_cast<size_t>(shared); ++s) {
    auto rest = static_cast<int64_t>(s);
    for (size_t i = labels.size(); i-- > 2;) {
      labels[i] = static_cast<int32_t>(rest % sizes[i]);
      rest /= sizes[i];
    }
    std::vector<int64_t> matrix(size * size);
    for (size_t i = 0; i < size * size; ++i) {
      labels[0] = static_cast<int32_t>(i / size);
      labels[1] = static_cast<int32_t>(i % size);
      matrix[i] = block.at(labels);
    }
    solver.powers.emplace_back(std::move(matrix), size);
    const std::vector<int64_t>& all = solver.powers.back().of(problem_.runs[run].times);
    for (size_t i = 0; i < size * size; ++i) between.values[i * static_cast<size_t>(shared) + s] = all[i];
  }
  const Weighted made{block.variables, std::make_shared<const Entries>(std::move(between))};
  solver.between = renumbered(made, buckets_.run_scopes[run]);
}

std::optional<int64_t> Elimination::least() const {
  invariant(keep_.empty(), "the least weight of a problem of which {} variables are kept", keep_.size());
  const int64_t value = left_.back().all->values.at(0);
  return value < kNever ? std::optional(value) : std::nullopt;
}

Weighted Elimination::over_kept() const {
  Weighted out = left_.back();
  for (size_t i = 0; i < out.variables.size(); ++i) out.variables[i] = static_cast<int>(i);
  return out;
}

// From the last to the first: what is left over of a bucket says which label is cheapest once all that come after have
// theirs.
void Elimination::take_labels(std::vector<int32_t>& of) const {
  for (auto v = static_cast<size_t>(buckets_.order.eliminated); v-- > 0;) {
    const std::vector<const Weighted*> tables = tables_in(buckets_.buckets[v]);
    int64_t least = kNever;
    int32_t best = -1;
    for (int32_t label = 0; label < buckets_.sizes[v]; ++label) {
      of[v] = label;
      int64_t sum = 0;
      for (const Weighted* table : tables) {
        if ((sum += table->at(of)) >= least) break;
      }
      if (sum < least) least = sum, best = label;
    }
    invariant(best >= 0, "no label of variable {} goes with what was chosen", v);
    of[v] = best;
  }
}

int32_t Elimination::cheapest_row(size_t table, std::span<const int32_t> of) const {
  const std::vector<int>& variables = buckets_.tables[table].variables;
  const RowGroups& rows = *buckets_.tables[table].all;
  const size_t width = variables.size();
  const auto compare = [&](size_t group) {
    for (size_t i = 0; i < width; ++i) {
      const int32_t wanted = of[static_cast<size_t>(variables[i])];
      if (rows.labels[group * width + i] != wanted) return rows.labels[group * width + i] - wanted;
    }
    return 0;
  };
  size_t begin = 0, end = rows.groups();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if (compare(middle) < 0) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  invariant(begin < rows.groups() && compare(begin) == 0, "table {} has no row for what was chosen", table);
  uint32_t best = rows.begin[begin];
  for (uint32_t k = best; k < rows.begin[begin + 1]; ++k) {
    if (weights_.of(rows.prices[k]) < weights_.of(rows.prices[best])) best = k;
  }
  return rows.rows[best];
}

std::vector<Choice> Elimination::choose_run(size_t run, std::span<const int32_t> of) {
  RunSolver& solver = *runs_[run];
  const std::vector<int>& scope = buckets_.run_scopes[run];
  std::vector<int32_t> ends;
  for (const int variable : scope) ends.push_back(of[static_cast<size_t>(variable)]);
  size_t shared = 0;
  for (size_t i = 2; i < scope.size(); ++i)
    shared = shared * static_cast<size_t>(buckets_.sizes[static_cast<size_t>(scope[i])]) + static_cast<size_t>(ends[i]);
  const int64_t times = problem_.runs[run].times;
  const std::vector<int32_t> path = solver.powers[shared].path(times, ends[0], ends[1]);
  std::map<std::pair<int32_t, int32_t>, Choice> known;
  std::vector<Choice> out;
  for (size_t copy = 0; copy < static_cast<size_t>(times); ++copy) {
    const auto [at, is_new] = known.try_emplace({path[copy], path[copy + 1]});
    ends[0] = path[copy];
    ends[1] = path[copy + 1];
    if (is_new) at->second = solver.block.choice(ends);
    out.push_back(at->second);
  }
  return out;
}

Choice Elimination::choice(std::span<const int32_t> kept) {
  invariant(kept.size() == keep_.size(), "{} labels for {} variables that are kept", kept.size(), keep_.size());
  std::vector<int32_t> of(buckets_.sizes.size());
  std::copy(kept.begin(), kept.end(), of.begin() + buckets_.order.eliminated);
  take_labels(of);
  Choice out;
  for (const int position : buckets_.order.position) out.labels.push_back(of[static_cast<size_t>(position)]);
  for (size_t table = 0; table < buckets_.tables.size(); ++table) {
    out.rows.push_back(cheapest_row(table, of));
    out.price += problem_.tables[table].prices()[static_cast<size_t>(out.rows.back())];
  }
  for (size_t run = 0; run < runs_.size(); ++run) {
    out.runs.push_back(choose_run(run, of));
    for (const Choice& copy : out.runs.back()) out.price += copy.price;
  }
  return out;
}

}  // namespace trireme::solver
