#include "trireme/train/plan/ways/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

constexpr std::array kSchedules{WaySchedule::k1F1B, WaySchedule::kZbH1};  // of a pipeline

std::vector<int64_t> divisors_if(bool any, int64_t of) {
  return any ? divisors_of(of) : std::vector<int64_t>{1};
}

std::vector<int64_t> micro_batches_for(int64_t pp) {
  return pp == 1 ? std::vector<int64_t>{1, 2, 4} : std::vector<int64_t>{pp, 2 * pp, 4 * pp};
}

std::string state_key(Tier tier) {
  return fmt::format("parallel.home=[\"*/state = {}\"]", to_string(tier));
}

void add_variants(Way way, const std::vector<UpdatePlace>& places, const std::vector<Tier>& keeps,
                  std::vector<Way>& out) {
  for (const WayVariant& variant : variants_of(way.tp, places, keeps)) {
    way.kept_slices = variant.kept_slices;
    way.keep = variant.keep;
    way.place = variant.place;
    out.push_back(way);
  }
}

// A crew of one rank leaves nothing to find.
void add_searched(int64_t ranks, const std::vector<UpdatePlace>& places, const std::vector<Tier>& keeps,
                  std::vector<Way>& out) {
  for (const int64_t pp : divisors_of(ranks)) {
    if (pp == ranks) continue;
    for (const int64_t micro_batches : pp == 1 ? std::vector<int64_t>{1} : micro_batches_for(pp)) {
      for (size_t s = 0; s < (pp > 1 ? kSchedules.size() : 1); ++s) {
        for (const WayRecompute recompute : kWayRecompute) {
          add_variants({.pp = pp,
                        .micro_batches = micro_batches,
                        .schedule = kSchedules[s],
                        .recompute = recompute,
                        .is_searched = true},
                       places, keeps, out);
        }
      }
    }
  }
}

}  // namespace

std::vector<int64_t> divisors_of(int64_t of) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= of; ++d) {
    if (of % d == 0) out.push_back(d);
  }
  return out;
}

std::vector<Way> axes_of(const nn::Cuttable& model, int64_t pp, int64_t ranks) {
  std::vector<Way> out;
  for (const int64_t tp : divisors_if(model.weights, ranks)) {
    for (const int64_t cp : divisors_if(model.positions, ranks / tp)) {
      for (const int64_t ep : divisors_if(model.mixture && model.experts > 0, ranks / tp / cp)) {
        if (ep > 1 && model.experts % ep != 0) continue;
        out.push_back({.pp = pp, .tp = tp, .cp = cp, .ep = ep});
        if (tp > 1 && model.positions) out.push_back({.pp = pp, .tp = tp, .cp = cp, .ep = ep, .sp = true});
      }
    }
  }
  return out;
}

std::vector<std::string> Way::keys() const {
  std::vector<std::string> out{fmt::format("parallel.mode={}", is_searched ? "auto_parallel" : "semi_auto_parallel"),
                               "parallel.search=recursive_programming",
                               fmt::format("parallel.pp={}", pp),
                               fmt::format("parallel.schedule={}", to_string(schedule)),
                               fmt::format("parallel.virtual_stages={}", virtual_stages > 1 ? virtual_stages : 0),
                               "parallel.seq_chunks=0",
                               fmt::format("parallel.tp={}", tp),
                               fmt::format("parallel.sp={}", sp),
                               fmt::format("parallel.vocabulary={}", vocabulary),
                               fmt::format("parallel.cp={}", cp),
                               fmt::format("parallel.ep={}", ep),
                               fmt::format("parallel.zero={}", zero),
                               fmt::format("parallel.gradient_accumulation_steps={}", micro_batches),
                               "parallel.interleave=1",
                               fmt::format("train.recompute={}", to_string(recompute))};
  out.push_back(kept_slices_key(kept_slices));
  for (const std::string& key : keep_keys(keep)) out.push_back(key);
  for (const std::string& key : place_keys(place)) out.push_back(key);
  return out;
}

