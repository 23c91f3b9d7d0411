#include "trireme/planner/solver/simplify.h"

#include <algorithm>
#include <compare>

#include "trireme/planner/solver/buckets.h"

namespace trireme::solver {
namespace {

bool beats_or_equals(const Price& a, const Price& b) {
  return a.time_ps <= b.time_ps && a.bytes <= b.bytes;
}

class Simplifier {
 public:
  Simplifier(const Problem& problem, const std::vector<int>& fixed)
      : labels_(problem.labels), tables_(problem.tables), is_fixed_(labels_.size()) {
    for (const int variable : fixed) is_fixed_[static_cast<size_t>(variable)] = 1;
    for (size_t v = 0; v < labels_.size(); ++v) {
      is_alive_.emplace_back(static_cast<size_t>(labels_[v]), 1);
      same_as_.push_back(static_cast<int>(v));
      label_in_.emplace_back();
      for (int32_t label = 0; label < labels_[v]; ++label) label_in_[v].push_back(label);
    }
    for (const Table& table : tables_) {
      rows_.emplace_back();
      for (size_t r = 0; r < table.rows(); ++r) rows_.back().push_back(static_cast<int32_t>(r));
    }
    is_open_.assign(labels_.size(), 1);
    for (size_t t = 0; t < tables_.size(); ++t) drop_rows(t);
  }

  Smaller run(Problem& problem) {
    do {
      while (drop_labels()) continue;
    } while (merge());
    return renumber(problem);
  }

 private:
  size_t root_of(size_t variable) const {
    while (same_as_[variable] != static_cast<int>(variable)) variable = static_cast<size_t>(same_as_[variable]);
    return variable;
  }

  bool lives(const Table& table, size_t r) const {
    for (size_t i = 0; i < table.variables.size(); ++i) {
      if (!is_alive_[static_cast<size_t>(table.variables[i])][static_cast<size_t>(table.row(r)[i])]) return false;
    }
    return true;
  }

  // Rows of labels that went, and rows that are beaten. What is left of a table decides which labels of its variables
  // go.
  void drop_rows(size_t t) {
    const Table& table = tables_[t];
    std::vector<size_t> order;
    for (size_t r = 0; r < table.rows(); ++r) {
      if (lives(table, r)) order.push_back(r);
    }
    const auto compare = [&](size_t a, size_t b) {
      const auto left = table.row(a), right = table.row(b);
      return std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return compare(a, b) < 0; });
    std::vector<size_t> kept;
    size_t same = 0;  // where the kept rows with the labels at hand begin
    for (const size_t r : order) {
      if (kept.empty() || compare(kept.back(), r) != 0) same = kept.size();
      const auto first = kept.begin() + static_cast<int64_t>(same);
      const Price& price = table.prices[r];
      if (std::any_of(first, kept.end(), [&](size_t o) { return beats_or_equals(table.prices[o], price); })) continue;
      kept.erase(std::remove_if(first, kept.end(), [&](size_t o) { return beats_or_equals(price, table.prices[o]); }),
                 kept.end());
      kept.push_back(r);
    }
    if (kept.size() < table.rows()) keep_rows(t, kept);
  }

  void keep_rows(size_t t, const std::vector<size_t>& kept) {
    Table smaller{.variables = tables_[t].variables};
    std::vector<int32_t> rows;
    for (const size_t r : kept) {
      smaller.add(tables_[t].row(r), tables_[t].prices[r]);
      rows.push_back(rows_[t][r]);
    }
    tables_[t] = std::move(smaller);
    rows_[t] = std::move(rows);
    open(t);
  }

  void open(size_t t) {
    for (const int variable : tables_[t].variables) is_open_[static_cast<size_t>(variable)] = 1;
  }

  // The rows of one table by the label of one of its variables: what the others have, and the price, in order.
  using Rest = std::vector<std::pair<std::vector<int32_t>, Price>>;
  using ByLabel = std::vector<Rest>;

