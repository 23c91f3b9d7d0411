#include "tests/equivalence/random_graph.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/equivalence/random_collective.h"
#include "tests/equivalence/random_updates.h"
#include "tests/equivalence/with_shape.h"
#include "trireme/base/error.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/registry.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/hand_cut.h"

namespace trireme::equivalence {
namespace {

constexpr int64_t kMostElements = 700;    // of one value
constexpr int64_t kMostOfLarge = 20'000;  // in a graph whose dimensions fill several blocks of a kernel

class RandomGraph {
 public:
  RandomGraph(Draw& draw, Numerics numerics, const Mesh* mesh)
      : draw_(draw),
        numerics_(numerics),
        mesh_(mesh),
        real_(random_type(draw, numerics)),
        stored_(real_ == DType::kBF16 ? DType::kF32 : real_),
        is_large_(mesh == nullptr && real_ != DType::kF64 && draw.chance(6)) {}

  Graph build() {
    // Of bf16 no more than can be compared: each op errs by as much as 2^-8.
    const int64_t length = is_large_ ? 1 : 1 + draw_.below(real_ == DType::kBF16 ? 3 : 6);
    for (int64_t i = 0; i < length; ++i) {
      graph_.set_scope(fmt::format("part.{}", i));
      if (draw_.chance(45)) {
        add_example();
      } else {
        add_block();
      }
      if (mesh_ != nullptr && !made_.empty() && draw_.chance(70)) {
        keep(random_collective(draw_.chance(70) ? made_.back() : draw_.of(made_), *mesh_, most_elements(), draw_));
      }
    }
    if (Draw own = draw_.beside(1); own.chance(15)) add_table(own);
    add_loss();
    graph_.set_scope("");
    return without_dead_nodes(graph_);
  }

 private:
  static DType random_type(Draw& draw, Numerics numerics) {
    if (draw.chance(numerics == Numerics::kInvariant ? 10 : 40)) return DType::kF64;
    return draw.chance(35) ? DType::kBF16 : DType::kF32;
  }
  int64_t size() {
    return is_large_ ? draw_.of({3, 17, 33, 48, 65, 96}) : draw_.of({1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 12, 12});
  }
  int64_t most_elements() const { return is_large_ ? kMostOfLarge : kMostElements; }

  // -- operands -----------------------------------------------------------------------------------

  Tensor input(const std::string& name, const TensorType& type, Role role) {
    const std::string piece = mesh_ == nullptr ? "" : random_piece(type.shape, *mesh_, draw_);
    return {graph_, graph_.add_input(name, type, role, {}, {}, piece)};
  }

  Tensor data(DType dtype, const Shape& shape, const std::string& values = "") {
    const std::string name = fmt::format("x{}{}", graph_.inputs().size(), values);
    if (dtype == DType::kBF16) return cast(input(name, {stored_, shape}, Role::kData), dtype);
    return input(name, {dtype, shape}, Role::kData);
  }

  Tensor whole_numbers(const TensorType& type, int64_t low, int64_t high) {
    const Tensor from_zero = data(type.dtype, type.shape, fmt::format(".below{}", high - low));
    return low == 0 || type.dtype == DType::kBool ? from_zero : add_scalar(from_zero, static_cast<double>(low));
  }

  Tensor parameter(const Shape& shape) {
    std::vector<Tensor> alike;
    for (const Tensor& known : parameters_) {
      if (known.shape() == shape) alike.push_back(known);
    }
    if (!alike.empty() && draw_.chance(50)) return cast(draw_.of(alike), real_);
    const std::string name = fmt::format("w{}", parameters_.size());
    parameters_.push_back(input(name, {stored_, shape}, Role::kParameter));
    return cast(parameters_.back(), real_);
  }

  // A value of this shape: from the batch, a parameter, or made of what the graph has computed so
  // far.
  Tensor operand(const Shape& shape) {
    const int64_t from = draw_.below(10);
    if (from < 3) return parameter(shape);
    if (from < 4 || made_.empty()) return data(real_, shape);
    const Tensor x = draw_.chance(60) ? made_.back() : draw_.of(made_);
    const Tensor y = cast(with_shape(x, shape, draw_), real_);
    return draw_.chance(30) ? tanh(y) : y;
  }

