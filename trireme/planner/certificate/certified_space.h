// The ways that a certificate speaks of, counted by the verifier itself, and what is known of each without any table.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Calls `look` with each group of ways that differ in `kept_slices` and `place` alone: the first has neither, and each
// comes after those that have less of them. State and updates are on the device, or in one of `places`. Of the ways
// whose batch does not divide there is one group for each choice of axes and pp, of 0 micro-batches. With `like` those
// that have its pp and tp alone.
using CertifiedGroup = std::span<const CertifiedWay>;
void for_each_group(const CertifiedModel& model, int64_t ranks, const std::vector<CertifiedPlace>& places,
                    const std::function<void(CertifiedGroup)>& look, const CertifiedWay* like = nullptr);
// Whether the second has just one thing more than the first, of a group.
bool is_next_in_group(const CertifiedWay& less, const CertifiedWay& more, const std::vector<CertifiedPlace>& places);
// Whether the first is the second, or takes no longer than it: of the same updates with the state nearer, or all on the
// device.
bool is_as_near(const CertifiedPlace& nearer, const CertifiedPlace& place);
// Those beside the device that there are, in the order in which they are looked at.
std::vector<CertifiedPlace> certified_places(const CertifiedModel& model, int64_t host_bytes, int64_t disk_bytes);
// In words, for people.
std::string certified_space_text();
std::string certified_way_text(const CertifiedWay& way);

// Samples of a micro-batch of one of the ranks that share the batch.
int64_t certified_most_rows_of_ways();

// Whether parameters are on the device while a step lasts, and lie on the host between steps: they are updated there,
// and not in slices of the state alone.
bool certified_comes_for_step(const CertifiedCut& cut);

// Whether a pipeline of so many stages fills.
bool certified_way_divides(const CertifiedWay& way);
// A rank holds no fewer, however the model is cut into stages.
int64_t certified_least_bytes(const CertifiedWay& way, const CertifiedModel& model, int64_t ranks);
// A step takes no less by its arithmetic; of a way that divides.
int64_t certified_arithmetic_ps(const CertifiedWay& way, const CertifiedModel& model);

}  // namespace trireme
