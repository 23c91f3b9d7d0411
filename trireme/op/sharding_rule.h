// ShardingRule: how cuts pass through an op, as data (like Shardy's factor rules and einsum).
//
// Every dimension of every operand and result is a product of *factors*. A factor that stands in operands and
// results passes a cut through; one that stands in operands only is summed over, and cutting it leaves the
// results *partial*; one that stands in results only is cut for free. From the rule the library derives every
// legal strategy of the op, forward and backward.
//
// Text: one letter per factor, `,` between tensors, `->` before the results. After a letter `!` means that the
// factor may not be cut. `.` is a dimension without a factor (never cut). `(ab)` is a dimension that is the product
// of two factors, the first most significant: their sizes must be given or follow from other dimensions.
// A leading `*` stands for all leading dimensions, the same in every tensor that has it. `~` after a letter: the
// dimension is not the factor itself but what windows see that slide along the factor (WindowedDim): when the factor is
// cut, the parts of the dimension that ranks read overlap.
//   matmul    "bmk,bkn->bmn"      embedding  "vd,n->nd"     split heads  "s(hd)->shd"
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/few.h"
#include "trireme/layout/layout.h"
#include "trireme/layout/window_cut.h"
#include "trireme/mesh/mesh.h"
#include "trireme/tensor/shape.h"

namespace trireme {

struct Factor {
  std::string name;  // the letter; "*0", "*1" for leading dimensions
  int64_t size = 1;
  bool can_cut = true;
  Reduction reduction = Reduction::kSum;  // of the partial results, when the factor is in no result
  // Whether it may be cut into uneven parts: what operands hold beyond its end (layout/layout.h), zeros or, for a
  // maximum or minimum, what changes none, then adds nothing to what the factor is summed into.
  bool uneven = true;
};

// Position i of a factor sees positions [i * stride - before, i * stride - before + reach) of a dimension. Those
// outside the dimension hold `fill`; a result's are dropped.
struct SlidingWindow {
  int64_t stride = 1;
  int64_t before = 0;
  int64_t reach = 1;
  double fill = 0;
};

// A dimension that is cut in equal blocks by the axes that cut `factor`. The op works on windows of it: the partitioner
// brings in what neighbours have of an operand's, and adds up where those of a result overlap.
struct WindowedDim {
  bool is_result = false;
  int tensor = 0;  // which operand or result
  int dim = 0;
  int64_t extent = 0;
  int factor = 0;
  SlidingWindow window;
};

// The factors that one dimension is the product of, most significant first; and those of each dimension of a tensor.
using FactorsOfDim = Few<int, 2>;
using DimFactors = Few<FactorsOfDim, 4>;

struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<DimFactors> in;
  std::vector<DimFactors> out;
  // Sets of operands in which the op is jointly linear: if all operands of a set are partial sums over an axis
  // and the others are whole, the results are partial sums over it.
  std::vector<std::vector<int>> linear;
  std::vector<WindowedDim> windows;
  // Two factors that may be cut together, over the same axes: each rank begins with its own piece of both, and the op
  // takes as many steps as there are ranks, in which pieces of the second go around (OpDef::ring).
  std::optional<std::pair<int, int>> ring;
  // A part of the first needs no part of the second that comes after its own.
  bool ring_is_causal = false;
  bool reads_place = false;  // the op's results depend on where its pieces lie (OpDef's traits)
};

struct RuleOptions {
  std::vector<std::vector<int>> linear = {};
  std::map<char, int64_t> sizes = {};          // of factors whose size does not follow from a dimension
  std::map<char, Reduction> reductions = {};   // other than sum
  std::map<char, SlidingWindow> windows = {};  // of letters with `~`
  std::string_view ring = {};                  // two letters
  bool ring_is_causal = false;
  // Letters ('*': all leading dimensions) that are summed over, of which zeros in the operands add nothing although the
  // op is linear in none of them.
  std::string_view zeros_add_nothing = {};
};

// Throws kInternal when the text does not fit the types: it is the op's author's mistake.
ShardingRule parse_rule(std::string_view text, std::span<const TensorType> in, std::span<const TensorType> out,
                        const RuleOptions& options = {});

// The rule of ops that nothing is known of: no factor may be cut.
ShardingRule replicate_rule(std::span<const TensorType> in, std::span<const TensorType> out);

// Layouts that somebody vouches for, whatever the rule says: operands are brought to `in`, the op is run on the pieces,
// and what it makes of them, times `factor`, is taken to lie as `out`. An operand that is partial is read as the rank's
// term.
struct VouchedLayouts {
  std::vector<Layout> in;
  std::vector<Layout> out;
  double factor = 1;
  int64_t parts = 1;  // the number of ranks that take their part of the batch for all of it (OpDef::in_part)
};

// A choice of mesh axes for each factor, most significant first, and the axes over which linear operands stay
// partial: one strategy of one op.
struct FactorCuts {
  Few<Axes, 6> axes;    // per factor
  PartialAxes through;  // partial axes that flow from a linear set of operands
  int linear_set = -1;  // which one
  // The op is run this many times on each rank, each time on a part of the rank's piece along this factor.
  int copied_factor = -1;
  int64_t copies = 1;
  std::optional<VouchedLayouts> vouched = {};  // instead of all the above
};

// Whether a result sums over the factor: it does not stand in every one.
bool is_summed(const ShardingRule& rule, int factor);
bool stands_in(const DimFactors& tensor, int factor);

// Whether the choice cuts the two factors of the rule's ring.
bool is_ring(const ShardingRule& rule, const FactorCuts& cuts);
// Whether it cuts them over chunks of positions alone: a rank computes one after the other, and has the parts of the
// second factor that came before.
bool goes_by_chunks(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh);

// The layouts that a choice asks of the operands and gives to the results: of one of them, and of all.
Layout layout_of(const DimFactors& tensor, const FactorCuts& cuts);
Layout operand_layout(const ShardingRule& rule, const FactorCuts& cuts, size_t operand);
Layout result_layout(const ShardingRule& rule, const FactorCuts& cuts, size_t result);
std::vector<Layout> operand_layouts(const ShardingRule& rule, const FactorCuts& cuts);
std::vector<Layout> result_layouts(const ShardingRule& rule, const FactorCuts& cuts);

// The windows of one dimension when `parts` ranks share its factor.
WindowCut window_cut(const ShardingRule& rule, const WindowedDim& windowed, int64_t parts);
// Those whose factor is cut.
std::vector<WindowedDim> cut_windows(const ShardingRule& rule, const FactorCuts& cuts);

// Whether the factor's parts are not equal.
bool is_uneven(const ShardingRule& rule, const FactorCuts& cuts, size_t factor, const Mesh& mesh);

// Whether zeros beyond the end of an uneven factor in all operands make zeros there in the results: the op is linear in
// all that hold it.
bool keeps_zeros(const ShardingRule& rule, int factor);

// Whether the choice is legal: cut factors can be cut, sizes divide or may be uneven, windows reach no further than the
// blocks beside their own, no axis is used twice, and in a compound dimension a factor is cut only where all more
// significant ones are fully cut; copies are along a factor that is a dimension of its own and that they divide, of an
// op that does not read its place. Says why not, or "". Vouched layouts are legal.
std::string why_illegal(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh);

std::string to_string(const ShardingRule& rule);  // "a,b->c" with sizes: "mk,kn->mn m=4 k=8 n=16"

}  // namespace trireme
