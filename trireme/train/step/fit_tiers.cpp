#include "trireme/train/step/fit_tiers.h"

#include <algorithm>
#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/home_candidates.h"
#include "trireme/pass/step_times.h"

namespace trireme {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t limit_of(const MemorySize& size) {
  return size.is_given() ? size.bytes() : kNoLimit;
}

Program run_if_asked(std::string_view name, Program program, const PassOptions& passes) {
  const Pass& pass = find_pass(name);
  if (!pass.asked_for(passes)) return program;
  Program out = pass.run(std::move(program), passes);
  const std::vector<std::string> wrong = verify(out);
  invariant(wrong.empty(), "pass '{}' broke the program: {}", name, wrong.empty() ? "" : wrong.front());
  return out;
}

class FitTiers {
 public:
  FitTiers(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways)
      : passes_(passes),
        sizes_(sizes),
        ways_(ways),
        program_(ways.program_of(passes)),
        step_s_(start_times(program_, passes.rates).back()),
        machine_(passes.rates.machine ? *passes.rates.machine : Machine::this_host()),
        candidates_(home_candidates(run_if_asked("on_host", program_, passes), passes)) {}

  FittedHomes run() {
    FittedHomes best = with(0, 0);
    if (fits(best)) return best;
    size_t count = fewest(best);
    // Earlier passes go by homes as well, and what is chosen is to be what a job would have that gives these.
    runs_all_passes_ = true;
    best = with(count, limit_of(sizes_.of(Tier::kHost)));
    if (!fits(best)) count = fewest(best);
    return within_host(count, std::move(best));
  }

 private:
  static int64_t taken(const FittedHomes& fitted, Tier tier) { return fitted.plan.arena(tier).bytes; }
  bool fits(const FittedHomes& fitted) const {
    return taken(fitted, Tier::kDevice) <= limit_of(sizes_.of(Tier::kDevice));
  }

  // So many of the candidates must leave for the device's memory to have room; `best` is the plan then.
  size_t fewest(FittedHomes& best) const {
    size_t too_few = 0, enough = candidates_.size();
    best = with(enough, limit_of(sizes_.of(Tier::kHost)));
    require(fits(best),
            "'{}' takes {} bytes of the device's memory on each rank even if all that can lies elsewhere between its "
            "uses; parallel.device_memory allows {}: the smallest that fits is {}B",
            best.plan.name, taken(best, Tier::kDevice), to_string(sizes_.of(Tier::kDevice)),
            taken(best, Tier::kDevice));
    while (enough - too_few > 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      FittedHomes other = with(middle, limit_of(sizes_.of(Tier::kHost)));
      if (fits(other)) {
        enough = middle;
        best = std::move(other);
      } else {
        too_few = middle;
      }
    }
    return enough;
  }

  // Staging of what goes to the disk takes room on the host as well, which the plan alone knows.
  FittedHomes within_host(size_t count, FittedHomes best) const {
    constexpr int kRounds = 8;
    int64_t room = limit_of(sizes_.of(Tier::kHost));
    for (int round = 0; round < kRounds && taken(best, Tier::kHost) > limit_of(sizes_.of(Tier::kHost)) && room > 0;
         ++round) {
      room = std::max<int64_t>(0, room - (taken(best, Tier::kHost) - limit_of(sizes_.of(Tier::kHost))));
      best = with(count, room);
    }
    const auto require_fits = [&](Tier tier, std::string_view key, const std::string& more) {
      const int64_t limit = limit_of(sizes_.of(tier));
      require(
          taken(best, tier) <= limit,
          "'{}' fits into {} of the device's memory with {} bytes on the {}; parallel.{} allows {} bytes{}: it fits "
          "with {}B",
          best.plan.name, to_string(sizes_.of(Tier::kDevice)), taken(best, tier), to_string(tier), key, limit, more,
          taken(best, tier));
    };
    require_fits(Tier::kHost, "host_memory", uses_disk() ? "" : ", and parallel.disk names no disk");
    require_fits(Tier::kDisk, "disk", "");
    return best;
  }

  bool uses_disk() const { return sizes_.disk != DiskSpace(); }

  // The first `count` candidates leave; those that are away for the shortest time lie on the host, up to `room` bytes.
  FittedHomes with(size_t count, int64_t room) const {
    FittedHomes out;
    out.passes = passes_;
    std::vector<const HomeCandidate*> nearest;
    for (size_t i = 0; i < count; ++i) nearest.push_back(&candidates_[i]);
    std::ranges::stable_sort(nearest, {}, &HomeCandidate::idle_s);
    std::map<const HomeCandidate*, Tier> tiers;
    for (const HomeCandidate* candidate : nearest) {
      const bool is_near = !uses_disk() || candidate->bytes <= room;
      if (is_near) room -= candidate->bytes;
      tiers[candidate] = is_near ? Tier::kHost : Tier::kDisk;
    }
    std::vector<Leaving> leaving;
    for (size_t i = 0; i < count; ++i) leaving.push_back({&candidates_[i], tiers.at(&candidates_[i])});
    choose_again(leaving, step_s_, machine_);
    bool any_again = false;
    for (const Leaving& each : leaving) {
      add_home(each, out.passes);
      out.chosen.insert(out.chosen.begin(), rule_of(each));
      any_again = any_again || each.again;
    }
    out.program = any_again || (runs_all_passes_ && count > 0) ? ways_.program_of(out.passes) : program_;
    for (const char* const pass : {"updates_in_parts", "on_host", "homes"})
      out.program = run_if_asked(pass, std::move(out.program), out.passes);
    out.plan = ways_.plan_of(out.program);
    return out;
  }

  const PassOptions& passes_;
  const TierSizes& sizes_;
  const WaysToPlan& ways_;
  Program program_;  // before anything leaves
  double step_s_;    // that it takes to compute
  Machine machine_;
  std::vector<HomeCandidate> candidates_;
  bool runs_all_passes_ = false;
};

}  // namespace

FittedHomes fit_tiers(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways) {
  return FitTiers(passes, sizes, ways).run();
}

}  // namespace trireme
