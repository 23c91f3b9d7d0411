// OpDef: everything that is true of one op, in one record: types, gradient, sharding rule, cost, reference kernel,
// examples. Each op is one file of ops/; everything that is true of all ops is tested once, by a program
// that walks the registry (op/conformance).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/ir/tensor.h"
#include "trireme/op/collective.h"
#include "trireme/op/sharding_rule.h"
#include "trireme/tensor/view.h"

namespace trireme {

class ThreadPool;    // base/thread_pool.h
class DeviceStream;  // backend/device.h
struct OpDef;

// A facet of an op: a function, or the reason why there is none.
template <class Fn>
class Facet {
 public:
  Facet(Fn* fn) : fn_(fn) {}  // NOLINT: facets are written as plain function names
  static Facet none(const char* reason) { return Facet(nullptr, reason); }
  explicit operator bool() const { return fn_ != nullptr; }
  Fn* get() const { return fn_; }
  const char* reason() const { return reason_; }

 private:
  Facet(Fn* fn, const char* reason) : fn_(fn), reason_(reason) {}
  Fn* fn_;
  const char* reason_ = "";
};

// Operand types and attributes; `infer` gives the result types or raises the user's mistakes.
struct InferArgs {
  std::span<const TensorType> in;
  const Attrs& attrs;
};
using InferFn = std::vector<TensorType>(const InferArgs&);

struct TypeArgs {
  std::span<const TensorType> in;
  std::span<const TensorType> out;
  const Attrs& attrs;
};
using ShardFn = ShardingRule(const TypeArgs&);

// Work of one call on *local* types: floating-point operations (a multiply-add is two), and the bytes that must be
// read and written at least.
struct Cost {
  double flops = 0;
  double bytes = 0;
};
using CostFn = Cost(const TypeArgs&);
// Bytes of all operands and results, the usual second half of a cost.
double tensor_bytes(const TypeArgs& args);

// The gradient in terms of other ops: cotangents of the results in (an empty Tensor where a result has none),
// cotangents of the operands out (an empty Tensor where an operand gets none). `wanted[i]` says whether operand i
// needs one at all.
struct GradArgs {
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  std::span<const Tensor> dout;
  std::span<const char> wanted;
  const Attrs& attrs;
};
using GradFn = std::vector<Tensor>(const GradArgs&);

// Where a local piece lies in the whole tensor: ops whose result depends on coordinates (random, iota, a lookup
// in a cut table) read it. Empty spans of places mean that every piece is whole.
struct Place {
  Shape whole;
  Shape start;
};

// One call of a kernel. Kernels read shapes from the views, never from attributes, so that one kernel serves
// whole and cut tensors. `scratch` has the bytes the kernel asked for; `state` is the kernel's own, kept
// from call to call of the same action (cached primitives). Operands, scalars among them, are read when the kernel's
// turn in its stream comes, never before.
struct KernelArgs {
  std::span<const View> in;
  std::span<const View> out;
  std::span<const Place> in_place;
  std::span<const Place> out_place;
  const Attrs& attrs;
  std::span<std::byte> scratch;
  ThreadPool* pool = nullptr;  // null: run on the calling thread
  std::shared_ptr<void>* state = nullptr;
  DeviceStream* stream = nullptr;  // that its work belongs to; null: the kernel is called by hand, outside of any

