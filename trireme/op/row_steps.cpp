#include "trireme/op/row_steps.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/op/computed_rule.h"
#include "trireme/op/known_calls.h"
#include "trireme/op/overwrites.h"
#include "trireme/op/registry.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

constexpr size_t kMostSteps = 64;

bool has_any(const DimFactors& tensor, std::span<const int> factors, size_t from) {
  for (size_t dim = from; dim < tensor.size(); ++dim) {
    for (const int f : tensor[dim]) {
      if (std::find(factors.begin(), factors.end(), f) != factors.end()) return true;
    }
  }
  return false;
}

// Whether the tensor's leading dimensions are these factors, which stand nowhere else in it.
bool leads_with(const DimFactors& tensor, std::span<const int> factors) {
  if (tensor.size() < factors.size()) return false;
  for (size_t dim = 0; dim < factors.size(); ++dim) {
    if (tensor[dim] != FactorsOfDim{factors[dim]}) return false;
  }
  return !has_any(tensor, factors, factors.size());
}

std::optional<RowOp> with_row_dims(const ShardingRule& rule, int dims) {
  Few<int, 4> factors;
  for (int dim = 0; dim < dims; ++dim) {
    const FactorsOfDim& of = rule.out[0][static_cast<size_t>(dim)];
    if (of.size() != 1 || !rule.factors[static_cast<size_t>(of[0])].can_cut) return std::nullopt;
    factors.push_back(of[0]);
  }
  const bool lead =
      std::all_of(rule.out.begin(), rule.out.end(), [&](const DimFactors& t) { return leads_with(t, factors); });
  if (!lead) return std::nullopt;
  RowOp out{.row_dims = dims};
  for (const DimFactors& operand : rule.in) {
    const bool by_row = leads_with(operand, factors);
    if (!by_row && has_any(operand, factors, 0)) return std::nullopt;
    out.by_row.push_back(by_row ? 1 : 0);
  }
  return std::find(out.by_row.begin(), out.by_row.end(), 1) == out.by_row.end() ? std::nullopt : std::optional(out);
}

// Reads "2,3=op(0,1){attrs}" from the front of a text.
class StepReader {
 public:
  explicit StepReader(std::string_view text) : text_(text), rest_(text) {}

  bool done() const { return rest_.empty(); }
  RowStep step() {
    RowStep out;
    out.out = numbers('=');
    const size_t open = rest_.find('(');
    if (open == std::string_view::npos) wrong("'op(operands)'");
    out.op = &op(rest_.substr(0, open));
    rest_.remove_prefix(open + 1);
    out.in = numbers(')');
    out.attrs = out.op->parse_attrs(braces());
    if (!rest_.empty() && !rest_.starts_with("; ")) wrong("'; '");
    rest_.remove_prefix(std::min<size_t>(2, rest_.size()));
    return out;
  }

