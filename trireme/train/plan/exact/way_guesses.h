// Guesses which ways are the fastest, when there are too many to find out: from combined tables of ways that are cut
// along one axis alone. Guesses prove nothing; they only say what is worth pricing first.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/train/plan/exact/exact_setting.h"

namespace trireme {

class WayGuesses {
 public:
  using ShapeOf = std::function<const PipelineShape&(const OuterWay&)>;
  // All of these must outlive this.
  WayGuesses(const ExactSetting& setting, PartPricer& pricer, const OuterWays& ways, ShapeOf shape);

  // The fastest way by all guesses that fits by them and was not returned before; a way without variants stands for its
  // variants. Nothing if none would be faster than the best so far (ps).
  std::optional<size_t> next(int64_t best_ps);
  // Tells what a step of the way takes by its own tables, or that no cut of it fits. This corrects the guesses for ways
  // with the same cuts.
  void learn_time(const OuterWay& way, int64_t step_ps);
  void learn_too_large(const OuterWay& way);

 private:
  // tp, cp, ep, sp, vocabulary, kept_slices
  using Cut = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool>;
  struct Guess {
    int64_t step_ps = 0;  // as corrected when it was put into the heap
    size_t cut = 0;       // of the ways
    WayVariant variant = {};
    bool is_after(const Guess& other) const;
  };
  struct Correction {
    double time = 1, bytes = 1;
  };

  void guess_all();
  void put(size_t cut, const WayVariant& variant);
  void put_next(const Guess& guess);
  OuterWay way_of(const Guess& guess) const;
  static Cut cut_of(const InnerWay& way);
  bool fits(const OuterWay& way);
  int64_t step_of(const OuterWay& way);
  PartPrices guessed(const OuterWay& way);
  const std::optional<PartPrices>& guessed_cut(const InnerWay& way);
  std::optional<PartPrices> by_axes(const InnerWay& way);
  void slice(const OuterWay& way, PartPrice& part) const;
  void keep_elsewhere(Tier keep, PartPrice& part) const;
  Correction& correction(const InnerWay& way);

  const ExactSetting& setting_;
  PartPricer& pricer_;
  const OuterWays& ways_;
  ShapeOf shape_;
  std::vector<int64_t> chain_;
  std::vector<std::pair<size_t, int64_t>> runs_;  // of the chain
  std::map<std::pair<Cut, WayRecompute>, std::optional<PartPrices>> cuts_;
  std::map<std::pair<Cut, int64_t>, Correction> corrections_;  // by slices, too
  std::vector<Guess> left_;                                    // a heap, the fastest first
  bool is_begun_ = false;
};

}  // namespace trireme
