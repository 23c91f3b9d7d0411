// Sharding soundness and cost: cut the operands as the rule says, run the reference kernel on every
// rank's pieces, put the results together, compare.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/layout/interpret_reshard.h"
#include "trireme/op/conformance.h"
#include "trireme/op/interpret.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/registry.h"

namespace trireme::conformance {
namespace {

using Findings = std::vector<std::string>;

struct Cut {
  Mesh mesh;
  FactorCuts factors;
};

FactorCuts no_cut(const ShardingRule& rule) {
  FactorCuts cuts;
  cuts.axes.resize(rule.factors.size());
  return cuts;
}

// Every choice of one factor over 2, 3 or 2x2 ranks and of two factors over 2x2, 2x3 or 3x2, and
// the same for linear sets of operands that are partial over 2 ranks, alone and with one factor
// cut.
std::vector<Cut> cuts_of(const ShardingRule& rule) {
  std::vector<Cut> out;
  const auto keep = [&](const Mesh& mesh, const FactorCuts& cuts) {
    if (why_illegal(rule, cuts, mesh).empty()) out.push_back({mesh, cuts});
  };
  const size_t n = rule.factors.size();
  for (size_t f = 0; f < n; ++f) {
    for (const int64_t ranks : {2, 3}) {
      FactorCuts one = no_cut(rule);
      one.axes[f] = {0};
      keep(Mesh({{"x", ranks}}), one);
    }
    FactorCuts twice = no_cut(rule);
    twice.axes[f] = {0, 1};
    keep(Mesh({{"x", 2}, {"y", 2}}), twice);
    for (size_t g = 0; g < n; ++g) {
      if (g == f) continue;
      FactorCuts two = no_cut(rule);
      two.axes[f] = {0};
      two.axes[g] = {1};
      keep(Mesh({{"x", 2}, {"y", 2}}), two);
      keep(Mesh({{"x", 2}, {"y", 3}}), two);
    }
  }
  for (size_t set = 0; set < rule.linear.size(); ++set) {
    FactorCuts partial = no_cut(rule);
    partial.linear_set = static_cast<int>(set);
    partial.through = {{0, Reduction::kSum}};
    keep(Mesh({{"x", 2}}), partial);
    for (size_t f = 0; f < n; ++f) {
      FactorCuts both = partial;
      both.axes[f] = {1};
      keep(Mesh({{"x", 2}, {"y", 2}}), both);
      keep(Mesh({{"x", 2}, {"y", 3}}), both);
    }
  }
  return out;
}

bool is_even(const ShardingRule& rule, const Cut& cut) {
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (is_uneven(rule, cut.factors, f, cut.mesh)) return false;
  }
  return true;
}

std::string describe(const Cut& cut, const ShardingRule& rule) {
  std::string out = to_string(rule) + ", cut";
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (cut.factors.axes[f].empty()) continue;
    out += fmt::format(" {}:{}", rule.factors[f].name, cut.mesh.size_of(cut.factors.axes[f]));
  }
  if (cut.factors.linear_set >= 0) out += fmt::format(" partial through set {}", cut.factors.linear_set);
  return out;
}

std::vector<Shape> shapes_of(std::span<const TensorType> types) {
  std::vector<Shape> out;
  for (const TensorType& type : types) out.push_back(type.shape);
  return out;
}

struct Whole {
  const OpDef& op;
  const Example& example;
  ShardingRule rule;
  std::vector<TensorType> types;  // of the results
  std::vector<HostTensor> operands;
  std::vector<HostTensor> results;
};

Whole whole_of(const OpDef& op, const Example& example, std::vector<HostTensor> operands) {
  Whole whole{op, example, {}, results_of(op, example), std::move(operands), {}};
  whole.rule = op.shard.get()({example.in, whole.types, example.attrs});
  std::vector<const HostTensor*> in;
  for (const HostTensor& operand : whole.operands) in.push_back(&operand);
  whole.results = run_reference(op, example.attrs, in, whole.types);
  return whole;
}

