// How a value that several ranks have whole is cut into slices, one for each of them; and the remarks about values that
// cannot be cut.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/pass/pass_remark.h"

namespace trireme {

struct SliceCut {
  Attrs attrs;      // of the local cut, and of the gather that undoes it
  Layout layout;    // of a slice
  TensorType type;  // its own
};

// Values that slices are asked of.
class AskedSlices {
 public:
  explicit AskedSlices(const Program& program);

  // The value's cut, along the first dimension that divides evenly over the ranks that have the same, over as many of
  // them as can be. Nothing where only one rank has it, where no dimension divides, and for truth values, which are not
  // sent. One that several ranks have and that has none is noted, if it is more than a number.
  std::optional<SliceCut> cut(ValueId id);

  // What is to be said: that of none several ranks have the same (`nothing`), or which stay whole; "" where all are
  // cut.
  PassRemark remark(std::string_view key, std::string_view nothing) const;

 private:
  Axes axes_that_have_it(ValueId id) const;
  std::optional<SliceCut> slice_cut(ValueId id) const;

  const Program& program_;
  std::vector<Axes> own_;  // of each value, as own_axes has them
  int64_t cut_ = 0, whole_ = 0, whole_bytes_ = 0;
  ValueId largest_ = kNoValue;
};

}  // namespace trireme
