// The ways that the exact search looks at, and what is known of each before any part is priced.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/planner/outer/outer_search.h"
#include "trireme/train/plan/part_prices.h"

namespace trireme {

inline constexpr int64_t kFewestPositions = 1024;  // of a sample, that cp leaves to a rank

struct OuterWay {
  int64_t pp = 1, micro_batches = 1;
  std::string_view schedule = "1f1b";  // one of the names in outer_ways.cpp
  int64_t virtual_stages = 1;          // of each crew
  InnerWay inner;

  Way way() const;
};

// Every pp that divides the ranks and has a part for each stage, of so many at most; every tp, cp, ep and dp that make
// up a crew, heads that divide by tp, a vocabulary that is cut as well or is not, and cp that leaves a rank
// kFewestPositions or more of a sample; zero, recomputation, schedules of a pipeline (the interleaved ones with as many
// stages a crew as virtual_stages_for says), and every number of rows up to kMostRows that divides what a data parallel
// rank has of the batch. Micro-batches follow.
std::vector<OuterWay> outer_ways(const nn::Cuttable& model, int64_t ranks, int64_t batch, int64_t positions,
                                 int64_t parts);

// How many stages each of so many crews can have, 2 or more: what divides the blocks of the crew that has the most, so
// that its stages are alike, and leaves a part for each stage.
std::vector<int64_t> virtual_stages_for(int64_t crews, int64_t parts);

OuterCandidate candidate_of(const OuterWay& way, int64_t ranks, const StepFigures& figures);

}  // namespace trireme
