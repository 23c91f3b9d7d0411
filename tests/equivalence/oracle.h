// What one device computes, and how far rounding may take another order of the same sums from it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/equivalence/case.h"
#include "tests/equivalence/lockstep.h"

namespace trireme::equivalence {

// Whole tensors.
struct CaseInputs {
  std::vector<Tensors> steps;  // parameters and state, which start in the first, are in it alone
  Tensors evaluation;          // after each step
};
CaseInputs random_inputs(const Case& test);

// The name by which an output of the evaluation stands among those of the step.
std::string evaluated(const std::string& output);

bool computes_in_bf16(const Graph& graph);

struct Expected {
  // After the last step: on each rank where the graph is cut by hand, else on the one device.
  std::vector<Tensors> outputs;
  std::map<std::string, double> allowed;
  std::set<std::string> vague;  // what is allowed is much of the output itself: it says little
  bool finite = true;           // and no larger than 1e5
};

// The bounds are derived, by stochastic arithmetic (Parker, 1997): the graph is run again with
// every result of every op moved at random by as much as that op's own rounding may move it, and an
// output may lie as far from the exact run as the runs so disturbed do, with a factor for the runs
// being few. Two tell most; where equal values compete, as in a maximum, it takes more to see that
// either may win.
Expected one_device(const Case& test, const CaseInputs& inputs, int disturbed_runs = 2);

// Compares the gradients of the loss, outputs "grad.<input>", with central differences in f64 along
// a random direction.
// "" when they agree, or where the loss is not smooth enough to tell.
std::string check_gradients(const Case& test, const Tensors& inputs);

}  // namespace trireme::equivalence
