#include "trireme/pass/loss_in_pieces.h"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"
#include "trireme/op/registry.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// logits = x weight, and what reads them; -1: there is none.
struct Head {
  NodeId product = -1;
  NodeId loss = -1;
  NodeId loss_grad = -1;   // of the logits
  NodeId input_grad = -1;  // of x
  NodeId weight_grad = -1;
  std::vector<NodeId> first;  // what the pieces need and stands after the product, in order
};

class LossInPieces {
 public:
  LossInPieces(const Program& program, int64_t pieces)
      : graph_(program.graph),
        pieces_(pieces),
        rewrite_(program),
        readers_(graph_.values().size()),
        done_(graph_.nodes().size(), 0) {
    for (NodeId id = 0; id < size(); ++id) {
      for (const ValueId operand : graph_.node(id).inputs) readers_[at(operand)].push_back(id);
    }
    for (const Output& output : graph_.outputs()) readers_[at(output.value)].push_back(kOutside);
  }

  Program run() {
    std::map<NodeId, Head> heads;  // by product
    for (NodeId id = 0; id < size(); ++id) {
      trains_ = trains_ || graph_.node(id).phase == Phase::kBackward;
      if (const std::optional<Head> head = head_of(id)) heads.emplace(head->product, *head);
    }
    for (NodeId id = 0; id < size(); ++id) {
      if (done_[at(id)] != 0) continue;
      const auto head = heads.find(id);
      if (head == heads.end())
        copy(id);
      else
        put_in_pieces(head->second);
    }
    if (trains_ && heads.empty())
      TRIREME_LOG(kWarn, "pass",
                  "loss_pieces: no product is read by a cross-entropy alone; the loss stays in one piece");
    return rewrite_.finish();
  }

 private:
  static constexpr NodeId kOutside = -2;  // an output of the graph

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  ValueId operand(NodeId id, size_t i) const { return graph_.node(id).inputs[i]; }
  ValueId result(NodeId id) const { return graph_.node(id).outputs[0]; }
  bool is(NodeId id, std::string_view op) const { return id >= 0 && graph_.node(id).op->name == op; }

  void copy(NodeId id) {
    rewrite_.copy(id);
    done_[at(id)] = 1;
  }

  // What makes logits of rows, times one matrix.
  bool is_linear(NodeId id) const {
    return is(id, "matmul") && !graph_.node(id).attrs.as<MatMulAttrs>().transpose_a &&
           type(operand(id, 0)).shape.rank() >= 2 && type(operand(id, 1)).shape.rank() == 2;
  }

  std::optional<Head> head_of(NodeId loss) const {
    if (!is(loss, "cross_entropy")) return {};
    const ValueId logits = operand(loss, 0);
    Head head{.product = graph_.value(logits).producer, .loss = loss};
    if (!is_linear(head.product) || rows_of(logits) < 2) return {};
    for (const NodeId reader : readers_[at(logits)]) {
      if (reader == loss) continue;
      const bool grad =
          is(reader, "cross_entropy_grad") && operand(reader, 0) == logits && operand(reader, 1) == operand(loss, 1);
      if (!grad || head.loss_grad >= 0) return {};
      head.loss_grad = reader;
    }
    if (head.loss_grad >= 0 && !find_gradients(head)) return {};
    if (!find_first(head)) return {};
    return head;
  }

  bool find_gradients(Head& head) const {
    const ValueId dlogits = result(head.loss_grad);
    for (const NodeId reader : readers_[at(dlogits)]) {
      const bool twice = reader >= 0 && operand(reader, 0) == dlogits && graph_.node(reader).inputs.size() > 1 &&
                         operand(reader, 1) == dlogits;
      if (is_linear(reader) && !twice && operand(reader, 0) == dlogits && head.input_grad < 0)
        head.input_grad = reader;
      else if (is(reader, "linear_weight_grad") && !twice && head.weight_grad < 0)
        head.weight_grad = reader;
      else
        return false;
    }
    return true;
  }

  // The operands of all, as far as they are made after the product. They may not need what it makes, nor other ranks.
  bool find_first(Head& head) const {
    std::vector<char> seen(graph_.nodes().size(), 0);
    bool possible = true;
    const auto need = [&](const auto& self, ValueId value) -> void {
      const NodeId id = graph_.value(value).producer;
      if (id <= head.product || seen[at(id)] != 0) {
        possible = possible && id != head.product;
        return;
      }
      seen[at(id)] = 1;
      possible = possible && !is_communication(def_of(graph_.node(id)));
      for (const ValueId one : graph_.node(id).inputs) self(self, one);
      head.first.push_back(id);
    };
    need(need, operand(head.loss, 1));
    if (head.loss_grad >= 0) need(need, operand(head.loss_grad, 2));
    if (head.input_grad >= 0) need(need, operand(head.input_grad, 1));
    if (head.weight_grad >= 0) need(need, other_operand(head));
    return possible;
  }

  // Of the weight's gradient, beside the gradient of the logits.
  ValueId other_operand(const Head& head) const { return operand(head.weight_grad, grad_is_second(head) ? 0 : 1); }
  bool grad_is_second(const Head& head) const { return operand(head.weight_grad, 1) == result(head.loss_grad); }

  int64_t rows_of(ValueId logits) const {
    const Shape& shape = type(logits).shape;
    return shape[shape.rank() - 1] == 0 ? 0 : shape.elements() / shape[shape.rank() - 1];
  }

