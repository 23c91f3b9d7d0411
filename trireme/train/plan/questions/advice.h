// Advice in words on how to parallelise a job: which of data, optimizer, tensor, sequence, context, expert and pipeline
// parallelism, recomputation and offload to use. For each it gives what the best way with it, or without it, takes, or
// why there is none. Ways within kAlike of the fastest count as equally fast, and the simplest of them is recommended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/plan/plan_job.h"

namespace trireme {

inline constexpr double kAlike = 0.02;

// A way, and what it takes.
struct AdvisedWay {
  Way way;
  std::string text;
  double step_s = 0;
  int64_t bytes = 0;                                  // of a rank
  std::vector<std::pair<std::string, double>> items;  // of the step, in seconds
};

// Of the ways that were asked for.
struct WaysAnswer {
  std::optional<AdvisedWay> best;  // that fits
  int64_t ways = 0;                // how many there are
  int64_t fewest_bytes = 0;        // where none fits, of those whose bytes are known; 0: of none
  std::string refusal;             // of the first that the compiler refused; "": none was
  bool is_proven = true;           // else the search was stopped (PlanRequest::most_jobs)
};

// Prices ways of one job.
class AdviceSearch {
 public:
  using Filter = std::function<bool(const Way&)>;
  virtual ~AdviceSearch() = default;
  virtual WaysAnswer best_of(const Filter& filter) = 0;
  // Of all that fit, by time.
  virtual std::vector<AdvisedWay> fastest(size_t most) = 0;
  // Whether all that was asked for so far is proven.
  virtual bool is_proven() const { return true; }
  // Nothing where it is refused.
  virtual std::optional<AdvisedWay> price(const Way& way) = 0;
};

// Compiles every way, once.
std::unique_ptr<AdviceSearch> compiled_advice_search(const PlanRequest& request);
// Prices parts, as plan_exact does, and throws as that does. Each search stops by itself after PlanRequest::most_jobs.
std::unique_ptr<AdviceSearch> exact_advice_search(const PlanRequest& request);

struct Advice {
  std::optional<AdvisedWay> way;  // nothing: none fits
  std::string text;               // of lines
};

Advice advise(const PlanRequest& request, AdviceSearch& search);

}  // namespace trireme
