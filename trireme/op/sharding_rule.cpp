#include "trireme/op/sharding_rule.h"

#include <algorithm>
#include <cctype>

#include "trireme/base/error.h"
#include "trireme/base/few.h"
#include "trireme/mesh/mesh.h"

namespace trireme {
namespace {

// Builds a rule from its text, one tensor at a time; sizes of compound factors may follow from other tensors.
class RuleParser {
 public:
  RuleParser(std::string_view text, const RuleOptions& options) : text_(text), options_(options) {}

  ShardingRule parse(std::span<const TensorType> in, std::span<const TensorType> out) {
    const size_t arrow = text_.find("->");
    invariant(arrow != std::string_view::npos, "sharding rule '{}' has no '->'", text_);
    rule_.in = side(text_.substr(0, arrow), in, false);
    rule_.out = side(text_.substr(arrow + 2), out, true);
    settle(in, out);
    rule_.linear = options_.linear;
    for (size_t f = 0; f < rule_.factors.size(); ++f) rule_.factors[f].uneven = may_be_uneven(static_cast<int>(f));
    if (!options_.ring.empty()) rule_.ring = {known(options_.ring[0]), known(options_.ring[1])};
    rule_.ring_is_causal = options_.ring_is_causal;
    return std::move(rule_);
  }

 private:
  std::vector<DimFactors> side(std::string_view text, std::span<const TensorType> types, bool is_result) {
    std::vector<DimFactors> out;
    if (types.empty()) return out;
    size_t from = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && text[i] != ',') continue;
      invariant(out.size() < types.size(), "sharding rule '{}' names more tensors than the op has", text_);
      const auto index = static_cast<int>(out.size());
      out.push_back(tensor(text.substr(from, i - from), types[out.size()], {is_result, index}));
      from = i + 1;
    }
    invariant(out.size() == types.size(), "sharding rule '{}' names {} tensors of {}", text_, out.size(), types.size());
    return out;
  }

  struct Where {
    bool is_result = false;
    int tensor = 0;
  };

  DimFactors tensor(std::string_view text, const TensorType& type, Where where) {
    DimFactors dims;
    size_t at = 0;
    int letters = 0;
    for (int depth = 0; const char c : text) {
      depth += (c == '(') - (c == ')');
      letters += (depth == 0 && c != '!' && c != '~' && c != '*') || (depth == 1 && c == '(') ? 1 : 0;
    }
    // A group "(ab)" was counted at '(' and at ')': count it once.
    letters -= static_cast<int>(std::count(text.begin(), text.end(), '('));
    while (at < text.size()) {
      const char c = text[at++];
      if (c == '*') {
        const int leading = type.shape.rank() - letters;
        invariant(leading >= 0, "sharding rule '{}': {} has too few dimensions", text_, to_string(type));
        for (int i = 0; i < leading; ++i) dims.push_back({factor(fmt::format("*{}", i), text, at)});
      } else if (c == '.') {
        dims.push_back({});
      } else if (c == '(') {
        FactorsOfDim parts;
        while (at < text.size() && text[at] != ')') {
          const std::string name(1, text[at++]);
          parts.push_back(factor(name, text, at));
        }
        ++at;
        dims.push_back(std::move(parts));
      } else {
        dims.push_back({factor(std::string(1, c), text, at)});
        if (at < text.size() && text[at] == '~') {
          ++at;
          add_window(c, static_cast<int>(dims.size()) - 1, type, where);
        }
      }
    }
    invariant(static_cast<int>(dims.size()) == type.shape.rank(), "sharding rule '{}': '{}' does not fit {}", text_,
              text, to_string(type));
    return dims;
  }

  void add_window(char letter, int dim, const TensorType& type, Where where) {
    const auto window = options_.windows.find(letter);
    invariant(window != options_.windows.end(), "sharding rule '{}' has no window for '{}'", text_, letter);
    int index = 0;
    while (rule_.factors[static_cast<size_t>(index)].name != std::string_view(&letter, 1)) ++index;
    rule_.windows.push_back({where.is_result, where.tensor, dim, type.shape[dim], index, window->second});
  }