  // Remembers a value that later parts and the loss may read.
  void keep(const Tensor& x) {
    made_.push_back(x);
    const bool computed = graph_.value(x.id()).producer >= 0;
    if (computed && draw_.chance(8)) graph_.add_output(fmt::format("value{}", made_.size()), x.id());
  }

  // -- any op, by its examples --------------------------------------------------------------------

  void add_example() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const OpDef& op = *draw_.of(ops_of_one_plan());
      if (op.collective || op.examples == nullptr) continue;
      const std::vector<Example> examples = op.examples();
      if (std::optional<Example> example = with_types(op, draw_.of(examples))) {
        apply_example(op, *example);
        return;
      }
    }
  }

  // The example with this graph's floating type, and now and then with other sizes: where the op
  // takes them.
  std::optional<Example> with_types(const OpDef& op, const Example& as_is) {
    Example out = as_is;
    for (TensorType& type : out.in) {
      if (type.dtype == DType::kF32 || type.dtype == DType::kBF16) type.dtype = real_;
    }
    if (real_ == DType::kBF16 && !is_taken(op, out)) {  // parameters and statistics beside it stay f32
      for (size_t i = 1; i < out.in.size(); ++i) {
        if (as_is.in[i].dtype == DType::kF32 && as_is.in[i].shape.rank() < 2) out.in[i].dtype = DType::kF32;
      }
    }
    const bool numbers =
        std::any_of(out.fill.begin(), out.fill.end(), [](const Fill& f) { return f.kind == Fill::Kind::kIntegers; });
    if (!numbers && draw_.chance(60)) {
      Example resized = out;
      std::map<int64_t, int64_t> sizes;
      for (TensorType& type : resized.in) {
        for (int dim = 0; dim < type.shape.rank(); ++dim) {
          type.shape[dim] = sizes.try_emplace(type.shape[dim], size()).first->second;
        }
      }
      if (is_taken(op, resized)) return resized;
    }
    if (is_taken(op, out)) return out;
    return std::nullopt;
  }

  bool is_taken(const OpDef& op, const Example& example) {
    try {
      for (const TensorType& type : op.infer.get()({example.in, example.attrs})) {
        const bool known = type.dtype != DType::kF16 && (type.dtype != DType::kBF16 || real_ == DType::kBF16);
        if (!known || type.elements() == 0 || type.elements() > most_elements()) return false;
      }
    } catch (const Error&) {
      return false;
    }
    return std::all_of(example.in.begin(), example.in.end(), [&](const TensorType& type) {
      return type.elements() > 0 && type.elements() <= most_elements() && type.dtype != DType::kF16;
    });
  }

  Tensor example_operand(const Example& example, size_t i) {
    const TensorType& type = example.in[i];
    Fill fill = i < example.fill.size() ? example.fill[i] : Fill{};
    if (!is_floating(type.dtype)) {
      if (i >= example.fill.size()) fill = {Fill::Kind::kIntegers, 0, 2};
      return whole_numbers(type, static_cast<int64_t>(fill.low), static_cast<int64_t>(fill.high));
    }
    const Tensor made = operand(type.shape);
    const Tensor x = made.dtype() == type.dtype ? made : cast(made, type.dtype);  // sums that an op wants in f64
    const bool any = fill.kind == Fill::Kind::kUniform && fill.low == -1 && fill.high == 1;
    if (fill.kind == Fill::Kind::kIntegers) return data(type.dtype, type.shape, ".below5") + fill.low;
    return any ? x : sigmoid(x) * (fill.high - fill.low) + fill.low;
  }

  void apply_example(const OpDef& op, const Example& example) {
    std::vector<Tensor> in;
    for (size_t i = 0; i < example.in.size(); ++i) in.push_back(example_operand(example, i));
    const std::vector<Tensor> results =
        in.empty() ? std::vector<Tensor>{made_by(op, example)} : apply(op, in, example.attrs);
    for (size_t i = 0; i < results.size(); ++i) {
      // Statistics beside a first result have no gradient of their own.
      const bool differentiable = op.grad && results[i].dtype() == real_ && (i == 0 || op.name == "split");
      if (differentiable) {
        keep(results[i]);
      } else {
        graph_.add_output(fmt::format("extra{}", graph_.outputs().size()), results[i].id());
      }
    }
  }