 private:
  [[noreturn]] void wrong(std::string_view wanted) const {
    fail(ErrorKind::kInvalidArgument, "steps '{}': expected {} at '{}'", text_, wanted, rest_);
  }
  // Numbers with commas between, up to and with `end`.
  std::vector<int> numbers(char end) {
    std::vector<int> out;
    while (true) {
      int value = 0;
      const auto [at, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (status != std::errc() || value < 0 || at == rest_.data() + rest_.size()) wrong("a value's number");
      out.push_back(value);
      const char next = *at;
      rest_.remove_prefix(static_cast<size_t>(at - rest_.data()) + 1);
      if (next == end) return out;
      if (next != ',') wrong(fmt::format("',' or '{}' before it", end));
    }
  }
  std::string_view braces() {
    size_t at = 0;
    bool quoted = false;
    for (; at < rest_.size() && (quoted || rest_[at] != '}'); ++at) {
      if (quoted && rest_[at] == '\\')
        ++at;
      else if (rest_[at] == '"')
        quoted = !quoted;
    }
    if (at >= rest_.size() || rest_[0] != '{') wrong("attributes in braces");
    const std::string_view out = rest_.substr(0, at + 1);
    rest_.remove_prefix(at + 1);
    return out;
  }

  std::string_view text_;
  std::string_view rest_;
};

std::string list(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += fmt::format("{}{}", out.empty() ? "" : ",", number);
  return out;
}

// Operands are numbered first, then each step's results; a step reads what stands before it.
void check_numbers(const RowSteps& steps, const FusedRowsAttrs& attrs) {
  int made = steps.operands;
  for (const RowStep& step : steps.steps) {
    for (const int id : step.in) {
      require(id < made, "fused_rows: {} reads value {} before it is made (steps '{}')", step.op->name, id,
              attrs.steps);
    }
    for (const int id : step.out) {
      require(id == made, "fused_rows: {} makes value {}; the next one is {} (steps '{}')", step.op->name, id, made,
              attrs.steps);
      ++made;
    }
  }
  for (const int id : steps.results) {
    require(id >= steps.operands && id < made,
            "fused_rows: result {} is made by no step; they make {} to {} (steps '{}')", id, steps.operands, made - 1,
            attrs.steps);
  }
}

std::vector<TensorType> types_of(std::span<const int> ids, std::span<const RowValue> values) {
  std::vector<TensorType> out;
  for (const int id : ids) out.push_back(values[static_cast<size_t>(id)].type);
  return out;
}

// Adds up what is known of the values of a fused_rows, a step at a time.
class RowValues {
 public:
  RowValues(const RowSteps& steps, std::span<const TensorType> in) : row_dims_(steps.row_dims), used_(in.size(), 0) {
    for (const TensorType& type : in) values_.push_back({type});
  }

  void add(const RowStep& step) {
    const std::vector<TensorType> in = types_of(step.in, values_);
    const std::vector<TensorType> out = step.op->infer.get()({in, step.attrs});
    require(out.size() == step.out.size(), "fused_rows: {} has {} results; {} are numbered", step.op->name, out.size(),
            step.out.size());
    const TypeArgs types{in, out, step.attrs};
    std::optional<RowOp> how = row_op(*step.op, types);
    if (!how) how = product_on_rows(*step.op, types);
    require(how.has_value() && how->row_dims >= row_dims_,
            "fused_rows: {} does not work on rows counted by {} dimensions", step.op->name, row_dims_);
    if (rows_.rank() == 0) rows_ = Shape(std::span(out[0].shape.begin(), static_cast<size_t>(row_dims_)));
    for (size_t i = 0; i < in.size(); ++i) use(step, i, how->by_row[i] != 0);
    for (const TensorType& type : out) values_.push_back({type, true});
  }
  std::vector<RowValue> take() { return std::move(values_); }

 private:
  void use(const RowStep& step, size_t i, bool by_row) {
    const auto id = static_cast<size_t>(step.in[i]);
    RowValue& value = values_[id];
    const bool is_new = id < used_.size() && used_[id] == 0;
    if (is_new) {
      value.by_row = by_row;
      used_[id] = 1;
    }
    require(value.by_row == by_row, "fused_rows: {} reads {} of value {}, others do not", step.op->name,
            by_row ? "a row" : "all rows", id);
    const bool same = !by_row || std::equal(rows_.begin(), rows_.end(), value.type.shape.begin());
    require(same, "fused_rows: {} reads {} where the rows are {}", step.op->name, said(value.type), said(rows_));
  }

  int row_dims_;
  Shape rows_;
  std::vector<char> used_;  // of operands
  std::vector<RowValue> values_;
};

// The step that reads each operand last; -1: none.
std::vector<int> last_reads(const RowSteps& steps) {
  std::vector<int> out(static_cast<size_t>(steps.operands), -1);
  for (size_t s = 0; s < steps.steps.size(); ++s) {
    for (const int id : steps.steps[s].in) {
      if (id < steps.operands) out[static_cast<size_t>(id)] = static_cast<int>(s);
    }
  }
  return out;
}

// Whether the step's own op may write its result `made` over value `id`.
bool step_overwrites(const RowStep& step, int made, int id, std::span<const RowValue> values) {
  if (std::count(step.in.begin(), step.in.end(), id) != 1) return false;
  const std::vector<TensorType> in = types_of(step.in, values);
  const std::vector<TensorType> out = types_of(step.out, values);
  const auto pairs = overwrites_of(*step.op, {in, out, step.attrs});
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
    return step.out[static_cast<size_t>(pair.first)] == made && step.in[static_cast<size_t>(pair.second)] == id;
  });
}

}  // namespace