  // Where the op is linear in operands that all hold the factor, zeros beyond its end add nothing to a sum over it.
  bool may_be_uneven(int factor) const {
    if (!is_summed(rule_, factor)) return true;
    const Factor& f = rule_.factors[static_cast<size_t>(factor)];
    if (options_.zeros_add_nothing.find(f.name[0]) != std::string_view::npos || f.reduction != Reduction::kSum)
      return true;
    return std::any_of(rule_.linear.begin(), rule_.linear.end(), [&](const std::vector<int>& set) {
      return std::all_of(set.begin(), set.end(),
                         [&](int operand) { return stands_in(rule_.in[static_cast<size_t>(operand)], factor); });
    });
  }

  int known(char name) const {
    const auto found = std::find_if(rule_.factors.begin(), rule_.factors.end(),
                                    [&](const Factor& f) { return f.name == std::string(1, name); });
    invariant(found != rule_.factors.end(), "sharding rule '{}': no factor '{}'", text_, name);
    return static_cast<int>(found - rule_.factors.begin());
  }

  int factor(const std::string& name, std::string_view text, size_t& at) {
    const bool uncut = at < text.size() && text[at] == '!';
    if (uncut) ++at;
    for (size_t i = 0; i < rule_.factors.size(); ++i) {
      if (rule_.factors[i].name != name) continue;
      if (uncut) rule_.factors[i].can_cut = false;
      return static_cast<int>(i);
    }
    Factor made{name, -1, !uncut};
    if (name.size() == 1) {
      if (const auto size = options_.sizes.find(name[0]); size != options_.sizes.end()) {
        made.size = size->second;
      }
      if (const auto r = options_.reductions.find(name[0]); r != options_.reductions.end()) {
        made.reduction = r->second;
      }
    }
    rule_.factors.push_back(made);
    return static_cast<int>(rule_.factors.size()) - 1;
  }

  // Gives every factor its size: a dimension with one unknown factor determines it.
  void settle(std::span<const TensorType> in, std::span<const TensorType> out) {
    for (bool changed = true; changed;) {
      changed = false;
      each_dim(in, out, [&](const FactorsOfDim& parts, int64_t size) {
        int64_t known = 1;
        Factor* unknown = nullptr;
        int unknowns = 0;
        for (const int part : parts) {
          Factor& f = rule_.factors[static_cast<size_t>(part)];
          if (f.size < 0) {
            unknown = &f;
            ++unknowns;
          } else {
            known *= f.size;
          }
        }
        if (unknowns != 1) return;
        unknown->size = known == 0 ? 0 : size / known;
        changed = true;
      });
    }
    each_dim(in, out, [&](const FactorsOfDim& parts, int64_t size) {
      if (parts.empty()) return;
      int64_t product = 1;
      for (const int part : parts) product *= rule_.factors[static_cast<size_t>(part)].size;
      invariant(product == size, "sharding rule '{}': factors give {} where a dimension has {}", text_, product, size);
    });
  }

  bool is_windowed(bool is_result, size_t tensor, size_t dim) const {
    return std::any_of(rule_.windows.begin(), rule_.windows.end(), [&](const WindowedDim& w) {
      return w.is_result == is_result && w.tensor == static_cast<int>(tensor) && w.dim == static_cast<int>(dim);
    });
  }

  // All dimensions that are products of their factors.
  template <class Fn>
  void each_dim(std::span<const TensorType> in, std::span<const TensorType> out, Fn&& fn) {
    const auto walk = [&](const std::vector<DimFactors>& tensors, std::span<const TensorType> types) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        for (size_t dim = 0; dim < tensors[i].size(); ++dim) {
          if (is_windowed(&tensors == &rule_.out, i, dim)) continue;
          fn(tensors[i][dim], types[i].shape[static_cast<int>(dim)]);
        }
      }
    };
    walk(rule_.in, in);
    walk(rule_.out, out);
  }

  std::string_view text_;
  const RuleOptions& options_;
  ShardingRule rule_;
};

bool in_ring(const ShardingRule& rule, size_t factor) {
  const auto f = static_cast<int>(factor);
  return rule.ring && (f == rule.ring->first || f == rule.ring->second);
}

std::string why_not_cut(const ShardingRule& rule, size_t factor) {
  std::string out = fmt::format("factor '{}' cannot be cut", rule.factors[factor].name);
  if (!in_ring(rule, factor)) return out;
  return fmt::format("factors '{}' and '{}' are cut over the same axes, in a ring, or not at all",
                     rule.factors[static_cast<size_t>(rule.ring->first)].name,
                     rule.factors[static_cast<size_t>(rule.ring->second)].name);
}

}  // namespace

ShardingRule parse_rule(std::string_view text, std::span<const TensorType> in, std::span<const TensorType> out,
                        const RuleOptions& options) {
  return RuleParser(text, options).parse(in, out);
}

