// Collective: what is true of an op that ranks do together, beyond the facets that every op has. The executor runs it
// by this record, and planner and passes ask it. Only the op's own file knows a collective by name.
#pragma once

#include <optional>

#include "trireme/layout/reshard.h"
#include "trireme/op/exchange.h"
#include "trireme/op/rank_groups.h"

namespace trireme {

struct TypeArgs;  // op/op_def.h

// What the ranks of a group do: an operation of comm/comm.h, or kCut.
enum class GroupWork {
  kCut,  // nothing is sent: each rank takes its piece of what all of them have
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kRingShift,
  kBroadcast,
  kExchange,  // sends and receipts of single ranks (op/exchange.h)
};

// The numbers of one call. If each rank is sent its own piece, the pieces lie along dimension `parted` of the operand;
// if one comes from each rank, they lie along `joined` of the result; -1: there are no pieces.
struct GroupCall {
  int parted = -1;
  int joined = -1;
  Reduction reduction = Reduction::kSum;
  int64_t root = 0;
  int64_t shift = 0;
};

// A tensor of a program: its whole shape, in the frame of its layout (layout/layout.h), and how it is cut.
struct CutTensor {
  Shape whole;
  Layout layout;
};

struct Collective {
  GroupWork work = GroupWork::kCut;
  RankGroups (*groups)(const Attrs& attrs) = nullptr;
  GroupCall (*call)(const Attrs& attrs) = nullptr;  // of all but kExchange
  // Of kExchange: what the rank at this place of its group sends and gets.
  Exchange (*exchange)(const TypeArgs& types, int64_t place) = nullptr;
  // The reshard step that it does.
  std::optional<ReshardStep::Kind> step = {};
  // What it makes of a tensor that is cut so. Throws where it cannot be done to that. Null: it is not for tensors that
  // are cut.
  CutTensor (*result)(const CutTensor& operand, const Attrs& attrs, const Mesh& mesh) = nullptr;
};

}  // namespace trireme
