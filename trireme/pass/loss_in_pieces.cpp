// The last product of a model and the cross-entropy of its result, in pieces of rows: the forward and backward pass of
// one piece come before the next piece begins, so that only the logits of one piece, a number for each of its positions
// and each token of the vocabulary, exist at a time. A vocabulary of 50,257 makes them the largest tensor of a step:
// 200 MiB for 1,024 positions in f32. (Hsu et al., "Liger Kernel: efficient Triton kernels for LLM training", 2024,
// section 3.2, has the same as one kernel.)
//
// Before: any program. After: the same results, but the weight's gradient is summed piece by piece, so its last bits
// may differ. The gradient of the loss must not depend on the logits (that of a mean or a weighted sum does not), and
// nothing else may read the logits. Otherwise nothing changes. It runs before passes that ask who reads what.
//
// Where both the weight and its gradient have homes elsewhere (parallel.home), they are not on the device together: the
// pieces of the logits' gradient leave for that home, and the weight's gradient is summed of them, in the same order,
// when all pieces have read the weight.
#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/move.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/row_steps.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
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
  LossInPieces(const Program& program, const PassOptions& options)
      : graph_(program.graph),
        options_(options),
        pieces_(options.loss_pieces),
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
      say(options_, {"loss_pieces: no product is read by a loss of its rows alone; the loss stays in one piece", true});
    return rewrite_.finish();
  }

 private:
  static constexpr NodeId kOutside = -2;  // an output of the graph

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  NodeId size() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const TensorType& type(ValueId id) const { return graph_.type(id); }
  ValueId operand(NodeId id, size_t i) const { return graph_.node(id).inputs[i]; }
  ValueId result(NodeId id) const { return graph_.node(id).outputs[0]; }

  void copy(NodeId id) {
    rewrite_.copy(id);
    done_[at(id)] = 1;
  }

  const OpDef& def(NodeId id) const { return def_of(graph_.node(id)); }

  std::vector<TensorType> types_of(const std::vector<ValueId>& values) const {
    std::vector<TensorType> out;
    for (const ValueId value : values) out.push_back(type(value));
    return out;
  }

  // Leading dimensions that count the rows of the logits.
  static int row_dims_of(const TensorType& logits) { return logits.shape.rank() - 1; }

  int64_t rows_of(ValueId logits) const {
    const Shape& shape = type(logits).shape;
    return shape[shape.rank() - 1] == 0 ? 0 : shape.elements() / shape[shape.rank() - 1];
  }

  // A tensor of rows with the leading dimensions that count them as one, of this size.
  static TensorType flat(const TensorType& like, int row_dims, int64_t count) {
    TensorType out{like.dtype, {count}};
    for (int dim = row_dims; dim < like.shape.rank(); ++dim) out.shape.push_back(like.shape[dim]);
    return out;
  }

  // Which operands have rows, of a node that makes such rows and does so too where one dimension counts them.
  std::optional<RowOp> on_rows(NodeId id, int row_dims) const {
    if (id < 0) return {};
    const Node& node = graph_.node(id);
    std::vector<TensorType> in = types_of(node.inputs);
    std::vector<TensorType> out = types_of(node.outputs);
    try {
      const std::optional<RowOp> op = along_rows(def_of(node), {in, out, node.attrs});
      if (!op || op->row_dims != row_dims || out.size() != 1) return {};
      const int64_t rows = count_rows(out[0].shape, row_dims);
      for (size_t i = 0; i < in.size(); ++i) {
        if (op->by_row[i] != 0) in[i] = flat(in[i], row_dims, rows);
      }
      const bool fits = result_types(def_of(node), in, node.attrs)[0] == flat(out[0], row_dims, rows);
      return fits ? op : std::nullopt;
    } catch (const Error&) {
      return {};  // the attributes are of another shape
    }
  }

  bool reads_by_row_alone(NodeId id, int row_dims) const {
    const std::optional<RowOp> op = on_rows(id, row_dims);
    return op && std::ranges::all_of(op->by_row, [](char by_row) { return by_row != 0; });
  }

  // What makes rows of the rows of operand 0 and sums over something there, as a product with one matrix does.
  bool is_product(NodeId id, int row_dims) const {
    const std::optional<RowOp> op = on_rows(id, row_dims);
    return op && op->sums && op->by_row[0] != 0 && std::count(op->by_row.begin(), op->by_row.end(), 1) == 1;
  }

  std::optional<Head> head_of(NodeId loss) const {
    if (!def(loss).traits.loss_of_rows) return {};
    const ValueId logits = operand(loss, 0);
    const int row_dims = row_dims_of(type(logits));
    Head head{.product = graph_.value(logits).producer, .loss = loss};
    if (row_dims < 1 || !is_product(head.product, row_dims) || rows_of(logits) < 2) return {};
    if (!reads_by_row_alone(loss, row_dims)) return {};
    for (const NodeId reader : readers_[at(logits)]) {
      if (reader == loss) continue;
      const bool grad = reader >= 0 && graph_.node(reader).gradient_of == loss &&
                        reads_by_row_alone(reader, row_dims) && type(result(reader)) == type(logits);
      if (!grad || head.loss_grad >= 0) return {};
      head.loss_grad = reader;
    }
    if (head.loss_grad >= 0 && !find_gradients(head, row_dims)) return {};
    if (!find_first(head)) return {};
    return head;
  }

  bool find_gradients(Head& head, int row_dims) const {
    const ValueId dlogits = result(head.loss_grad);
    for (const NodeId reader : readers_[at(dlogits)]) {
      if (reader < 0 || std::ranges::count(graph_.node(reader).inputs, dlogits) != 1) return false;
      if (is_product(reader, row_dims) && operand(reader, 0) == dlogits && head.input_grad < 0)
        head.input_grad = reader;
      else if (sums_rows(reader, dlogits) && head.weight_grad < 0)
        head.weight_grad = reader;
      else
        return false;
    }
    return true;
  }

  // Whether it sums over the rows of these and of one other tensor, and can go on with a sum that is begun.
  bool sums_rows(NodeId id, ValueId rows) const {
    const Few<ValueId, 4>& in = graph_.node(id).inputs;
    if (def(id).onto == nullptr || in.size() != 2) return false;
    const Shape& mine = type(rows).shape;
    const Shape& other = type(in[0] == rows ? in[1] : in[0]).shape;
    return mine.rank() == other.rank() && std::equal(mine.begin(), mine.end() - 1, other.begin());
  }

  // The operands of all, as far as they are made after the product. They may not need what it makes, nor other ranks or
  // crews.
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
      possible = possible && !is_communication(def(id)) && !def(id).traits.message;
      for (const ValueId one : graph_.node(id).inputs) self(self, one);
      head.first.push_back(id);
    };
    const ValueId logits = operand(head.loss, 0);
    const ValueId dlogits = head.loss_grad < 0 ? kNoValue : result(head.loss_grad);
    for (const NodeId id : {head.loss, head.loss_grad, head.input_grad, head.weight_grad}) {
      if (id < 0) continue;
      for (const ValueId value : graph_.node(id).inputs) {
        if (value != logits && value != dlogits) need(need, value);
      }
    }
    return possible;
  }

  ValueId reshaped(NodeId scope, ValueId from, const TensorType& to) {
    const ValueId out = rewrite_.new_value(to);
    add(structural().reshape, Attrs::of(ReshapeAttrs{to.shape}), scope, {from}, {out});
    return out;
  }

  void add(const OpBase& op, const Attrs& attrs, NodeId like, std::vector<ValueId> in, std::vector<ValueId> out) {
    rewrite_.add(op, attrs, std::span(&like, 1), in, out);
  }

  // Tensors of rows, and their pieces.
  struct Pieces {
    int row_dims = 1;
    int64_t count = 0;                                // rows of all
    std::vector<int64_t> sizes;                       // rows of each
    std::map<ValueId, std::vector<ValueId>> of = {};  // of values of the old program, those that are made so far
  };

  // Which operands of a node of the head have rows.
  std::vector<char> by_row(const Head& head, NodeId id, int row_dims) const {
    if (id == head.weight_grad) return std::vector<char>(graph_.node(id).inputs.size(), 1);
    return on_rows(id, row_dims)->by_row;
  }

  void cut_operands(const Head& head, NodeId id, Pieces& pieces) {
    const std::vector<char> rows = by_row(head, id, pieces.row_dims);
    for (size_t i = 0; i < rows.size(); ++i) {
      const ValueId whole = operand(id, i);
      const bool made_in_pieces =
          whole == operand(head.loss, 0) || (head.loss_grad >= 0 && whole == result(head.loss_grad));
      if (rows[i] == 0 || made_in_pieces || pieces.of.contains(whole)) continue;
      const ValueId joined = reshaped(id, whole, flat(type(whole), pieces.row_dims, pieces.count));
      std::vector<ValueId>& out = pieces.of[whole];
      for (const int64_t size : pieces.sizes) out.push_back(new_piece(pieces, whole, size));
      add(structural().split, Attrs::of(SplitAttrs{0, pieces.sizes}), id, {joined}, out);
    }
  }

  ValueId new_piece(const Pieces& pieces, ValueId whole, int64_t size) {
    return rewrite_.new_value(flat(type(whole), pieces.row_dims, size));
  }

  // Piece i of what a node makes.
  void make_piece(const Head& head, NodeId id, size_t i, Pieces& pieces) {
    const std::vector<char> rows = by_row(head, id, pieces.row_dims);
    std::vector<ValueId> in;
    for (size_t k = 0; k < rows.size(); ++k)
      in.push_back(rows[k] != 0 ? pieces.of.at(operand(id, k))[i] : operand(id, k));
    const ValueId out = new_piece(pieces, result(id), pieces.sizes[i]);
    add(*graph_.node(id).op, graph_.node(id).attrs, id, std::move(in), {out});
    pieces.of[result(id)].push_back(out);
  }

  // The inverse of a cut, into a value of the old program.
  void join(NodeId id, const Pieces& pieces) {
    const ValueId whole = result(id);
    const ValueId rows = rewrite_.new_value(flat(type(whole), pieces.row_dims, pieces.count));
    add(structural().concat, Attrs::of(ConcatAttrs{0}), id, pieces.of.at(whole), {rows});
    add(structural().reshape, Attrs::of(ReshapeAttrs{type(whole).shape}), id, {rows}, {whole});
  }

  void put_in_pieces(const Head& head) {
    for (const NodeId id : head.first) {
      if (done_[at(id)] == 0) copy(id);
    }
    Pieces pieces{
        .row_dims = row_dims_of(type(operand(head.loss, 0))), .count = rows_of(operand(head.loss, 0)), .sizes = {}};
    const int64_t many = std::min(pieces_, pieces.count);
    if (many < pieces_)
      say(options_,
          {fmt::format("loss_pieces: a rank has {}, so there {} instead of {}", counted(pieces.count, "position"),
                       many == 1 ? "is 1 piece" : fmt::format("are {} pieces", many), pieces_)});
    for (int64_t i = 0; i < many; ++i) pieces.sizes.push_back(pieces.count / many + (i < pieces.count % many ? 1 : 0));
    for (const NodeId id : {head.product, head.loss, head.loss_grad, head.weight_grad}) {
      if (id >= 0) cut_operands(head, id, pieces);
    }
    const Tier away = head.weight_grad < 0 ? Tier::kDevice : away_from_weight(head);
    ValueId sum = kNoValue;
    for (size_t i = 0; i < pieces.sizes.size(); ++i) {
      for (const NodeId id : {head.product, head.loss, head.loss_grad, head.input_grad}) {
        if (id >= 0) make_piece(head, id, i, pieces);
      }
      if (head.weight_grad >= 0 && away == Tier::kDevice) sum = add_weight_grad(head.weight_grad, i, sum, pieces);
      if (away != Tier::kDevice) move_piece(head, i, {Tier::kDevice, away}, pieces);
    }
    for (size_t i = 0; away != Tier::kDevice && i < pieces.sizes.size(); ++i) {
      if (i == 0) move_piece(head, i, {away, Tier::kDevice}, pieces);
      if (i + 1 < pieces.sizes.size()) move_piece(head, i + 1, {away, Tier::kDevice}, pieces);
      sum = add_weight_grad(head.weight_grad, i, sum, pieces);
    }
    join(head.loss, pieces);
    if (head.input_grad >= 0) join(head.input_grad, pieces);
    for (const NodeId id : {head.product, head.loss, head.loss_grad, head.input_grad, head.weight_grad}) {
      if (id >= 0) done_[at(id)] = 1;
    }
  }

  // Where the pieces wait for the weight to leave; the device's memory: they do not.
  Tier away_from_weight(const Head& head) const {
    ValueId weight = operand(head.product, 1);
    while (graph_.value(weight).producer >= 0) {
      const Node& node = graph_.node(graph_.value(weight).producer);
      if (!is_cast(node) && !def_of(node).traits.zero_cost_view) return Tier::kDevice;
      weight = node.inputs[0];
    }
    const Input& input = graph_.inputs()[at(graph_.value(weight).index)];
    const bool stays = home_of(options_.homes, Held::kParameter, input.name) == Tier::kDevice;
    return stays ? Tier::kDevice : home_of(options_.homes, Held::kGradient, input.name);
  }

  // Piece i of the logits' gradient.
  void move_piece(const Head& head, size_t i, Move move, Pieces& pieces) {
    ValueId& piece = pieces.of.at(result(head.loss_grad))[i];
    const ValueId moved = new_piece(pieces, result(head.loss_grad), pieces.sizes[i]);
    rewrite_.insert(structural().move, attrs_of(move), head.loss_grad, {{piece}}, {{moved}});
    piece = moved;
  }

  // The sum of the pieces so far; the last one is the value of the old program.
  ValueId add_weight_grad(NodeId id, size_t i, ValueId sum, const Pieces& pieces) {
    const bool last = i + 1 == pieces.sizes.size();
    const ValueId out = last ? result(id) : rewrite_.new_value_like(result(id));
    std::vector<ValueId> in;
    for (const ValueId rows : graph_.node(id).inputs) in.push_back(pieces.of.at(rows)[i]);
    if (sum != kNoValue) in.push_back(sum);
    add(sum == kNoValue ? def(id) : *def(id).onto, graph_.node(id).attrs, id, std::move(in), {out});
    return out;
  }

  const Graph& graph_;
  const PassOptions& options_;
  int64_t pieces_;
  Rewrite rewrite_;
  std::vector<std::vector<NodeId>> readers_;  // of values
  std::vector<char> done_;                    // of nodes
  bool trains_ = false;                       // there is a backward pass
};

}  // namespace

namespace pass {
extern const Pass loss_in_pieces{
    .name = "loss_in_pieces",
    .doc = "the last product and the loss are computed in pieces of rows, if asked for",
    .asked_for = [](const PassOptions& o) { return o.loss_pieces != 1; },
    .run =
        [](Program program, const PassOptions& o) {
          require(o.loss_pieces >= 1, "loss_pieces is {}; it must be 1 or more", o.loss_pieces);
          return LossInPieces(program, o).run();
        },
};
}  // namespace pass

}  // namespace trireme
