#include "trireme/planner/solver/labels.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/planner/solver/join.h"
#include "trireme/planner/solver/join_impl.h"

namespace trireme::solver {
namespace {

// A partial choice is a chain of these: what was added last, and what came before.
struct LabelNode {
  enum class Added : uint8_t { kRow, kResult, kLabel };
  Price price;
  int32_t before = -1;
  Added added = Added::kRow;
  int32_t of = 0;    // kRow: the table; kLabel: the variable
  int32_t what = 0;  // kRow: the row; kResult: the node of a bucket's result; kLabel: the label
};

}  // namespace

LabelSearch::LabelSearch(const Problem& problem, Weights multiplier)
    : problem_(problem), multiplier_(multiplier), inside_(problem) {
  invariant(problem.runs.empty() && multiplier.time >= 1, "labels of a problem with {} runs, time at a price of {}",
            problem.runs.size(), multiplier.time);
  inside_.solve(multiplier);
  complete();
}

void LabelSearch::complete() {
  const Buckets& buckets = inside_.buckets();
  outside_.resize(buckets.buckets.size());
  Joins joins;
  outside_.back() = {{}, std::make_shared<const Entries>(Entries{.values = {0}})};
  for (size_t v = outside_.size() - 1; v-- > 0;) {
    const auto parent = static_cast<size_t>(buckets.buckets[v].parent);
    std::vector<const Weighted*> others = inside_.tables_in(buckets.buckets[parent]);
    std::erase(others, &inside_.left()[v]);
    others.push_back(&outside_[parent]);
    outside_[v] = joins.join(others, buckets.buckets[v].over, buckets.sizes);
  }
}

// One pass over the buckets with one window.
class LabelPass {
 public:
  LabelPass(const LabelSearch& search, int64_t bytes, int64_t bound, int64_t most_labels)
      : search_(search),
        buckets_(search.inside_.buckets()),
        weights_(search.multiplier_),
        bytes_(bytes),
        bound_(bound),
        most_labels_(most_labels),
        results_(buckets_.buckets.size()) {}

  LabelSearch::Result run() {
    for (size_t v = 0; v < results_.size(); ++v) {
      if (!add_bucket(v)) return {.is_complete = false, .labels = static_cast<int64_t>(nodes_.size())};
    }
    LabelSearch::Result out{.labels = static_cast<int64_t>(nodes_.size())};
    const auto last = results_.back().find(0);
    if (last == results_.back().end() || last->second.empty()) return out;
    out.choice = trace(last->second.front());  // a Pareto set begins with the least time
    return out;
  }

  bool wants(int64_t sum) const { return sum <= bound_ && !is_full(); }

  bool row(std::span<const int32_t> labels, int64_t sum, const std::vector<const int64_t*>& rows, int size) {
    row_labels_.assign(labels.begin(), labels.end());
    for (int32_t label = 0; label < size; ++label) {
      int64_t all = sum;
      for (const int64_t* const values : rows) {
        if ((all += values[label]) > bound_) break;
      }
      if (all > bound_ || is_full()) continue;
      row_labels_.back() = label;
      leaf(row_labels_, all);
    }
    return true;
  }

  // `sum`: the least weight of all choices with these labels.
  void leaf(std::span<const int32_t> labels, int64_t sum) {
    for (size_t i = 0; i < labels.size(); ++i) of_[static_cast<size_t>(variables_[i])] = labels[i];
    std::vector<int32_t> partial{-1};
    for (const int table : bucket_->tables) {
      sum -= least_of_rows(table);
      extend(partial, sum, group_begin_, group_end_, [&](size_t k) { return row_node(table, k); });
    }
    for (const int child : bucket_->children) {
      const auto at = static_cast<size_t>(child);
      sum -= search_.inside_.left()[at].at(of_);
      const auto known = results_[at].find(index_of(buckets_.buckets[at].over));
      if (known == results_[at].end()) return;
      const std::vector<int32_t>& set = known->second;
      extend(partial, sum, 0, set.size(), [&](size_t k) {
        return LabelNode{.price = node(set[k]).price, .added = LabelNode::Added::kResult, .what = set[k]};
      });
    }
    if (partial.empty()) return;
    std::vector<int32_t>& result = results_[at_][index_of(bucket_->over)];
    for (const int32_t before : partial) result.push_back(is_root() ? before : with_label(before));
  }

 private:
  bool is_full() const { return static_cast<int64_t>(nodes_.size()) > most_labels_; }
  bool is_root() const { return at_ + 1 == results_.size(); }
  const LabelNode& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  Price price_of_node(int32_t id) const { return id < 0 ? Price{} : node(id).price; }

  bool add_bucket(size_t v) {
    at_ = v;
    bucket_ = &buckets_.buckets[v];
    variables_ = bucket_->over;
    if (!is_root()) variables_.insert(variables_.begin(), static_cast<int>(v));
    of_.resize(buckets_.sizes.size());
    std::vector<const Weighted*> tables = search_.inside_.tables_in(*bucket_);
    tables.push_back(&search_.outside_[v]);
    JoinWalk(tables, variables_, buckets_.sizes, *this).run();
    for (auto& [index, set] : results_[v]) keep_pareto(set);
    return !is_full();
  }