ShardingRule replicate_rule(std::span<const TensorType> in, std::span<const TensorType> out) {
  ShardingRule rule;
  for (const TensorType& type : in) rule.in.emplace_back(static_cast<size_t>(type.shape.rank()));
  for (const TensorType& type : out) rule.out.emplace_back(static_cast<size_t>(type.shape.rank()));
  return rule;
}

bool stands_in(const DimFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(),
                     [&](const FactorsOfDim& dim) { return std::find(dim.begin(), dim.end(), factor) != dim.end(); });
}

bool is_summed(const ShardingRule& rule, int factor) {
  return !std::all_of(rule.out.begin(), rule.out.end(),
                      [&](const DimFactors& result) { return stands_in(result, factor); });
}

bool goes_by_chunks(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  return rule.ring_is_causal && is_ring(rule, cuts) &&
         std::ranges::all_of(cuts.axes[static_cast<size_t>(rule.ring->first)],
                             [&](int axis) { return is_seq_chunk_axis(mesh, axis); });
}

bool is_ring(const ShardingRule& rule, const FactorCuts& cuts) {
  if (!rule.ring) return false;
  const Axes& axes = cuts.axes[static_cast<size_t>(rule.ring->first)];
  return !axes.empty() && axes == cuts.axes[static_cast<size_t>(rule.ring->second)];
}

Layout layout_of(const DimFactors& tensor, const FactorCuts& cuts) {
  Layout layout = Layout::replicated(static_cast<int>(tensor.size()));
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    for (const int factor : tensor[dim]) {
      const Axes& axes = cuts.axes[static_cast<size_t>(factor)];
      layout.dims[dim].append(axes.begin(), axes.end());
    }
  }
  return layout;
}

Layout operand_layout(const ShardingRule& rule, const FactorCuts& cuts, size_t operand) {
  if (cuts.vouched) return cuts.vouched->in[operand];
  Layout out = layout_of(rule.in[operand], cuts);
  const bool is_linear = cuts.linear_set >= 0 && std::ranges::count(rule.linear[static_cast<size_t>(cuts.linear_set)],
                                                                    static_cast<int>(operand)) > 0;
  if (is_linear) out.partial = cuts.through;
  return out;
}

std::vector<Layout> operand_layouts(const ShardingRule& rule, const FactorCuts& cuts) {
  if (cuts.vouched) return cuts.vouched->in;
  std::vector<Layout> out;
  out.reserve(rule.in.size());
  for (size_t i = 0; i < rule.in.size(); ++i) out.push_back(operand_layout(rule, cuts, i));
  return out;
}

