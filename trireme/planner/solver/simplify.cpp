#include "trireme/planner/solver/simplify.h"

#include <algorithm>
#include <compare>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/memo.h"
#include "trireme/planner/solver/buckets.h"

namespace trireme::solver {
namespace {

bool beats_or_equals(const Price& a, const Price& b) {
  return a.time_ps <= b.time_ps && a.bytes <= b.bytes;
}

// Which labels of a variable are left. Equal ones are one object.
using Alive = std::vector<char>;

// What is left of a table's rows. Tables of the same rows that lost the same have one form, so that what is done to
// them is done once.
struct Form {
  std::shared_ptr<Rows> rows;
  std::shared_ptr<const std::vector<int32_t>> from;  // by row: which one of the original's it was
  size_t width = 0;

  size_t count() const { return rows->prices.size(); }
  std::span<const int32_t> row(size_t r) const { return std::span(rows->labels).subspan(r * width, width); }
};

// Of a table that is looked at by the label of one of its variables: what the others have, and the price, in order.
using Rest = std::vector<std::pair<std::vector<int32_t>, Price>>;
using ByLabel = std::vector<Rest>;

// For each label of one variable the only one of the other that goes with it, or -1.
struct OneToOne {
  std::vector<int32_t> there, back;
};

// What is done to forms, each once.
class Forms {
 public:
  const Alive* alive(Alive labels) { return &*alive_.insert(std::move(labels)).first; }

  const Form* of(const Table& table) {
    return first_.of({memo_number(table.all.get()), table.variables.size()}, [&] {
      std::vector<int32_t> all(table.rows());
      std::iota(all.begin(), all.end(), 0);
      return add({table.all, std::make_shared<const std::vector<int32_t>>(std::move(all)), table.variables.size()});
    });
  }

  // Without rows of labels that went (`alive` of each variable), and rows that are beaten.
  const Form* left_of(const Form* form, const std::vector<const Alive*>& alive) {
    key_.assign({memo_number(form)});
    for (const Alive* const of : alive) key_.push_back(memo_number(of));
    return left_.of(key_, [&] { return without_rows(*form, alive); });
  }

  const ByLabel& by_label(const Form* form, size_t at, size_t labels) {
    return by_label_.of({memo_number(form), at, labels}, [&] {
      ByLabel out(labels);
      for (size_t r = 0; r < form->count(); ++r) {
        std::vector<int32_t> rest(form->row(r).begin(), form->row(r).end());
        const auto label = static_cast<size_t>(rest[at]);
        rest.erase(rest.begin() + static_cast<int64_t>(at));
        out[label].emplace_back(std::move(rest), form->rows->prices[r]);
      }
      for (Rest& rest : out)
        std::stable_sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      return out;
    });
  }

  // Labels of a variable that stay, by the tables that have it, as {form, where}.
  const Alive* labels_left(const Alive* alive, const std::vector<std::pair<const Form*, size_t>>& tables) {
    key_.assign({memo_number(alive)});
    for (const auto& [form, at] : tables) {
      key_.push_back(memo_number(form));
      key_.push_back(at);
    }
    return labels_left_.of(key_, [&] {
      std::vector<const ByLabel*> all;
      all.reserve(tables.size());
      for (const auto& [form, at] : tables) all.push_back(&by_label(form, at, alive->size()));
      return this->alive(without_labels(*alive, all));
    });
  }

  // Of a table of two variables, of which the column `into` has so many labels, and the other so many.
  const std::optional<OneToOne>& one_to_one(const Form* form, size_t into, size_t labels, size_t others) {
    return one_to_one_.of({memo_number(form), into, labels, others}, [&]() -> std::optional<OneToOne> {
      OneToOne out{std::vector<int32_t>(labels, -1), std::vector<int32_t>(others, -1)};
      for (size_t r = 0; r < form->count(); ++r) {
        const int32_t left = form->row(r)[into], right = form->row(r)[1 - into];
        int32_t& there = out.there[static_cast<size_t>(left)];
        int32_t& here = out.back[static_cast<size_t>(right)];
        if ((there >= 0 && there != right) || (here >= 0 && here != left)) return std::nullopt;
        there = right;
        here = left;
      }
      return out;
    });
  }

