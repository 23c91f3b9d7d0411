// Row steps: a few ops that work on rows, applied one after the other to a block of rows at a time, so that the result
// of one is still in the cache when the next reads it. The op `fused_rows` holds them as text; pass/fuse_rows makes it.
//
// Rows are counted by the leading `row_dims` dimensions. An op works on rows when each row of its results depends on
// the same row of some operands and on the whole of the others, and no sum runs over anything that could be cut. Its
// sharding rule says so.
//
// One more kind of step does sum: the product of rows with a matrix that all of them read, such as activations with
// weights. The steps before and after it then work on rows that never leave the cache.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme {

struct RowOp {
  int row_dims = 0;          // the most dimensions that may count rows
  std::vector<char> by_row;  // of operands: has a row for each row of the results; otherwise all rows read all of it
  bool sums = false;         // over a dimension that a cut could part, as a product does
};

// How rows of the results depend on rows of the operands, whatever is summed over; nothing where the results have no
// rows.
std::optional<RowOp> along_rows(const OpDef& op, const TypeArgs& types);

// How the op works on rows of these types; nothing where it does not.
std::optional<RowOp> row_op(const OpDef& op, const TypeArgs& types);

// How a product works on rows: an op that sums, and is linear in each of its two operands, of which the first has rows
// and the second is read whole by all of them. Nothing for other ops.
std::optional<RowOp> product_on_rows(const OpDef& op, const TypeArgs& types);

// The same as row_op for a node of a rank's program, where the op waits for memory rather than for arithmetic. Its
// attributes may be those of whole tensors of which it has pieces: nothing where they do not fit the pieces.
std::optional<RowOp> cheap_row_op(const OpDef& op, const TypeArgs& types);

// Values are numbered: the operands, then what the steps make. A step is a row_op or a product_on_rows.
struct RowStep {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<int> in;
  std::vector<int> out;
};

struct RowSteps {
  int row_dims = 1;
  int operands = 0;
  std::vector<RowStep> steps;
  std::vector<int> results;  // values
};

// "2=add(0,1){}; 3=gelu(2){approximate=true}" and back.
FusedRowsAttrs to_attrs(const RowSteps& steps);
// Throws kInvalidArgument or kNotFound with the place that cannot be read.
RowSteps parse_row_steps(const FusedRowsAttrs& attrs);

struct RowValue {
  TensorType type;
  bool by_row = false;
};
// Whether the step is a product, for operands and results among these values.
bool is_product(const RowStep& step, std::span<const RowValue> values);

// All values for operands of these types. Throws kInvalidArgument where a step takes other types, or does not work on
// rows.
std::vector<RowValue> row_values(const RowSteps& steps, std::span<const TensorType> in);

// A call of fused_rows: its steps, and all values for its operands.
struct RowCall {
  RowSteps steps;
  std::vector<RowValue> values;
};
// Read once for calls that are alike. `attrs` are FusedRowsAttrs. Throws what parse_row_steps and row_values do. May be
// called by several threads.
std::shared_ptr<const RowCall> row_call(const Attrs& attrs, std::span<const TensorType> in);

// Results that may be written over operands with rows of as many bytes: no later step reads those, nor the one that
// makes the result unless its op allows it.
std::vector<std::pair<int, int>> row_overwrites(const RowCall& call);

// How many rows there are.
int64_t count_rows(const Shape& shape, int row_dims);

}  // namespace trireme