Layout result_layout(const ShardingRule& rule, const FactorCuts& cuts, size_t result) {
  if (cuts.vouched) return cuts.vouched->out[result];
  const DimFactors& tensor = rule.out[result];
  const bool ring = is_ring(rule, cuts);
  Layout out = layout_of(tensor, cuts);
  out.partial = cuts.through;
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    if (cuts.axes[factor].empty() || stands_in(tensor, static_cast<int>(factor))) continue;
    if (ring && in_ring(rule, factor)) continue;  // all pieces have been around
    const bool in_operands = std::any_of(rule.in.begin(), rule.in.end(), [&](const DimFactors& operand) {
      return stands_in(operand, static_cast<int>(factor));
    });
    if (!in_operands) continue;
    for (const int axis : cuts.axes[factor]) out.partial.push_back({axis, rule.factors[factor].reduction});
  }
  std::sort(out.partial.begin(), out.partial.end(),
            [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
  return out;
}

std::vector<Layout> result_layouts(const ShardingRule& rule, const FactorCuts& cuts) {
  if (cuts.vouched) return cuts.vouched->out;
  std::vector<Layout> out;
  out.reserve(rule.out.size());
  for (size_t i = 0; i < rule.out.size(); ++i) out.push_back(result_layout(rule, cuts, i));
  return out;
}

WindowCut window_cut(const ShardingRule& rule, const WindowedDim& windowed, int64_t parts) {
  const SlidingWindow& window = windowed.window;
  const int64_t share = rule.factors[static_cast<size_t>(windowed.factor)].size / parts;
  return {.parts = parts,
          .extent = windowed.extent,
          .offset = -window.before,
          .step = share * window.stride,
          .length = (share - 1) * window.stride + window.reach};
}

std::vector<WindowedDim> cut_windows(const ShardingRule& rule, const FactorCuts& cuts) {
  std::vector<WindowedDim> out;
  if (cuts.vouched) return out;  // pieces are taken as they come
  for (const WindowedDim& windowed : rule.windows) {
    if (!cuts.axes[static_cast<size_t>(windowed.factor)].empty()) out.push_back(windowed);
  }
  return out;
}

namespace {

std::string why_no_copies(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  if (rule.reads_place) return "the op's result depends on where its piece lies, so it cannot be computed in copies";
  if (is_ring(rule, cuts)) return "an op that runs in the steps of a ring is not computed in copies";
  const bool slides = std::any_of(rule.windows.begin(), rule.windows.end(),
                                  [&](const WindowedDim& w) { return w.factor == cuts.copied_factor; });
  if (slides || !cut_windows(rule, cuts).empty())
    return "an op whose windows reach into other pieces is not computed in copies";
  const auto f = static_cast<size_t>(cuts.copied_factor);
  const Factor& factor = rule.factors[f];
  if (!factor.can_cut) return fmt::format("factor '{}' cannot be cut", factor.name);
  const int64_t ways = mesh.size_of(cuts.axes[f]) * cuts.copies;
  if (factor.size % ways != 0) {
    return fmt::format("{} copies on each of {} ranks do not divide factor '{}' of size {}", cuts.copies,
                       ways / cuts.copies, factor.name, factor.size);
  }
  const auto in_a_product = [&](const std::vector<DimFactors>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const DimFactors& tensor) {
      return std::any_of(tensor.begin(), tensor.end(), [&](const FactorsOfDim& dim) {
        return dim.size() > 1 && std::find(dim.begin(), dim.end(), cuts.copied_factor) != dim.end();
      });
    });
  };
  if (!in_a_product(rule.in) && !in_a_product(rule.out)) return "";
  return fmt::format("factor '{}' is only a part of a dimension, which cannot be computed in copies", factor.name);
}

}  // namespace

namespace {

// Whether those that share the factor send parts of it around, as windows and rings do.
bool is_shared_along(const ShardingRule& rule, const FactorCuts& cuts, size_t factor) {
  if (is_ring(rule, cuts) && in_ring(rule, factor)) return true;
  return std::any_of(rule.windows.begin(), rule.windows.end(),
                     [&](const WindowedDim& windowed) { return windowed.factor == static_cast<int>(factor); });
}

}  // namespace

bool is_uneven(const ShardingRule& rule, const FactorCuts& cuts, size_t factor, const Mesh& mesh) {
  return !cuts.vouched && rule.factors[factor].size % mesh.size_of(cuts.axes[factor]) != 0;
}

bool keeps_zeros(const ShardingRule& rule, int factor) {
  return std::ranges::any_of(rule.linear, [&](const std::vector<int>& set) {
    for (size_t i = 0; i < rule.in.size(); ++i) {
      const bool linear = std::ranges::find(set, static_cast<int>(i)) != set.end();
      if (linear != stands_in(rule.in[i], factor)) return false;
    }
    return true;
  });
}

namespace {

// Why a factor cannot be cut into parts that are not equal.
std::string why_not_uneven(const ShardingRule& rule, const FactorCuts& cuts, size_t factor, const Mesh& mesh) {
  const Factor& f = rule.factors[factor];
  const int64_t ways = mesh.size_of(cuts.axes[factor]);
  const auto refused = [&](std::string_view why) {
    return fmt::format("{} ranks do not divide factor '{}' of size {}{}", ways, f.name, f.size, why);
  };
  if (!falls_in(f.size, ways, Parts::kUneven)) return refused(", and one of them would have nothing of it");
  if (!f.uneven) return refused(", and what the op computes beyond the end would count");
  if (is_shared_along(rule, cuts, factor)) return refused(", and parts of it go from one to the next");
  if (cuts.copies > 1) return refused(", and the op is computed in copies");
  if (std::ranges::any_of(cuts.axes[factor], [&](int axis) { return is_micro_batch_axis(mesh, axis); })) {
    return refused(", and micro-batches are of equal size");
  }
  for (const std::vector<DimFactors>* side : {&rule.in, &rule.out}) {
    for (const DimFactors& tensor : *side) {
      for (const FactorsOfDim& dim : tensor) {
        const bool here = std::ranges::find(dim, static_cast<int>(factor)) != dim.end();
        if (here && dim.size() > 1) return refused(", which is only a part of a dimension");
      }
    }
  }
  return "";
}

}  // namespace