  // With another variable in the place of the column at_b, whose labels `by.back` gives; with only the column at_a
  // where the table has that variable, too.
  const Form* substituted(const Form* form, std::optional<size_t> at_a, size_t at_b, const OneToOne& by) {
    const uint64_t a = at_a ? *at_a : form->width;
    return substituted_.of({memo_number(form), a, at_b, memo_number(&by)}, [&] {
      Form out{.rows = std::make_shared<Rows>(), .from = nullptr, .width = form->width - (at_a ? 1 : 0)};
      std::vector<int32_t> from;
      for (size_t r = 0; r < form->count(); ++r) {
        std::vector<int32_t> row(form->row(r).begin(), form->row(r).end());
        const int32_t label = by.back[static_cast<size_t>(row[at_b])];
        if (label < 0 || (at_a && row[*at_a] != label)) continue;
        if (at_a) {
          row.erase(row.begin() + static_cast<int64_t>(at_b));
        } else {
          row[at_b] = label;
        }
        out.rows->labels.insert(out.rows->labels.end(), row.begin(), row.end());
        out.rows->prices.push_back(form->rows->prices[r]);
        from.push_back((*form->from)[r]);
      }
      out.from = std::make_shared<const std::vector<int32_t>>(std::move(from));
      return add(std::move(out));
    });
  }

  // The numbers that labels have once those that went are not counted; and back.
  struct Renumbered {
    std::vector<int32_t> now, before;
  };
  const Renumbered& renumbered(const Alive* alive) {
    return renumbered_.of({memo_number(alive)}, [&] {
      Renumbered out{std::vector<int32_t>(alive->size(), -1), {}};
      for (size_t label = 0; label < alive->size(); ++label) {
        if (!(*alive)[label]) continue;
        out.now[label] = static_cast<int32_t>(out.before.size());
        out.before.push_back(static_cast<int32_t>(label));
      }
      return out;
    });
  }

  const std::shared_ptr<Rows>& renumbered(const Form* form, const std::vector<const Alive*>& alive) {
    key_.assign({memo_number(form)});
    for (const Alive* const of : alive) key_.push_back(memo_number(of));
    return renumbered_rows_.of(key_, [&] {
      auto out = std::make_shared<Rows>(*form->rows);
      for (size_t k = 0; k < out->labels.size(); ++k)
        out->labels[k] = renumbered(alive[k % form->width]).now[static_cast<size_t>(out->labels[k])];
      return out;
    });
  }

 private:
  const Form* add(Form form) { return &forms_.emplace_back(std::move(form)); }

  const Form* without_rows(const Form& form, const std::vector<const Alive*>& alive) {
    std::vector<size_t> order;
    for (size_t r = 0; r < form.count(); ++r) {
      bool lives = true;
      for (size_t i = 0; i < form.width && lives; ++i) lives = (*alive[i])[static_cast<size_t>(form.row(r)[i])] != 0;
      if (lives) order.push_back(r);
    }
    const auto compare = [&](size_t a, size_t b) {
      const auto left = form.row(a), right = form.row(b);
      return std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return compare(a, b) < 0; });
    const std::vector<Price>& prices = form.rows->prices;
    std::vector<size_t> kept;
    size_t same = 0;  // where the kept rows with the labels at hand begin
    for (const size_t r : order) {
      if (kept.empty() || compare(kept.back(), r) != 0) same = kept.size();
      const auto first = kept.begin() + static_cast<int64_t>(same);
      if (std::any_of(first, kept.end(), [&](size_t o) { return beats_or_equals(prices[o], prices[r]); })) continue;
      kept.erase(std::remove_if(first, kept.end(), [&](size_t o) { return beats_or_equals(prices[r], prices[o]); }),
                 kept.end());
      kept.push_back(r);
    }
    return kept.size() < form.count() ? with_rows(form, kept) : &form;
  }