std::optional<RowOp> along_rows(const OpDef& op, const TypeArgs& types) {
  if (!op.shard || op.collective || op.traits.reads_place || types.in.empty() || types.out.empty()) return std::nullopt;
  const RuleOf computed = computed_rule(op, types);
  const ShardingRule& rule = *computed;
  if (!rule.windows.empty() || rule.ring.has_value()) return std::nullopt;
  bool sums = false;
  for (int f = 0; f < static_cast<int>(rule.factors.size()); ++f) {
    sums = sums || (is_summed(rule, f) && rule.factors[static_cast<size_t>(f)].can_cut);
  }
  for (int dims = types.out[0].shape.rank(); dims > 0; --dims) {
    std::optional<RowOp> found = with_row_dims(rule, dims);
    if (!found) continue;
    found->sums = sums;
    return found;
  }
  return std::nullopt;
}

std::optional<RowOp> row_op(const OpDef& op, const TypeArgs& types) {
  if (!op.kernel || op.traits.zero_cost_view) return std::nullopt;
  const std::optional<RowOp> found = along_rows(op, types);
  return found && !found->sums ? found : std::nullopt;
}

namespace {

// Whether the op makes these results of these operands; attributes may be of another shape than a rank's pieces.
bool makes(const OpDef& op, const TypeArgs& types) {
  try {
    const std::vector<TensorType> results = op.infer.get()({types.in, types.attrs});
    return std::equal(results.begin(), results.end(), types.out.begin(), types.out.end());
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<RowOp> product_on_rows(const OpDef& op, const TypeArgs& types) {
  if (!op.kernel || types.in.size() != 2 || types.out.size() != 1 || !makes(op, types)) return std::nullopt;
  std::optional<RowOp> found = along_rows(op, types);
  if (!found || !found->sums || found->by_row != std::vector<char>{1, 0}) return std::nullopt;
  const std::vector<std::vector<int>>& linear = computed_rule(op, types)->linear;
  const bool in_each = std::ranges::count(linear, std::vector{0}) > 0 && std::ranges::count(linear, std::vector{1}) > 0;
  return in_each ? found : std::nullopt;
}

namespace {

constexpr size_t kMostRowOps = 16384;  // of one search some thousands

std::optional<RowOp> found_cheap_row_op(const OpDef& op, const TypeArgs& types) {
  constexpr double kMostFlopsPerByte = 8;
  if (!makes(op, types)) return std::nullopt;
  try {
    const Cost cost = op.cost.get()(types);
    return cost.flops <= kMostFlopsPerByte * cost.bytes ? row_op(op, types) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // the attributes are of another shape
  }
}

// What it goes by besides the call: an op that lies where another one lay has others.
using RowFacets = std::tuple<InferFn*, CostFn*, ShardFn*, bool>;
RowFacets row_facets(const OpDef& op) {
  return {op.infer.get(), op.cost.get(), op.shard.get(), op.traits.reads_place};
}

struct KnownRowOp {
  std::optional<RowOp> row_op;
  RowFacets found_by;  // none: it is not known yet
};

}  // namespace

std::optional<RowOp> cheap_row_op(const OpDef& op, const TypeArgs& types) {
  if (op.collective || !op.kernel || op.traits.zero_cost_view || types.in.empty() || !op.cost) return std::nullopt;
  static KnownCalls<KnownRowOp> all_known(kMostRowOps);
  KnownRowOp known = all_known.find(op, types);
  if (known.found_by == row_facets(op)) return std::move(known.row_op);
  std::optional<RowOp> found = found_cheap_row_op(op, types);
  all_known.add(op, types, {found, row_facets(op)});
  return found;
}

FusedRowsAttrs to_attrs(const RowSteps& steps) {
  FusedRowsAttrs out{.row_dims = steps.row_dims};
  for (const RowStep& step : steps.steps) {
    out.steps += fmt::format("{}{}={}({}){}", out.steps.empty() ? "" : "; ", list(step.out), step.op->name,
                             list(step.in), step.attrs.text());
  }
  out.results.assign(steps.results.begin(), steps.results.end());
  return out;
}

RowSteps parse_row_steps(const FusedRowsAttrs& attrs) {
  RowSteps out;
  require(attrs.row_dims >= 1 && attrs.row_dims <= Shape::kMaxRank,
          "fused_rows: rows are counted by {} dimensions; 1 to {} can be", attrs.row_dims, Shape::kMaxRank);
  out.row_dims = static_cast<int>(attrs.row_dims);
  for (StepReader reader(attrs.steps); !reader.done();) {
    out.steps.push_back(reader.step());
    require(out.steps.size() <= kMostSteps, "fused_rows: more than {} steps", kMostSteps);
  }
  require(!out.steps.empty() && !attrs.results.empty(), "fused_rows: there must be a step and a result (steps '{}')",
          attrs.steps);
  out.operands = out.steps.front().out.front();
  for (const int64_t id : attrs.results) {
    require(id >= 0 && id < 1 << 20, "fused_rows: there is no value {} (steps '{}')", id, attrs.steps);
    out.results.push_back(static_cast<int>(id));
  }
  check_numbers(out, attrs);
  return out;
}

std::vector<RowValue> row_values(const RowSteps& steps, std::span<const TensorType> in) {
  require(static_cast<int>(in.size()) == steps.operands, "fused_rows: {} operands given; the steps take {}", in.size(),
          steps.operands);
  RowValues values(steps, in);
  for (const RowStep& step : steps.steps) values.add(step);
  return values.take();
}

bool is_product(const RowStep& step, std::span<const RowValue> values) {
  const std::vector<TensorType> in = types_of(step.in, values);
  const std::vector<TensorType> out = types_of(step.out, values);
  return product_on_rows(*step.op, {in, out, step.attrs}).has_value();
}

namespace {

constexpr size_t kMostRowCalls = 4096;  // of one job some dozens

}  // namespace

std::shared_ptr<const RowCall> row_call(const Attrs& attrs, std::span<const TensorType> in) {
  static KnownCalls<std::shared_ptr<const RowCall>> known(kMostRowCalls);
  const TypeArgs types{in, {}, attrs};
  if (auto call = known.find(structural().fused_rows, types)) return call;
  RowSteps steps = parse_row_steps(attrs.as<FusedRowsAttrs>());
  std::vector<RowValue> values = row_values(steps, in);
  auto call = std::make_shared<const RowCall>(RowCall{std::move(steps), std::move(values)});
  known.add(structural().fused_rows, types, call);
  return call;
}

std::vector<std::pair<int, int>> row_overwrites(const RowCall& call) {
  const auto& [steps, values] = call;
  const std::vector<int> last = last_reads(steps);
  std::vector<std::pair<int, int>> out;
  for (int r = 0; r < static_cast<int>(steps.results.size()); ++r) {
    const int made = steps.results[static_cast<size_t>(r)];
    int s = 0;
    while (steps.steps[static_cast<size_t>(s)].out.back() < made) ++s;
    for (int o = 0; o < steps.operands; ++o) {
      if (!values[static_cast<size_t>(o)].by_row) continue;
      const int read = last[static_cast<size_t>(o)];
      if (read < s || (read == s && step_overwrites(steps.steps[static_cast<size_t>(s)], made, o, values)))
        out.emplace_back(r, o);
    }
  }
  return out;
}

int64_t count_rows(const Shape& shape, int row_dims) {
  int64_t rows = 1;
  for (int dim = 0; dim < row_dims; ++dim) rows *= shape[dim];
  return rows;
}

}  // namespace trireme
