// Prices of parts made from those of two programs, and raised to what is known of others, so that bounds by those hold.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/planner/outer/stage_problem.h"
#include "trireme/train/plan/parts/inner_way.h"

namespace trireme {

// What a micro-batch takes, beside what the step takes once: of a step of `count` that takes so much in all, and keeps
// `in_flight` of them at once.
PartPrice with_rest(PartPrice each, const PartPrice& all, int64_t count, int64_t in_flight);

// Adds what a program with other ranks takes beyond one without. For a pass that is never less than nothing: bounds
// rest on it. Where slices hide what a micro-batch keeps it is in `work`, as often as there are micro-batches.
void add_difference(PartPrice& to, PartPrice with, const PartPrice& without);

// The passes of each part, or all that raise_part raises, to `least` at least; and what a boundary takes.
void raise_passes(PartPrices& to, const PartPrices& least);
void raise_prices(PartPrices& to, const PartPrices& least);

// To those of a way with less that lies elsewhere or in slices, of which no time is longer. An update on the host is
// none on the device: of other updates, what a part does once is no shorter.
void raise_times(PartPrices& to, const PartPrices& nearer, bool of_other_updates);

// What all parts move, in so many copies of each, to `least` ps at least.
void raise_moves(PartPrices& to, const std::vector<int64_t>& copies, int64_t least);

// Sums of a tied weight's gradients are some of all sums; and where gradients are whole no more of them are needless
// than with one data parallel rank.
void limit_sums(PartPrice& part, const PartPrice& of_alone, int64_t zero);

}  // namespace trireme
