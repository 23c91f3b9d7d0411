// What a step takes by a certificate's tables: of one cut into stages, of all of them at least, and the least of all.
// The verifier's own arithmetic: exact, or refused.
#pragma once

#include <optional>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

class CertifiedPrice {
 public:
  // The parts are `before`, so many times `block`, and `after`. `table` has to outlive it.
  CertifiedPrice(const CertifiedWay& way, const CertifiedTable& table, int64_t layers, int64_t memory);

  struct Cut {
    int64_t step_ps = 0;
    std::vector<int64_t> stage_bytes;
  };
  // Throws where these are no stages: not ascending from 0 on.
  Cut of_cut(const std::vector<int64_t>& begins) const;

  // No cut takes less, whatever memory there is: the slowest stage has its share of all passes at least.
  int64_t least_of_cuts() const;
  // The same for every table whose passes are these or longer.
  int64_t least_of_longer_passes() const;

  // Whether some cut fits in the memory.
  bool fits() const;
  // The least of all cuts that fit, where that is below `limit`.
  std::optional<int64_t> least_below(int64_t limit) const;

 private:
  // Of the parts from `begin` up to but not `end`.
  struct Sum {
    int64_t pass = 0, once = 0, bytes = 0;
  };
  Sum sum_of(int64_t stage, int64_t begin, int64_t end) const;
  int64_t activations(int64_t stage, int64_t kept, int64_t waiting) const;
  int64_t idle(int64_t weight_grads) const;
  int64_t fill() const;
  int64_t step_of(int64_t slowest, int64_t once) const;
  int64_t slowest_share() const;
  int64_t once_share() const;
  bool even_cut_fits() const;
  std::vector<int64_t> onces_of_stages() const;
  std::optional<int64_t> least_slowest(int64_t most_pass, int64_t most_once) const;

  const CertifiedWay& way_;
  const CertifiedTable& table_;
  int64_t layers_, memory_;
};

}  // namespace trireme
