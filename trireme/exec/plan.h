// ExecutionPlan: the flat list of actions that a rank runs each step, with every buffer at a known offset of one
// arena. It is the same for all ranks of a mesh, prints to text that reads back identical, and has a hash that
// ranks compare before the first step.
//
// Actions stand in one total order. Compute actions run one after the other. An action of another lane, in the
// background, is started at its place, when all compute actions before it are done, and runs beside the actions after
// it until the first that names it in `waits`. (docs/design/events.md)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/op/numerics.h"
#include "trireme/op/op_def.h"

namespace trireme {

enum class Lane {
  kCompute,
  kComm,     // collectives
  kMessage,  // sends to other crews, and receipts from them
};
std::string_view to_string(Lane lane);
inline constexpr int kLanes = 3;
inline bool in_background(Lane lane) {
  return lane != Lane::kCompute;
}
Lane lane_of(const OpDef& op);

// What a buffer holds, for reports of memory by kind.
enum class Holding { kParameter, kState, kData, kActivation, kGradient, kScratch };
std::string_view to_string(Holding holding);
inline constexpr int kHoldings = 6;

struct Buffer {
  Holding holding = Holding::kActivation;
  int64_t bytes = 0;
  int64_t offset = 0;       // in the arena; -1: given from outside (see PlanOptions::external_parameters)
  int first = 0, last = 0;  // actions between which its bytes are in use; persistent buffers: the whole step
};

// A local piece of a tensor, at a buffer's start.
struct PlanValue {
  TensorType type;
  Layout layout;
  Shape whole;
  int buffer = 0;
  std::optional<PartOf> part_of = {};  // of the value for the whole batch, where it is one micro-batch's
};

struct Action {
  Lane lane = Lane::kCompute;
  const OpDef* op = nullptr;
  std::string kernel;  // empty where the executor itself does it (collectives, local cuts)
  Attrs attrs;
  std::vector<int> in;  // values
  std::vector<int> out;
  std::vector<int> waits;  // background actions that must have ended before this one starts
  int scratch = -1;        // a buffer
  std::string scope;
};

struct PlanInput {
  std::string name;
  Role role = Role::kData;
  int value = 0;
  Init init;
};

struct PlanOutput {
  std::string name;
  int value = 0;
  int updates = -1;  // value of the input it replaces; when in another buffer, copied at the step's end
};

struct ExecutionPlan {
  std::string name;
  Mesh mesh;
  // A job of several crews runs a plan for each, on meshes of as many ranks: rank r of this plan's mesh is the world's
  // rank crew * mesh.devices() + r.
  int crew = 0, crews = 1;
  int threads = 1;               // compute threads per rank that scratch sizes are made for
  std::string bits = "fast";     // what is promised of them: "fast", or "invariant on <isa>"
  int64_t persistent_bytes = 0;  // the front of the arena, which keeps its bytes between steps
  int64_t arena_bytes = 0;
  int64_t lower_bound = 0;    // of arena_bytes, for these lifetimes
  int64_t micro_batches = 1;  // that a step of the rank falls in
  bool by_hand = false;       // kernels work on pieces as on whole tensors (ir/program.h)
  std::vector<Buffer> buffers;
  std::vector<PlanValue> values;
  std::vector<PlanInput> inputs;
  std::vector<Action> actions;
  std::vector<PlanOutput> outputs;

  const PlanInput& input(std::string_view name) const;  // throws kNotFound with candidates
  const PlanOutput& output(std::string_view name) const;
  int64_t offset_of(int value) const {
    return buffers[static_cast<size_t>(values[static_cast<size_t>(value)].buffer)].offset;
  }
};

struct PlanOptions {
  int threads = 1;
  // kInvariant: kernels are chosen by the whole types, so that no cut changes the choice.
  Numerics numerics = Numerics::kFast;
  // Parameters and state are not in the arena: another executor holds them. For programs that only read them.
  bool external_parameters = false;
  int crew = 0, crews = 1;  // as in ExecutionPlan
};

// Chooses kernels, merges values into buffers (views, results written over operands, gradients of one
// collective side by side), and places the buffers.
ExecutionPlan plan_execution(const Program& program, const PlanOptions& options = {});

// Bytes by Holding at the step where most are live; they add up to the lower bound.
std::vector<int64_t> bytes_by_holding(const ExecutionPlan& plan);
double flops_per_step(const ExecutionPlan& plan);  // of one rank, by the ops' cost functions

std::string to_string(const ExecutionPlan& plan);
ExecutionPlan parse_plan(std::string_view text);  // throws kInvalidArgument with the line's number
uint64_t hash(const ExecutionPlan& plan);         // XXH3 of the text

// What is wrong with the plan as such: live buffers that overlap, values outside their buffers, waits on what is no
// earlier background action, results that are read, and bytes that are written, while an action under way still uses
// them. Empty when sound.
std::vector<std::string> verify(const ExecutionPlan& plan);

}  // namespace trireme
