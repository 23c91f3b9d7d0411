#include "trireme/train/plan/exact/way_guesses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "trireme/cost/op_seconds.h"

namespace trireme {
namespace {

using PartField = int64_t PartPrice::*;
constexpr std::array kComputed{&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again,
                               &PartPrice::update};
constexpr std::array kHeld{&PartPrice::persistent, &PartPrice::held,    &PartPrice::gradients,
                           &PartPrice::kept,       &PartPrice::waiting, &PartPrice::work};

int64_t scaled(int64_t value, double by) {
  return std::llround(static_cast<double>(value) * by);
}

// How much less it is than without the cut; by how many pieces there are where there is nothing to compare.
double ratio(int64_t cut, int64_t whole, double otherwise) {
  return whole > 0 ? static_cast<double>(cut) / static_cast<double>(whole) : otherwise;
}

// Of what each of so many ranks has for the others.
double share_sent(int64_t ranks) {
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

}  // namespace

bool WayGuesses::Guess::is_after(const Guess& other) const {
  const auto key = [](const Guess& of) {
    return std::tuple(of.step_ps, of.cut, of.variant.kept_slices, of.variant.keep, of.variant.place);
  };
  return key(*this) > key(other);
}

WayGuesses::WayGuesses(const ExactSetting& setting, PartPricer& pricer, const OuterWays& ways, ShapeOf shape)
    : setting_(setting),
      pricer_(pricer),
      ways_(ways),
      shape_(std::move(shape)),
      chain_(setting.parts.chain()),
      runs_(setting.parts.runs()) {}

std::optional<size_t> WayGuesses::next(int64_t best_ps) {
  if (!is_begun_) guess_all();
  while (!left_.empty()) {
    std::ranges::pop_heap(left_, &Guess::is_after);
    const Guess guess = left_.back();
    left_.pop_back();
    if (guess.step_ps >= best_ps) break;
    const OuterWay way = way_of(guess);
    if (step_of(way) > guess.step_ps) {  // it was corrected since
      put(guess.cut, guess.variant);
    } else if (fits(way)) {
      return ways_.number_of(guess.cut);
    } else {
      put_next(guess);
    }
  }
  left_.clear();
  return std::nullopt;
}

void WayGuesses::learn_time(const OuterWay& way, int64_t step_ps) {
  Correction& of = correction(way.inner);
  of.time *= static_cast<double>(step_ps) / static_cast<double>(std::max<int64_t>(1, step_of(way)));
}

void WayGuesses::learn_too_large(const OuterWay& way) {
  constexpr double kMore = 1.02;
  Correction& of = correction(way.inner);
  for (int i = 0; i < 100 && fits(way); ++i) of.bytes *= kMore;
}

void WayGuesses::guess_all() {
  is_begun_ = true;
  for (size_t cut = 0; cut < ways_.cuts(); ++cut) {
    const OuterWay way = ways_.cut(cut);
    // With tp more activations are cut by sp, at next to no cost.
    const bool has_sp = way.inner.sp || way.inner.tp == 1 || !setting_.model.positions;
    if (has_sp && divides(way) && guessed_cut(way.inner)) left_.push_back({step_of(way), cut});
  }
  std::ranges::make_heap(left_, &Guess::is_after);
}

void WayGuesses::put(size_t cut, const WayVariant& variant) {
  Guess of{.cut = cut, .variant = variant};
  const OuterWay way = way_of(of);
  if (!guessed_cut(way.inner)) return;
  of.step_ps = step_of(way);
  left_.push_back(of);
  std::ranges::push_heap(left_, &Guess::is_after);
}

// With one thing more: slices, what is kept in the nearest tier, state in the nearest of each place of updates.
void WayGuesses::put_next(const Guess& guess) {
  const WayVariant& of = guess.variant;
  const bool is_on_device = of.place == UpdatePlace();
  if (!of.kept_slices && of.keep == Tier::kDevice && ways_.cut(guess.cut).inner.tp > 1)
    put(guess.cut, {.kept_slices = true, .place = of.place});
  const std::vector<Tier> keeps = setting_.keeps();
  if (of.keep == Tier::kDevice && is_on_device && !keeps.empty())
    put(guess.cut, {.kept_slices = of.kept_slices, .keep = keeps.front()});
  if (of.kept_slices || !is_on_device) return;
  std::set<Tier> put_for;
  for (const UpdatePlace& place : setting_.places()) {
    if (put_for.insert(place.update).second) put(guess.cut, {.keep = of.keep, .place = place});
  }
}

OuterWay WayGuesses::way_of(const Guess& guess) const {
  OuterWay out = ways_.cut(guess.cut);
  out.inner.kept_slices = guess.variant.kept_slices;
  out.inner.keep = guess.variant.keep;
  out.inner.place = guess.variant.place;
  return out;
}

WayGuesses::Cut WayGuesses::cut_of(const InnerWay& way) {
  return {way.tp, way.cp, way.ep, way.sp, way.vocabulary, way.kept_slices};
}

WayGuesses::Correction& WayGuesses::correction(const InnerWay& way) {
  return corrections_[{cut_of(way), way.zero}];
}

int64_t WayGuesses::step_of(const OuterWay& way) {
  const PartPrices parts = guessed(way);
  PartTotals totals;
  for (const auto& [part, count] : runs_) totals.add(parts.parts[part], count);
  return scaled(bound_of_longer_parts(totals, shape_(way), way.micro_batches, parts.crossing),
                correction(way.inner).time);
}

bool WayGuesses::fits(const OuterWay& way) {
  const PartPrices parts = guessed(way);
  StageProblem problem{.parts = {},
                       .shape = shape_(way),
                       .micro_batches = way.micro_batches,
                       .memory = scaled(setting_.memory_bytes, 1 / correction(way.inner).bytes),
                       .host = setting_.beside.host,
                       .disk = setting_.beside.disk};
  for (const int64_t part : chain_) problem.parts.push_back(parts.parts[static_cast<size_t>(part)]);
  return some_cut_fits(problem);
}

// For its rows, and with what is of dp: sums, slices, and state that lies elsewhere.
PartPrices WayGuesses::guessed(const OuterWay& way) {
  PartPrices out = *guessed_cut(way.inner);
  const double rows = static_cast<double>(way.inner.rows) / static_cast<double>(kMostRows);
  for (PartPrice& part : out.parts) {
    for (const PartField field : {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad,
                                  &PartPrice::again, &PartPrice::moving_forward, &PartPrice::moving_backward,
                                  &PartPrice::kept, &PartPrice::waiting, &PartPrice::work})
      part.*field = scaled(part.*field, rows);
    slice(way, part);
    if (way.inner.keep != Tier::kDevice) keep_elsewhere(way.inner.keep, part);
  }
  return out;
}

// All that it keeps leaves, but for as much at a time as a block of it.
void WayGuesses::keep_elsewhere(Tier keep, PartPrice& part) const {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const auto bytes = static_cast<double>(part.kept) / kBytes;
  part.leaving = std::llround(move_seconds({Tier::kDevice, keep}, kBytes, setting_.machine) * bytes * 1e12);
  part.returning = std::llround(move_seconds({keep, Tier::kDevice}, kBytes, setting_.machine) * bytes * 1e12);
  (keep == Tier::kHost ? part.kept_host : part.kept_disk) = part.kept;
  part.work += part.kept;
  part.kept = part.waiting = 0;
}

void WayGuesses::slice(const OuterWay& way, PartPrice& part) const {
  const StepFigures& all = setting_.figures;
  const Machine& machine = setting_.machine;
  const auto copies = static_cast<double>(way.inner.dp * way.inner.cp);  // whose gradients are added
  const double parameters = static_cast<double>(part.persistent) * static_cast<double>(all.parameter_bytes) /
                            static_cast<double>(all.parameter_bytes + all.state_bytes);
  double state = static_cast<double>(part.persistent) - parameters;
  const double once_ps = copies == 1 ? 0 : parameters / machine.levels.back().bytes_per_s * 1e12;  // there or back
  const int64_t zero = way.inner.zero;
  part.sync += std::llround(once_ps * (zero <= 1 ? 2 : 1));  // summed, or scattered and gathered; or gathered
  if (zero >= 1) state /= copies;
  if (zero >= 2) {
    part.gradients = scaled(part.gradients, 1 / copies);
    part.moving_backward += std::llround(once_ps);
  }
  if (zero >= 3) {  // weights are gathered as they are computed with: half as large
    part.moving_forward += std::llround(once_ps / 2);
    part.moving_backward += std::llround(once_ps / 2);
  }
  part.persistent = std::llround((zero >= 3 ? parameters / copies : parameters) + state);
  if (way.inner.place == UpdatePlace()) return;
  part.persistent -= std::llround(state);
  part.host = std::llround(state);
  const double rate = machine.to_host_bytes_per_s > 0 ? machine.to_host_bytes_per_s : machine.memory_bytes_per_s;
  if (way.inner.place.update == Tier::kDevice) {
    part.coming = part.going = std::llround(state / rate * 1e12);
    return;
  }
  part.updating = std::llround(state * static_cast<double>(all.update_fs_per_byte) / 1e3);
  part.update = 0;
  if (!come_for_the_step(way.inner)) return;
  const double weights = static_cast<double>(all.weight_bytes) / static_cast<double>(all.parameter_bytes);
  part.held = scaled(part.persistent, weights);
  part.host += part.persistent;
  part.persistent = 0;
}

const std::optional<PartPrices>& WayGuesses::guessed_cut(const InnerWay& way) {
  const std::pair key(cut_of(way), way.recompute);
  const auto found = cuts_.find(key);
  if (found != cuts_.end()) return found->second;
  return cuts_.emplace(key, by_axes(way)).first->second;
}

// What each axis takes off the whole, times each other; what moves over each, added.
std::optional<PartPrices> WayGuesses::by_axes(const InnerWay& way) {
  const InnerWay whole{.rows = kMostRows};
  const auto table = [&](int64_t tp, int64_t cp, int64_t ep, WayRecompute again) -> const std::optional<PartPrices>& {
    InnerWay cut = whole;
    cut.tp = tp;
    cut.cp = cp;
    cut.ep = ep;
    cut.sp = tp > 1 && way.sp;
    cut.kept_slices = tp > 1 && way.kept_slices;
    cut.recompute = again;
    return pricer_.alone(cut);
  };
  const std::optional<PartPrices>&base = table(1, 1, 1, WayRecompute::kNone), &again = table(1, 1, 1, way.recompute);
  const std::optional<PartPrices>&of_tp = table(way.tp, 1, 1, WayRecompute::kNone),
        &of_cp = table(1, way.cp, 1, WayRecompute::kNone), &of_ep = table(1, 1, way.ep, WayRecompute::kNone);
  // Experts' ranks are as far from each other as those of so many.
  const int64_t spanned = way.tp * way.cp * way.ep, experts = setting_.model.experts;
  const int64_t far = way.ep > 1 && experts % spanned == 0 ? spanned : way.ep;
  const std::optional<PartPrices>& of_far = table(1, 1, far, WayRecompute::kNone);
  for (const auto* each : {&base, &again, &of_tp, &of_cp, &of_ep, &of_far}) {
    if (!*each) return std::nullopt;
  }
  const auto tp = static_cast<double>(way.tp), cp = static_cast<double>(way.cp);
  const double exchanged = way.ep == 1 ? 0 : share_sent(way.ep) / share_sent(far) / (tp * cp);
  PartPrices out = *base;
  for (size_t i = 0; i < out.parts.size(); ++i) {
    const PartPrice &b = base->parts[i], &a = again->parts[i], &t = of_tp->parts[i], &c = of_cp->parts[i],
                    &e = of_ep->parts[i];
    PartPrice& part = out.parts[i];
    const bool is_end = i == 0 || i + 1 == out.parts.size();
    const double vocabulary = is_end && way.vocabulary ? tp : 1;
    const auto by = [&](PartField field) {
      const int64_t of = b.*field;
      return ratio(t.*field, of, 1 / tp) * ratio(c.*field, of, 1 / cp) * ratio(e.*field, of, 1) / vocabulary;
    };
    for (const PartField field : kComputed)
      part.*field = scaled(a.*field, by(field == &PartPrice::again ? &PartPrice::forward : field));
    for (const PartField field : kHeld) {
      const int64_t more = std::max<int64_t>(0, a.*field - b.*field);  // of what is computed again
      part.*field = scaled(std::min(a.*field, b.*field), by(field)) + scaled(more, by(&PartPrice::kept));
    }
    for (const PartField field : {&PartPrice::moving_forward, &PartPrice::moving_backward})
      part.*field = scaled(t.*field, 1 / cp) + scaled(c.*field, 1 / tp) + scaled(of_far->parts[i].*field, exchanged);
    if (a.again > a.forward / 2) part.moving_backward += part.moving_forward;
    part.sync = 0;
  }
  return out;
}

}  // namespace trireme