  Tensor made_by(const OpDef& op, const Example& example) {
    const std::vector<TensorType> types = op.infer.get()({{}, example.attrs});
    const NodeId node = graph_.add_node(op, example.attrs, {}, types);
    return {graph_, graph_.node(node).outputs[0]};
  }

  // -- blocks of models ---------------------------------------------------------------------------

  void add_block() {
    switch (draw_.below(9)) {
      case 0:
        return add_linear();
      case 1:
        return add_attention();
      case 2:
        return add_embedding();
      case 3:
        return add_images();
      case 4:
        return add_residual();
      case 5:
        return add_movement();
      case 6:
        return add_reduction();
      case 7:
        return add_projections();
      default:
        return add_norm();
    }
  }

  Shape batch_and_positions(int64_t width) {
    return draw_.chance(60) ? Shape{size(), draw_.of({1, 2, 3, 4, 6}), width} : Shape{size(), width};
  }

  Tensor activated(const Tensor& x) {
    const int64_t kind = draw_.below(6);
    if (kind == 0) return gelu(x, draw_.chance(50));
    if (kind == 4) return select(greater(x, full(graph_, {x.dtype(), {}}, 0)), x, x * 0.3);
    return kind == 1 ? relu(x) : kind == 2 ? silu(x) : kind == 3 ? tanh(x) : x;
  }

  Tensor product(const Tensor& x, int64_t out) {
    const bool transposed = draw_.chance(50);
    const int64_t in = x.size(-1);
    return matmul(x, parameter(transposed ? Shape{out, in} : Shape{in, out}), false, transposed);
  }

  Tensor linear(const Tensor& x, int64_t out) {
    const Tensor y = product(x, out);
    return draw_.chance(50) ? add(y, parameter({out})) : y;
  }

  void add_linear() {
    Tensor x = operand(batch_and_positions(size()));
    const int64_t layers = 1 + draw_.below(3);
    for (int64_t i = 0; i < layers; ++i) x = activated(linear(x, size()));
    keep(x);
  }

  void add_residual() {
    const Tensor x = operand(batch_and_positions(size()));
    const Tensor hidden = activated(linear(normed(x), size()));
    keep(add(x, linear(hidden, x.size(-1))));
  }

  Tensor normed(const Tensor& x) {
    const Tensor gamma = add_scalar(parameter({x.size(-1)}), 1.5);
    switch (draw_.below(3)) {
      case 0:
        return layer_norm(x, gamma, parameter({x.size(-1)}), 0.1).y;
      case 1:
        return rms_norm(x, gamma, 0.1).y;
      default:
        return x;
    }
  }

  void add_norm() {
    const Tensor x = normed(operand(batch_and_positions(size())));
    switch (draw_.below(4)) {
      case 0:
        return keep(softmax(x));
      case 1:
        return keep(log_softmax(x));
      case 2:
        return keep(dropout(x, schedule(graph_, "step", DType::kI64), 0.25, 11, static_cast<int64_t>(made_.size())));
      default:
        return keep(x);
    }
  }

  void add_attention() {
    const int64_t batch = draw_.of({1, 2, 3, 4, 6});
    const int64_t positions = draw_.of({1, 2, 2, 3, 3, 5, 5});  // of one, the gradients of queries are rounding alone
    const int64_t groups = draw_.of({1, 2, 3, 4});
    const int64_t heads = groups * draw_.of({1, 1, 2});
    const int64_t width = draw_.of({1, 2, 3});
    const Tensor x = operand({batch, positions, heads * width});
    const Tensor q = reshape(linear(x, heads * width), {batch, positions, heads, width});
    // Keys have no bias: softmax does not see what all of them share.
    const Tensor k = reshape(product(x, groups * width), {batch, positions, groups, width});
    const Tensor v = operand({batch, positions, groups, width});
    const Tensor y = attention(q, k, v, {.causal = draw_.chance(50)});
    keep(add(x, reshape(y, {batch, positions, heads * width})));
  }

  void add_projections() {  // several maps of one value by one weight, then apart again
    const Tensor x = operand(batch_and_positions(size()));
    const int64_t parts = draw_.of({2, 3});
    const Tensor y = multi_linear(x, parameter({x.size(-1), parts, size()}));
    const std::vector<Tensor> apart = split(y, y.rank() - 2, static_cast<int>(parts));
    keep(mul(squeeze(apart[0], apart[0].rank() - 2), squeeze(apart[1], apart[1].rank() - 2)));
  }

