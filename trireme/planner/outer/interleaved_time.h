// What a step takes where crews go from one of their stages to the next and back ("interleaved"), and stages take
// unequally long: the end of the schedule's timetable. The slowest crew alone does not pace such a pipeline, as each
// crew also waits for others while it is full.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/planner/outer/least_slowest.h"

namespace trireme {

struct PipelineShape;  // planner/outer/stage_problem.h

// Of a stage, for one micro-batch.
struct StagePass {
  int64_t forward = 0, backward = 0;
};

// When the last pass ends: ps, rounded down. No stage that takes longer makes it less. `crossing`: a message to the
// next stage and one back. `micro_batches` must be a multiple of the crews.
int64_t interleaved_time(const PipelineShape& shape, std::span<const StagePass> stages, int64_t micro_batches,
                         int64_t crossing);

// A lower bound on it, in a few steps for each stage: no stage that takes longer makes this less, either. `before`: the
// passes of the stages before each, and of all.
int64_t least_interleaved_time(std::span<const int64_t> before, const PipelineShape& shape, int64_t micro_batches,
                               int64_t crossing);
// The least of these over even_cuts of such parts (stage_problem.h). Where there are too few for the stages, what its
// share of all passes takes a crew.
int64_t least_of_even_cuts(const std::vector<PassRun>& chain, const PipelineShape& shape, int64_t micro_batches,
                           int64_t crossing);

}  // namespace trireme
