#include "trireme/planner/solver/join.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/planner/solver/join_impl.h"

namespace trireme::solver {
namespace {

// Entries up to which a result has one for each combination, although few may go together.
constexpr int64_t kMostDense = int64_t{1} << 22;
constexpr int64_t kMostRows = int64_t{1} << 22;  // of a result that has a row for those only that go together
constexpr double kMostIndex = 9e18;

// Keeps the least sum of each combination of the labels that are kept.
class LeastSums {
 public:
  LeastSums(std::span<const int> variables, std::span<const int> keep, std::span<const int> sizes, bool all_dense) {
    for (const int variable : keep) out_.sizes.push_back(sizes[static_cast<size_t>(variable)]);
    const int64_t entries = combinations(out_.sizes);
    out_.is_dense = entries <= (all_dense ? kMostEntries : kMostDense);
    double ways = 1;
    for (const int size : out_.sizes) ways *= size;
    require_fits(out_.is_dense || (!all_dense && ways < kMostIndex), ways);
    if (out_.is_dense) out_.values.assign(static_cast<size_t>(entries), kNever);
    strides_.assign(variables.size(), 0);
    uint64_t stride = 1;
    for (size_t i = keep.size(); i-- > 0;) {
      const auto at = std::lower_bound(variables.begin(), variables.end(), keep[i]) - variables.begin();
      strides_[static_cast<size_t>(at)] = stride;
      stride *= static_cast<uint64_t>(out_.sizes[i]);
    }
  }

  static bool wants(int64_t sum) { return sum < kNever; }

  void leaf(std::span<const int32_t> labels, int64_t sum) { put(index_of(labels, labels.size()), sum); }

  bool row(std::span<const int32_t> labels, int64_t sum, const std::vector<const int64_t*>& rows, int size) {
    const uint64_t stride = strides_.back();
    if (!out_.is_dense || stride > 1) return false;
    int64_t* const to = out_.values.data() + index_of(labels, labels.size() - 1);
    if (rows.size() == 1 && stride == 1) {
      const int64_t* const from = rows[0];
      for (int j = 0; j < size; ++j) to[j] = std::min(to[j], sum + from[j]);
      return true;
    }
    sums_.assign(static_cast<size_t>(size), sum);
    for (const int64_t* const from : rows) {
      for (size_t j = 0; j < sums_.size(); ++j) sums_[j] = std::min(kNever, sums_[j] + from[j]);
    }
    for (size_t j = 0; j < sums_.size(); ++j) to[j * stride] = std::min(to[j * stride], sums_[j]);
    return true;
  }

  Entries finish() {
    if (out_.is_dense) return std::move(out_);
    std::vector<std::pair<uint64_t, int64_t>> rows(map_.begin(), map_.end());
    std::sort(rows.begin(), rows.end());
    for (const auto& [index, value] : rows) {
      uint64_t rest = index;
      out_.labels.resize(out_.labels.size() + out_.sizes.size());
      for (size_t i = out_.sizes.size(); i-- > 0;) {
        const auto size = static_cast<uint64_t>(out_.sizes[i]);
        out_.labels[out_.labels.size() - out_.sizes.size() + i] = static_cast<int32_t>(rest % size);
        rest /= size;
      }
      out_.values.push_back(value);
    }
    return std::move(out_);
  }

 private:
  uint64_t index_of(std::span<const int32_t> labels, size_t count) const {
    uint64_t index = 0;
    for (size_t i = 0; i < count; ++i) index += strides_[i] * static_cast<uint64_t>(labels[i]);
    return index;
  }

  void put(uint64_t index, int64_t sum) {
    if (out_.is_dense) {
      out_.values[index] = std::min(out_.values[index], sum);
      return;
    }
    const auto [known, added] = map_.try_emplace(index, sum);
    if (!added) known->second = std::min(known->second, sum);
    if (added) require_fits(map_.size() <= static_cast<size_t>(kMostRows), static_cast<double>(map_.size()));
  }

  void require_fits(bool fits, double ways) const {
    if (fits) return;
    fail(ErrorKind::kUnsupported,
         "a table over {} variables of {:.0f} combinations or more; at most {} are searched: too many choices "
         "depend on each other. Give fewer labels, or cut the problem where fewer values cross",
         out_.sizes.size(), ways, out_.is_dense ? kMostEntries : kMostRows);
  }

  Entries out_;
  std::vector<uint64_t> strides_;  // in the result, of each variable of the walk; 0: it is not kept
  std::unordered_map<uint64_t, int64_t> map_;
  std::vector<int64_t> sums_;
};

// Ascending.
std::vector<int> variables_of(std::span<const Weighted* const> tables, std::span<const int> keep) {
  std::vector<int> out(keep.begin(), keep.end());
  for (const Weighted* table : tables) out.insert(out.end(), table->variables.begin(), table->variables.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Weighted join(std::span<const Weighted* const> tables, std::span<const int> keep, std::span<const int> sizes) {
  std::vector<int> variables = variables_of(tables, keep);
  const bool all_dense =
      std::all_of(tables.begin(), tables.end(), [](const Weighted* table) { return table->all->is_dense; });
  LeastSums least(variables, keep, sizes, all_dense);
  JoinWalk(tables, std::move(variables), sizes, least).run();
  return {{keep.begin(), keep.end()}, std::make_shared<const Entries>(least.finish())};
}

Weighted Joins::join(std::span<const Weighted* const> tables, std::span<const int> keep, std::span<const int> sizes) {
  const std::vector<int> variables = variables_of(tables, keep);
  const auto place = [&](int variable) {
    return static_cast<uint64_t>(std::lower_bound(variables.begin(), variables.end(), variable) - variables.begin());
  };
  key_.assign({tables.size()});
  for (const int variable : variables) key_.push_back(static_cast<uint64_t>(sizes[static_cast<size_t>(variable)]));
  for (const Weighted* table : tables) {
    key_.push_back(memo_number(table->all.get()));
    for (const int variable : table->variables) key_.push_back(place(variable));
  }
  for (const int variable : keep) key_.push_back(place(variable));
  const Known& known = known_.of(key_, [&] {
    Known out;
    for (const Weighted* table : tables) out.from.push_back(table->all);
    out.made = solver::join(tables, keep, sizes).all;
    return out;
  });
  return {{keep.begin(), keep.end()}, known.made};
}

}  // namespace trireme::solver
