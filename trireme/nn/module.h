// Module: a part of a model with parameters, written for one device, and Trace: the recording of a model's code
// into a graph.
//
// Calling a module inside a trace enters its name scope, which is the caller's scope, a dot, and the module's own
// name: the one it was given or its kind ("linear", "linear_1", ... in the order of first calls). A parameter is
// made the first time the trace reaches it; a module that is used twice shares its parameters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/ir/tensor.h"
#include "trireme/nn/fields.h"

namespace trireme::nn {

class Module;

struct TraceOptions {
  bool training = true;  // dropout is on
  uint64_t seed = 0;     // of the random choices made at each step
  // f32 or bf16: what layers compute in and hand on. Parameters are f32 whatever it is; layers cast them where they use
  // them, so that gradients reach them in f32.
  DType compute = DType::kF32;
  // Where nothing is trained: those that layers would cast (Module::operand) are of the type that they would be cast
  // to.
  bool parameters_in_compute_type = false;
  // Above 0: tokens are the next ones of a sequence, of which a model keeps what it needs of this many at most
  // (nn/decoding.h).
  int64_t kept_tokens = 0;
};

// While it lives, modules on this thread add to its graph.
class Trace {
 public:
  explicit Trace(Graph& graph, TraceOptions options = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Throws kInvalidArgument when no trace is alive on this thread.
  static Trace& current();

  Graph& graph() { return graph_; }
  const TraceOptions& options() const { return options_; }
  // The step number, an i64 scalar that counts from 1: what random ops count with.
  Tensor step();
  // Where the tokens stand in their sequence, an i32 scalar that counts from 0: of a trace with kept_tokens.
  Tensor position();
  // A parameter by its full name; made on first use, with the type checked after. `saved_as`: ir/graph.h.
  Tensor parameter(const std::string& name, const TensorType& type, Init init, Shape saved_as = {});
  // x in the type that layers compute in; what is not floating as it is. A parameter is cast once a trace.
  Tensor in_compute_type(const Tensor& x);
  // In the order they were made.
  const std::vector<Tensor>& parameters() const { return parameters_; }
  // State of a module that a step replaces and the optimizer leaves alone (running statistics), by its full name; made
  // on first use. It is kept between steps and saved like a parameter.
  Tensor buffer(const std::string& name, const TensorType& type, Init init);
  // One of zeros that belongs to the code that runs now: "<scope>.<name>". Throws kUnsupported where it has been set:
  // by a module that is called twice.
  Tensor kept(std::string_view name, const TensorType& type);
  // What the buffer is from the next step on.
  void set_buffer(const Tensor& buffer, const Tensor& value) { buffer_values_.emplace_back(buffer, value); }
  const std::vector<std::pair<Tensor, Tensor>>& buffer_values() const { return buffer_values_; }
  // Patterns of the full names of parameters that modules ask not to train (Module::freeze).
  const std::vector<std::string>& frozen() const { return frozen_; }
  // The stream of random numbers for one use of the code that runs now: of its scope, and from its second use on of how
  // many there were before.
  uint64_t next_stream();
  // A scalar that a module adds to what training minimises, besides the loss of the model's result.
  void add_loss(const Tensor& loss) { losses_.push_back(loss); }
  const std::vector<Tensor>& losses() const { return losses_; }

 private:
  friend class Module;
  friend class Scope;
  const std::string& path_of(const Module& module);
  Tensor input(const std::string& name, const TensorType& type, Role role, Init init, Shape saved_as);

  Graph& graph_;
  TraceOptions options_;
  Trace* outer_;
  std::string scope_;
  std::unordered_map<const Module*, std::string> paths_;
  std::map<std::string, int> kinds_;         // how many modules of a kind a scope has named
  std::map<std::string, uint64_t> streams_;  // how many were taken in a scope
  std::map<std::string, Tensor> by_name_;
  std::vector<Tensor> parameters_;
  std::map<ValueId, Tensor> cast_parameters_;
  std::vector<Tensor> losses_;
  std::vector<std::string> frozen_;
  std::vector<std::pair<Tensor, Tensor>> buffer_values_;
  Tensor step_, position_;
};

class Module {
 public:
  explicit Module(std::string name = "") : name_(std::move(name)) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // How the module's op is cut: the first op in its scope that has operands of these ranks. Cuts of each operand's
  // dimensions, in the order of the op's operands: layer.shard({{2, 1}, {1, 4}}); or layouts by the mesh's axes:
  // layer.shard("[dp, -], [-, tp]"), with "-> [dp*tp, -]" after them for the result's. On one rank nothing is cut.
  void shard(Cuts cuts) { shard_ = std::move(cuts); }
  void shard(std::vector<PartsOfDims> cuts) { shard_ = Cuts::by_parts(std::move(cuts)); }

