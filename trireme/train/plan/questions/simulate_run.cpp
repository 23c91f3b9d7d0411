#include "trireme/train/plan/questions/simulate_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int64_t kMostFailures = 100'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

void check(const RunConditions& run) {
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  require(run.steps >= 1 && run.ranks >= 1, "simulate: {} steps of {} ranks; both must be 1 or more", run.steps,
          run.ranks);
  require(is_time(run.step_s) && run.step_s > 0, "simulate: a step of {} s; it must be above 0", run.step_s);
  require(is_time(run.checkpoint_s) && is_time(run.restart_s) && is_time(run.mtbf_s),
          "simulate: {} s of a checkpoint, {} s of a restart and {} s between failures; they must be 0 or more",
          run.checkpoint_s, run.restart_s, run.mtbf_s);
  require(run.checkpoint_every >= 0, "simulate: a checkpoint every {} steps; it must be 0 or more",
          run.checkpoint_every);
  for (const GivenFailure& failure : run.failures) {
    require(failure.rank >= 0 && failure.rank < run.ranks && failure.step >= 1 && failure.step <= run.steps,
            "simulate: rank {} fails in step {}; there are ranks 0 to {} and steps 1 to {}", failure.rank, failure.step,
            run.ranks - 1, run.steps);
  }
}

class Simulation {
 public:
  explicit Simulation(const RunConditions& run) : run_(run), failures_(run.failures), random_(run.seed) {
    std::ranges::stable_sort(failures_, {}, &GivenFailure::step);
    next_by_chance_ = draw();
  }

  SimulatedRun result() {
    while (saved_ < run_.steps) {
      if (!train_one() || (is_due() && !save())) start_again();
    }
    out_.training_s = static_cast<double>(run_.steps) * run_.step_s;
    out_.again_s = broken_off_s_ + static_cast<double>(out_.steps_again) * run_.step_s;
    out_.total_s = out_.training_s + out_.again_s + out_.checkpoint_s + out_.restart_s;
    return out_;
  }

 private:
  // Until the next failure by chance, from now.
  double draw() {
    if (run_.mtbf_s == 0) return kNever;
    return std::exponential_distribution<double>(static_cast<double>(run_.ranks) / run_.mtbf_s)(random_);
  }

  bool is_due() const {
    return done_ == run_.steps || (run_.checkpoint_every > 0 && done_ % run_.checkpoint_every == 0);
  }

  // Whether the time passes without a failure by chance; it is added as far as it passes.
  bool pass(double seconds, double& sum) {
    const double passed = std::min(seconds, next_by_chance_);
    sum += passed;
    next_by_chance_ -= passed;
    return passed == seconds;
  }

  bool train_one() {
    const bool fails = given_ < failures_.size() && failures_[given_].step == done_ + 1;
    double passed_s = 0;
    if (pass(run_.step_s, passed_s) && !fails) {
      ++done_;
      return true;
    }
    if (fails && passed_s == run_.step_s) ++given_;
    broken_off_s_ += passed_s;
    return false;
  }

  bool save() {
    if (!pass(run_.checkpoint_s, out_.checkpoint_s)) return false;
    saved_ = done_;
    failures_since_saved_ = 0;
    return true;
  }

  void start_again() {
    ++out_.failures;
    require(
        ++failures_since_saved_ <= kMostFailures,
        "simulate: after {} failures the run is not beyond the checkpoint after step {}: ranks fail every {:.3g} s on "
        "average; save more often than every {} steps, or use fewer ranks",
        kMostFailures, saved_, run_.mtbf_s / static_cast<double>(run_.ranks),
        run_.checkpoint_every > 0 ? run_.checkpoint_every : run_.steps);
    out_.steps_again += done_ - saved_;
    done_ = saved_;
    out_.restart_s += run_.restart_s;
    next_by_chance_ = draw();
  }

  const RunConditions& run_;
  std::vector<GivenFailure> failures_;  // by step
  size_t given_ = 0;                    // that came
  std::mt19937_64 random_;
  double next_by_chance_ = 0;
  int64_t done_ = 0, saved_ = 0;
  int64_t failures_since_saved_ = 0;
  double broken_off_s_ = 0;
  SimulatedRun out_;
};

}  // namespace

SimulatedRun simulate_run(const RunConditions& run) {
  check(run);
  return Simulation(run).result();
}

int64_t best_checkpoint_every(const RunConditions& run) {
  if (run.mtbf_s == 0) return 0;
  const double between_s = run.mtbf_s / static_cast<double>(run.ranks);
  const double steps = std::round(std::sqrt(2 * run.checkpoint_s * between_s) / run.step_s);
  return static_cast<int64_t>(std::clamp(steps, 1.0, static_cast<double>(run.steps)));
}

}  // namespace trireme