  void add_embedding() {
    const int64_t vocabulary = draw_.of({2, 5, 6, 8, 12});
    const Shape positions = draw_.chance(50) ? Shape{size()} : Shape{size(), draw_.of({1, 2, 3, 4})};
    const Tensor ids = whole_numbers({draw_.chance(50) ? DType::kI32 : DType::kI64, positions}, 0, vocabulary);
    const Tensor table = parameter({vocabulary, size()});
    Tensor x = embedding(table, ids);
    if (draw_.chance(50)) x = activated(linear(x, table.size(1)));
    keep(x);
    if (draw_.chance(50)) return;
    const Tensor labels = whole_numbers({DType::kI32, positions}, 0, vocabulary);
    const Tensor logits = draw_.chance(60) ? matmul(x, table, false, true) : linear(x, vocabulary);
    keep(draw_.chance(50) ? cross_entropy(logits, labels) : cross_entropy(logits, labels, 1, 0.1));
  }

  // Of which few rows are looked up, so that these alone are updated (pass/sparse_updates.cpp).
  void add_table(Draw& own) {
    graph_.set_scope("table");
    const int64_t rows = own.of({kTableRows, kTableRows + 24});
    const Tensor table = parameter({rows, own.of({4, 6, 8})});
    const int64_t count = own.of({2, 4, 4, 4, 8});
    const int64_t below = own.of({5, 9, rows});  // fewer: some rows are looked up twice
    const int64_t lookups = own.of({1, 1, 2, 3});
    Tensor x;
    for (int64_t i = 0; i < lookups; ++i) {
      const Tensor looked_up = embedding(table, whole_numbers({DType::kI32, {count}}, 0, below));
      x = x ? add(x, looked_up) : looked_up;
    }
    keep(own.chance(50) ? tanh(x) : x);
  }

  void add_images() {
    const int64_t side = draw_.of({2, 3, 4, 5});
    const int64_t groups = is_large_ ? 1 : draw_.of({1, 1, 2});
    const int64_t channels = is_large_ ? draw_.of({32, 48, 64}) : groups * draw_.of({1, 2, 3});
    const Tensor x = operand({draw_.of({1, 2, 3, 4}), side, side, channels});
    const int64_t filters = is_large_ ? draw_.of({32, 64}) : groups * draw_.of({1, 2, 3, 4});
    const int64_t stride = is_large_ ? draw_.of({1, 2}) : 1;
    const Tensor weight = parameter({filters, 2, 2, channels / groups});
    Tensor y = conv2d(x, weight, {.stride = {stride, stride}, .padding = {1, 1}, .groups = groups});
    if (draw_.chance(50)) y = add(y, parameter({y.size(3)}));
    y = activated(y);
    switch (draw_.below(3)) {
      case 0:
        return keep(max_pool2d(y));
      case 1:
        return keep(avg_pool2d(y));
      default:
        return keep(mean(y, {1, 2}));
    }
  }

  void add_movement() {
    const int64_t width = 2 * draw_.of({1, 2, 3, 4, 6});
    const Tensor x = operand({size(), draw_.of({1, 2, 3, 4}), width});
    switch (draw_.below(5)) {
      case 0: {
        const std::vector<Tensor> halves = split(x, -1, 2);
        return keep(concat({activated(halves[1]), halves[0]}, -1));
      }
      case 1:
        return keep(linear(transpose(x, {1, 0, 2}), size()));
      case 2:
        return keep(activated(reshape(x, {x.size(0) * x.size(1), width})));
      case 3:
        return keep(reshape(x, {x.size(0), x.size(1), 2, width / 2}));
      default:
        return keep(cumsum(x, static_cast<int>(draw_.below(3)), draw_.chance(50)));
    }
  }