void Way::set(JobConfig& job) const {
  auto& p = job.parallel;
  p.mode = is_searched ? Mode::kAuto : Mode::kSemiAuto;
  p.search.kind = SearchKind::kRecursiveProgramming;
  p.pp = pp;
  p.schedule = to_string(schedule);
  p.virtual_stages = virtual_stages > 1 ? virtual_stages : 0;
  p.seq_chunks = 0;
  p.tp = tp;
  p.sp = sp;
  p.vocabulary = vocabulary;
  p.cp = cp;
  p.ep = ep;
  p.zero.level = zero;
  p.gradient_accumulation_steps = micro_batches;
  p.interleave = 1;
  job.train.passes.recompute.rows = recompute == WayRecompute::kSelective;
  job.train.passes.recompute.blocks = recompute == WayRecompute::kFull ? -1 : 0;
  p.recompute_slice_activation = kept_slices;
  using Keep = Recompute::Rule::Keep;
  if (keep != Tier::kDevice) p.keep = {{.pattern = "*", .keep = keep == Tier::kHost ? Keep::kHost : Keep::kDisk}};
  if (place.update == Tier::kHost) p.on_host.updates = true;
  if (place.state != place.update) p.homes = {{.parameters = "*", .of = Held::kState, .home = place.state}};
}

std::string kept_slices_key(bool kept_slices) {
  return fmt::format("parallel.recompute_slice_activation={}", kept_slices);
}

std::vector<WayVariant> variants_of(int64_t tp, const std::vector<UpdatePlace>& places,
                                    const std::vector<Tier>& keeps) {
  std::vector<WayVariant> out;
  const auto add = [&](Tier keep, const UpdatePlace& place) {
    out.push_back({.kept_slices = false, .keep = keep, .place = place});
    if (tp > 1) out.push_back({.kept_slices = true, .keep = keep, .place = place});
  };
  const auto add_all = [&](const UpdatePlace& place) {
    add(Tier::kDevice, place);
    for (const Tier keep : keeps) add(keep, place);
  };
  add_all({});
  for (const UpdatePlace& place : places) add_all(place);
  return out;
}

std::vector<size_t> variants_before(const std::vector<WayVariant>& variants, size_t at) {
  const WayVariant& of = variants[at];
  std::vector<size_t> out;
  // The last that differs in its place alone, of the same updates if there is one; and in where it keeps.
  std::optional<size_t> nearer, nearer_keep;
  for (size_t i = 0; i < at; ++i) {
    const WayVariant& less = variants[i];
    const bool is_alike = less.kept_slices == of.kept_slices;
    if (less.place == of.place && less.keep == of.keep) {
      if (of.keep == Tier::kDevice) out.push_back(i);
    } else if (less.place == of.place && is_alike) {
      nearer_keep = i;
    } else if (less.keep == of.keep && is_alike) {
      if (less.place == UpdatePlace() || less.place.update == of.place.update) nearer = i;
    }
  }
  if (nearer_keep) out.push_back(*nearer_keep);
  if (nearer) out.push_back(*nearer);
  return out;
}

std::vector<std::string> keep_keys(Tier keep) {
  if (keep == Tier::kDevice) return {};
  return {fmt::format("parallel.keep=[\"* = {}\"]", to_string(keep))};
}

// With updates on the host the state lies there without a rule.
std::vector<std::string> place_keys(const UpdatePlace& place) {
  std::vector<std::string> out;
  if (place.update == Tier::kHost) out.emplace_back("parallel.optimizer_on=host");
  if (place.state != place.update) out.push_back(state_key(place.state));
  return out;
}

std::string Way::text() const {
  std::string out = is_searched ? " --auto" : "";
  const std::pair<const char*, int64_t> numbers[] = {
      {"pp", pp}, {"tp", tp}, {"cp", cp}, {"ep", ep}, {"micro-batches", micro_batches}};
  for (const auto& [flag, value] : numbers) {
    if (value != 1) out += fmt::format(" --{} {}", flag, value);
  }
  if (sp) out += " --sp";
  if (vocabulary) out += " --vocab-parallel";
  if (zero != 0) out += fmt::format(" --zero {}", zero);
  if (pp > 1) out += fmt::format(" --schedule {}", to_string(schedule));
  if (virtual_stages > 1) out += fmt::format(" --virtual-stages {}", virtual_stages);
  if (recompute != WayRecompute::kNone) out += fmt::format(" --recompute {}", to_string(recompute));
  if (kept_slices) out += " --set " + kept_slices_key(true);
  for (const std::string& key : keep_keys(keep)) out += fmt::format(" --set '{}'", key);
  if (place.update == Tier::kHost) out += " --optimizer-on host";
  if (place.state != place.update) out += fmt::format(" --set '{}'", state_key(place.state));
  return out.empty() ? "data parallel" : out.substr(1);
}