WindowCut cut_of(const Whole& whole, const Cut& cut, const WindowedDim& windowed) {
  const auto factor = static_cast<size_t>(windowed.factor);
  return window_cut(whole.rule, windowed, cut.mesh.size_of(cut.factors.axes[factor]));
}

// The cut windows of one operand or result.
std::vector<WindowedDim> windows_of(const Whole& whole, const Cut& cut, bool is_result, size_t tensor) {
  std::vector<WindowedDim> out = cut_windows(whole.rule, cut.factors);
  std::erase_if(out,
                [&](const WindowedDim& w) { return w.is_result != is_result || w.tensor != static_cast<int>(tensor); });
  return out;
}

// Of operands or results with all windows side by side.
std::vector<Shape> windowed_shapes(const Whole& whole, const Cut& cut, bool is_result) {
  std::vector<Shape> out = shapes_of(is_result ? std::span(whole.types) : std::span(whole.example.in));
  for (size_t i = 0; i < out.size(); ++i) {
    for (const WindowedDim& w : windows_of(whole, cut, is_result, i)) {
      const WindowCut windows = cut_of(whole, cut, w);
      out[i][w.dim] = windows.parts * windows.length;
    }
  }
  return out;
}

Attrs windowed_attrs(const Whole& whole, const Cut& cut) {
  Attrs out = whole.example.attrs;
  for (const WindowedDim& w : cut_windows(whole.rule, cut.factors)) {
    out = whole.op.in_window(out, w.dim, cut_of(whole, cut, w).length);
  }
  return out;
}

std::vector<Place> places(std::span<const Shape> shapes, std::span<const Layout> layouts, const Mesh& mesh,
                          int64_t rank) {
  std::vector<Place> out;
  for (size_t i = 0; i < shapes.size(); ++i) {
    out.push_back({shapes[i], local_box(shapes[i], layouts[i], mesh, rank).start});
  }
  return out;
}

// The results of all ranks: [result][rank].
std::vector<std::vector<HostTensor>> run_pieces(const Whole& whole, const Cut& cut, std::span<const Layout> in_layouts,
                                                std::span<const Layout> out_layouts,
                                                const std::vector<std::vector<HostTensor>>& operands) {
  const std::vector<Shape> in_shapes = windowed_shapes(whole, cut, false);
  const std::vector<Shape> out_shapes = windowed_shapes(whole, cut, true);
  const Attrs attrs = windowed_attrs(whole, cut);
  std::vector<std::vector<HostTensor>> results(whole.types.size());
  for (int64_t rank = 0; rank < cut.mesh.devices(); ++rank) {
    std::vector<View> in, out;
    for (const auto& pieces : operands) in.push_back(pieces[static_cast<size_t>(rank)].view());
    for (size_t r = 0; r < whole.types.size(); ++r) {
      const Shape shape = local_box(out_shapes[r], out_layouts[r], cut.mesh, rank).size;
      results[r].emplace_back(TensorType{whole.types[r].dtype, shape});
      out.push_back(results[r].back().view());
    }
    std::vector<Place> in_places, out_places;  // none: an op that reads them must say so in its traits
    if (whole.op.traits.reads_place) {
      in_places = places(in_shapes, in_layouts, cut.mesh, rank);
      out_places = places(out_shapes, out_layouts, cut.mesh, rank);
    }
    std::shared_ptr<void> state;
    whole.op.kernel.get()({.in = in,
                           .out = out,
                           .in_place = in_places,
                           .out_place = out_places,
                           .attrs = attrs,
                           .scratch = {},
                           .state = &state});
  }
  return results;
}

// Whole numbers small enough that every sum of them is exact in any order.
bool whole_numbers(const HostTensor& tensor) {
  const double limit = tensor.type().dtype == DType::kBF16 ? 128 : 1 << 20;
  for (int64_t i = 0; i < tensor.type().elements(); ++i) {
    const double x = element(tensor, i);
    if (x != std::trunc(x) || std::abs(x) > limit) return false;
  }
  return true;
}

