// What a pass was asked to do and did not do, or only in part, in words. A pass writes it to PassOptions::remarks; the
// caller that compiles a job prints it once.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

struct PassRemark {
  std::string text;         // "recompute: nothing is computed again"
  bool is_nothing = false;  // the pass found nothing of what it was asked for in this program
};

// For the programs of a pipeline's crews: that a pass found nothing is reported only if it found nothing in any crew.
std::vector<std::string> remarks_of_crews(std::span<const std::vector<PassRemark>> crews);

}  // namespace trireme
