#include "trireme/train/plan/exact/crew_kinds.h"

#include <algorithm>

namespace trireme {

std::vector<ByteKinds> kinds_of_crews(const StageProblem& problem, const std::vector<int64_t>& begins) {
  const std::vector<int64_t> bytes = bytes_of_crews(problem, begins);
  std::vector<ByteKinds> out;
  for (size_t crew = 0; crew < bytes.size(); ++crew) {
    int64_t persistent = 0, gradients = 0, work = 0;
    for (size_t stage = crew; stage < begins.size(); stage += bytes.size()) {
      const auto end = stage + 1 < begins.size() ? static_cast<size_t>(begins[stage + 1]) : problem.parts.size();
      for (auto i = static_cast<size_t>(begins[stage]); i < end; ++i) {
        persistent += problem.parts[i].persistent + problem.parts[i].held;
        gradients += problem.parts[i].gradients;
        work = std::max(work, problem.parts[i].work);
      }
    }
    out.push_back({{"parameters and state", persistent},
                   {"gradients", gradients},
                   {"activations", bytes[crew] - persistent - gradients - work},
                   {"what one part needs while it computes", work}});
  }
  return out;
}

}  // namespace trireme
