// What was asked of a pass and did not happen, or not to all that it was asked of, in words. A pass says it to
// PassOptions::remarks; who compiles a job says it once.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

struct PassRemark {
  std::string text;         // "recompute: nothing is computed again"
  bool is_nothing = false;  // the pass found nothing of what it was asked for in this program
};

// Of the programs of a pipeline's crews: that a pass found nothing is said where no crew has any.
std::vector<std::string> remarks_of_crews(std::span<const std::vector<PassRemark>> crews);

}  // namespace trireme
