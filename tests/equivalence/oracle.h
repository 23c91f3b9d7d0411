// What one device computes, and how far rounding may take another order of the same sums from it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/equivalence/case.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::equivalence {

using Tensors = std::map<std::string, HostTensor>;

// The inputs of each step; parameters and state, which start in the first, are in it alone.
std::vector<Tensors> random_inputs(const Graph& graph, uint32_t seed, int steps);

bool computes_in_bf16(const Graph& graph);

struct Expected {
  Tensors outputs;  // after the last step
  std::map<std::string, double> allowed;
  std::set<std::string> vague;  // what is allowed is much of the output itself: it says little
  bool finite = true;           // and no larger than 1e5
};

// The bounds are derived, by stochastic arithmetic (Parker, 1997): the graph is run again with
// every result of every op moved at random by as much as that op's own rounding may move it, and an
// output may lie as far from the exact run as the runs so disturbed do, with a factor for the runs
// being few. Two tell most; where equal values compete, as in a maximum, it takes more to see that
// either may win.
Expected one_device(const Case& test, const std::vector<Tensors>& inputs, int disturbed_runs = 2);

// Compares the gradients of the loss, outputs "grad.<input>", with central differences in f64 along
// a random direction.
// "" when they agree, or where the loss is not smooth enough to tell.
std::string check_gradients(const Graph& graph, const Tensors& inputs, uint32_t seed);

}  // namespace trireme::equivalence
