// The ways that a certificate speaks of, counted by the verifier itself, and what is known of each without any table.
#pragma once

#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Of the ways whose batch does not divide there is one for each choice of axes and pp, of 0 micro-batches. Of each way
// with the optimizer's state on the device those follow that have it on one of `tiers` instead.
std::vector<CertifiedWay> certified_space(const CertifiedModel& model, int64_t ranks,
                                          const std::vector<Tier>& tiers = {});
// Those beside the device that there are, in the order in which they are looked at.
std::vector<Tier> certified_tiers(const CertifiedModel& model, int64_t host_bytes, int64_t disk_bytes);
// In words, for people.
std::string certified_space_text();

// Samples of a micro-batch of one of the ranks that share the batch.
int64_t certified_most_rows_of_ways();

// Whether a pipeline of so many stages fills.
bool certified_way_divides(const CertifiedWay& way);
// A rank holds no fewer, however the model is cut into stages.
int64_t certified_least_bytes(const CertifiedWay& way, const CertifiedModel& model, int64_t ranks);
// A step takes no less by its arithmetic; of a way that divides.
int64_t certified_arithmetic_ps(const CertifiedWay& way, const CertifiedModel& model);

}  // namespace trireme