  ByLabel by_label(const Table& table, size_t variable) const {
    ByLabel out(static_cast<size_t>(labels_[variable]));
    const auto at =
        std::find(table.variables.begin(), table.variables.end(), static_cast<int>(variable)) - table.variables.begin();
    for (size_t r = 0; r < table.rows(); ++r) {
      std::vector<int32_t> rest(table.row(r).begin(), table.row(r).end());
      const auto label = static_cast<size_t>(rest[static_cast<size_t>(at)]);
      rest.erase(rest.begin() + at);
      out[label].emplace_back(std::move(rest), table.prices[r]);
    }
    for (Rest& rest : out)
      std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  // Whether wherever `a` can stand `b` can, for no more.
  static bool stands_in(const Rest& b, const Rest& a) {
    auto from = b.begin();
    for (const auto& [others, price] : a) {
      while (from != b.end() && from->first < others) ++from;
      bool found = false;
      for (auto row = from; row != b.end() && row->first == others && !found; ++row)
        found = beats_or_equals(row->second, price);
      if (!found) return false;
    }
    return true;
  }

  bool drop_labels() {
    bool changed = false;
    for (size_t v = 0; v < labels_.size(); ++v) {
      if (!is_open_[v] || is_fixed_[v] || root_of(v) != v) continue;
      is_open_[v] = 0;
      std::vector<size_t> with;
      std::vector<ByLabel> tables;
      for (size_t t = 0; t < tables_.size(); ++t) {
        const std::vector<int>& variables = tables_[t].variables;
        if (std::find(variables.begin(), variables.end(), static_cast<int>(v)) == variables.end()) continue;
        with.push_back(t);
        tables.push_back(by_label(tables_[t], v));
      }
      if (!drop_labels_of(v, tables)) continue;
      changed = true;
      for (const size_t t : with) drop_rows(t);  // what is dropped next counts on the rows that are left
    }
    return changed;
  }

  bool drop_labels_of(size_t v, const std::vector<ByLabel>& tables) {
    std::vector<char>& alive = is_alive_[v];
    bool changed = false;
    const auto all = [&](auto&& fn) { return std::all_of(tables.begin(), tables.end(), fn); };
    for (size_t label = 0; label < alive.size(); ++label) {
      if (!alive[label] || std::count(alive.begin(), alive.end(), 1) == 1) continue;
      bool goes = !all([&](const ByLabel& table) { return !table[label].empty(); });
      for (size_t other = 0; other < alive.size() && !goes; ++other) {
        goes = other != label && alive[other] &&
               all([&](const ByLabel& table) { return stands_in(table[other], table[label]); });
      }
      if (goes) alive[label] = 0, changed = true;
    }
    return changed;
  }

  // Merges the variables of one table in which each label of one has at most one label of the other.
  bool merge() {
    for (const Table& table : tables_) {
      if (table.variables.size() != 2) continue;
      auto a = static_cast<size_t>(table.variables[0]), b = static_cast<size_t>(table.variables[1]);
      size_t into = 0;
      if (is_fixed_[b]) std::swap(a, b), into = 1;
      if (is_fixed_[b]) continue;
      std::vector<int32_t> of(static_cast<size_t>(labels_[a]), -1), back(static_cast<size_t>(labels_[b]), -1);
      bool one_to_one = true;
      for (size_t r = 0; r < table.rows(); ++r) {
        const int32_t left = table.row(r)[into], right = table.row(r)[1 - into];
        int32_t& there = of[static_cast<size_t>(left)];
        int32_t& here = back[static_cast<size_t>(right)];
        one_to_one = one_to_one && (there < 0 || there == right) && (here < 0 || here == left);
        there = right;
        here = left;
      }
      if (!one_to_one) continue;
      for (size_t v = 0; v < labels_.size(); ++v) {
        if (root_of(v) != b) continue;
        std::vector<int32_t> through(static_cast<size_t>(labels_[a]), 0);
        for (size_t label = 0; label < of.size(); ++label) {
          if (of[label] >= 0) through[label] = label_in_[v][static_cast<size_t>(of[label])];
        }
        label_in_[v] = std::move(through);
      }
      same_as_[b] = static_cast<int>(a);
      for (size_t t = 0; t < tables_.size(); ++t) substitute(t, static_cast<int>(a), static_cast<int>(b), back);
      return true;
    }
    return false;
  }

  // Puts `a` in the place of `b` in one table, whose labels `back` gives for those of b.
  void substitute(size_t t, int a, int b, const std::vector<int32_t>& back) {
    const Table& table = tables_[t];
    const auto index = [&](int variable) {
      return static_cast<size_t>(std::find(table.variables.begin(), table.variables.end(), variable) -
                                 table.variables.begin());
    };
    const size_t at_a = index(a), at_b = index(b);
    if (at_b == table.variables.size()) return;
    const bool has_both = at_a < table.variables.size();
    Table out{.variables = table.variables};
    if (has_both) {
      std::erase(out.variables, b);
    } else {
      out.variables[at_b] = a;
    }
    std::vector<int32_t> rows;
    for (size_t r = 0; r < table.rows(); ++r) {
      std::vector<int32_t> row(table.row(r).begin(), table.row(r).end());
      const int32_t label = back[static_cast<size_t>(row[at_b])];
      if (label < 0 || (has_both && row[at_a] != label)) continue;
      if (has_both) {
        row.erase(row.begin() + static_cast<int64_t>(at_b));
      } else {
        row[at_b] = label;
      }
      out.add(row, table.prices[r]);
      rows.push_back(rows_[t][r]);
    }
    tables_[t] = std::move(out);
    rows_[t] = std::move(rows);
    open(t);
    drop_rows(t);
  }

  Smaller renumber(Problem& problem) {
    Smaller out;
    std::vector<int> number(labels_.size(), -1);
    std::vector<std::vector<int32_t>> now(labels_.size()), before(labels_.size());  // labels
    problem.labels.clear();
    for (size_t v = 0; v < labels_.size(); ++v) {
      if (root_of(v) != v) continue;
      now[v].assign(is_alive_[v].size(), -1);
      for (size_t label = 0; label < is_alive_[v].size(); ++label) {
        if (!is_alive_[v][label]) continue;
        now[v][label] = static_cast<int32_t>(before[v].size());
        before[v].push_back(static_cast<int32_t>(label));
      }
      number[v] = problem.add_variable(static_cast<int>(before[v].size()));
    }
    for (size_t v = 0; v < labels_.size(); ++v) {
      out.variable.push_back(number[root_of(v)]);
      std::vector<int32_t>& labels = out.label.emplace_back();
      for (const int32_t label : before[root_of(v)]) labels.push_back(label_in_[v][static_cast<size_t>(label)]);
    }
    for (Table& table : tables_) {
      for (size_t k = 0; k < table.labels.size(); ++k) {
        const auto variable = static_cast<size_t>(table.variables[k % table.variables.size()]);
        table.labels[k] = now[variable][static_cast<size_t>(table.labels[k])];
      }
      for (int& variable : table.variables) variable = number[static_cast<size_t>(variable)];
    }
    problem.tables = std::move(tables_);
    out.row = std::move(rows_);
    return out;
  }

  std::vector<int> labels_;
  std::vector<Table> tables_;
  std::vector<char> is_fixed_;
  std::vector<char> is_open_;                // whether a table of the variable changed since its labels were looked at
  std::vector<std::vector<char>> is_alive_;  // by label
  std::vector<int> same_as_;                 // the variable it was merged into; itself where it was not
  std::vector<std::vector<int32_t>> label_in_;  // by the label of the variable it was merged into, directly or not
  std::vector<std::vector<int32_t>> rows_;      // of each table, by its row: the row it was
};

Choice restored_plain(const Smaller& smaller, const Choice& choice) {
  Choice out{.price = choice.price};
  for (size_t v = 0; v < smaller.variable.size(); ++v) {
    const int32_t now = choice.labels[static_cast<size_t>(smaller.variable[v])];
    out.labels.push_back(smaller.label[v][static_cast<size_t>(now)]);
  }
  for (size_t t = 0; t < smaller.row.size(); ++t)
    out.rows.push_back(smaller.row[t][static_cast<size_t>(choice.rows[t])]);
  return out;
}

}  // namespace

Choice Simplified::restored(const Choice& choice) const {
  Choice out = restored_plain(whole, choice);
  for (size_t run = 0; run < blocks.size(); ++run) {
    std::vector<Choice>& copies = out.runs.emplace_back();
    for (const Choice& copy : choice.runs[run]) copies.push_back(restored_plain(blocks[run], copy));
  }
  return out;
}

Simplified simplify(const Problem& problem) {
  Simplified out;
  std::vector<int> fixed;
  for (const Run& run : problem.runs) {
    const std::vector<int> ends = outer_ends(run);
    fixed.insert(fixed.end(), ends.begin(), ends.end());
  }
  out.whole = Simplifier(problem, fixed).run(out.problem);
  const auto rename = [](const Smaller& smaller, int& variable) {
    variable = smaller.variable[static_cast<size_t>(variable)];
  };
  for (Run run : problem.runs) {
    const Problem block = run.block;
    out.blocks.push_back(Simplifier(block, inner_ends(run)).run(run.block));
    for (int* const inner : {&run.first, &run.last}) rename(out.blocks.back(), *inner);
    for (int* const outer : {&run.from, &run.to}) rename(out.whole, *outer);
    for (auto& [inner, outer] : run.shared) rename(out.blocks.back(), inner), rename(out.whole, outer);
    out.problem.runs.push_back(std::move(run));
  }
  return out;
}

}  // namespace trireme::solver
