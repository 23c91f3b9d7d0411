#include "trireme/nn/module.h"

#include <fmt/format.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {
namespace {

thread_local Trace* current_trace = nullptr;

std::string join(std::string_view scope, std::string_view name) {
  if (scope.empty()) return std::string(name);
  if (name.empty()) return std::string(scope);
  return fmt::format("{}.{}", scope, name);
}

}  // namespace

Trace::Trace(Graph& graph, TraceOptions options) : graph_(graph), options_(options), outer_(current_trace) {
  require(options.compute == DType::kF32 || options.compute == DType::kBF16,
          "layers cannot compute in {}; they compute in f32 or bf16", to_string(options.compute));
  current_trace = this;
}

Trace::~Trace() {
  current_trace = outer_;
}

Trace& Trace::current() {
  require(current_trace != nullptr,
          "a module was called outside a trace; call it through a Trainer, or inside a nn::Trace");
  return *current_trace;
}

Tensor Trace::step() {
  if (!step_) step_ = {graph_, graph_.add_input("step", {DType::kI64, {}}, Role::kSchedule)};
  return step_;
}

Tensor Trace::position() {
  invariant(options_.kept_tokens > 0, "the position of tokens is asked for where whole sequences are read");
  if (!position_) position_ = {graph_, graph_.add_input("position", {DType::kI32, {}}, Role::kSchedule)};
  return position_;
}

Tensor Trace::input(const std::string& name, const TensorType& type, Role role, Init init, Shape saved_as) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    require(found->second.type() == type, "{} '{}' is {} here and {} where it was first used", to_string(role), name,
            to_string(type), to_string(found->second.type()));
    return found->second;
  }
  const Tensor made(graph_, graph_.add_input(name, type, role, init, saved_as));
  by_name_.emplace(name, made);
  if (role == Role::kParameter) parameters_.push_back(made);
  return made;
}

Tensor Trace::parameter(const std::string& name, const TensorType& type, Init init, Shape saved_as) {
  return input(name, type, Role::kParameter, init, saved_as);
}

Tensor Trace::buffer(const std::string& name, const TensorType& type, Init init) {
  return input(name, type, Role::kState, init, {});
}

Tensor Trace::kept(std::string_view name, const TensorType& type) {
  const std::string full = join(scope_, name);
  const Tensor made = buffer(full, type, {});
  for (const auto& [set, value] : buffer_values_) {
    if (set.id() == made.id())
      fail(ErrorKind::kUnsupported, "'{}' is kept twice: a module that keeps its tokens can be called only once", full);
  }
  return made;
}

uint64_t Trace::next_stream() {
  return hash64(scope_, streams_[scope_]++);
}

Tensor Trace::in_compute_type(const Tensor& x) {
  if (!is_floating(x.dtype()) || x.dtype() == options_.compute) return x;
  if (graph_.value(x.id()).producer >= 0) return cast(x, options_.compute);
  Tensor& made = cast_parameters_[x.id()];
  if (!made) made = cast(x, options_.compute);
  return made;
}

const std::string& Trace::path_of(const Module& module) {
  const auto found = paths_.find(&module);
  if (found != paths_.end()) return found->second;
  std::string name = module.name_;
  if (name.empty() && !(paths_.empty() && scope_.empty())) {  // the first module is the model: no name
    const std::string kind = join(scope_, module.kind());
    const int before = kinds_[kind]++;
    name = before == 0 ? std::string(module.kind()) : fmt::format("{}_{}", module.kind(), before);
  }
  const std::string& path = paths_.emplace(&module, join(scope_, name)).first->second;
  if (!module.shard_.empty()) graph_.add_shard_request({path, module.shard_});
  if (module.stage_ >= 0) graph_.add_stage_request({path, module.stage_});
  if (module.recompute_) {
    RecomputeRequest request = *module.recompute_;
    request.scope = path;
    graph_.add_recompute_request(std::move(request));
  }
  for (const std::string& pattern : module.frozen_) frozen_.push_back(join(path, pattern));
  for (const std::string& home : module.homes_) graph_.add_home_request({(path.empty() ? "*" : path) + home});
  if (module.on_host_) graph_.add_host_request({path, *module.on_host_});
  if (module.fusion_.id >= 0) {
    graph_.add_fusion_request({path, module.fusion_.id, module.fusion_.inside, module.fusion_.order});
  }
  return path;
}