  static TensorType rows(int64_t count, const TensorType& like, bool is_matrix) {
    if (!is_matrix) return {like.dtype, {count}};
    return {like.dtype, {count, like.shape[like.shape.rank() - 1]}};
  }

  static Attrs into(const Shape& shape) {
    return op("reshape").parse_attrs(fmt::format("{{shape={}}}", to_string(shape)));
  }

  ValueId reshaped(NodeId scope, ValueId from, const TensorType& to) {
    const ValueId out = rewrite_.new_value(to);
    add("reshape", into(to.shape), scope, {from}, {out});
    return out;
  }

  void add(std::string_view name, const Attrs& attrs, NodeId like, std::vector<ValueId> in, std::vector<ValueId> out) {
    rewrite_.add(op(name), attrs, std::span(&like, 1), in, out);
  }

  // The rows of a tensor whose leading dimensions count them; of each piece.
  std::vector<ValueId> cut(NodeId scope, ValueId whole, bool is_matrix, const std::vector<int64_t>& sizes) {
    int64_t count = 0;
    for (const int64_t one : sizes) count += one;
    const ValueId flat = reshaped(scope, whole, rows(count, type(whole), is_matrix));
    std::vector<ValueId> out;
    for (const int64_t one : sizes) out.push_back(rewrite_.new_value(rows(one, type(whole), is_matrix)));
    add("split", Attrs::of(SplitAttrs{0, sizes}), scope, {flat}, out);
    return out;
  }

  // The inverse, into a value of the old program.
  void join(NodeId scope, const std::vector<ValueId>& parts, int64_t count, bool is_matrix, ValueId whole) {
    const ValueId flat = rewrite_.new_value(rows(count, type(whole), is_matrix));
    add("concat", Attrs::of(ConcatAttrs{0}), scope, parts, {flat});
    add("reshape", into(type(whole).shape), scope, {flat}, {whole});
  }

  void put_in_pieces(const Head& head) {
    for (const NodeId id : head.first) {
      if (done_[at(id)] == 0) copy(id);
    }
    const ValueId logits = operand(head.loss, 0);
    const int64_t count = rows_of(logits);
    const int64_t pieces = std::min(pieces_, count);
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < pieces; ++i) sizes.push_back(count / pieces + (i < count % pieces ? 1 : 0));

    const std::vector<ValueId> x = cut(head.product, operand(head.product, 0), true, sizes);
    const std::vector<ValueId> labels = cut(head.loss, operand(head.loss, 1), false, sizes);
    std::vector<ValueId> dloss, factor, losses, dx;
    if (head.loss_grad >= 0) dloss = cut(head.loss_grad, operand(head.loss_grad, 2), false, sizes);
    if (head.weight_grad >= 0)
      factor =
          other_operand(head) == operand(head.product, 0) ? x : cut(head.weight_grad, other_operand(head), true, sizes);
    ValueId sum = kNoValue;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto like = [&](ValueId whole, bool is_matrix) {
        return rewrite_.new_value(rows(sizes[i], type(whole), is_matrix));
      };
      const auto again = [&](NodeId id, std::vector<ValueId> in, ValueId out) {
        add(graph_.node(id).op->name, graph_.node(id).attrs, id, std::move(in), {out});
      };
      const ValueId some = like(logits, true);
      again(head.product, {x[i], operand(head.product, 1)}, some);
      losses.push_back(like(result(head.loss), false));
      again(head.loss, {some, labels[i]}, losses.back());
      if (head.loss_grad < 0) continue;
      const ValueId dsome = like(logits, true);
      again(head.loss_grad, {some, labels[i], dloss[i]}, dsome);
      if (head.input_grad >= 0) {
        dx.push_back(like(result(head.input_grad), true));
        again(head.input_grad, {dsome, operand(head.input_grad, 1)}, dx.back());
      }
      if (head.weight_grad >= 0) sum = add_weight_grad(head, i + 1 == sizes.size(), dsome, factor[i], sum);
    }
    join(head.loss, losses, count, false, result(head.loss));
    if (head.input_grad >= 0) join(head.input_grad, dx, count, true, result(head.input_grad));
    for (const NodeId id : {head.product, head.loss, head.loss_grad, head.input_grad, head.weight_grad}) {
      if (id >= 0) done_[at(id)] = 1;
    }
  }

  // The sum of the pieces so far; the last one is the value of the old program.
  ValueId add_weight_grad(const Head& head, bool last, ValueId dlogits, ValueId factor, ValueId sum) {
    const ValueId whole = result(head.weight_grad);
    const ValueId out = last ? whole : rewrite_.new_value_like(whole);
    std::vector<ValueId> in{dlogits, factor};
    if (grad_is_second(head)) std::swap(in[0], in[1]);
    if (sum != kNoValue) in.push_back(sum);
    add(sum == kNoValue ? "linear_weight_grad" : "linear_weight_grad_onto", graph_.node(head.weight_grad).attrs,
        head.weight_grad, std::move(in), {out});
    return out;
  }

  const Graph& graph_;
  int64_t pieces_;
  Rewrite rewrite_;
  std::vector<std::vector<NodeId>> readers_;  // of values
  std::vector<char> done_;                    // of nodes
  bool trains_ = false;                       // there is a backward pass
};

}  // namespace

Program loss_in_pieces(Program program, int64_t pieces) {
  require(pieces >= 1, "loss_pieces is {}; it must be 1 or more", pieces);
  return pieces == 1 ? std::move(program) : LossInPieces(program, pieces).run();
}

}  // namespace trireme
