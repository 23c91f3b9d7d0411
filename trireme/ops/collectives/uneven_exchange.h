// Exchange of tensors of unequal shapes between neighbours, for models that are cut by hand. All ranks run one program,
// so an operand has one shape on all of them, that of the largest; a rank sends only the part that it really has, a box
// at the beginning of that shape.
#pragma once

#include <span>
#include <vector>

#include "trireme/op/build.h"
#include "trireme/op/structural.h"

namespace trireme {

// As neighbor_exchange (ops.h): x[i] of the group's rank k becomes result i of its rank to[i][k]; -1: of none. Of x[i]
// rank k sends the first shapes[i][k] positions of the dimensions. Result i has the shape of x[i], and zeros beyond
// what comes. The gradient sends back what came. Throws kInvalidArgument for other numbers of lists, ranks that are not
// in the group, two that send to one, and shapes that the operand does not hold.
std::vector<Tensor> neighbor_exchange(std::span<const Tensor> x, const CollectiveAttrs& group,
                                      const std::vector<std::vector<int64_t>>& to,
                                      const std::vector<std::vector<Shape>>& shapes);

}  // namespace trireme