  const Form* with_rows(const Form& form, const std::vector<size_t>& kept) {
    Form out{.rows = std::make_shared<Rows>(), .from = nullptr, .width = form.width};
    std::vector<int32_t> from;
    for (const size_t r : kept) {
      const auto row = form.row(r);
      out.rows->labels.insert(out.rows->labels.end(), row.begin(), row.end());
      out.rows->prices.push_back(form.rows->prices[r]);
      from.push_back((*form.from)[r]);
    }
    out.from = std::make_shared<const std::vector<int32_t>>(std::move(from));
    return add(std::move(out));
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

  static Alive without_labels(Alive alive, const std::vector<const ByLabel*>& tables) {
    const auto all = [&](auto&& fn) { return std::all_of(tables.begin(), tables.end(), fn); };
    for (size_t label = 0; label < alive.size(); ++label) {
      if (!alive[label] || std::count(alive.begin(), alive.end(), 1) == 1) continue;
      bool goes = !all([&](const ByLabel* table) { return !(*table)[label].empty(); });
      for (size_t other = 0; other < alive.size() && !goes; ++other) {
        goes = other != label && alive[other] &&
               all([&](const ByLabel* table) { return stands_in((*table)[other], (*table)[label]); });
      }
      if (goes) alive[label] = 0;
    }
    return alive;
  }

  std::set<Alive> alive_;
  std::deque<Form> forms_;
  MemoKey key_;  // of what is asked at the moment
  Memo<const Form*> first_, left_, substituted_;
  Memo<ByLabel> by_label_;
  Memo<const Alive*> labels_left_;
  Memo<std::optional<OneToOne>> one_to_one_;
  Memo<Renumbered> renumbered_;
  Memo<std::shared_ptr<Rows>> renumbered_rows_;
};

class Simplifier {
 public:
  Simplifier(const Problem& problem, const std::vector<int>& fixed)
      : labels_(problem.labels), is_fixed_(labels_.size()), tables_of_(labels_.size()) {
    for (const int variable : fixed) is_fixed_[static_cast<size_t>(variable)] = 1;
    for (size_t v = 0; v < labels_.size(); ++v) {
      const auto count = static_cast<size_t>(labels_[v]);
      alive_.push_back(forms_.alive(Alive(count, 1)));
      same_as_.push_back(static_cast<int>(v));
      members_.push_back({v});
      std::vector<int32_t>& labels = label_in_.emplace_back(count);
      std::iota(labels.begin(), labels.end(), 0);
    }
    for (const Table& table : problem.tables) {
      const size_t t = tables_.size();
      tables_.push_back({table.variables, forms_.of(table)});
      for (const int variable : table.variables) tables_of_[static_cast<size_t>(variable)].push_back(t);
      unlike_.insert(t);
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
  struct Kept {
    std::vector<int> variables;
    const Form* form;
    size_t place_of(size_t variable) const {
      return static_cast<size_t>(std::find(variables.begin(), variables.end(), static_cast<int>(variable)) -
                                 variables.begin());
    }
  };

  size_t root_of(size_t variable) const {
    while (same_as_[variable] != static_cast<int>(variable)) variable = static_cast<size_t>(same_as_[variable]);
    return variable;
  }

  std::vector<const Alive*> alive_in(const Kept& table) const {
    std::vector<const Alive*> out;
    out.reserve(table.variables.size());
    for (const int variable : table.variables) out.push_back(alive_[static_cast<size_t>(variable)]);
    return out;
  }

  // What is left of a table decides which labels of its variables go.
  void drop_rows(size_t t) {
    const Form* const left = forms_.left_of(tables_[t].form, alive_in(tables_[t]));
    if (left == tables_[t].form) return;
    tables_[t].form = left;
    open(t);
  }

  void open(size_t t) {
    unlike_.insert(t);
    for (const int variable : tables_[t].variables) is_open_[static_cast<size_t>(variable)] = 1;
  }

  // The first from here on that is open.
  size_t next_open(size_t from) const {
    const void* const found = std::memchr(is_open_.data() + from, 1, is_open_.size() - from);
    return found == nullptr ? is_open_.size() : static_cast<size_t>(static_cast<const char*>(found) - is_open_.data());
  }

  bool drop_labels() {
    bool changed = false;
    for (size_t v = next_open(0); v < labels_.size(); v = next_open(v + 1)) {
      is_open_[v] = 0;
      if (is_fixed_[v] || root_of(v) != v) continue;
      std::vector<std::pair<const Form*, size_t>> tables;
      for (const size_t t : tables_of_[v]) tables.emplace_back(tables_[t].form, tables_[t].place_of(v));
      const Alive* const left = forms_.labels_left(alive_[v], tables);
      if (left == alive_[v]) continue;
      alive_[v] = left;
      changed = true;
      for (const size_t t : tables_of_[v]) drop_rows(t);  // what is dropped next counts on the rows that are left
    }
    return changed;
  }

  // Merges the variables of one table in which each label of one has at most one label of the other.
  bool merge() {
    while (!unlike_.empty()) {
      const size_t t = *unlike_.begin();
      unlike_.erase(unlike_.begin());
      const Kept& table = tables_[t];
      if (table.variables.size() != 2) continue;
      auto a = static_cast<size_t>(table.variables[0]), b = static_cast<size_t>(table.variables[1]);
      size_t into = 0;
      if (is_fixed_[b]) std::swap(a, b), into = 1;
      if (is_fixed_[b]) continue;
      const std::optional<OneToOne>& found =
          forms_.one_to_one(table.form, into, static_cast<size_t>(labels_[a]), static_cast<size_t>(labels_[b]));
      if (!found) continue;
      merge(a, b, *found);
      return true;
    }
    return false;
  }

  void merge(size_t a, size_t b, const OneToOne& by) {
    for (const size_t v : members_[b]) {
      std::vector<int32_t> through(static_cast<size_t>(labels_[a]), 0);
      for (size_t label = 0; label < by.there.size(); ++label) {
        if (by.there[label] >= 0) through[label] = label_in_[v][static_cast<size_t>(by.there[label])];
      }
      label_in_[v] = std::move(through);
    }
    members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
    members_[b].clear();
    same_as_[b] = static_cast<int>(a);
    const std::vector<size_t> tables = std::exchange(tables_of_[b], {});
    for (const size_t t : tables) substitute(t, a, b, by);
  }

  // Puts `a` in the place of `b` in a table that has it.
  void substitute(size_t t, size_t a, size_t b, const OneToOne& by) {
    Kept& table = tables_[t];
    const size_t at_a = table.place_of(a), at_b = table.place_of(b);
    const bool has_both = at_a < table.variables.size();
    table.form = forms_.substituted(table.form, has_both ? std::optional(at_a) : std::nullopt, at_b, by);
    if (has_both) {
      table.variables.erase(table.variables.begin() + static_cast<int64_t>(at_b));
    } else {
      table.variables[at_b] = static_cast<int>(a);
      std::vector<size_t>& of_a = tables_of_[a];
      of_a.insert(std::ranges::lower_bound(of_a, t), t);
    }
    open(t);
    drop_rows(t);
  }

  Smaller renumber(Problem& problem) {
    Smaller out;
    std::vector<int> number(labels_.size(), -1);
    problem.labels.clear();
    problem.tables.clear();
    for (size_t v = 0; v < labels_.size(); ++v) {
      if (root_of(v) == v)
        number[v] = problem.add_variable(static_cast<int>(forms_.renumbered(alive_[v]).before.size()));
    }
    for (size_t v = 0; v < labels_.size(); ++v) {
      out.variable.push_back(number[root_of(v)]);
      std::vector<int32_t>& labels = out.label.emplace_back();
      for (const int32_t label : forms_.renumbered(alive_[root_of(v)]).before)
        labels.push_back(label_in_[v][static_cast<size_t>(label)]);
    }
    for (const Kept& table : tables_) {
      Table& made = problem.tables.emplace_back(Table{table.variables, forms_.renumbered(table.form, alive_in(table))});
      for (int& variable : made.variables) variable = number[static_cast<size_t>(variable)];
      out.row.push_back(table.form->from);
    }
    return out;
  }

  Forms forms_;
  std::vector<int> labels_;
  std::vector<char> is_fixed_;
  std::vector<char> is_open_;                 // whether a table of the variable changed since its labels were looked at
  std::vector<const Alive*> alive_;           // of each variable
  std::vector<int> same_as_;                  // the variable it was merged into; itself where it was not
  std::vector<std::vector<size_t>> members_;  // of each variable that was not, those that were merged into it, and it
  std::vector<std::vector<int32_t>> label_in_;  // by the label of the variable it was merged into, directly or not
  std::vector<Kept> tables_;
  std::vector<std::vector<size_t>> tables_of_;  // of each variable, in their order
  std::set<size_t> unlike_;                     // tables that may have become such that their variables are merged
};

Choice restored_plain(const Smaller& smaller, const Choice& choice) {
  Choice out{.price = choice.price};
  for (size_t v = 0; v < smaller.variable.size(); ++v) {
    const int32_t now = choice.labels[static_cast<size_t>(smaller.variable[v])];
    out.labels.push_back(smaller.label[v][static_cast<size_t>(now)]);
  }
  for (size_t t = 0; t < smaller.row.size(); ++t)
    out.rows.push_back((*smaller.row[t])[static_cast<size_t>(choice.rows[t])]);
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
