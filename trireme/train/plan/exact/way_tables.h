// Answers what the exact searches ask about a way (planner/outer/outer_search.h), from prices of the model's parts.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/train/plan/exact/exact_setting.h"
#include "trireme/train/plan/exact/way_guesses.h"
#include "trireme/train/plan/parts/certified_tables.h"

namespace trireme {

class WayTables {
 public:
  // `setting`, and `known` as of a PartPricer, must outlive this.
  WayTables(const ExactSetting& setting, int threads, PricedTables* known = nullptr);

  // From now on a rank's device has so many bytes more than the setting says.
  void add_memory(int64_t bytes) { more_bytes_ = bytes; }
  // The way's tables, with the memory of a rank. Nothing if the compiler refuses the way.
  std::optional<StageProblem> problem_of(const OuterWay& way);
  // The best `top` of these ways, by everything that is known about them.
  using OnProgress = std::function<void(const ExactProgress&)>;
  // With `most_jobs` it stops after compiling so many jobs, or at once if they would not price each cut of a stage.
  // Then it looks at ways that are likely the fastest, with half as many jobs more.
  OuterResult search(const OuterWays& ways, int64_t ranks, size_t top, const OnProgress& tell = {},
                     int64_t most_jobs = 0);

  // The first way found whose fullest rank takes the fewest bytes, with the cut into stages for which it does; nothing
  // if none takes `limit` or less. Where micro-batches depend on each other, no table bounds another: then of each cut
  // only the way is looked at that recomputes and slices the most.
  struct Fewest {
    std::optional<size_t> way;
    int64_t bytes = 0;
    bool is_stopped = false;  // before anything was found, as `last_job` jobs had been compiled, all searches together
  };
  Fewest fewest_bytes(const OuterWays& ways, int64_t ranks, int64_t limit, const OnProgress& tell = {},
                      int64_t last_job = std::numeric_limits<int64_t>::max());

  // All that searches asked for.
  CertifiedTables asked();
  const PartPricer& pricer() const { return pricer_; }

 private:
  enum class Asked : uint8_t { kTime, kMemory };
  struct KeyHash {
    template <class... T>
    size_t operator()(const std::tuple<T...>& key) const noexcept {
      size_t out = 0;
      const auto mix = [&](size_t value) { out = (out ^ value) * 0x9e3779b97f4a7c15U; };
      std::apply([&](const T&... each) { (mix(std::hash<T>()(each)), ...); }, key);
      return out ^ out >> 32U;
    }
  };
  // What all parts take at least by a table, and the bounds that were made of it: by shape, micro-batches, and what is
  // moved once a step beside it.
  struct LeastTimes {
    PartTotals totals;
    int64_t crossing = 0;
    std::unordered_map<std::tuple<const PipelineShape*, int64_t, int64_t>, int64_t, KeyHash> bounds = {};
  };
  struct ShapeOfCrews {
    PipelineShape shape;
    int64_t most_held = 0;                   // micro-batches
    std::vector<std::vector<int64_t>> even;  // even_cuts, of several stages a crew
  };
  // A table of one data parallel rank. It lasts as long as this.
  const std::optional<PartPrices>& alone(const InnerWay& known);
  // The table of all ranks, which lasts as long.
  const std::optional<PartPrices>& prices(const InnerWay& way);
  // By the table of `known`, which is that of one data parallel rank.
  OuterAnswer answer(const OuterWay& way, const InnerWay& known, Asked asked);
  // By that of some of its axes, where it is cut by more: of its passes.
  OuterAnswer answer_by_fewer_axes(const OuterWay& way, const std::optional<InnerWay>& known);
  // By the table with all kept, and what moves of what is kept elsewhere without ep.
  OuterAnswer answer_by_kept(const OuterWay& way);
  // By its own table of one rank, and what fewer ranks move.
  OuterAnswer answer_by_few_ranks(const OuterWay& way);
  // By the table of `known`, which is that of one data parallel rank, or by its blocks where it has the vocabulary
  // whole that the way cuts. On top what sums without slices have blocks exchange: of as many ranks, or of fewer where
  // there are more than a few.
  enum class Sums : uint8_t { kNone, kOfFew, kOfAll };
  OuterAnswer answer_by_parts(const OuterWay& way, const InnerWay& known, Sums sums);
  std::vector<std::function<OuterAnswer(size_t)>> bounds_by_tables(const OuterWays& ways);
  static int64_t jobs_of_cuts(const OuterWays& ways);
  // From a way's own tables.
  void learn(const OuterWay& way, const StageProblem& problem, WayGuesses& guesses) const;
  PartTotals totals_of(const PartPrices& prices) const;
  int64_t bound_by(LeastTimes& least, const OuterWay& way);
  int64_t bound_of_longer_parts(const OuterWay& way, const PartPrices& prices);
  bool may_fit(const OuterWay& way, const PartPrices& least);
  StageProblem problem_with(const OuterWay& way, const PartPrices& prices);
  const ShapeOfCrews& shape_of_crews(const OuterWay& way);
  int64_t memory_bytes() const { return setting_.memory_bytes + more_bytes_; }
  const PipelineShape& shape(const OuterWay& way) { return shape_of_crews(way).shape; }

  const ExactSetting& setting_;
  int64_t more_bytes_ = 0;
  PartPricer pricer_;
  using Asks = std::unordered_map<InnerWay, const std::optional<PartPrices>*, InnerWayHash>;
  Asks asked_alone_, asked_prices_;
  // By the rows of the way and of the table, whether the table is the way's own, and whether that has its state
  // elsewhere, and its updates.
  std::unordered_map<std::tuple<const PartPrices*, int64_t, int64_t, bool, bool, bool>, LeastTimes, KeyHash>
      least_times_;
  // By the rows of the way, its tp and cp, and whether it has more ep.
  std::unordered_map<std::tuple<const PartPrices*, int64_t, int64_t, int64_t, bool>, LeastTimes, KeyHash>
      least_times_by_fewer_axes_;
  // By both tables, and the rows of the way.
  std::unordered_map<std::tuple<const PartPrices*, const PartPrices*, int64_t>, LeastTimes, KeyHash>
      least_times_of_kept_;
  // By both tables, the rows of the way, whether it scatters sums of each micro-batch, and whether blocks alone count.
  std::unordered_map<std::tuple<const PartPrices*, const PartPrices*, int64_t, bool, bool>, LeastTimes, KeyHash>
      least_times_of_parts_;
  std::map<std::tuple<int64_t, int64_t, WaySchedule>, ShapeOfCrews> shapes_;  // by crews, and stages of each
  std::vector<int64_t> chain_;                                                // the parts
  std::vector<std::pair<size_t, int64_t>> runs_;                              // the same, those that are alike as one
};

}  // namespace trireme