std::string why_illegal(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh) {
  if (cuts.vouched) return "";
  if (cuts.copies > 1) {
    if (std::string why = why_no_copies(rule, cuts, mesh); !why.empty()) return why;
  }
  Few<int, 16> used;
  for (const PartialAxis& partial : cuts.through) used.push_back(partial.axis);
  Few<int64_t, 16> ways;
  for (size_t i = 0; i < rule.factors.size(); ++i) ways.push_back(1);
  const bool ring = is_ring(rule, cuts);
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    const bool goes_around = ring && static_cast<int>(i) == rule.ring->second;
    for (const int axis : cuts.axes[i]) {
      if (!goes_around) used.push_back(axis);
      ways[i] *= mesh.axis(axis).size;
    }
    const Factor& factor = rule.factors[i];
    if (ways[i] > 1 && !factor.can_cut && !(ring && in_ring(rule, i))) return why_not_cut(rule, i);
    if (factor.size % ways[i] == 0) continue;
    if (std::string why = why_not_uneven(rule, cuts, i, mesh); !why.empty()) return why;
  }
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    if (!is_shared_along(rule, cuts, i) || goes_by_chunks(rule, cuts, mesh)) continue;
    for (const int axis : cuts.axes[i]) {
      if (!is_micro_batch_axis(mesh, axis)) continue;
      return fmt::format("factor '{}' is cut by '{}', and parts of it go from one to the next", rule.factors[i].name,
                         kMicroBatchAxis);
    }
  }
  for (const WindowedDim& windowed : cut_windows(rule, cuts)) {
    const std::string wrong = why_not(window_cut(rule, windowed, ways[static_cast<size_t>(windowed.factor)]));
    if (wrong.empty()) continue;
    return fmt::format("{} {}, dimension {}: {}", windowed.is_result ? "result" : "operand", windowed.tensor,
                       windowed.dim, wrong);
  }
  std::sort(used.begin(), used.end());
  if (const auto twice = std::adjacent_find(used.begin(), used.end()); twice != used.end()) {
    return fmt::format("axis '{}' is used twice", mesh.axis(*twice).name);
  }
  const auto compound_ok = [&](const std::vector<DimFactors>& tensors) {
    for (const DimFactors& tensor : tensors) {
      for (const FactorsOfDim& dim : tensor) {
        bool all_cut = true;
        for (const int factor : dim) {
          const auto f = static_cast<size_t>(factor);
          if (ways[f] > 1 && !all_cut) return false;
          all_cut = all_cut && ways[f] == rule.factors[f].size;
        }
      }
    }
    return true;
  };
  if (!compound_ok(rule.in) || !compound_ok(rule.out)) {
    return "a cut inside a compound dimension whose more significant factor is not fully cut";
  }
  return "";
}

std::string to_string(const ShardingRule& rule) {
  const auto windowed = [&](const DimFactors& tensor, size_t dim, bool is_result) {
    const std::vector<DimFactors>& side = is_result ? rule.out : rule.in;
    return std::any_of(rule.windows.begin(), rule.windows.end(), [&](const WindowedDim& w) {
      return w.is_result == is_result && &side[static_cast<size_t>(w.tensor)] == &tensor &&
             w.dim == static_cast<int>(dim);
    });
  };
  const auto write = [&](const std::vector<DimFactors>& tensors) {
    std::string out;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i > 0) out += ",";
      for (size_t d = 0; d < tensors[i].size(); ++d) {
        const FactorsOfDim& dim = tensors[i][d];
        if (dim.empty()) out += '.';
        if (dim.size() > 1) out += '(';
        for (const int factor : dim) {
          const Factor& f = rule.factors[static_cast<size_t>(factor)];
          out += f.name + (f.can_cut ? "" : "!");
        }
        if (windowed(tensors[i], d, &tensors == &rule.out)) out += '~';
        if (dim.size() > 1) out += ')';
      }
    }
    return out;
  };
  std::string out = write(rule.in) + "->" + write(rule.out);
  for (const Factor& factor : rule.factors) out += fmt::format(" {}={}", factor.name, factor.size);
  if (rule.ring) {
    out += fmt::format(" ring {} {}", rule.factors[static_cast<size_t>(rule.ring->first)].name,
                       rule.factors[static_cast<size_t>(rule.ring->second)].name);
  }
  return out;
}

}  // namespace trireme
