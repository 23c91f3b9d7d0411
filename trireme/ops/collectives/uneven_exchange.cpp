#include "trireme/ops/collectives/uneven_exchange.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/op/box_messages.h"
#include "trireme/op/registry.h"

namespace trireme {
namespace {

BoxesAttrs leading_boxes(const Tensor& x, size_t operand, const CollectiveAttrs& group, const std::vector<int64_t>& to,
                         const std::vector<Shape>& shapes) {
  const auto ranks = static_cast<size_t>(group.size);
  require(to.size() == ranks && shapes.size() == ranks,
          "neighbor_exchange: {} receivers and {} shapes are given for operand {}; the group has {} ranks, so give as "
          "many, -1 for nobody",
          to.size(), shapes.size(), operand, ranks);
  BoxesAttrs out{.axes = group.axes, .ranks = group.ranks, .size = group.size, .shape = x.shape()};
  for (size_t k = 0; k < ranks; ++k) {
    require(to[k] >= -1 && to[k] < group.size,
            "neighbor_exchange: rank {} of the group sends operand {} to {}; use 0 to {}, or -1 for nobody", k, operand,
            to[k], group.size - 1);
    if (to[k] < 0) continue;
    const auto first = static_cast<size_t>(std::find(to.begin(), to.end(), to[k]) - to.begin());
    require(first == k,
            "neighbor_exchange: operand {} goes to rank {} of the group from rank {} and from rank {}; a rank receives "
            "it from one",
            operand, to[k], first, k);
    bool fits = shapes[k].rank() == x.rank();
    for (int dim = 0; fits && dim < x.rank(); ++dim) fits = shapes[k][dim] >= 0 && shapes[k][dim] <= x.size(dim);
    require(fits, "neighbor_exchange: rank {} of the group sends {} of operand {} ({}), which must hold that", k,
            said(shapes[k]), operand, said(x.type()));
    const Box box = Box::whole(shapes[k]);
    if (box.elements() > 0) out.add({static_cast<int64_t>(k), to[k], box, box});
  }
  return out;
}

}  // namespace

std::vector<Tensor> neighbor_exchange(std::span<const Tensor> x, const CollectiveAttrs& group,
                                      const std::vector<std::vector<int64_t>>& to,
                                      const std::vector<std::vector<Shape>>& shapes) {
  require(to.size() == x.size() && shapes.size() == x.size(),
          "neighbor_exchange: {} lists of receivers and {} of shapes for {} operands; give one for each", to.size(),
          shapes.size(), x.size());
  std::vector<Tensor> out;
  for (size_t i = 0; i < x.size(); ++i) {
    out.push_back(apply1(op("exchange_boxes"), {x[i]}, Attrs::of(leading_boxes(x[i], i, group, to[i], shapes[i]))));
  }
  return out;
}

}  // namespace trireme