void refuse_rules(const JobConfig& job, std::string_view cure) {
  const auto& p = job.parallel;
  const std::pair<bool, const char*> rules[] = {{!p.mesh.empty(), "mesh"},
                                                {!p.ops.empty(), "ops"},
                                                {!p.parameters.empty(), "parameters"},
                                                {!p.fields.empty(), "fields"},
                                                {!p.layerwise.empty(), "layerwise"},
                                                {!p.strategy.empty(), "strategy"},
                                                {!p.stages.empty(), "stages"},
                                                {!p.keep.empty(), "keep"},
                                                {!p.dataset.is(DatasetStrategy::Named::kDataParallel), "dataset"}};
  for (const auto& [is_given, key] : rules) {
    require(!is_given, "plan: parallel.{} says how the model is cut, {}", key, cure);
  }
}

void refuse_fixed_counts(const JobConfig& job, int64_t ranks) {
  const auto& p = job.parallel;
  require(p.device_num == -1 || p.device_num == ranks,
          "configuration: parallel.device_num = {} but the job has {}; start {}, or change the key", p.device_num,
          counted(ranks, "rank"), counted(p.device_num, "rank"));
  require(!p.sum_micro_batch_losses,
          "plan: parallel.sum_micro_batch_losses = true, but a plan chooses the number of micro-batches, and with them "
          "the loss; leave it out");
  require(p.rates.empty(),
          "plan: parallel.rates = '{}' are of {}, but a plan prices jobs of fewer; name a machine's file with "
          "parallel.machine instead (trireme calibrate writes one)",
          p.rates, counted(ranks, "rank"));
}

JobConfig without_cuts(const JobConfig& job) {
  refuse_rules(job, "which is what is planned; leave it out");
  JobConfig out = job;
  const JobConfig usual;
  auto& q = out.parallel;
  q.mode = Mode::kSemiAuto;
  q.tp = q.cp = q.ep = q.pp = 1;
  q.virtual_stages = q.seq_chunks = 0;
  q.sp = q.vocabulary = false;
  q.gradient_accumulation_steps = q.interleave = 1;
  q.schedule = usual.parallel.schedule;
  q.search = usual.parallel.search;
  q.zero.level = 0;
  q.recompute_slice_activation = false;
  q.save_strategy = "";
  q.device_num = -1;
  out.train.passes.recompute = {};
  return out;
}

std::vector<std::string> cuts_left_out(const JobConfig& job) {
  JobConfig planned = without_cuts(job);
  planned.parallel.mode = job.parallel.mode;
  planned.parallel.device_num = job.parallel.device_num;
  if (plans_whole_job(job.parallel.search.kind)) planned.parallel.search.kind = job.parallel.search.kind;
  return keys_unlike(job, planned);
}

std::vector<Way> ways_of(const JobConfig& job, int64_t ranks, const std::vector<UpdatePlace>& places,
                         const std::vector<Tier>& keeps) {
  const nn::Cuttable model = model_of(job).cuttable();
  std::vector<Way> out;
  for (const int64_t pp : divisors_of(ranks)) {
    for (const Way& axes : axes_of(model, pp, ranks / pp)) {
      const bool has_copies = ranks / pp / axes.tp > 1;  // whose state slices can be of
      for (const int64_t micro_batches : micro_batches_for(pp)) {
        for (size_t s = 0; s < (pp > 1 ? kSchedules.size() : 1); ++s) {
          for (int64_t zero = 0; zero <= (has_copies ? 3 : 0); ++zero) {
            for (const WayRecompute recompute : kWayRecompute) {
              Way way = axes;
              way.micro_batches = micro_batches;
              way.schedule = kSchedules[s];
              way.zero = zero;
              way.recompute = recompute;
              add_variants(std::move(way), places, keeps, out);
            }
          }
        }
      }
    }
  }
  add_searched(ranks, places, keeps, out);
  return out;
}

}  // namespace trireme
