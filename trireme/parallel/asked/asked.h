// What a user asks about single ops, parameters and the fields of a batch. Each rule is written as text, in a job's
// file or in a program, and parsed where it is written: a text that is not a layout, a cut or an attribute is refused
// there. Whether it fits a model and a mesh is checked when these are known (parallel/parallel.h).
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/ir/piece.h"
#include "trireme/layout/cuts.h"
#include "trireme/parallel/asked/op_names.h"

namespace trireme {

// For every name that matches the pattern (base/words.h). Of several rules the last one that matches a name counts.
struct LayoutRule {
  std::string pattern;
  NamedLayout layout;
  friend bool operator==(const LayoutRule&, const LayoutRule&) = default;
};
struct PieceRule {
  std::string pattern;
  Piece piece;
  friend bool operator==(const PieceRule&, const PieceRule&) = default;
};

// Attributes: what may be asked of an op instead of cuts.
//   cross_batch          sums over ranks are not taken: each rank goes on with the sum of its own part of the batch
//   cross_batch mean     the same for a sum that a mean is made of: it becomes the mean of the rank's own part. Sums
//                        whose reader counts the batch (OpDef::in_part) become that either way
//   skip_redistribution  the op takes its operand in the layout it comes in, whatever its rule asks; "->" and a layout
//                        may follow for the result, which is otherwise cut by the same axes
//   self_define_shard [dp, -] -> [-, dp]
//                        operands and results lie as these layouts say; the op is run on the pieces
// With all of them ranks may compute what one device does not: whether that is right is up to the user.
struct OpAttribute {
  enum class Kind { kCrossBatch, kCrossBatchMean, kSkipRedistribution, kSelfDefineShard };
  Kind kind = Kind::kCrossBatch;
  std::vector<NamedLayout> operands;  // of kSelfDefineShard
  std::vector<NamedLayout> results;   // of kSelfDefineShard, and of kSkipRedistribution where they are given
};

// Cuts or an attribute.
struct OpRequest {
  std::variant<Cuts, OpAttribute> what;
  std::string text;  // as it was written

  OpRequest() = default;
  template <Text T>
  OpRequest(const T& written) : OpRequest(read(written)) {}  // NOLINT: written as text; throws kInvalidArgument

  friend bool operator==(const OpRequest& a, const OpRequest& b) { return a.text == b.text; }

 private:
  static OpRequest read(std::string_view text);
};

struct OpRule {
  OpPattern pattern;
  OpRequest asked;
  friend bool operator==(const OpRule&, const OpRule&) = default;
};

// How a batch is cut: "data_parallel" (dimension 0 over "dp", which a mesh of several ranks must have), "full_batch"
// (every rank has all of it), a layout for the leading dimensions of every field ("[dp, sp]"), or the numbers of parts
// of each of them ("{{1, 4}, {1}}").
struct DatasetStrategy {
  enum class Named { kDataParallel, kFullBatch };
  std::variant<Named, NamedLayout, std::vector<PartsOfDims>> how = Named::kDataParallel;
  std::string text = "data_parallel";  // as it was written

  DatasetStrategy() = default;
  template <Text T>
  DatasetStrategy(const T& written) : DatasetStrategy(read(written)) {}  // NOLINT: as above

  bool is(Named named) const { return how == decltype(how)(named); }
  friend bool operator==(const DatasetStrategy& a, const DatasetStrategy& b) { return a.text == b.text; }

 private:
  static DatasetStrategy read(std::string_view text);
};
inline std::string to_string(const DatasetStrategy& strategy) {
  return strategy.text;
}

}  // namespace trireme
