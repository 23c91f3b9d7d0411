// From a case that goes wrong to a small one that goes wrong in the same way.
#pragma once

#include <functional>

#include "tests/equivalence/case.h"

namespace trireme::equivalence {

// The case with these of its outputs, and what they need.
Case with_outputs(const Case& test, const std::vector<char>& keep);

// Greedily, while `goes_wrong` says yes: fewer steps and outputs, values that become inputs, nodes
// left out, cuts left out, mesh axes left out.
Case shrunk(Case test, const std::function<bool(const Case&)>& goes_wrong);

}  // namespace trireme::equivalence
