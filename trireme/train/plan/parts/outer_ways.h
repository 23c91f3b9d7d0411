// The ways that the exact search looks at, and what is known about each before any part is priced.
#pragma once

#include <functional>
#include <vector>

#include "trireme/planner/outer/outer_search.h"
#include "trireme/train/plan/parts/part_prices.h"

namespace trireme {

inline constexpr int64_t kFewestPositions = 1024;  // of a sample, that cp leaves to a rank

struct OuterWay {
  int64_t pp = 1, micro_batches = 1;
  WaySchedule schedule = WaySchedule::k1F1B;
  int64_t virtual_stages = 1;  // of each crew
  InnerWay inner;

  Way way() const;
  friend bool operator==(const OuterWay&, const OuterWay&) = default;
};

// Cuts of a model, and for each cut all variants that it has (ways.h), or some of them. The way of cut c and variant v
// has the number c * variants + v, as in the outer search.
class OuterWays {
 public:
  explicit OuterWays(const std::vector<UpdatePlace>& places = {}, const std::vector<Tier>& keeps = {});

  // Adds a way that is no variant, together with all its variants. `has`: only those for which it returns true.
  void add(const OuterWay& cut);
  OuterWays kept_by(const std::function<bool(const OuterWay&)>& has) const;
  // The same where the variant does not count: asked once of each cut.
  OuterWays with_cuts(const std::function<bool(const OuterWay&)>& has) const;

  size_t size() const { return cuts_.size() * variants_.size(); }  // numbers, not all of which there are
  bool has(size_t number) const { return (has_[number / variants_.size()] >> number % variants_.size() & 1) != 0; }
  OuterWay at(size_t number) const;
  std::vector<OuterWay> all() const;
  // A few ways such that each value that a rule can name (way_rule.h) occurs in one of them.
  std::vector<Way> examples() const;
  int64_t count() const;

  size_t cuts() const { return cuts_.size(); }
  OuterWay cut(size_t index) const;
  size_t number_of(size_t cut) const { return cut * variants_.size(); }
  OuterVariants variants() const;
  std::vector<OuterCandidate> candidates(const StepFigures& figures) const;

 private:
  // A cut, of which there are millions. What many have in common is one of axes_.
  struct Cut {
    int64_t rows = 1, micro_batches = 1;
    uint32_t axes = 0;
    int32_t virtual_stages = 1;
    WaySchedule schedule = WaySchedule::k1F1B;
    WayRecompute recompute = WayRecompute::kNone;
    int8_t zero = 0;
  };

  std::vector<WayVariant> variants_;
  uint32_t every_variant_ = 0, without_slices_ = 0;  // a bit for each of these
  std::vector<OuterWay> axes_;                       // without what is in Cut
  std::vector<Cut> cuts_;
  std::vector<uint32_t> has_;  // of each cut, a bit for each variant
};

// Every pp that divides the ranks and has a part for each stage, of so many at most; every tp, cp, ep and dp that make
// up a crew, heads that divide by tp, a vocabulary that is cut as well or is not, and cp that leaves a rank
// kFewestPositions or more of a sample; zero, recomputation, schedules of a pipeline (the interleaved ones with as many
// stages a crew as virtual_stages_for says), and every number of rows up to kMostRows that divides what a data parallel
// rank has of the batch. Micro-batches follow. Where they depend on each other (`is_joined`) there is no pipeline, and
// one micro-batch. Each with all variants: what is kept in slices, or in one of `keeps`, and the optimizer's state and
// updates in one of `places`.
OuterWays outer_ways(const nn::Cuttable& model, int64_t ranks, int64_t batch, int64_t positions, int64_t parts,
                     const std::vector<UpdatePlace>& places = {}, const std::vector<Tier>& keeps = {},
                     bool is_joined = false);

// How many stages each of so many crews can have, 2 or more: what divides the blocks of the crew that has the most, so
// that its stages are alike, and leaves a part for each stage.
std::vector<int64_t> virtual_stages_for(int64_t crews, int64_t parts);

// Whether a pipeline fills, and goes through its stages in rounds.
bool divides(const OuterWay& way);
// Of a rank, by parameters and state alone, in as many pieces as the way makes of them over all ranks.
int64_t least_bytes(const OuterWay& way, int64_t ranks, const StepFigures& figures);
// By the step's arithmetic alone, of a way that divides.
int64_t arithmetic_ps(const OuterWay& way, const StepFigures& figures);

}  // namespace trireme