// Calls fn(dim, factor) for each dimension of a tensor that has uneven parts.
template <class Fn>
void each_uneven(const Whole& whole, const Cut& cut, const DimFactors& tensor, Fn&& fn) {
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    for (const int factor : tensor[dim]) {
      if (is_uneven(whole.rule, cut.factors, static_cast<size_t>(factor), cut.mesh)) fn(static_cast<int>(dim), factor);
    }
  }
}

// Calls fn(rank, element) for what of every rank's piece lies beyond the whole's end in a dimension.
template <class Fn>
void each_beyond(const std::vector<HostTensor>& pieces, const Shape& whole, const Layout& layout, const Mesh& mesh,
                 int dim, Fn&& fn) {
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    const Box box = local_box(whole, layout, mesh, static_cast<int64_t>(rank));
    const int64_t kept = std::clamp<int64_t>(whole[dim] - box.start[dim], 0, box.size[dim]);
    const int64_t inner = box.size.strides()[static_cast<size_t>(dim)];
    const int64_t line = box.size[dim] * inner;
    for (int64_t end = line; end <= box.elements(); end += line) {
      for (int64_t i = end - (box.size[dim] - kept) * inner; i < end; ++i) fn(rank, i);
    }
  }
}

// Where the op takes the largest or smallest along an uneven factor, what lies beyond is no candidate.
void set_beyond(const Whole& whole, const Cut& cut, size_t operand, const Layout& layout,
                std::vector<HostTensor>& pieces) {
  each_uneven(whole, cut, whole.rule.in[operand], [&](int dim, int factor) {
    const Reduction reduction = whole.rule.factors[static_cast<size_t>(factor)].reduction;
    if (reduction == Reduction::kSum) return;
    const Shape& shape = whole.operands[operand].shape();
    const Attrs attrs =
        Attrs::of(FillBeyondAttrs{dim, shape[dim], reduction == Reduction::kMax ? "lowest" : "highest"});
    for (size_t rank = 0; rank < pieces.size(); ++rank) {
      const View piece = pieces[rank].view();
      const Place place{shape, local_box(shape, layout, cut.mesh, static_cast<int64_t>(rank)).start};
      structural().fill_beyond.kernel.get()({.in = {&piece, 1},
                                             .out = {&piece, 1},
                                             .in_place = {&place, 1},
                                             .out_place = {&place, 1},
                                             .attrs = attrs,
                                             .scratch = {}});
    }
  });
}

// Zeros beyond the end must be zeros still where the rule says that the op keeps them.
std::string check_beyond(const Whole& whole, const Cut& cut, size_t result, const Layout& layout,
                         const std::vector<HostTensor>& pieces) {
  std::string out;
  each_uneven(whole, cut, whole.rule.out[result], [&](int dim, int factor) {
    if (!keeps_zeros(whole.rule, factor)) return;
    each_beyond(pieces, whole.types[result].shape, layout, cut.mesh, dim, [&](size_t rank, int64_t i) {
      const double x = element(pieces[rank], i);
      if (x != 0 && out.empty())
        out = fmt::format("rank {} has {} beyond the end of dimension {}, and should have kept zero", rank, x, dim);
    });
  });
  return out;
}

// The type whose rounding decides: the result's, or that of an operand taken apart into partial
// terms.
DType coarsest(DType result, std::span<const HostTensor> operands, const FactorCuts& cuts) {
  DType out = result;
  for (const HostTensor& operand : operands) {
    const DType dtype = operand.type().dtype;
    if (!cuts.through.empty() && tolerance(dtype, 1, 1) > tolerance(out, 1, 1)) out = dtype;
  }
  return out;
}

