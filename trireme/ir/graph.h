// Graph: a program on whole tensors, in SSA form. Values are numbered in the order they are made, so an
// operand's number is always smaller than its result's; passes read one graph and build another.
//
// A graph has inputs (a batch, parameters, optimizer state, scalars fed each step), nodes, and named outputs.
// An output may *update* an input: the next step starts with that value in its place.
//
// What a graph says about training is recorded as it is made, not guessed from names or shapes
// (docs/design/training_graphs.md): each node's phase, the node and the values whose gradients a node computes, and the
// updates of parameters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/base/growing.h"
#include "trireme/base/shared.h"
#include "trireme/base/shared_text.h"
#include "trireme/ir/attrs.h"
#include "trireme/ir/piece.h"
#include "trireme/ir/requests.h"

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
  Piece piece = {};  // in a graph that is cut by hand: of all ranks' pieces in one tensor
};

struct Output {
  ValueId value = kNoValue;
  std::string name;
  ValueId updates = kNoValue;  // the input it replaces for the next step
};

// What a node is for. A node reads what nodes of its own phase and of those before it make.
enum class Phase {
  kForward,   // the model and its loss
  kBackward,  // gradients, and the sums of them
  kUpdate,    // what is done once a step, with whole gradients: clipping them, and the updates
};
std::string_view to_string(Phase phase);

// What is known of a node besides what it computes.
struct Mark {
  int scope = 0;  // index into Graph::scopes
  Phase phase = Phase::kForward;
  NodeId gradient_of = -1;  // kBackward: the node whose gradient it is part of; -1: of no single one
  bool again = false;       // kForward: makes what was made before a second time, for the backward pass
  // In a program of a pipeline (parallel/asked/stages.h): the stage, -1 where each stage that reads it makes its own;
  // and the micro-batch, -1 where it is of all of them.
  int stage = -1;
  int micro_batch = -1;
  bool on_host = false;  // it runs on the host, on values that lie in its memory (pass/on_host.cpp)
};

struct Node : Mark {
  const OpBase* op = nullptr;
  Attrs attrs;
  Few<ValueId, 4> inputs;
  Few<ValueId, 4> outputs;
};

// A value that is the gradient of another, or a term of it.
struct GradientOf {
  ValueId gradient = kNoValue;
  ValueId of = kNoValue;
  friend bool operator==(const GradientOf&, const GradientOf&) = default;
};

// The update of one parameter: the gradient that it reads, and the optimizer's state of the parameter. Outputs of the
// graph replace the parameter and the state.
struct Update {
  ValueId parameter = kNoValue;
  ValueId gradient = kNoValue;
  std::vector<ValueId> states;
};

struct Value {
  Shared<TensorType> type;
  NodeId producer = -1;  // -1: an input of the graph
  int index = 0;         // which output of the producer, or which input of the graph
};

class Graph {
 public:
  explicit Graph(std::string name = "graph") : name_(std::move(name)), scopes_{""} {}

  ValueId add_input(std::string name, TensorType type, Role role, Init init = {}, Shape saved_as = {},
                    Piece piece = {});
  void set_piece(ValueId input, Piece piece);
  // The types are the caller's to infer (op/build.h does). Returns the first output.
  NodeId add_node(const OpBase& op, Attrs attrs, std::span<const ValueId> inputs, std::span<const TensorType> types);
  // The same of types that values have already, which need not be looked for.
  NodeId add_node(const OpBase& op, Attrs attrs, std::span<const ValueId> inputs,
                  std::span<const Shared<TensorType>> types);
  void add_output(std::string name, ValueId value, ValueId updates = kNoValue);
  // So many nodes are added next, or about as many.
  void expect_nodes(size_t count) { nodes_.reserve(nodes_.size() + count); }
  // Drops all outputs, for passes that name others.
  void clear_outputs() { outputs_.clear(); }

  // Nodes added from now on carry this name scope ("decoder.3.attn.q").
  void set_scope(std::string_view scope);
  // Names scopes as that graph does, so that nodes marked as its nodes find theirs at once. Of a graph without nodes.
  void take_scopes(const Graph& from);
  std::string_view scope() const { return scopes_[static_cast<size_t>(mark_.scope)]; }
  std::string_view scope_of(const Node& node) const { return scopes_[static_cast<size_t>(node.scope)]; }