void Module::recompute(const Again& how) {
  recompute_ = RecomputeRequest{"", how.again, how.mp_comm, how.optimizer_comm, how.slice};
}

void Module::home(std::string_view tier, std::string_view of) {
  const bool is_known = (tier == "device" || tier == "host" || tier == "disk") &&
                        (of == "parameters" || of == "state" || of == "gradient");
  require(
      is_known,
      "home(\"{}\", \"{}\") of module '{}': 'parameters', their 'state' and their 'gradient' lie in the memory of the "
      "'device' or the 'host', or on the 'disk'",
      tier, of, name_.empty() ? kind() : name_);
  homes_.push_back(fmt::format("{}{} = {}", of == "parameters" ? "" : "/", of == "parameters" ? "" : of, tier));
}

void Module::on(std::string_view where) {
  require(where == "host" || where == "device", "on(\"{}\") of module '{}': its ops run on the 'host' or the 'device'",
          where, name_.empty() ? kind() : name_);
  on_host_ = where == "host";
}

void Module::pipeline_stage(int stage) {
  require(stage >= 0, "pipeline_stage({}) of module '{}': stages are counted from 0", stage,
          name_.empty() ? kind() : name_);
  stage_ = stage;
}

void Module::set_comm_fusion(int64_t id, bool inside) {
  static std::atomic<uint64_t> calls = 0;
  require(id >= 0, "set_comm_fusion({}) of module '{}': ids are 0, for what is taken alone, or more", id,
          name_.empty() ? kind() : name_);
  fusion_ = {.id = id, .inside = inside, .order = ++calls};
}

Tensor Module::operator()(const Tensor& x) {
  const Scope scope(*this);
  return forward(x);
}

Tensor Module::forward(const Tensor&) {
  fail(ErrorKind::kInvalidArgument, "module '{}' has no forward of one tensor; call its own function",
       name_.empty() ? kind() : name_);
}

Fields Module::operator()(const Fields& batch) {
  const Scope scope(*this);
  return forward_batch(batch);
}

Fields Module::forward_batch(const Fields& batch) {
  require(batch.size() == 1 || batch.size() == 2,
          "module '{}' is a function of one tensor, and the batch has {} fields ({}); a model of several has a "
          "forward_batch of its own",
          name_.empty() ? kind() : name_, batch.size(), batch.names());
  return {{kPrediction, forward(batch.front().second)}};
}

Tensor Module::parameter(std::string_view name, const TensorType& type, Init init, Shape saved_as) const {
  Trace& trace = Trace::current();
  const Tensor made = trace.parameter(join(trace.path_of(*this), name), type, init, saved_as);
  if (!layerwise_.empty()) made.graph().set_piece(made.id(), layerwise_);
  return made;
}

Tensor Module::buffer(std::string_view name, const TensorType& type, Init init) const {
  Trace& trace = Trace::current();
  const Tensor made = trace.buffer(join(trace.path_of(*this), name), type, init);
  if (!layerwise_.empty()) made.graph().set_piece(made.id(), layerwise_);
  return made;
}

Tensor Module::operand_parameter(std::string_view name, const Shape& shape, Init init, Shape saved_as) const {
  const TraceOptions& options = Trace::current().options();
  return parameter(name, {options.parameters_in_compute_type ? options.compute : DType::kF32, shape}, init, saved_as);
}

Tensor Module::operand(std::string_view name, const Shape& shape, Init init, Shape saved_as) const {
  return Trace::current().in_compute_type(operand_parameter(name, shape, init, saved_as));
}

Scope::Scope(const Module& module) : trace_(Trace::current()), outer_(trace_.scope_) {
  trace_.scope_ = trace_.path_of(module);
  trace_.graph_.set_scope(trace_.scope_);
}

Scope::~Scope() {
  trace_.scope_ = outer_;
  trace_.graph_.set_scope(outer_);
}

}  // namespace trireme::nn
