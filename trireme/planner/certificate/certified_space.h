// The ways that a certificate is about, counted by the verifier itself, and what is known about each without any table.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

// Where state and updates, and what is kept for the backward pass, may be beside the device.
struct CertifiedTiers {
  std::vector<CertifiedPlace> places;
  std::vector<Tier> keeps;
};
// The tiers that exist, each in the order in which they are tried.
CertifiedTiers certified_tiers(const CertifiedModel& model, int64_t host_bytes, int64_t disk_bytes);

// Ways that differ only in `kept_slices`, `keep` and `place`. The first of a group has none of these measures, and each
// comes after those that have less of them. Which there are depends only on whether there is tp.
struct CertifiedMeasures {
  bool kept_slices = false;
  Tier keep = Tier::kDevice;
  CertifiedPlace place = {};
};
class CertifiedGroup {
 public:
  // Both must outlive it.
  CertifiedGroup(const CertifiedWay& first, std::span<const CertifiedMeasures> measures)
      : first_(first), measures_(measures) {}

  size_t size() const { return measures_.size(); }
  const CertifiedWay& front() const { return first_; }
  CertifiedWay operator[](size_t i) const;
  bool has(const CertifiedWay& way) const;

 private:
  const CertifiedWay& first_;
  std::span<const CertifiedMeasures> measures_;
};

// Calls `look` with each group. Ways whose batch does not divide form one group, of 0 micro-batches, for each choice of
// axes and pp. With `like`, only ways with its pp and tp are looked at.
void for_each_group(const CertifiedModel& model, int64_t ranks, const CertifiedTiers& tiers,
                    const std::function<void(CertifiedGroup)>& look, const CertifiedWay* like = nullptr);
// Whether the second, of the same group, has exactly one measure more than the first. What is kept elsewhere is no
// slower in slices, so slices are not one measure more there.
bool is_next_in_group(const CertifiedCut& less, const CertifiedCut& more, const CertifiedTiers& tiers);
// Whether the first takes no longer than the second, of a group.
bool is_no_slower_in_group(const CertifiedCut& less, const CertifiedCut& more);
// Whether the first is the second, or takes no longer than it: of the same updates with the state nearer, or all on the
// device.
bool is_as_near(const CertifiedPlace& nearer, const CertifiedPlace& place);
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