  // What nodes added from now on are marked with. `op/build` marks a node with the latest phase of its operands where
  // that is later.
  const Mark& mark() const { return mark_; }
  void set_mark(const Mark& mark) { mark_ = mark; }
  void set_phase(Phase phase) { mark_.phase = phase; }
  void set_made_again() { mark_.again = true; }
  void set_stage(int stage) { mark_.stage = stage; }
  void set_micro_batch(int micro_batch) { mark_.micro_batch = micro_batch; }
  void set_on_host(bool on_host) { mark_.on_host = on_host; }
  // As this node of another graph is, whose `gradient_of` is this node here.
  void mark_as(const Graph& from, const Node& node, NodeId gradient_of);

  // `gradient` is the gradient of `of`, or a term of it from one of its readers. Of several gradients of a value the
  // one with the highest number has all terms, in the value's own type.
  void add_gradient(ValueId of, ValueId gradient);
  bool is_gradient(ValueId gradient, ValueId of) const;
  // In the order of the gradients.
  const std::vector<GradientOf>& gradients() const { return gradients_; }
  std::span<const GradientOf> gradients_that_are(ValueId gradient) const;
  void add_update(Update update) { updates_.push_back(std::move(update)); }
  const std::vector<Update>& updates() const { return updates_; }
  // Null: the parameter is not trained.
  const Update* update_of(ValueId parameter) const;
  // What another graph says, whose values became these here. A value that became kNoValue is gone, and so are its
  // gradients; one of an update must not be.
  void carry_gradients(const Graph& from, std::span<const ValueId> became);
  // As many calls of add_gradient would.
  void add_gradients(std::vector<GradientOf> added);
  void carry_updates(const Graph& from, std::span<const ValueId> became);

  void add_shard_request(ShardRequest request) { shard_requests_.push_back(std::move(request)); }
  const std::vector<ShardRequest>& shard_requests() const { return shard_requests_; }
  void add_stage_request(StageRequest request) { stage_requests_.push_back(std::move(request)); }
  const std::vector<StageRequest>& stage_requests() const { return stage_requests_; }
  void add_recompute_request(RecomputeRequest request) { recompute_requests_.push_back(std::move(request)); }
  const std::vector<RecomputeRequest>& recompute_requests() const { return recompute_requests_; }
  void add_host_request(HostRequest request) { host_requests_.push_back(std::move(request)); }
  const std::vector<HostRequest>& host_requests() const { return host_requests_; }
  void add_home_request(HomeRequest request) { home_requests_.push_back(std::move(request)); }
  const std::vector<HomeRequest>& home_requests() const { return home_requests_; }
  void add_fusion_request(FusionRequest request);
  const std::vector<FusionRequest>& fusion_requests() const { return fusion_requests_; }  // by their order

  const std::string& name() const { return name_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Growing<Value>& values() const { return values_; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Shared<TensorType>& shared_type(ValueId id) const { return value(id).type; }
  // The input of this name; throws kNotFound with candidates.
  const Input& input(std::string_view name) const;
  const Output& output(std::string_view name) const;

  // How often each value is read by nodes and outputs.
  std::vector<int> use_counts() const;

 private:
  std::string name_;
  std::vector<SharedText> scopes_;
  std::vector<int> scopes_by_name_ = {0};  // numbers of scopes, sorted by their names
  std::vector<ShardRequest> shard_requests_;
  std::vector<StageRequest> stage_requests_;
  std::vector<FusionRequest> fusion_requests_;
  std::vector<RecomputeRequest> recompute_requests_;
  std::vector<HostRequest> host_requests_;
  std::vector<HomeRequest> home_requests_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Node> nodes_;
  Growing<Value> values_;  // so that a tensor's type stays where it is while nodes are added
  Mark mark_;
  std::vector<GradientOf> gradients_;
  std::vector<Update> updates_;
};

// The graph's text, which parse_graph reads back to an equal graph.
std::string to_string(const Graph& graph);
// `find_op` returns the op of a name, or null. Throws kInvalidArgument with the line number.
Graph parse_graph(std::string_view text, const OpBase* (*find_op)(std::string_view));

// What is wrong with the graph's shape as data: unknown ids, values read before they are made, repeated input
// or output names, updates that change a type, and parts of gradients, second definitions and updates that cannot be.
// Empty when sound. (op/build.h checks ops, types and phases.)
std::vector<std::string> check_structure(const Graph& graph);

// A copy without the nodes that no output needs, and without such inputs.
Graph without_dead_nodes(const Graph& graph);
Graph without_dead_nodes_and_inputs(const Graph& graph);

}  // namespace trireme