  // In a pipeline: the module and what is inside it are of this stage (parallel/asked/stages.h). Throws
  // kInvalidArgument for a stage below 0.
  void pipeline_stage(int stage);

  // The backward pass computes again what the module makes, and the modules inside it, instead of finding it kept; but
  // for its results, which other modules read. Of a module inside another, its own call counts.
  struct Again {
    bool again = true;           // false: what it makes is kept, whatever is asked of the module around it
    bool mp_comm = true;         // false: results of collectives between layouts are kept
    bool optimizer_comm = true;  // false: weights that are gathered from their slices are kept from forward to backward
    bool slice = false;          // what is kept lies cut over ranks that have it all, and is gathered where it is read
  };
  void recompute(const Again& how);
  void recompute() { recompute(Again()); }

  // Of the parameters of the module and of those inside it, those whose names from there on match the pattern
  // (base/words.h) stay as they are: they have no gradient and no state of the optimizer, and the backward pass ends
  // where nothing before it is trained. Buffers, such as running statistics, go on. A job's or program's rules for
  // parameters (StepOptions::groups) come after: "head.* = trained" takes it back.
  void freeze(std::string pattern = "*") { frozen_.push_back(std::move(pattern)); }

  // The parameters of the module, and of the modules inside it, lie there while nothing reads them: in the tier of
  // memory "host", "disk" or "device", whatever is asked of the module around it (parallel/asked/home_rules.h). `of`:
  // "state", the optimizer's of them, or "gradient". A job's rules (parallel.home) come after. Throws kInvalidArgument
  // for other words; compiling a step that trains does for a module without parameters.
  void home(std::string_view tier, std::string_view of = "parameters");

  // The module's ops run there, and those of the modules inside it, forward and backward: "host", on values in the
  // host's memory, or "device", whatever is asked of the module around it (parallel/asked/op_homes.h). Throws
  // kInvalidArgument for other words.
  void on(std::string_view where);

  // The collectives of the module's parameters and of their gradients, and with `inside` of those of the modules inside
  // it, are taken together with all others of this id (one operation for each kind, type, group of ranks, cut dimension
  // and micro-batch); 0: each is taken alone. Of several that are set for a parameter the last call counts
  // (parallel/asked/fusion.h). Throws kInvalidArgument for an id below 0.
  void set_comm_fusion(int64_t id, bool inside = true);

  // In a model that is cut by hand (docs/guide/04): each rank holds values of its own of this module's parameters, the
  // pieces of larger tensors that lie as `pieces` says, by the mesh's axes ("[tp, -]"), or tensors that nothing makes
  // one (kOwnPiece). They are left out where parameters are made equal and their gradients summed over ranks.
  void layerwise(Piece pieces = kOwnPiece) { layerwise_ = std::move(pieces); }

  // Runs forward inside the module's name scope.
  Tensor operator()(const Tensor& x);
  // Modules of another signature have functions of their own, which open a Scope.
  virtual Tensor forward(const Tensor& x);
  // The same of a batch, for a model as a whole: what it predicts, by name.
  Fields operator()(const Fields& batch);
  // The default is of models of one tensor: the first of two fields, which are the input and its target.
  virtual Fields forward_batch(const Fields& batch);
  virtual std::string_view kind() const { return "module"; }

 protected:
  friend class Trace;
  // A parameter of this module in the current trace: "<scope>.<name>".
  Tensor parameter(std::string_view name, const TensorType& type, Init init, Shape saved_as = {}) const;
  // A buffer of this module (Trace::buffer): "<scope>.<name>".
  Tensor buffer(std::string_view name, const TensorType& type, Init init) const;
  // One that layers read only in the type that they compute in: f32, unless the trace has it in that type.
  Tensor operand_parameter(std::string_view name, const Shape& shape, Init init, Shape saved_as = {}) const;
  // The same, in the type that layers compute in.
  Tensor operand(std::string_view name, const Shape& shape, Init init, Shape saved_as = {}) const;

 private:
  std::string name_;
  Cuts shard_;
  Piece layerwise_;
  int stage_ = -1;  // -1: nothing is asked
  FusionRequest fusion_ = {.id = -1};
  std::optional<RecomputeRequest> recompute_ = {};
  std::optional<bool> on_host_ = {};
  std::vector<std::string> homes_ = {};  // rules without the module's path
  std::vector<std::string> frozen_ = {};
};

// Enters a module's name scope for as long as it lives.
class Scope {
 public:
  explicit Scope(const Module& module);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Trace& trace_;
  std::string outer_;
};

}  // namespace trireme::nn
