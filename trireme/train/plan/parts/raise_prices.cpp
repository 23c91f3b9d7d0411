#include "trireme/train/plan/parts/raise_prices.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/planner/outer/least_part.h"
#include "trireme/train/plan/parts/crew_sums.h"

namespace trireme {
namespace {

using PartField = int64_t PartPrice::*;
constexpr std::array kPartPasses{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                                 &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward,
                                 &PartPrice::leaving, &PartPrice::returning};

// What is of the step, however many micro-batches it has.
constexpr std::array kPartOfStep{&PartPrice::persistent, &PartPrice::held, &PartPrice::gradients, &PartPrice::coming,
                                 &PartPrice::going,      &PartPrice::host, &PartPrice::disk,      &PartPrice::updating};

}  // namespace

PartPrice with_rest(PartPrice each, const PartPrice& all, int64_t count, int64_t in_flight) {
  const auto rest = [&](PartField field) { return all.*field - count * (each.*field); };
  each.update = rest(&PartPrice::forward) + rest(&PartPrice::input_grad) + rest(&PartPrice::weight_grad) +
                rest(&PartPrice::again);
  each.sync = rest(&PartPrice::moving_forward) + rest(&PartPrice::moving_backward);
  for (const PartField field : kPartOfStep) each.*field = all.*field;
  each.work = std::max<int64_t>(0, all.work - each.persistent - each.held - each.gradients - in_flight * each.kept);
  return each;
}

void add_difference(PartPrice& to, PartPrice with, const PartPrice& without) {
  const int64_t hidden = std::max<int64_t>(0, without.kept - with.kept);
  with.work = std::max<int64_t>(0, with.work - kMicroBatches * hidden);
  with.kept += hidden;
  for (const PartField field : kPartPasses) to.*field += std::max<int64_t>(0, with.*field - without.*field);
  for (const PartField field :
       {&PartPrice::update, &PartPrice::sync, &PartPrice::persistent, &PartPrice::held, &PartPrice::gradients,
        &PartPrice::kept, &PartPrice::waiting, &PartPrice::work, &PartPrice::coming, &PartPrice::going,
        &PartPrice::host, &PartPrice::disk, &PartPrice::updating, &PartPrice::tied, &PartPrice::tied_sums,
        &PartPrice::tied_adding, &PartPrice::tied_forward, &PartPrice::tied_backward})
    to.*field = std::max<int64_t>(0, to.*field + with.*field - without.*field);
}

void raise_passes(PartPrices& to, const PartPrices& least) {
  to.crossing = std::max(to.crossing, least.crossing);
  for (size_t i = 0; i < to.parts.size(); ++i) raise_passes(to.parts[i], least.parts[i]);
}

void raise_times(PartPrices& to, const PartPrices& nearer, bool of_other_updates) {
  raise_passes(to, nearer);
  for (size_t i = 0; i < to.parts.size(); ++i) {
    PartPrice& part = to.parts[i];
    const PartPrice& least = nearer.parts[i];
    part.sync = std::max(part.sync, least.sync);
    part.tied = std::max(part.tied, least.tied);
    if (of_other_updates) {
      const int64_t missing = least.once() - part.once();
      if (missing > 0) part.updating = part.moves() + missing;
      continue;
    }
    for (const PartField field : {&PartPrice::update, &PartPrice::coming, &PartPrice::going, &PartPrice::updating})
      part.*field = std::max(part.*field, least.*field);
  }
  std::vector<PartPrice> left = nearer.parts;
  take_off_tied(left);
  if (of_other_updates) left.front().updating = left.front().moves() + std::exchange(left.front().update, 0);
  limit_tied(to.parts, left);
}

void limit_sums(PartPrice& part, const PartPrice& of_alone, int64_t zero) {
  part.tied = std::min(part.tied, part.sync);
  if (zero <= 1) part.tied_sums = std::min(part.tied_sums, of_alone.tied_sums);
}

void raise_moves(PartPrices& to, const std::vector<int64_t>& copies, int64_t least) {
  int64_t moved = 0;
  for (size_t i = 0; i < to.parts.size(); ++i) moved += copies[i] * to.parts[i].moves();
  if (moved < least) to.parts.front().coming = to.parts.front().moves() + least - moved;
}

void raise_prices(PartPrices& to, const PartPrices& least) {
  to.crossing = std::max(to.crossing, least.crossing);
  for (size_t i = 0; i < to.parts.size(); ++i) raise_part(to.parts[i], least.parts[i]);
}

}  // namespace trireme