std::string check_cut(const Whole& whole, const Cut& cut, bool exact, uint64_t seed) {
  const std::vector<Layout> in = operand_layouts(whole.rule, cut.factors);
  const std::vector<Layout> out = result_layouts(whole.rule, cut.factors);
  std::vector<std::vector<HostTensor>> operands;
  double largest = magnitude(whole.operands);
  for (size_t i = 0; i < in.size(); ++i) {
    HostTensor operand = whole.operands[i].clone();
    for (const WindowedDim& w : windows_of(whole, cut, false, i)) {
      operand = take_windows(operand, w.dim, cut_of(whole, cut, w), w.window.fill);
    }
    operands.push_back(trireme::cut(operand, in[i], cut.mesh, seed + i));
    largest = std::max(largest, magnitude(operands.back()));
    set_beyond(whole, cut, i, in[i], operands.back());
  }
  const auto results = run_pieces(whole, cut, in, out, operands);
  int64_t length = 1;
  for (const Factor& factor : whole.rule.factors) length *= std::max<int64_t>(factor.size, 1);
  for (size_t r = 0; r < results.size(); ++r) {
    const HostTensor& want = whole.results[r];
    const double size = std::max(magnitude({&want, 1}), largest);
    const DType coarse = coarsest(want.type().dtype, whole.operands, cut.factors);
    const bool strict = exact && whole_numbers(want);
    const double allowed = strict ? 0 : tolerance(coarse, length, size * static_cast<double>(cut.mesh.devices()));
    const Shape shape = windowed_shapes(whole, cut, true)[r];
    HostTensor got = gather(results[r], out[r], cut.mesh, {want.type().dtype, shape});
    for (const WindowedDim& w : windows_of(whole, cut, true, r)) got = add_windows(got, w.dim, cut_of(whole, cut, w));
    const std::string text = difference(got, want, allowed);
    if (!text.empty()) return fmt::format("result {} {}", r, text);
    const std::string beyond = check_beyond(whole, cut, r, out[r], results[r]);
    if (!beyond.empty()) return fmt::format("result {}: {}", r, beyond);
  }
  return "";
}

Findings check_all_cuts(const Whole& whole, bool exact, uint64_t seed) {
  Findings out;
  for (const Cut& cut : cuts_of(whole.rule)) {
    std::string text;
    try {
      text = check_cut(whole, cut, exact, seed);
    } catch (const Error& e) {
      text = e.text();
    }
    if (!text.empty()) out.push_back(describe(cut, whole.rule) + ": " + text);
  }
  return out;
}

// Whether the op may be given small whole numbers of either sign for all floating operands.
bool takes_any_number(const Example& example) {
  if (example.in.empty()) return false;
  for (size_t i = 0; i < example.in.size(); ++i) {
    const Fill fill = i < example.fill.size() ? example.fill[i] : Fill{};
    if (is_floating(example.in[i].dtype) && (fill.kind != Fill::Kind::kUniform || fill.low >= 0)) return false;
  }
  return true;
}

std::vector<HostTensor> whole_number_operands(const Example& example, uint64_t seed) {
  Example numbers = example;
  numbers.fill.resize(example.in.size());
  for (size_t i = 0; i < example.in.size(); ++i) {
    if (is_floating(example.in[i].dtype))
      numbers.fill[i] = {Fill::Kind::kIntegers, -3, 4};
    else if (i >= example.fill.size())
      numbers.fill[i] = {Fill::Kind::kIntegers, 0, 2};
  }
  return operands_of(numbers, seed);
}

TensorType local_type(const TensorType& type, const Layout& layout, const Mesh& mesh, int64_t rank) {
  return {type.dtype, local_box(type.shape, layout, mesh, rank).size};
}