  // What stands in place of each partial choice: it with each of the candidates, where that can still be of use. `rest`
  // is the least weight of all that is not yet in any of them.
  template <class MakeNode>
  void extend(std::vector<int32_t>& partial, int64_t rest, size_t begin, size_t end, MakeNode make) {
    std::vector<int32_t> out;
    for (const int32_t before : partial) {
      for (size_t k = begin; k < end; ++k) {
        LabelNode next = make(k);
        next.price += price_of_node(before);
        next.before = before;
        if (next.price.bytes > bytes_ || weights_.of(next.price) + rest > bound_) continue;
        out.push_back(static_cast<int32_t>(nodes_.size()));
        nodes_.push_back(next);
      }
    }
    partial = std::move(out);
  }

  // Finds the rows of a table for the labels at hand, which it has.
  int64_t least_of_rows(int table) {
    const std::vector<int>& variables = buckets_.tables[static_cast<size_t>(table)].variables;
    const RowGroups& rows = *buckets_.tables[static_cast<size_t>(table)].all;
    const size_t width = variables.size();
    size_t begin = 0, end = rows.groups();
    while (end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      int compared = 0;
      for (size_t i = 0; i < width && compared == 0; ++i)
        compared = rows.labels[middle * width + i] - of_[static_cast<size_t>(variables[i])];
      (compared <= 0 ? begin : end) = middle;
    }
    group_begin_ = rows.begin[begin];
    group_end_ = rows.begin[begin + 1];
    int64_t least = kNever;
    for (size_t k = group_begin_; k < group_end_; ++k) least = std::min(least, weights_.of(rows.prices[k]));
    return least;
  }

  LabelNode row_node(int table, size_t k) const {
    const RowGroups& rows = *buckets_.tables[static_cast<size_t>(table)].all;
    return {.price = rows.prices[k], .added = LabelNode::Added::kRow, .of = table, .what = rows.rows[k]};
  }

  int32_t with_label(int32_t before) {
    nodes_.push_back({.price = price_of_node(before),
                      .before = before,
                      .added = LabelNode::Added::kLabel,
                      .of = static_cast<int32_t>(at_),
                      .what = of_[at_]});
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  uint64_t index_of(const std::vector<int>& variables) const {
    uint64_t index = 0;
    for (const int variable : variables) {
      const auto at = static_cast<size_t>(variable);
      index = index * static_cast<uint64_t>(buckets_.sizes[at]) + static_cast<uint64_t>(of_[at]);
    }
    return index;
  }

  // By time; each has fewer bytes than all before it.
  void keep_pareto(std::vector<int32_t>& set) const {
    std::sort(set.begin(), set.end(), [&](int32_t a, int32_t b) {
      const Price left = price_of_node(a), right = price_of_node(b);
      return std::tie(left.time_ps, left.bytes, a) < std::tie(right.time_ps, right.bytes, b);
    });
    size_t kept = 0;
    for (const int32_t id : set) {
      if (kept == 0 || price_of_node(id).bytes < price_of_node(set[kept - 1]).bytes) set[kept++] = id;
    }
    set.resize(kept);
  }

  Choice trace(int32_t last) const {
    const Problem& problem = search_.problem_;
    std::vector<int32_t> of(problem.labels.size());
    Choice out{.price = price_of_node(last), .rows = std::vector<int32_t>(problem.tables.size(), -1)};
    std::vector<int32_t> open{last};
    while (!open.empty()) {
      const int32_t id = open.back();
      open.pop_back();
      if (id < 0) continue;
      const LabelNode& part = node(id);
      open.push_back(part.before);
      if (part.added == LabelNode::Added::kRow) out.rows[static_cast<size_t>(part.of)] = part.what;
      if (part.added == LabelNode::Added::kLabel) of[static_cast<size_t>(part.of)] = part.what;
      if (part.added == LabelNode::Added::kResult) open.push_back(part.what);
    }
    for (const int position : buckets_.order.position) out.labels.push_back(of[static_cast<size_t>(position)]);
    return out;
  }

  const LabelSearch& search_;
  const Buckets& buckets_;
  Weights weights_;
  int64_t bytes_, bound_, most_labels_;
  std::vector<LabelNode> nodes_;
  std::vector<std::unordered_map<uint64_t, std::vector<int32_t>>>
      results_;  // of each bucket, by labels of what it is over
  size_t at_ = 0;
  const Bucket* bucket_ = nullptr;
  std::vector<int> variables_;
  std::vector<int32_t> of_;
  std::vector<int32_t> row_labels_;
  size_t group_begin_ = 0, group_end_ = 0;
};

LabelSearch::Result LabelSearch::run(int64_t bytes, int64_t within_ps, int64_t most_labels) {
  return LabelPass(*this, bytes, multiplier_.time * within_ps + multiplier_.bytes * bytes, most_labels).run();
}

}  // namespace trireme::solver
