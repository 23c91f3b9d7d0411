// Ways with several stages a crew: the cuts into stages that are looked at, and when the timetable of one ends, by what
// each stage takes. The verifier's own count.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Stages of as many parts, or one more, the first and the last part of all counted as one or not.
std::vector<std::vector<int64_t>> certified_even_cuts(int64_t parts, int64_t stages);

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
