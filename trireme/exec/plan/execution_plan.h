// ExecutionPlan: the flat list of actions that a rank runs each step, with every buffer at a known offset of the arena
// of its tier. It is the same for all ranks of a mesh (of one crew, in a pipeline), prints to text that reads back
// identical, and has a hash that ranks compare before the first step.
//
// Actions stand in one total order. Compute actions run one after the other. An action of another lane, in the
// background, is started at its place, when all compute actions before it are done, and runs beside the actions after
// it until the first that names it in `waits`. (docs/design/events.md)
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/base/shared_text.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/ir/program.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/move.h"
#include "trireme/op/op_def.h"

namespace trireme {

enum class Lane {
  kCompute,
  kComm,     // collectives
  kMessage,  // sends to other crews, and receipts from them
  kIn,       // moves to the device's memory from the host's
  kOut,      // moves from it
  kLoad,     // moves from the disk
  kStore,    // moves to it
  kHost,     // ops that run on the host
};
std::string_view to_string(Lane lane);
inline constexpr int kLanes = 8;
inline bool in_background(Lane lane) {
  return lane != Lane::kCompute;
}
// Whether its actions have other members than this rank.
inline bool communicates(Lane lane) {
  return lane == Lane::kComm || lane == Lane::kMessage;
}
// `on_host`: of an op that is to run there; views take no time anywhere.
Lane lane_of(const OpDef& op, const Attrs& attrs, bool on_host = false);
// Whether it is a move that makes another element type of its value on the way, by the types of what it reads and
// makes.
inline bool casts_on_its_way(const OpDef& op, std::span<const TensorType> in, std::span<const TensorType> out) {
  return is_move(op) && in[0].dtype != out[0].dtype;
}

// What a buffer holds, for reports of memory by kind.
enum class Holding { kParameter, kState, kData, kActivation, kGradient, kScratch };
std::string_view to_string(Holding holding);
inline constexpr int kHoldings = 6;
// Whether it keeps its bytes between steps.
inline bool is_persistent(Holding holding) {
  return holding == Holding::kParameter || holding == Holding::kState;
}

struct Arena {
  int64_t bytes = 0;
  int64_t persistent = 0;   // the front of it, which keeps its bytes between steps
  int64_t lower_bound = 0;  // of `bytes`, for these lifetimes
  friend bool operator==(const Arena&, const Arena&) = default;
};

struct Buffer {
  Holding holding = Holding::kActivation;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;
  int64_t offset = 0;       // in its tier's arena; -1: given from outside (see PlanOptions::external_parameters)
  int first = 0, last = 0;  // actions between which its bytes are in use; persistent buffers: the whole step
};

// A local piece of a tensor.
struct PlanValue {
  TensorType type;
  Shared<Layout> layout;
  Shared<Shape> whole;
  int buffer = 0;
  int64_t offset = 0;  // in the buffer, of rows of what lies there whole (op/structural.h: part)
  std::shared_ptr<const PartOf> part_of = {};  // of the value for the whole batch, where it is one micro-batch's
};

struct Action {
  Lane lane = Lane::kCompute;
  const OpDef* op = nullptr;
  SharedText kernel;  // empty where the executor itself does it (collectives, local cuts)
  Attrs attrs;
  Few<int, 4> in;  // values
  Few<int, 4> out;
  Few<int, 2> waits;  // background actions that must have ended before this one starts
  int scratch = -1;   // a buffer
  SharedText scope;
  int call = -1;  // of the plan's calls, which has the op and attributes that stand here too
};

// A collective that several actions do, each on operands and in scratch of its own: kind, attributes with the ranks,
// and types are said once (reuse.h).
struct PlanCall {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<TensorType> in;
  std::vector<TensorType> out;
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
  std::string device = "cpu";  // whose kernels it names
  int64_t alignment = 64;      // of buffers in the device's arena, bytes (alignment_of)
  int threads = 1;             // compute threads per rank that scratch sizes are made for
  std::string bits = "fast";   // what is promised of them (Device::bits): "fast on avx2"
  std::array<Arena, kTiers> arenas;
  int64_t micro_batches = 1;  // that a rank's step consists of
  int64_t seq_chunks = 1;     // of which so many are chunks of one's positions
  DiskBlocks disk_blocks;     // in which the disk is read and written; moves have staging for these
  bool by_hand = false;       // kernels work on pieces as on whole tensors (ir/program.h)
  std::vector<Buffer> buffers;
  std::vector<PlanValue> values;
  std::vector<PlanInput> inputs;
  std::vector<PlanCall> calls;
  std::vector<Action> actions;
  std::vector<PlanOutput> outputs;

  Arena& arena(Tier tier = Tier::kDevice) { return arenas[static_cast<size_t>(tier)]; }
  const Arena& arena(Tier tier = Tier::kDevice) const { return arenas[static_cast<size_t>(tier)]; }
  int64_t alignment_of(Tier tier) const;                // of buffers in its arena, bytes
  const PlanInput& input(std::string_view name) const;  // throws kNotFound with candidates
  const PlanOutput& output(std::string_view name) const;
  int64_t offset_of(int value) const {
    const PlanValue& of = values[static_cast<size_t>(value)];
    return buffers[static_cast<size_t>(of.buffer)].offset + of.offset;
  }
};

// Bytes of a tier by Holding at the step where most are live; they add up to the lower bound.
std::vector<int64_t> bytes_by_holding(const ExecutionPlan& plan, Tier tier = Tier::kDevice);
// The ops that run on the host, in words: "embedding at 'wte', 4 adam_update"; of several of a name that are not in one
// scope, how many. "": none does.
std::string host_ops_text(const ExecutionPlan& plan);
double flops_per_step(const ExecutionPlan& plan);  // of one rank, by the ops' cost functions

std::string to_string(const ExecutionPlan& plan);
ExecutionPlan parse_plan(std::string_view text);  // throws kInvalidArgument with the line's number
uint64_t hash(const ExecutionPlan& plan);         // XXH3 of the text

// What is wrong with the plan as such: live buffers that overlap, values outside their buffers, waits on what is not an
// earlier background action, results that are read, and bytes that are written, while an action under way still uses
// them. Empty when sound.
std::vector<std::string> verify(const ExecutionPlan& plan);

}  // namespace trireme
