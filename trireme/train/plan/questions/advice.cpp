#include "trireme/train/plan/questions/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/backend/device.h"
#include "trireme/base/bytes_text.h"
#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/axis_levels.h"

namespace trireme {
namespace {

struct Technique {
  const char* name;
  bool (*is_used)(const Way& way, int64_t ranks);
  int adds;
  // Whose links are named, and how many ranks it is over; "": none.
  const char* axis = "";
  int64_t (*degree)(const Way& way, int64_t ranks) = nullptr;
  bool is_of_experts = false;
};

int64_t copies_of(const Way& way, int64_t ranks) {
  return way.is_searched ? 1 : ranks / (way.pp * way.tp * way.cp * way.ep);
}

// With how much each adds to what people have to think of: of ways that are alike the one with the least is advised.
constexpr Technique kTechniques[] = {
    {"data parallelism", [](const Way& way, int64_t ranks) { return copies_of(way, ranks) > 1; }, 0, "dp", copies_of},
    {"optimizer parallelism", [](const Way& way, int64_t) { return way.zero > 0; }, 1},
    {"tensor parallelism", [](const Way& way, int64_t) { return way.tp > 1; }, 3, "tp",
     [](const Way& way, int64_t) { return way.tp; }},
    {"sequence parallelism", [](const Way& way, int64_t) { return way.sp; }, 1},
    {"context parallelism", [](const Way& way, int64_t) { return way.cp > 1; }, 4, "cp",
     [](const Way& way, int64_t) { return way.cp; }},
    {"expert parallelism", [](const Way& way, int64_t) { return way.ep > 1; }, 4, "ep",
     [](const Way& way, int64_t) { return way.ep; }, true},
    {"pipeline", [](const Way& way, int64_t) { return way.pp > 1; }, 4, "pp",
     [](const Way& way, int64_t) { return way.pp; }},
    {"cuts by op (--auto)", [](const Way& way, int64_t) { return way.is_searched; }, 6},
};
constexpr int kRecomputationAdds = 2, kVirtualStagesAdd = 1, kOffloadAdds = 2;
constexpr size_t kMostAlike = 100;

int complexity_of(const Way& way, int64_t ranks) {
  int out = way.recompute == WayRecompute::kNone ? 0 : kRecomputationAdds;
  if (way.virtual_stages > 1) out += kVirtualStagesAdd;
  if (way.place != UpdatePlace()) out += kOffloadAdds;
  if (way.keep != Tier::kDevice) out += kOffloadAdds;
  for (const Technique& technique : kTechniques) out += technique.is_used(way, ranks) ? technique.adds : 0;
  return out;
}

// The figures that words are made of.
struct AdviceFacts {
  int64_t ranks = 1;
  Machine machine;
  int64_t memory_bytes = 0;
  int64_t parameters = 0;  // numbers
  KeptBytes kept;
  bool has_experts = false, has_own_memory = false;
};

AdviceFacts facts_of(const PlanRequest& request) {
  const JobConfig job = without_cuts(request.job);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, 1);
  const Graph step = graphs_of(assembly, 1).step;
  AdviceFacts out{.ranks = request.ranks};
  for (const Input& input : step.inputs()) {
    if (input.role == Role::kParameter) out.parameters += step.type(input.value).shape.elements();
  }
  out.kept = kept_by(step);
  const Communication& how = assembly.options.parallel.communication;
  out.machine = how.machine ? *how.machine : how.measured ? *how.measured : Machine::this_host();
  out.has_own_memory = make_device(assembly.options.device)->memory_bytes() > 0;
  out.memory_bytes = memory_of_rank(request, assembly);
  out.has_experts = model_of(job).cuttable().experts > 0;
  return out;
}

std::string seconds_in_ms(double seconds) {
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string count_text(double count) {
  return count >= 1e9   ? fmt::format("{:.4g} billion", count / 1e9)
         : count >= 1e6 ? fmt::format("{:.4g} million", count / 1e6)
                        : fmt::format("{:.0f}", count);
}

// What of a step grows most from one way to another.
std::string grown_most(const AdvisedWay& from, const AdvisedWay& to) {
  std::string name;
  double most = 0;
  for (const auto& [item, seconds] : to.items) {
    const auto was = std::ranges::find(from.items, item, &std::pair<std::string, double>::first);
    const double more = seconds - (was == from.items.end() ? 0 : was->second);
    if (more <= most) continue;
    most = more;
    name = item;
  }
  return name.empty() ? "" : fmt::format(", mostly {} ({:+.3f} ms)", name, most * 1e3);
}

// "+1.3 %", by which the other's step is longer.
std::string longer(const AdvisedWay& chosen, const AdvisedWay& other) {
  const double percent = 100 * (other.step_s / chosen.step_s - 1);
  return fmt::format("{:+.1f} %", std::abs(percent) < 0.05 ? 0.0 : percent);  // not "-0.0 %"
}

std::string beside(const AdvisedWay& chosen, const AdvisedWay& other) {
  const std::string memory = bytes_text(static_cast<double>(other.bytes));
  const std::string grown = other.step_s > chosen.step_s ? grown_most(chosen, other) : "";
  return fmt::format("{} takes {}, {}{}, and {} a rank", other.text, seconds_in_ms(other.step_s), longer(chosen, other),
                     grown, memory);
}

std::string why_there_is_none(const WaysAnswer& answer, const AdviceFacts& facts) {
  if (answer.ways == 0) return "there is none";
  if (!answer.is_proven) return "none that fits was found before the search was stopped (--most-jobs)";
  if (answer.fewest_bytes > 0)
    return fmt::format("none fits: the smallest takes {} or more of {} a rank",
                       bytes_text(static_cast<double>(answer.fewest_bytes)),
                       bytes_text(static_cast<double>(facts.memory_bytes)));
  if (!answer.refusal.empty()) return "none can be had: " + answer.refusal.substr(0, answer.refusal.find(';'));
  return "none fits";
}

// "tp 8 within nvlink".
std::string degree_text(const Technique& technique, const Way& way, const AdviceFacts& facts) {
  if (technique.degree == nullptr) return "";
  std::string out = fmt::format(", {} over {} ranks", technique.axis, technique.degree(way, facts.ranks));
  if (way.is_searched || facts.machine.levels.size() < 2) return out;
  const Mesh mesh({{"dp", copies_of(way, facts.ranks)}, {"ep", way.ep}, {"cp", way.cp}, {"tp", way.tp}});
  for (const AxisLevel& row : axis_levels(facts.machine, mesh, way.pp)) {
    if (row.axis == technique.axis) out += fmt::format(" by {}", facts.machine.levels[row.level].name);
  }
  return out;
}

class Adviser {
 public:
  Adviser(const PlanRequest& request, AdviceSearch& search)
      : request_(request), search_(search), facts_(facts_of(request)) {}

  Advice run() {
    head();
    const std::vector<AdvisedWay> fastest = search_.fastest(kMostAlike);
    if (fastest.empty()) return nothing_fits();
    choose(fastest);
    line(fmt::format("take {}: a step of {}, {} of {} a rank", chosen_.text, seconds_in_ms(chosen_.step_s),
                     bytes_text(static_cast<double>(chosen_.bytes)),
                     bytes_text(static_cast<double>(facts_.memory_bytes))));
    if (chosen_.text != fastest.front().text)
      line(fmt::format("  the fastest, {}, takes {}, {}: not worth what it adds", fastest.front().text,
                       seconds_in_ms(fastest.front().step_s), longer(chosen_, fastest.front())));
    for (const Technique& technique : kTechniques) about(technique);
    recomputation();
    offload();
    if (!search_.is_proven())
      line("not all of this is proven, as searches were stopped (--most-jobs): there may be faster ways");
    return {chosen_, std::move(text_)};
  }

 private:
  void line(const std::string& words) { text_ += words + "\n"; }

  void head() {
    const int64_t kept = facts_.kept.parameters + facts_.kept.state;
    line(fmt::format("advice for {} on {} rank{} of '{}', with {} of memory a rank", request_.job.name, facts_.ranks,
                     facts_.ranks == 1 ? "" : "s", facts_.machine.name,
                     bytes_text(static_cast<double>(facts_.memory_bytes))));
    line(fmt::format("  {} parameters; they and the optimizer's state take {}, {:.3g} times a rank's memory",
                     count_text(static_cast<double>(facts_.parameters)), bytes_text(static_cast<double>(kept)),
                     static_cast<double>(kept) / static_cast<double>(facts_.memory_bytes)));
  }

  // The simplest of those that take about as long as the fastest.
  void choose(const std::vector<AdvisedWay>& fastest) {
    chosen_ = fastest.front();
    for (const AdvisedWay& way : fastest) {
      if (way.step_s > fastest.front().step_s * (1 + kAlike)) break;
      if (complexity_of(way.way, facts_.ranks) < complexity_of(chosen_.way, facts_.ranks)) chosen_ = way;
    }
  }

  void about(const Technique& technique) {
    if (facts_.ranks == 1) return;
    if (technique.is_of_experts && !facts_.has_experts) {
      line("expert parallelism: no; the model has no experts");
      return;
    }
    const bool is_used = technique.is_used(chosen_.way, facts_.ranks);
    // What --auto finds may use it as well, so that says nothing of going without.
    const WaysAnswer other = search_.best_of([&](const Way& way) {
      return technique.is_used(way, facts_.ranks) != is_used && !(is_used && way.is_searched);
    });
    const bool is_open = chosen_.way.is_searched && !is_used;
    std::string out = fmt::format("{}: {}", technique.name, is_used ? "yes" : is_open ? "as --auto finds" : "no");
    if (is_used) out += degree_text(technique, chosen_.way, facts_);
    if (other.ways == 0) {
      line(out + (is_used ? "; all ways that are looked at have it" : "; no way that is looked at has it"));
      return;
    }
    out += is_used ? "; without it " : is_open ? "; by a key of its own " : "; with it ";
    line(out + (other.best ? beside(chosen_, *other.best) : why_there_is_none(other, facts_)));
  }

  void recomputation() {
    Way other = chosen_.way;
    const bool is_used = other.recompute != WayRecompute::kNone;
    if (is_used) {
      const WaysAnswer without = search_.best_of([](const Way& way) { return way.recompute == WayRecompute::kNone; });
      line(fmt::format("recomputation: yes, {}; without it {}", to_string(other.recompute),
                       without.best ? beside(chosen_, *without.best) : why_there_is_none(without, facts_)));
      return;
    }
    other.recompute = WayRecompute::kFull;
    const std::optional<AdvisedWay> with = search_.price(other);
    line(fmt::format("recomputation: no, it fits without; with it {}",
                     with ? beside(chosen_, *with) : "the same way is refused"));
  }

  void offload() {
    const UpdatePlace& place = chosen_.way.place;
    const Tier keep = chosen_.way.keep;
    if (place != UpdatePlace() || keep != Tier::kDevice) {
      const WaysAnswer without =
          search_.best_of([](const Way& way) { return way.place == UpdatePlace() && way.keep == Tier::kDevice; });
      std::string what;
      if (place != UpdatePlace())
        what = fmt::format("the optimizer's state lies on the {}{}", to_string(place.state),
                           place.update == Tier::kHost ? ", and updates run on the host" : "");
      if (keep != Tier::kDevice)
        what += fmt::format("{}what is kept for the backward pass on the {}", what.empty() ? "" : ", and ",
                            to_string(keep));
      line(fmt::format("offload: yes, {}; without it {}", what,
                       without.best ? beside(chosen_, *without.best) : why_there_is_none(without, facts_)));
      return;
    }
    if (!facts_.has_own_memory) {
      line("offload: no; the host's memory is the device's");
      return;
    }
    Way elsewhere = chosen_.way;
    elsewhere.place.state = Tier::kHost;
    const std::optional<AdvisedWay> with = search_.price(elsewhere);
    line(with ? fmt::format("offload: no, it fits without; with the optimizer's state on the host {}",
                            beside(chosen_, *with))
              : "offload: no, it fits without (this search does not price it)");
  }

  Advice nothing_fits() {
    const WaysAnswer all = search_.best_of([](const Way&) { return true; });
    line(fmt::format("nothing can be taken; {}", why_there_is_none(all, facts_)));
    if (all.fewest_bytes > 0 && facts_.has_own_memory)
      line(
          "more ranks cut it further, a smaller train.batch takes fewer activations, and --device-memory moves what "
          "does not fit to the host (docs/howto/train_in_less_memory.md)");
    return {std::nullopt, std::move(text_)};
  }

  const PlanRequest& request_;
  AdviceSearch& search_;
  AdviceFacts facts_;
  AdvisedWay chosen_;
  std::string text_;
};

}  // namespace

Advice advise(const PlanRequest& request, AdviceSearch& search) {
  return Adviser(request, search).run();
}

}  // namespace trireme