  void add_reduction() {
    const int64_t kind = draw_.below(4);
    // Often all of one sign: what stands in for an element that is not there, a zero, would be the largest or the
    // least.
    const double shift = draw_.chance(50) ? 0 : kind == 0 ? -2 : 2;
    const Tensor x = operand({size(), draw_.of({1, 2, 3, 4}), size()}) + shift;
    const std::vector<int64_t> dims = draw_.of(std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {0, 1}, {0, 2}});
    switch (kind) {
      case 0:
        return keep(add(x, reduce_max(x, dims, true)));
      case 1:
        return keep(sub(x, mean(x, dims, true)));
      case 2:
        return keep(reduce_sum(x, dims) * 0.3);
      default:
        return keep(mul(x, sigmoid(reduce_min(x, dims, true))));
    }
  }

  // -- training -----------------------------------------------------------------------------------

  void add_loss() {
    graph_.set_scope("loss");
    if (made_.empty()) keep(mul(parameter({4}), data(real_, {4})));
    Tensor loss = draw_.chance(20) ? loss_of_classes() : Tensor{};
    const int64_t terms = 1 + draw_.below(3);
    for (int64_t i = 0; i < terms && (i > 0 || !loss); ++i) {
      const Tensor x = cast(i == 0 ? made_.back() : draw_.of(made_), stored_);
      const Tensor term = draw_.chance(60) ? mean(square(x)) : mean(mul(x, data(stored_, x.shape())));
      loss = loss ? add(loss, term) : term;
    }
    loss = over_all_ranks(loss);
    std::vector<Tensor> wrt = parameters_;
    if (draw_.chance(50)) {
      for (const Input& input : graph_.inputs()) {
        if (input.role == Role::kData && graph_.type(input.value).dtype == stored_) {
          wrt.emplace_back(graph_, input.value);
        }
      }
    }
    std::vector<Tensor> grads = gradients_of_trained(loss, wrt, parameters_.size(), draw_);
    for (size_t i = 0; mesh_ != nullptr && i < parameters_.size(); ++i) {
      if (grads[i]) grads[i] = sum_over_holders(grads[i], parameters_[i], *mesh_);
    }
    const bool trains = draw_.chance(60);
    if (trains) add_random_updates(graph_, parameters_, grads, numerics_, mesh_, draw_);
    if (trains && !parameters_.empty() &&
        draw_.chance(15)) {  // a view of what the step replaces shows what was there before
      const Tensor x = draw_.of(parameters_);
      graph_.add_output("before", reshape(x, {1, x.shape().elements(), 1, 1, 1}).id());
    }
    if (!trains || draw_.chance(40)) {
      for (size_t i = 0; i < wrt.size(); ++i) {
        if (grads[i]) graph_.add_output("grad." + name_of(wrt[i]), grads[i].id());
      }
    }
  }

  // The output "loss", and what gradients are taken of. By hand these are the mean over the ranks, and each rank's
  // term.
  Tensor over_all_ranks(const Tensor& loss) {
    if (mesh_ == nullptr) {
      graph_.add_output("loss", loss.id());
      return loss;
    }
    const auto ranks = static_cast<double>(mesh_->devices());
    graph_.add_output("loss", sum_over_ranks(loss, *mesh_, ranks).id());
    return scale(loss, 1 / ranks);
  }

  // As models of language end: a product whose result only the cross-entropy reads, which can be taken in pieces of
  // rows.
  Tensor loss_of_classes() {
    const int64_t classes = draw_.of({2, 5, 8, 12});
    const Tensor x = operand({draw_.of({4, 6, 12}), size()});
    const Tensor logits = matmul(x, parameter({classes, x.size(1)}), false, true);
    return mean(cross_entropy(cast(logits, stored_), whole_numbers({DType::kI32, {x.size(0)}}, 0, classes)));
  }

  std::string name_of(const Tensor& input) const {
    return graph_.inputs()[static_cast<size_t>(graph_.value(input.id()).index)].name;
  }

  Draw& draw_;
  Numerics numerics_;
  const Mesh* mesh_;  // of the ranks, of a graph that is cut by hand
  DType real_;        // what is computed in
  DType stored_;      // of inputs
  bool is_large_;
  Graph graph_{"random"};
  std::vector<Tensor> parameters_;
  std::vector<Tensor> made_;  // that have a gradient
};

}  // namespace

Graph random_graph(Draw& draw, Numerics numerics) {
  return RandomGraph(draw, numerics, nullptr).build();
}

Graph random_graph_by_hand(Draw& draw, const Mesh& mesh) {
  return RandomGraph(draw, Numerics::kFast, &mesh).build();
}

}  // namespace trireme::equivalence