// The work of all pieces of a cut against the whole's, which is done once for each term of partial
// operands. A piece may repeat the work on operands that are replicated: at most one operation for
// each of their elements.
std::string check_cost_of_cut(const OpDef& op, const Example& example, std::span<const TensorType> types,
                              const Cut& cut, const ShardingRule& rule) {
  const std::vector<Layout> in_layouts = operand_layouts(rule, cut.factors);
  const std::vector<Layout> out_layouts = result_layouts(rule, cut.factors);
  double pieces = 0;
  double repeated = 0;
  for (int64_t rank = 0; rank < cut.mesh.devices(); ++rank) {
    std::vector<TensorType> in, out;
    for (size_t i = 0; i < in_layouts.size(); ++i) {
      in.push_back(local_type(example.in[i], in_layouts[i], cut.mesh, rank));
      repeated += static_cast<double>(in.back().elements());
    }
    for (size_t i = 0; i < out_layouts.size(); ++i) {
      out.push_back(local_type(types[i], out_layouts[i], cut.mesh, rank));
      repeated += static_cast<double>(out.back().elements());
    }
    pieces += op.cost.get()({in, out, example.attrs}).flops;
  }
  for (const TensorType& type : example.in) repeated -= static_cast<double>(type.elements());
  for (const TensorType& type : types) repeated -= static_cast<double>(type.elements());
  double whole = op.cost.get()({example.in, types, example.attrs}).flops;
  for (const PartialAxis& term : cut.factors.through) whole *= static_cast<double>(cut.mesh.axis(term.axis).size);
  if (pieces <= whole * (1 + 1e-9) + std::max(repeated, 0.0)) return "";
  return fmt::format("{}: the pieces do {} operations in all, the whole does {}", describe(cut, rule), pieces, whole);
}

}  // namespace

std::vector<std::string> check_sharding(const OpDef& op, uint64_t seed) {
  if (!op.shard)
    return std::string_view(op.shard.reason()).empty() ? Findings{"has no rule and no reason"} : Findings{};
  if (!op.kernel) return {};
  Findings out;
  bool can_cut = false;
  bool did_cut = false;
  for (const Example& example : op.examples()) {
    const Whole whole = whole_of(op, example, operands_of(example, seed));
    Findings found = check_all_cuts(whole, false, seed);
    if (takes_any_number(example)) {
      for (std::string& text :
           check_all_cuts(whole_of(op, example, whole_number_operands(example, seed)), true, seed)) {
        found.push_back(text + " (whole numbers)");
      }
    }
    for (const std::string& text : found) out.push_back(conformance::describe(op, example) + ": " + text);
    for (const Factor& factor : whole.rule.factors) can_cut = can_cut || (factor.can_cut && factor.size > 1);
    did_cut =
        did_cut || std::ranges::any_of(cuts_of(whole.rule), [&](const Cut& cut) { return is_even(whole.rule, cut); });
  }
  if (can_cut && !did_cut) out.push_back(fmt::format("{}: no example has a size that 2 or 3 divides", op.name));
  return out;
}

std::vector<std::string> check_cost(const OpDef& op, uint64_t) {
  if (!op.cost) return std::string_view(op.cost.reason()).empty() ? Findings{"has no cost and no reason"} : Findings{};
  Findings out;
  for (const Example& example : op.examples()) {
    const std::vector<TensorType> types = results_of(op, example);
    const auto report = [&](const std::string& text) {
      if (!text.empty()) out.push_back(conformance::describe(op, example) + ": " + text);
    };
    const TypeArgs args{example.in, types, example.attrs};
    const Cost cost = op.cost.get()(args);
    if (cost.flops < 0 || cost.bytes < 0) report(fmt::format("flops {}, bytes {}", cost.flops, cost.bytes));
    double least = 0;
    for (const TensorType& type : types) least += static_cast<double>(type.bytes());
    if (!op.traits.zero_cost_view && !op.traits.joins_in_place && cost.bytes < least) {
      report(fmt::format("{} bytes moved, but its results have {}", cost.bytes, least));
    }
    if (!op.shard) continue;
    const ShardingRule rule = op.shard.get()(args);
    for (const Cut& cut : cuts_of(rule)) {
      if (is_even(rule, cut)) report(check_cost_of_cut(op, example, types, cut, rule));
    }
  }
  return out;
}

}  // namespace trireme::conformance
