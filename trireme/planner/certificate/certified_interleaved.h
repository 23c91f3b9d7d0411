// When the timetable of a way with several stages a crew ends, by what each stage takes: the verifier's own count.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

struct CertifiedStage {
  int64_t forward = 0, backward = 0;  // of a micro-batch
};

// Of all micro-batches, in ps, rounded down. `crossing`: a message to the next stage and one back. Throws
// kInvalidArgument where numbers are too large.
int64_t certified_interleaved_ps(const CertifiedWay& way, const std::vector<CertifiedStage>& stages, int64_t crossing);

// Whether it is more than so much by what a crew computes and waits for at least: passes forward and back of each
// stage. Nor is it less where these are longer.
bool certified_interleaved_takes_more(const CertifiedWay& way, const std::vector<int64_t>& passes, int64_t crossing,
                                      int64_t limit);

}  // namespace trireme
