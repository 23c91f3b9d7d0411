#include "trireme/partition/copies.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// The dimension that is this factor; -1 when the tensor does not have it.
int dim_of(const DimFactors& tensor, int factor) {
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    if (std::find(tensor[dim].begin(), tensor[dim].end(), factor) != tensor[dim].end()) return static_cast<int>(dim);
  }
  return -1;
}

TensorType part_of(TensorType type, int dim, int64_t parts) {
  if (dim >= 0) type.shape[dim] /= parts;
  return type;
}

class Copies {
 public:
  Copies(Program& program, const CopiedNode& copied) : program_(program), copied_(copied) {}

  NodeId run(std::vector<ValueId>& results) {
    NodeId first = -1;
    std::vector<std::vector<ValueId>> parts(copied_.whole.size());
    for (int64_t copy = 0; copy < copied_.cuts.copies; ++copy) {
      const std::vector<ValueId> made = add_copy(copy);
      if (first < 0) first = program_.graph.value(made.front()).producer;
      for (size_t i = 0; i < made.size(); ++i) parts[i].push_back(made[i]);
    }
    for (size_t i = 0; i < parts.size(); ++i) results.push_back(join(i, parts[i]));
    return first;
  }

 private:
  std::vector<ValueId> add_copy(int64_t copy) {
    std::vector<ValueId> in;
    for (size_t i = 0; i < copied_.inputs.size(); ++i) {
      const int dim = dim_of(copied_.rule.in[i], copied_.cuts.copied_factor);
      in.push_back(dim < 0 ? copied_.inputs[i] : slice(copied_.inputs[i], dim, copy));
    }
    std::vector<TensorType> whole;
    for (size_t i = 0; i < copied_.whole.size(); ++i) {
      const int dim = dim_of(copied_.rule.out[i], copied_.cuts.copied_factor);
      whole.push_back(part_of(copied_.whole[i], dim, copied_.cuts.copies));
    }
    return add_to(program_, *copied_.node.op, copied_.node.attrs, in, copied_.results, whole);
  }

  ValueId slice(ValueId id, int dim, int64_t copy) {
    const TensorType local = part_of(program_.graph.type(id), dim, copied_.cuts.copies);
    SliceAttrs attrs;
    attrs.starts.assign(static_cast<size_t>(local.shape.rank()), 0);
    attrs.sizes.assign(local.shape.begin(), local.shape.end());
    attrs.starts[static_cast<size_t>(dim)] = copy * local.shape[dim];
    const auto at = static_cast<size_t>(id);
    const Layout layout = program_.layouts[at];
    const TensorType whole = part_of({local.dtype, program_.whole[at]}, dim, copied_.cuts.copies);
    return add_to(program_, structural().slice, Attrs::of(attrs), {&id, 1}, {layout}, {whole}).front();
  }

  ValueId join(size_t result, const std::vector<ValueId>& parts) {
    const int dim = dim_of(copied_.rule.out[result], copied_.cuts.copied_factor);
    const Layout& layout = copied_.results[result];
    const TensorType& whole = copied_.whole[result];
    if (dim >= 0)
      return add_to(program_, structural().concat, Attrs::of(ConcatAttrs{dim}), parts, {layout}, {whole}).front();
    const Reduction reduction = copied_.rule.factors[static_cast<size_t>(copied_.cuts.copied_factor)].reduction;
    ValueId sum = parts.front();
    for (size_t i = 1; i < parts.size(); ++i) {
      const ValueId both[] = {sum, parts[i]};
      sum = add_to(program_, structural().reduced(reduction), Attrs(), both, {layout}, {whole}).front();
    }
    return sum;
  }

  Program& program_;
  const CopiedNode& copied_;
};

}  // namespace

std::vector<ValueId> add_to(Program& program, const OpBase& op, const Attrs& attrs, std::span<const ValueId> in,
                            const std::vector<Layout>& layouts, const std::vector<TensorType>& whole) {
  Few<Shared<TensorType>, 4> local;
  for (size_t i = 0; i < whole.size(); ++i) {
    local.push_back(TensorType{whole[i].dtype, local_shape(whole[i].shape, layouts[i], program.mesh)});
  }
  const NodeId node = program.graph.add_node(op, attrs, in, local);
  const Few<ValueId, 4> out = program.graph.node(node).outputs;
  for (size_t i = 0; i < out.size(); ++i) {
    invariant(out[i] == static_cast<ValueId>(program.layouts.size()), "values are recorded out of order");
    program.layouts.push_back(layouts[i]);
    program.whole.push_back(whole[i].shape);
  }
  return out;
}

NodeId add_copies(Program& program, const CopiedNode& copied, std::vector<ValueId>& results) {
  return Copies(program, copied).run(results);
}

}  // namespace trireme
