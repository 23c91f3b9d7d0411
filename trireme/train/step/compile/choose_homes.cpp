#include "trireme/train/step/compile/choose_homes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "trireme/base/bytes_text.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/step_times.h"

namespace trireme {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t limit_of(const MemorySize& size) {
  return size.is_given() ? size.bytes() : kNoLimit;
}

Program run_if_asked(const Pass& pass, Program program, const PassOptions& passes) {
  if (!pass.asked_for(passes) || std::ranges::count(passes.disabled, pass.name) > 0) return program;
  Program out = pass.run(std::move(program), passes);
  const std::vector<std::string> wrong = verify(out);
  invariant(wrong.empty(), "pass '{}' broke the program: {}", pass.name, wrong.empty() ? "" : wrong.front());
  return out;
}

class ChooseHomes {
 public:
  ChooseHomes(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways)
      : passes_(passes),
        sizes_(sizes),
        ways_(ways),
        program_(ways.program_of(passes)),
        step_s_(start_times(program_, passes.rates).back()),
        machine_(passes.rates.machine ? *passes.rates.machine : Machine::this_host()),
        candidates_(home_candidates(run_if_asked(find_pass("on_host"), program_, passes), passes)) {
    // What the device's memory never has counts for the host's alone.
    const auto others = std::ranges::stable_partition(candidates_, &HomeCandidate::is_on_device);
    may_leave_ = candidates_.size() - others.size();
  }

  ChosenHomes run() {
    ChosenHomes best = with(0);
    const bool may_go_on = uses_disk() && std::ranges::any_of(candidates_, &HomeCandidate::on_host);
    if (fits(best) && (!may_go_on || (best.chosen.empty() && taken(best, Tier::kHost) <= host_limit()))) return best;
    size_t count = fits(best) ? 0 : fewest(best);
    // Earlier passes go by homes as well, and what is chosen is to be what a job would have that gives these.
    runs_all_passes_ = true;
    best = with(count);
    if (!fits(best)) count = fewest(best);
    return within_host(count, std::move(best));
  }

 private:
  static int64_t taken(const ChosenHomes& made, Tier tier) { return made.plan.arena(tier).bytes; }
  int64_t host_limit() const { return limit_of(sizes_.of(Tier::kHost)); }
  bool fits(const ChosenHomes& made) const { return taken(made, Tier::kDevice) <= limit_of(sizes_.of(Tier::kDevice)); }

  template <class... Args>
  static void require_of(Tier tier, const ChosenHomes& made, bool ok, fmt::format_string<Args...> text,
                         Args&&... args) {
    if (!ok) throw TooLittleMemory(tier, taken(made, tier), fmt::format(text, std::forward<Args>(args)...));
  }

  // So many of the candidates must leave for the device's memory to have room; `best` is the plan then. How early
  // something comes depends on where from, so that the device may have room with all on the disk alone.
  size_t fewest(ChosenHomes& best) {
    size_t too_few = 0, enough = may_leave_;
    best = with(enough);
    if (!fits(best) && uses_disk() && room_ > 0) {
      const int64_t room = std::exchange(room_, 0);
      ChosenHomes other = with(enough);
      if (taken(other, Tier::kDevice) < taken(best, Tier::kDevice)) {
        best = std::move(other);
      } else {
        room_ = room;
      }
    }
    require_of(Tier::kDevice, best, fits(best),
               "'{}' takes {} bytes of the device's memory on each rank even if all that can lies elsewhere between "
               "its uses; parallel.device_memory allows {}: the smallest that fits is {}B",
               best.plan.name, taken(best, Tier::kDevice), to_string(sizes_.of(Tier::kDevice)),
               taken(best, Tier::kDevice));
    while (enough - too_few > 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      ChosenHomes other = with(middle);
      if (fits(other)) {
        enough = middle;
        best = std::move(other);
      } else {
        too_few = middle;
      }
    }
    return enough;
  }

  // Staging of what goes to the disk takes room on the host as well, which the plan alone knows: what is beyond the
  // room goes, then half of what is left, and at last all that can: what a refusal says would fit does then, as these
  // homes follow from the device's memory alone.
  ChosenHomes within_host(size_t count, ChosenHomes best) {
    constexpr int kRounds = 8;
    for (int round = 0; uses_disk() && room_ > 0 && taken(best, Tier::kHost) > host_limit(); ++round) {
      const int64_t beyond = taken(best, Tier::kHost) - host_limit();
      room_ = round < kRounds ? std::max<int64_t>(0, room_ - beyond) : round < 2 * kRounds ? room_ / 2 : 0;
      best = with(count);
      if (!fits(best) || room_ == 0) count = fewest(best);
    }
    const auto require_within = [&](Tier tier, std::string_view key, std::string_view more) {
      const int64_t limit = limit_of(sizes_.of(tier));
      const MemorySize device = sizes_.of(Tier::kDevice);
      require_of(
          tier, best, taken(best, tier) <= limit,
          "'{}' {} {} bytes on the {}; parallel.{} allows {} bytes{}: it fits with {}B", best.plan.name,
          device.is_given() ? fmt::format("fits into {} of the device's memory with", to_string(device)) : "takes",
          taken(best, tier), to_string(tier), key, limit, more, taken(best, tier));
    };
    require_within(Tier::kHost, "host_memory", uses_disk() ? "" : ", and parallel.disk names no disk");
    require_within(Tier::kDisk, "disk", "");
    return best;
  }

