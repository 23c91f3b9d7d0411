// JoinWalk: all combinations of labels that go together in several tables at once, variable by variable, so that a
// combination is left as soon as one table does not have it (a worst-case optimal join: Ngo et al., 2012). `Sink` takes
// what the walk finds:
//   bool wants(int64_t sum)                           whether a combination of that weight is of use
//   void leaf(std::span<const int32_t> labels, int64_t sum)
//   bool row(labels, sum, rows, size)                 takes a whole last variable of dense rows itself; or false
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "trireme/planner/solver/weighted.h"

namespace trireme::solver {

template <class Sink>
class JoinWalk {
 public:
  // `variables` ascending: all that the tables have. `sizes` by variables' numbers.
  JoinWalk(std::span<const Weighted* const> tables, std::vector<int> variables, std::span<const int> sizes, Sink& sink)
      : variables_(std::move(variables)), sizes_(sizes), sink_(sink), labels_(variables_.size()) {
    at_.resize(variables_.size());
    for (const Weighted* table : tables) {
      if (table->variables.empty()) {
        constant_ = std::min(kNever, constant_ + (table->all->values.empty() ? kNever : table->all->values[0]));
        continue;
      }
      const size_t source = sources_.size();
      sources_.push_back({table->all.get(), table->variables.size(), std::vector<Range>(table->variables.size() + 1)});
      sources_.back().ranges[0] = {0, table->all->is_dense ? 0 : table->all->values.size()};
      for (size_t depth = 0; depth < table->variables.size(); ++depth) {
        const auto level = std::lower_bound(variables_.begin(), variables_.end(), table->variables[depth]);
        at_[static_cast<size_t>(level - variables_.begin())].push_back(
            {source, depth, depth + 1 == table->variables.size()});
      }
    }
  }

  void run() {
    if (!sink_.wants(constant_)) return;
    if (variables_.empty()) {
      sink_.leaf(labels_, constant_);
    } else {
      descend(0, constant_);
    }
  }

 private:
  struct Range {
    size_t begin = 0, end = 0;  // of rows; of a dense table `begin` is the index of what is bound so far
  };
  struct Source {
    const Entries* table;
    size_t width;
    std::vector<Range> ranges;  // after so many variables
  };
  struct Bound {
    size_t source, depth;
    bool is_last;
  };

  void descend(size_t level, int64_t sum) {
    if (level + 1 == variables_.size() && dense_row(level, sum)) return;
    const Bound* driver = nullptr;
    size_t least = 0;
    for (const Bound& bound : at_[level]) {
      const Source& source = sources_[bound.source];
      if (source.table->is_dense) continue;
      const size_t rows = source.ranges[bound.depth].end - source.ranges[bound.depth].begin;
      if (!driver || rows < least) driver = &bound, least = rows;
    }
    if (!driver) {
      const int size = sizes_[static_cast<size_t>(variables_[level])];
      for (int32_t label = 0; label < size; ++label) take(level, label, sum);
      return;
    }
    const Source& source = sources_[driver->source];
    const Range range = source.ranges[driver->depth];
    for (size_t row = range.begin; row < range.end;) {
      const int32_t label = label_of(source, driver->depth, row);
      take(level, label, sum);
      row = end_of(source, driver->depth, {row, range.end}, label);
    }
  }

  void take(size_t level, int32_t label, int64_t sum) {
    for (const Bound& bound : at_[level]) {
      Source& source = sources_[bound.source];
      const Range range = source.ranges[bound.depth];
      Range& next = source.ranges[bound.depth + 1];
      if (source.table->is_dense) {
        next.begin = range.begin * static_cast<size_t>(source.table->sizes[bound.depth]) + static_cast<size_t>(label);
      } else {
        next.begin = begin_of(source, bound.depth, range, label);
        next.end = end_of(source, bound.depth, {next.begin, range.end}, label);
        if (next.begin == next.end) return;
      }
      if (bound.is_last) sum += source.table->values[next.begin];
      if (!sink_.wants(sum)) return;
    }
    labels_[level] = label;
    if (level + 1 == variables_.size()) {
      sink_.leaf(labels_, sum);
    } else {
      descend(level + 1, sum);
    }
  }

  bool dense_row(size_t level, int64_t sum) {
    rows_.clear();
    for (const Bound& bound : at_[level]) {
      const Source& source = sources_[bound.source];
      if (!source.table->is_dense) return false;
      const size_t size = static_cast<size_t>(source.table->sizes[bound.depth]);
      rows_.push_back(source.table->values.data() + source.ranges[bound.depth].begin * size);
    }
    return sink_.row(labels_, sum, rows_, sizes_[static_cast<size_t>(variables_[level])]);
  }

  static int32_t label_of(const Source& source, size_t depth, size_t row) {
    return source.table->labels[row * source.width + depth];
  }
  // The first row of the range with this label or a later one. Ranges are short: a search for the middle is begun only
  // where they are not.
  static size_t begin_of(const Source& source, size_t depth, Range range, int32_t label) {
    while (range.end - range.begin > 8) {
      const size_t middle = range.begin + (range.end - range.begin) / 2;
      (label_of(source, depth, middle) < label ? range.begin : range.end) = middle;
    }
    while (range.begin < range.end && label_of(source, depth, range.begin) < label) ++range.begin;
    return range.begin;
  }
  static size_t end_of(const Source& source, size_t depth, Range range, int32_t label) {
    return begin_of(source, depth, range, label + 1);
  }

  std::vector<int> variables_;
  std::span<const int> sizes_;
  Sink& sink_;
  int64_t constant_ = 0;
  std::vector<Source> sources_;
  std::vector<std::vector<Bound>> at_;  // of each of the variables: the tables that have it
  std::vector<int32_t> labels_;
  std::vector<const int64_t*> rows_;
};

}  // namespace trireme::solver
