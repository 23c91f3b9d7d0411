// Messages between plans that run side by side (op/message.h):
//   send  gives x to the same rank of another crew; it has no result
//   recv  y = what such a send gives
#include "trireme/op/message.h"
#include "trireme/ops/collectives/collective.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef send;
extern const OpDef recv;
}  // namespace ops

namespace {

void check_message(const char* op, int64_t crew, int64_t tag) {
  require(crew >= 0 && crew < kMostCrews, "{}: no crew {}; they are 0 to {}", op, crew, kMostCrews - 1);
  require(tag >= 0 && tag < kMessageTags, "{}: no tag {}; they are 0 to {}", op, tag, kMessageTags - 1);
}

std::vector<TensorType> infer_send(const InferArgs& args) {
  const auto& attrs = args.attrs.as<SendAttrs>();
  check_message("send", attrs.to, attrs.tag);
  check_sendable("send", args.in);
  return {};
}

std::vector<TensorType> infer_recv(const InferArgs& args) {
  const auto& attrs = args.attrs.as<RecvAttrs>();
  check_message("recv", attrs.from, attrs.tag);
  const TensorType type{attrs.dtype, attrs.shape};
  check_sendable("recv", {&type, 1});
  return {type};
}

std::vector<Example> send_examples() {
  return {{.in = {f32({6, 4})}, .attrs = Attrs::of(SendAttrs{.to = 1, .tag = 7})}};
}

std::vector<Example> recv_examples() {
  return {{.in = {}, .attrs = Attrs::of(RecvAttrs{.from = 1, .tag = 7, .dtype = DType::kBF16, .shape = {6, 4}})}};
}

template <class A>
OpDef message_op(std::string_view name, std::string_view doc, std::string_view inputs, InferFn* infer,
                 std::vector<Example> (*examples)()) {
  return {
      {name, &Attrs::parse<A>},
      {
          .doc = doc,
          .inputs = inputs,
          .infer = infer,
          .grad = Facet<GradFn>::none("stands between plans, which are made after gradients are"),
          .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
          .cost = cost_of_collective,
          .kernel = Facet<KernelFn>::none("the executor runs it, which knows the other ranks"),
          .traits = {.message = true},
          .examples = examples,
      },
  };
}

}  // namespace

namespace ops {
extern const OpDef send =
    message_op<SendAttrs>("send", "x is given to the same rank of another crew", "x", infer_send, send_examples);
extern const OpDef recv =
    message_op<RecvAttrs>("recv", "y = what the same rank of another crew sends", "", infer_recv, recv_examples);
}  // namespace ops

void send(const Tensor& x, int64_t to_crew, int64_t tag) {
  apply(ops::send, {x}, Attrs::of(SendAttrs{to_crew, tag}));
}

Tensor recv(Graph& graph, TensorType type, int64_t from_crew, int64_t tag) {
  const Attrs attrs = Attrs::of(RecvAttrs{from_crew, tag, type.dtype, type.shape});
  const NodeId node = graph.add_node(ops::recv, attrs, {}, infer_recv({{}, attrs}));
  return {graph, graph.node(node).outputs[0]};
}

}  // namespace trireme