  bool uses_disk() const { return sizes_.disk != DiskSpace(); }

  // The first `count` candidates leave; of these and of what lies on the host anyway, those that are away for the
  // shortest time lie on the host, as far as the room goes.
  ChosenHomes with(size_t count) const {
    int64_t room = room_;
    ChosenHomes out;
    out.passes = passes_;
    std::vector<const HomeCandidate*> nearest;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i < count || candidates_[i].on_host) nearest.push_back(&candidates_[i]);
    }
    std::ranges::stable_sort(nearest, {}, &HomeCandidate::idle_s);
    std::map<const HomeCandidate*, Tier> tiers;
    for (const HomeCandidate* candidate : nearest) {
      const bool is_near = !uses_disk() || candidate->bytes <= room;
      if (is_near) room -= candidate->bytes;
      tiers[candidate] = is_near ? Tier::kHost : Tier::kDisk;
    }
    std::vector<Leaving> leaving;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const auto tier = tiers.find(&candidates_[i]);
      if (tier != tiers.end() && (i < count || tier->second == Tier::kDisk))
        leaving.push_back({&candidates_[i], tier->second});
    }
    choose_again(leaving, step_s_, machine_);
    bool any_again = false;
    for (const Leaving& each : leaving) {
      add_home(each, out.passes);
      out.chosen.insert(out.chosen.begin(), rule_of(each));
      any_again = any_again || each.again;
    }
    const bool runs_all = any_again || (runs_all_passes_ && !leaving.empty());
    out.program = runs_all ? ways_.program_of(out.passes) : program_;
    for (const Pass* pass : passes()) {
      if (pass->by_homes) out.program = run_if_asked(*pass, std::move(out.program), out.passes);
    }
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
  size_t may_leave_ = 0;  // the device: the first so many of them
  bool runs_all_passes_ = false;
  int64_t room_ = host_limit();  // of the host's memory, for what leaves
};

// Names the keys that say how much there is, and the cures.
void require_within(const ExecutionPlan& plan, const TierSizes& sizes) {
  static constexpr std::array<std::string_view, kTiers> kKeys{"device_memory", "host_memory", "disk"};
  static constexpr std::array<std::string_view, kTiers> kCures{
      "parallel.home and parallel.keep move state and activations to the host or the disk, and "
      "docs/howto/train_in_less_memory.md has other ways",
      "give homes to less, or on the disk (parallel.home, parallel.keep)", "give homes on the disk to less"};
  for (const Tier tier : kEveryTier) {
    const MemorySize size = sizes.of(tier);
    const auto at = static_cast<size_t>(tier);
    require(!size.is_given() || plan.arena(tier).bytes <= size.bytes(),
            "'{}' takes {} bytes of the tier '{}' on each rank{}; parallel.{} allows {} ({} bytes); allow more, or {}",
            plan.name, plan.arena(tier).bytes, to_string(tier),
            plan.crews > 1 ? fmt::format(" of crew {}", plan.crew) : "", kKeys[at], to_string(size), size.bytes(),
            kCures[at]);
  }
}

}  // namespace

void throw_largest(const std::vector<std::optional<TooLittleMemory>>& refused) {
  const TooLittleMemory* largest = nullptr;
  for (const std::optional<TooLittleMemory>& each : refused) {
    if (!each) continue;
    const bool is_larger = largest == nullptr || each->tier() < largest->tier() ||
                           (each->tier() == largest->tier() && each->needed() > largest->needed());
    if (is_larger) largest = &*each;
  }
  if (largest != nullptr) throw *largest;
}

ChosenHomes choose_homes(const PassOptions& passes, const TierSizes& sizes, const WaysToPlan& ways) {
  return ChooseHomes(passes, sizes, ways).run();
}

void require_fits(const ExecutionPlan& plan, const Device& device, const TierSizes& sizes) {
  require_within(plan, sizes);
  const Machine host = Machine::this_host();
  const bool is_named = device.memory_bytes() > 0;
  const int64_t memory = is_named ? device.memory_bytes() : host.memory_bytes * host.devices_per_host;
  int64_t bytes = plan.arena().bytes, persistent = plan.arena().persistent;
  if (!is_named) {
    bytes += plan.arena(Tier::kHost).bytes;
    persistent += plan.arena(Tier::kHost).persistent;
  }
  const auto text = [](int64_t of) { return bytes_text(static_cast<double>(of)); };
  require(bytes <= memory,
          "'{}' takes {} on each rank ({} of parameters and state), and {} has {}; cut it over more ranks, or see "
          "docs/howto/train_in_less_memory.md",
          plan.name, text(bytes), text(persistent), is_named ? fmt::format("device '{}'", device.name()) : "this host",
          text(memory));
}

bool is_bounded(const Device& device, const TierSizes& sizes) {
  return device.memory_bytes() > 0 || std::ranges::any_of(kEveryTier, [&](Tier t) { return sizes.of(t).is_given(); });
}

}  // namespace trireme
