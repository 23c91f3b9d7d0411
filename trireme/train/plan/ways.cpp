#include "trireme/train/plan/ways.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

constexpr const char* kSchedules[] = {"1f1b", "zb-h1"};  // of a pipeline
constexpr const char* kRecomputes[] = {"none", "selective", "full"};

std::vector<int64_t> divisors(int64_t of) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= of; ++d) {
    if (of % d == 0) out.push_back(d);
  }
  return out;
}

std::vector<int64_t> divisors_if(bool any, int64_t of) {
  return any ? divisors(of) : std::vector<int64_t>{1};
}

// The axes of a crew of so many ranks.
std::vector<Way> axes_of(const nn::Cuttable& model, int64_t pp, int64_t ranks) {
  std::vector<Way> out;
  for (const int64_t tp : divisors_if(model.weights, ranks)) {
    for (const int64_t cp : divisors_if(model.positions, ranks / tp)) {
      for (const int64_t ep : divisors_if(model.mixture && model.experts > 0, ranks / tp / cp)) {
        out.push_back({.pp = pp, .tp = tp, .cp = cp, .ep = ep});
        if (tp > 1 && model.positions) out.push_back({.pp = pp, .tp = tp, .cp = cp, .ep = ep, .sp = true});
      }
    }
  }
  return out;
}

std::vector<int64_t> micro_batches_for(int64_t pp) {
  return pp == 1 ? std::vector<int64_t>{1, 2, 4} : std::vector<int64_t>{pp, 2 * pp, 4 * pp};
}

}  // namespace

std::vector<std::string> Way::keys() const {
  std::vector<std::string> out{fmt::format("parallel.mode={}", is_searched ? "auto_parallel" : "semi_auto_parallel")};
  const std::pair<const char*, int64_t> numbers[] = {
      {"pp", pp}, {"tp", tp}, {"cp", cp}, {"ep", ep}, {"gradient_accumulation_steps", micro_batches}};
  for (const auto& [key, value] : numbers) {
    if (value != 1) out.push_back(fmt::format("parallel.{}={}", key, value));
  }
  if (sp) out.emplace_back("parallel.sp=true");
  if (zero != 0) out.push_back(fmt::format("parallel.zero={}", zero));
  if (pp > 1) out.push_back("parallel.schedule=" + schedule);
  if (recompute != "none") out.push_back("train.recompute=" + recompute);
  return out;
}

JobConfig without_cuts(const JobConfig& job) {
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
    require(!is_given, "plan: parallel.{} says how the model is cut, which is what is planned; leave it out", key);
  }
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
  q.save_strategy = "";
  out.train.passes.recompute = {};
  return out;
}

std::vector<Way> ways_of(const JobConfig& job, int64_t ranks) {
  const nn::Cuttable model = model_of(job).cuttable();
  std::vector<Way> out;
  for (const int64_t pp : divisors(ranks)) {
    for (const Way& axes : axes_of(model, pp, ranks / pp)) {
      const bool has_copies = ranks / pp / axes.tp > 1;  // whose state slices can be of
      for (const int64_t micro_batches : micro_batches_for(pp)) {
        for (size_t s = 0; s < (pp > 1 ? std::size(kSchedules) : 1); ++s) {
          for (int64_t zero = 0; zero <= (has_copies ? 3 : 0); ++zero) {
            for (const char* recompute : kRecomputes) {
              Way way = axes;
              way.micro_batches = micro_batches;
              way.schedule = kSchedules[s];
              way.zero = zero;
              way.recompute = recompute;
              out.push_back(std::move(way));
            }
          }
        }
      }
    }
  }
  if (ranks > 1) {
    for (const char* recompute : kRecomputes) out.push_back({.recompute = recompute, .is_searched = true});
  }
  return out;
}

}  // namespace trireme
