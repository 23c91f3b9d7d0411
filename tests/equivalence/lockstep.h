// The values of a graph, computed one node after the other by the ops' reference kernels: of a graph that is cut by
// hand on all ranks of its mesh, its collectives by what they mean; of any other on the one device there is (no mesh
// axes).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/layout/layout.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::equivalence {

using Tensors = std::map<std::string, HostTensor>;

// A result of a node on one rank, which may be changed before others read it.
struct Made {
  NodeId node = 0;
  size_t result = 0;
  int64_t rank = 0;
  std::vector<const HostTensor*>
      operands;  // of a collective: the one that becomes this result, of each rank of the group
  const HostTensor& tensor;
};
using Change = std::function<void(const Made&)>;

// How the ranks' pieces of an input lie, and the tensor that they make.
Layout layout_of(const Graph& graph, const Input& input, const Mesh& mesh);
Shape whole_of(const Graph& graph, const Input& input, const Mesh& mesh);

// Of each rank: its pieces of the inputs by name, and then of the outputs.
std::vector<Tensors> run_in_lockstep(const Graph& graph, const Mesh& mesh, const std::vector<Tensors>& inputs,
                                     const Change& change = {});

}  // namespace trireme::equivalence
