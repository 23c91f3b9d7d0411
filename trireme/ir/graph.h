// Graph: a program on whole tensors, in SSA form. Values are numbered in the order they are made, so an
// operand's number is always smaller than its result's; passes read one graph and build another.
//
// A graph has inputs (a batch, parameters, optimizer state, scalars fed each step), nodes, and named outputs.
// An output may *update* an input: the next step starts with that value in its place.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/attrs.h"

namespace trireme {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;

// What the graph knows of an op; op/op_def.h has the rest.
struct OpBase {
  std::string_view name;
  Attrs (*parse_attrs)(std::string_view text);
};

enum class Role {
  kData,       // a part of the batch, new each step
  kParameter,  // trained, or frozen
  kState,      // of the optimizer
  kSchedule,   // a scalar fed each step: learning rate, step number
};
std::string_view to_string(Role role);

// How a parameter or state starts. Random values are functions of (seed, name, global element index), so they
// do not depend on how the tensor is cut.
struct Init {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double a = 0;  // the constant; the mean; the lower end
  double b = 0;  // the standard deviation; the upper end
  friend bool operator==(const Init&, const Init&) = default;
};
std::string to_string(const Init& init);  // "normal(0,0.02)"

struct Input {
  ValueId value = kNoValue;
  Role role = Role::kData;
  std::string name;
  Init init;
  // Its shape in checkpoints, where neighbouring dimensions are written as one; no dimensions: as it is.
  Shape saved_as;
  // In a graph that is cut by hand, how the pieces of all ranks lie in one tensor, by the mesh's axes: "[tp, -]", of the leading
  // dimensions; kOwnPiece: each rank's is a tensor of its own, and nothing says how they would be one; "": every rank has the same.
  std::string piece = {};
};
inline constexpr std::string_view kOwnPiece = "own";

struct Output {
  ValueId value = kNoValue;
  std::string name;
  ValueId updates = kNoValue;  // the input it replaces for the next step
};

// The update of parameter "w" is in the scope "update/w"; its optimizer state are inputs named "w.<something>".
inline constexpr std::string_view kUpdateScope = "update/";

struct Node {
  const OpBase* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  int scope = 0;             // index into Graph::scopes
  NodeId gradient_of = -1;   // the node whose gradient it is part of
};

// What the model's code asks of how it is cut: the cuts of the operands of one op, as text (plan/cuts.h). The op is
// the first one in the scope that has as many operands of these ranks.
struct ShardRequest {
  std::string scope;
  std::string cuts;
  friend bool operator==(const ShardRequest&, const ShardRequest&) = default;
};

struct Value {
  TensorType type;
  NodeId producer = -1;  // -1: an input of the graph
  int index = 0;         // which output of the producer, or which input of the graph
};

class Graph {
 public:
  explicit Graph(std::string name = "graph") : name_(std::move(name)), scopes_{""} {}

  ValueId add_input(std::string name, TensorType type, Role role, Init init = {}, Shape saved_as = {},
                    std::string piece = {});
  void set_piece(ValueId input, std::string piece);
  // The types are the caller's to infer (op/build.h does). Returns the first output.
  NodeId add_node(const OpBase& op, Attrs attrs, std::span<const ValueId> inputs,
                  std::span<const TensorType> types);
  void add_output(std::string name, ValueId value, ValueId updates = kNoValue);
  // Drops all outputs, for passes that name others.
  void clear_outputs() { outputs_.clear(); }

  // Nodes added from now on carry this name scope ("decoder.3.attn.q").
  void set_scope(std::string_view scope);
  std::string_view scope() const { return scopes_[static_cast<size_t>(scope_)]; }
  std::string_view scope_of(const Node& node) const { return scopes_[static_cast<size_t>(node.scope)]; }

  // Nodes added from now on are part of the gradient of this one; -1: of none.
  void set_gradient_of(NodeId node) { gradient_of_ = node; }

  void add_shard_request(ShardRequest request) { shard_requests_.push_back(std::move(request)); }
  const std::vector<ShardRequest>& shard_requests() const { return shard_requests_; }

  const std::string& name() const { return name_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::deque<Value>& values() const { return values_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  // The input of this name; throws kNotFound with candidates.
  const Input& input(std::string_view name) const;
  const Output& output(std::string_view name) const;

  // How often each value is read by nodes and outputs.
  std::vector<int> use_counts() const;

 private:
  std::string name_;
  std::vector<std::string> scopes_;
  std::vector<int> scopes_by_name_ = {0};  // numbers of scopes, sorted by their names
  int scope_ = 0;
  NodeId gradient_of_ = -1;
  std::vector<ShardRequest> shard_requests_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Node> nodes_;
  std::deque<Value> values_;  // a deque, so that a tensor's type stays where it is while nodes are added
};

// The graph's text, which parse_graph reads back to an equal graph.
std::string to_string(const Graph& graph);
// `find_op` returns the op of a name, or null. Throws kInvalidArgument with the line number.
Graph parse_graph(std::string_view text, const OpBase* (*find_op)(std::string_view));

// What is wrong with the graph's shape as data: unknown ids, values read before they are made, repeated input
// or output names, updates that change a type. Empty when sound. (op/verify.h checks ops and types.)
std::vector<std::string> check_structure(const Graph& graph);

// A copy without the nodes that no output needs.
Graph without_dead_nodes(const Graph& graph);

}  // namespace trireme
