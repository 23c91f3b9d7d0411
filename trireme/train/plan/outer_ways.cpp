#include "trireme/train/plan/outer_ways.h"

#include <algorithm>

namespace trireme {
namespace {

// The schedules of a pipeline, with stages of each crew.
std::vector<std::pair<const char*, int64_t>> schedules_for(int64_t crews, int64_t parts) {
  if (crews == 1) return {{"1f1b", 1}};
  std::vector<std::pair<const char*, int64_t>> out{{"1f1b", 1}, {"zb-h1", 1}, {"zb-h2", 1}};
  for (const int64_t stages : virtual_stages_for(crews, parts)) {
    out.emplace_back("interleaved", stages);
    out.emplace_back("interleaved-delayed", stages);
  }
  return out;
}

// Of one pp and one choice of axes.
void add_ways(const OuterWay& cut, int64_t batch, const std::vector<std::string>& recompute, int64_t parts,
              const std::vector<Tier>& tiers, std::vector<OuterWay>& out) {
  const auto schedules = schedules_for(cut.pp, parts);
  // A batch that does not divide is one way, which is counted as such.
  const int64_t shares = cut.inner.dp * cut.inner.ep;
  const int64_t samples = batch % shares == 0 ? batch / shares : 0;
  const bool has_copies = cut.inner.dp * cut.inner.cp * cut.inner.ep > 1;  // whose state slices can be of
  for (int64_t rows = 1; rows <= kMostRows; ++rows) {
    if (samples > 0 && samples % rows != 0) continue;
    if (samples == 0 && rows > 1) break;
    for (const auto& [schedule, virtual_stages] : schedules) {
      for (int64_t zero = 0; zero <= (has_copies ? 3 : 0); ++zero) {
        for (const std::string& again : recompute) {
          OuterWay way = cut;
          way.schedule = schedule;
          way.virtual_stages = virtual_stages;
          way.micro_batches = samples / rows;
          way.inner.rows = rows;
          way.inner.zero = zero;
          way.inner.recompute = again;
          out.push_back(way);
          for (const Tier tier : tiers) {
            way.inner.state = tier;
            out.push_back(way);
          }
        }
      }
    }
  }
}

}  // namespace

Way OuterWay::way() const {
  Way out = inner.way();
  out.pp = pp;
  out.micro_batches = micro_batches;
  out.schedule = schedule;
  out.virtual_stages = virtual_stages;
  return out;
}

std::vector<int64_t> virtual_stages_for(int64_t crews, int64_t parts) {
  const int64_t blocks = (parts - 2 + crews - 1) / crews;  // of the crew that has the most
  std::vector<int64_t> out;
  for (const int64_t stages : divisors_of(blocks)) {
    if (stages > 1 && stages * crews <= parts) out.push_back(stages);
  }
  return out;
}

std::vector<OuterWay> outer_ways(const nn::Cuttable& model, int64_t ranks, int64_t batch, int64_t positions,
                                 int64_t parts, const std::vector<Tier>& tiers) {
  const std::vector<std::string> recompute = recompute_choices();
  std::vector<OuterWay> out;
  for (const int64_t pp : divisors_of(ranks)) {
    if (pp > parts) break;
    for (const Way& axes : axes_of(model, pp, ranks / pp)) {
      if (axes.cp > 1 && positions / axes.cp < kFewestPositions) continue;
      if (model.heads > 0 && model.heads % axes.tp != 0) continue;
      const int64_t dp = ranks / (pp * axes.tp * axes.cp * axes.ep);
      OuterWay cut{.pp = pp, .inner = {.tp = axes.tp, .cp = axes.cp, .ep = axes.ep, .dp = dp, .sp = axes.sp}};
      add_ways(cut, batch, recompute, parts, tiers, out);
      cut.inner.vocabulary = true;
      if (axes.tp > 1 && model.vocabulary > 0 && model.vocabulary % axes.tp == 0)
        add_ways(cut, batch, recompute, parts, tiers, out);
    }
  }
  return out;
}

OuterCandidate candidate_of(const OuterWay& way, int64_t ranks, const StepFigures& figures) {
  OuterCandidate out;
  out.divides = way.micro_batches >= (way.schedule == "zb-h2" ? 2 * way.pp - 1 : way.pp) &&  // a pipeline fills
                (way.virtual_stages == 1 || way.micro_batches % way.pp == 0);  // and goes through stages in rounds
  const int64_t pieces = way.pp * way.inner.tp * way.inner.ep;
  // Gradients that several micro-batches add to are whole until the last.
  const int64_t gradient_bytes = way.micro_batches > 1 ? figures.parameter_bytes : 0;
  out.least_bytes =
      gradient_bytes / (way.inner.zero > 0 ? ranks : pieces) +
      figures.parameter_bytes / (way.inner.zero == 3 ? ranks : pieces) +
      (way.inner.state == Tier::kDevice ? figures.state_bytes / (way.inner.zero > 0 ? ranks : pieces) : 0);
  // 1F1B idles for (pp - 1) passes of a stage; what is filled with weight gradients may not idle at all.
  const int64_t arithmetic = figures.arithmetic_ps;
  out.bound_ps = arithmetic;
  if (!way.schedule.starts_with("zb-") && out.divides) {
    // arithmetic * (pp - 1) / passes, without a product that might be too large
    const int64_t passes = way.micro_batches * way.virtual_stages;
    out.bound_ps += arithmetic / passes * (way.pp - 1) + arithmetic % passes * (way.pp - 1) / passes;
  }
  return out;
}

std::vector<OuterCandidate> candidates_of(const std::vector<OuterWay>& ways, int64_t ranks,
                                          const StepFigures& figures) {
  std::vector<OuterCandidate> out;
  for (size_t i = 0; i < ways.size(); ++i) {
    out.push_back(candidate_of(ways[i], ranks, figures));
    if (i == 0 || ways[i].inner.state <= ways[i - 1].inner.state) continue;
    OuterWay nearer = ways[i];
    nearer.inner.state = ways[i - 1].inner.state;
    if (nearer == ways[i - 1]) out.back().after = i - 1;
  }
  return out;
}

}  // namespace trireme
