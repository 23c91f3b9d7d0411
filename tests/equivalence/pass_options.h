// What a case asks of the passes.
#pragma once

#include "tests/equivalence/case.h"
#include "trireme/pass/passes.h"

namespace trireme::equivalence {

PassOptions pass_options(const Case& test);

}  // namespace trireme::equivalence
