#include "trireme/train/plan/parts/outer_ways.h"

#include <algorithm>
#include <bit>
#include <set>

#include "trireme/train/plan/ways/way_rule.h"

namespace trireme {
namespace {

// The schedules of a pipeline, with stages of each crew.
std::vector<std::pair<WaySchedule, int64_t>> schedules_for(int64_t crews, int64_t parts) {
  if (crews == 1) return {{WaySchedule::k1F1B, 1}};
  std::vector<std::pair<WaySchedule, int64_t>> out{
      {WaySchedule::k1F1B, 1}, {WaySchedule::kZbH1, 1}, {WaySchedule::kZbH2, 1}};
  for (const int64_t stages : virtual_stages_for(crews, parts)) {
    out.emplace_back(WaySchedule::kInterleaved, stages);
    out.emplace_back(WaySchedule::kInterleavedDelayed, stages);
  }
  return out;
}

// Of one pp and one choice of axes.
void add_ways(const OuterWay& cut, int64_t batch, int64_t parts, bool is_joined, OuterWays& out) {
  const auto schedules = schedules_for(cut.pp, parts);
  // A batch that does not divide is one way, which is counted as such.
  const int64_t shares = cut.inner.dp * cut.inner.ep;
  const int64_t samples = batch % shares == 0 ? batch / shares : 0;
  const bool has_copies = cut.inner.dp * cut.inner.cp * cut.inner.ep > 1;  // whose state slices can be of
  std::vector<int64_t> all_rows;
  for (int64_t rows = 1; rows <= kMostRows && samples > 0 && !is_joined; ++rows) {
    if (samples % rows == 0) all_rows.push_back(rows);
  }
  if (all_rows.empty()) all_rows.push_back(std::max<int64_t>(1, samples));
  for (const int64_t rows : all_rows) {
    for (const auto& [schedule, virtual_stages] : schedules) {
      for (int64_t zero = 0; zero <= (has_copies ? 3 : 0); ++zero) {
        for (const WayRecompute again : kWayRecompute) {
          OuterWay way = cut;
          way.schedule = schedule;
          way.virtual_stages = virtual_stages;
          way.micro_batches = samples / rows;
          way.inner.rows = rows;
          way.inner.zero = zero;
          way.inner.recompute = again;
          out.add(way);
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

OuterWays outer_ways(const nn::Cuttable& model, int64_t ranks, int64_t batch, int64_t positions, int64_t parts,
                     const std::vector<UpdatePlace>& places, const std::vector<Tier>& keeps, bool is_joined) {
  if (is_joined) parts = 1;
  OuterWays out(places, keeps);
  for (const int64_t pp : divisors_of(ranks)) {
    if (pp > parts) break;
    for (const Way& axes : axes_of(model, pp, ranks / pp)) {
      if (axes.cp > 1 && positions / axes.cp < kFewestPositions) continue;
      if (model.heads > 0 && model.heads % axes.tp != 0) continue;
      const int64_t dp = ranks / (pp * axes.tp * axes.cp * axes.ep);
      OuterWay cut{.pp = pp, .inner = {.tp = axes.tp, .cp = axes.cp, .ep = axes.ep, .dp = dp, .sp = axes.sp}};
      add_ways(cut, batch, parts, is_joined, out);
      cut.inner.vocabulary = true;
      if (axes.tp > 1 && model.vocabulary > 0 && model.vocabulary % axes.tp == 0)
        add_ways(cut, batch, parts, is_joined, out);
    }
  }
  return out;
}

bool divides(const OuterWay& way) {
  return way.micro_batches >= (way.schedule == WaySchedule::kZbH2 ? 2 * way.pp - 1 : way.pp) &&
         (way.virtual_stages == 1 || way.micro_batches % way.pp == 0);
}

int64_t least_bytes(const OuterWay& way, int64_t ranks, const StepFigures& figures) {
  const int64_t pieces = way.pp * way.inner.tp * way.inner.ep;
  // Gradients that several micro-batches add to are whole until the last.
  const int64_t gradient_bytes = way.micro_batches > 1 ? figures.parameter_bytes : 0;
  const UpdatePlace& place = way.inner.place;
  const int64_t state_bytes = place.state == Tier::kDevice ? figures.state_bytes : 0;
  const int64_t sliced = way.inner.zero > 0 ? ranks : pieces;
  const int64_t weight_bytes = come_for_the_step(way.inner) ? figures.weight_bytes : figures.parameter_bytes;
  return gradient_bytes / sliced + weight_bytes / (way.inner.zero == 3 ? ranks : pieces) + state_bytes / sliced;
}

// 1F1B idles for (pp - 1) passes of a stage; what is filled with weight gradients may not idle at all.
int64_t arithmetic_ps(const OuterWay& way, const StepFigures& figures) {
  const int64_t arithmetic = figures.arithmetic_ps;
  if (way.schedule != WaySchedule::k1F1B) return arithmetic;
  // arithmetic * (pp - 1) / passes, without a product that might be too large
  const int64_t passes = way.micro_batches;
  return arithmetic + arithmetic / passes * (way.pp - 1) + arithmetic % passes * (way.pp - 1) / passes;
}

OuterWays::OuterWays(const std::vector<UpdatePlace>& places, const std::vector<Tier>& keeps)
    : variants_(variants_of(2, places, keeps)) {
  for (size_t v = 0; v < variants_.size(); ++v) {
    every_variant_ |= uint32_t{1} << v;
    if (!variants_[v].kept_slices) without_slices_ |= uint32_t{1} << v;
  }
}

void OuterWays::add(const OuterWay& cut) {
  const InnerWay& inner = cut.inner;
  Cut own{.rows = inner.rows,
          .micro_batches = cut.micro_batches,
          .virtual_stages = static_cast<int32_t>(cut.virtual_stages),
          .schedule = cut.schedule,
          .recompute = inner.recompute,
          .zero = static_cast<int8_t>(inner.zero)};
  OuterWay axes{.pp = cut.pp, .inner = inner};
  axes.inner.rows = 1;
  axes.inner.recompute = WayRecompute::kNone;
  axes.inner.zero = 0;
  if (axes_.empty() || axes_.back() != axes) axes_.push_back(axes);
  own.axes = static_cast<uint32_t>(axes_.size() - 1);
  cuts_.push_back(own);
  has_.push_back(cut.inner.tp > 1 ? every_variant_ : without_slices_);
}

OuterWays OuterWays::kept_by(const std::function<bool(const OuterWay&)>& has) const {
  OuterWays out;
  out.variants_ = variants_;
  for (size_t cut = 0; cut < cuts_.size(); ++cut) {
    uint32_t kept = 0;
    for (size_t v = 0; v < variants_.size(); ++v) {
      const size_t number = number_of(cut) + v;
      if (this->has(number) && has(at(number))) kept |= uint32_t{1} << v;
    }
    if (kept == 0) continue;
    out.add(this->cut(cut));
    out.has_.back() = kept;
  }
  return out;
}

OuterWays OuterWays::with_cuts(const std::function<bool(const OuterWay&)>& has) const {
  OuterWays out;
  out.variants_ = variants_;
  for (size_t cut = 0; cut < cuts_.size(); ++cut) {
    const OuterWay way = this->cut(cut);
    if (!has(way)) continue;
    out.add(way);
    out.has_.back() = has_[cut];
  }
  return out;
}

OuterWay OuterWays::cut(size_t index) const {
  const Cut& own = cuts_[index];
  OuterWay out = axes_[own.axes];
  out.micro_batches = own.micro_batches;
  out.schedule = own.schedule;
  out.virtual_stages = own.virtual_stages;
  out.inner.rows = own.rows;
  out.inner.recompute = own.recompute;
  out.inner.zero = own.zero;
  return out;
}

OuterWay OuterWays::at(size_t number) const {
  OuterWay out = cut(number / variants_.size());
  const WayVariant& variant = variants_[number % variants_.size()];
  out.inner.kept_slices = variant.kept_slices;
  out.inner.keep = variant.keep;
  out.inner.place = variant.place;
  return out;
}

std::vector<OuterWay> OuterWays::all() const {
  std::vector<OuterWay> out;
  for (size_t number = 0; number < size(); ++number) {
    if (has(number)) out.push_back(at(number));
  }
  return out;
}

std::vector<Way> OuterWays::examples() const {
  std::set<std::pair<const WayTerm*, int64_t>> seen;
  std::vector<Way> out;
  const auto look_at = [&](size_t number) {
    Way way = at(number).way();
    bool is_new = false;
    for (const WayTerm& term : way_terms()) {
      if (term.is_said_of(way)) is_new = seen.emplace(&term, term.value(way)).second || is_new;
    }
    if (is_new) out.push_back(std::move(way));
  };
  for (size_t variant = 0; variant < variants_.size(); ++variant) {
    bool is_first = true;  // of the variants beside none what each adds shows in one cut
    for (size_t cut = 0; cut < cuts_.size() && (variant == 0 || is_first); ++cut) {
      if (!has(number_of(cut) + variant)) continue;
      look_at(number_of(cut) + variant);
      is_first = false;
    }
  }
  return out;
}

int64_t OuterWays::count() const {
  int64_t out = 0;
  for (const uint32_t has : has_) out += std::popcount(has);
  return out;
}

OuterVariants OuterWays::variants() const {
  OuterVariants out{.after = {}};
  for (size_t v = 0; v < variants_.size(); ++v) out.after.push_back(variants_before(variants_, v));
  return out;
}

std::vector<OuterCandidate> OuterWays::candidates(const StepFigures& figures) const {
  std::vector<OuterCandidate> out;
  out.reserve(cuts_.size());
  for (size_t index = 0; index < cuts_.size(); ++index) {
    const OuterWay way = cut(index);
    const bool fills = divides(way);
    out.push_back({.divides = fills, .variants = has_[index], .bound_ps = fills ? arithmetic_ps(way, figures) : 0});
  }
  return out;
}

}  // namespace trireme