  // First coordinate of a piece in dimension `dim` of its whole tensor, and that whole tensor's shape.
  int64_t in_start(size_t i, int dim) const { return in_place.empty() ? 0 : in_place[i].start[dim]; }
  int64_t out_start(size_t i, int dim) const { return out_place.empty() ? 0 : out_place[i].start[dim]; }
  const Shape& in_whole(size_t i) const { return in_place.empty() ? in[i].type.shape : in_place[i].whole; }
  const Shape& out_whole(size_t i) const { return out_place.empty() ? out[i].type.shape : out_place[i].whole; }
};
using KernelFn = void(const KernelArgs&);

// How an example's operand is filled.
struct Fill {
  enum class Kind { kUniform, kIntegers, kDistinct } kind = Kind::kUniform;
  double low = -1;  // kUniform: [low, high); kIntegers: low <= i < high
  double high = 1;  // kDistinct: a random order of equally spaced values in [low, high), for ops with kinks
};

struct Example {
  std::vector<TensorType> in = {};
  Attrs attrs = {};
  std::vector<Fill> fill = {};  // one per operand; missing ones are uniform in [-1, 1)
  // Why the numeric gradient is not checked on this example; "" checks it.
  std::string skip_gradient = {};
};

struct Traits {
  bool elementwise = false;  // operands broadcast to the results' shape; each element depends on its own position only
  bool zero_cost_view = false;  // the result is bytes of the operand under another shape
  bool joins_in_place = false;  // the result is the operands' bytes, which are made side by side
  bool reads_place = false;     // the kernel asks where its pieces lie in their wholes
  bool message = false;         // between plans: one rank sends, another receives (op/message.h)
  bool move = false;            // between tiers of a rank's memory (op/move.h)
  // A sum without rounding: terms that are zero may be left out, and all may come in any order, with the same bits.
  bool sums_exactly = false;
  // It makes a loss of each row of its first operand; the product that makes the rows may be taken a few rows at a
  // time.
  bool loss_of_rows = false;
};

// The op on pieces that are cut in a ring (ShardingRule::ring), by other ops: in each step the ranks work on the pieces
// they hold and hand those of the second factor on. Operands and results are the local pieces.
struct RingArgs {
  std::span<const Tensor> in;
  const Attrs& attrs;
  Attrs group;  // of ring_shift
  int64_t ranks = 1;
};
using RingFn = std::vector<Tensor>(const RingArgs&);

// The same result for an op whose result has few rows that are not zero: as a list of these (op/structural.h). `op`
// takes the same operands, and makes the numbers of the rows and the rows, with the bits that they have in the whole.
struct AsRowList {
  const OpDef* op = nullptr;
  int64_t (*most)(const TypeArgs& types) = nullptr;  // so many rows at most are not zero
  Attrs (*attrs)(const Attrs& attrs, int64_t most) = nullptr;
};

// The same result for an operand, the only one, that has few rows which are not zero and is given as a list of these:
// `op` takes the numbers of the rows and the rows, and makes what the whole gives, bit for bit.
struct OfRowList {
  const OpDef* op = nullptr;
  Attrs (*attrs)(const TypeArgs& types) = nullptr;
};

// What an op is, each part named where it is given. A part without a default must be given: a function, or the reason
// why there is none.
struct OpFacets {
  std::string_view doc;     // one line of mathematics
  std::string_view inputs;  // names of the operands: "a, b"; a trailing "..." for any number
  Facet<InferFn> infer;
  Facet<GradFn> grad;
  Facet<ShardFn> shard;
  Facet<CostFn> cost;
  Facet<KernelFn> kernel;
  Traits traits = {};
  // Results that may be written over an operand of the same size that is no longer read: {result, operand}.
  std::vector<std::pair<int, int>> may_overwrite = {};
  std::vector<Example> (*examples)() = nullptr;
  // Of what ranks do together; the executor runs it, not a kernel.
  std::optional<Collective> collective = {};
  // The attributes for a piece whose windows along dimension `dim` (sharding_rule.h) are handed over in full: `length`
  // positions, padding included.
  Attrs (*in_window)(const Attrs& attrs, int dim, int64_t length) = nullptr;
  RingFn* ring = nullptr;  // of ops whose rule has one
  // Instead of may_overwrite, where that depends on the call.
  std::vector<std::pair<int, int>> (*overwrites)(const TypeArgs& types) = nullptr;
  // The attributes for one of this many equal parts of the batch, taken for all of it; null: they do not depend on its
  // size.
  Attrs (*in_part)(const Attrs& attrs, int64_t parts) = nullptr;
  // The op that does the same and adds one more operand, the last, to the result: for sums that are taken piece by
  // piece.
  const OpDef* onto = nullptr;
  std::optional<AsRowList> as_rows = {};
  std::optional<OfRowList> of_rows = {};
  // Of updates: operands of which a row of zeros in all of them leaves that row of everything the update replaces as it
  // is, bit for bit, for a finite rate and scale; empty: none. Null: none whatever the attributes.
  std::vector<int> (*keeps_where_zero)(const Attrs& attrs) = nullptr;
};

struct OpDef : OpBase, OpFacets {};

// Whether the op moves bytes between the ranks of a group (and is no local cut).
inline bool is_communication(const OpDef& op) {
  return op.collective && op.collective->work != GroupWork::kCut;
}

inline const OpDef& def_of(const Node& node) {
  return static_cast<const OpDef&>(*node.op);
}

// The ranks that a collective joins.
inline RankGroups groups_of(const OpDef& op, const Attrs& attrs) {
  invariant(op.collective.has_value(), "the groups of {}, which is no collective, are asked for", op.name);
  return op.collective->groups(attrs);
}
inline RankGroups groups_of(const Node& node) {
  return groups_of(def_of(node), node.attrs);
}

}  // namespace trireme
