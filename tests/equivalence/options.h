// How a case is run, beside what its graph and strategy say.
#pragma once

#include <string>
#include <vector>

#include "tests/equivalence/case.h"

namespace trireme::equivalence {

bool keeps_bits(const Case& test);  // it must have the bits of one device
int threads_of(const Case& test);   // of each rank

// What of a case is not as a case has it that asks for nothing: "option by hand".
std::vector<std::string> options_of(const Case& test);
// And beside what the compiler repeats, of so many micro-batches: "option repeated, interleave".
std::vector<std::string> options_of_repeated(const Case& test, int64_t micro_batches);

}  // namespace trireme::equivalence
