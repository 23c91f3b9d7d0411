// A certificate's tables in the form that the search uses, for tests of certificates.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme::verify_certificate_test {

inline constexpr std::pair<int64_t CertifiedPart::*, int64_t PartPrice::*> kFields[] = {
    {&CertifiedPart::forward, &PartPrice::forward},
    {&CertifiedPart::input_grad, &PartPrice::input_grad},
    {&CertifiedPart::weight_grad, &PartPrice::weight_grad},
    {&CertifiedPart::again, &PartPrice::again},
    {&CertifiedPart::moving_forward, &PartPrice::moving_forward},
    {&CertifiedPart::moving_backward, &PartPrice::moving_backward},
    {&CertifiedPart::leaving, &PartPrice::leaving},
    {&CertifiedPart::returning, &PartPrice::returning},
    {&CertifiedPart::update, &PartPrice::update},
    {&CertifiedPart::sync, &PartPrice::sync},
    {&CertifiedPart::persistent, &PartPrice::persistent},
    {&CertifiedPart::held, &PartPrice::held},
    {&CertifiedPart::gradients, &PartPrice::gradients},
    {&CertifiedPart::kept, &PartPrice::kept},
    {&CertifiedPart::work, &PartPrice::work},
    {&CertifiedPart::waiting, &PartPrice::waiting},
    {&CertifiedPart::coming, &PartPrice::coming},
    {&CertifiedPart::going, &PartPrice::going},
    {&CertifiedPart::host, &PartPrice::host},
    {&CertifiedPart::disk, &PartPrice::disk},
    {&CertifiedPart::updating, &PartPrice::updating},
    {&CertifiedPart::kept_host, &PartPrice::kept_host},
    {&CertifiedPart::kept_disk, &PartPrice::kept_disk},
    {&CertifiedPart::adding, &PartPrice::adding},
    {&CertifiedPart::sums, &PartPrice::sums},
    {&CertifiedPart::tied, &PartPrice::tied},
    {&CertifiedPart::tied_sums, &PartPrice::tied_sums},
    {&CertifiedPart::tied_adding, &PartPrice::tied_adding},
    {&CertifiedPart::tied_forward, &PartPrice::tied_forward},
    {&CertifiedPart::tied_backward, &PartPrice::tied_backward}};
inline constexpr size_t kBeside = 23;    // of the fields above; the last seven are of others
inline constexpr size_t kOnDevice = 16;  // of the fields above; the others are of what lies elsewhere
inline constexpr size_t kPasses = 8;     // of the fields above
inline PartPrice as_price(const CertifiedPart& part) {
  PartPrice out;
  for (const auto& [from, to] : kFields) out.*to = part.*from;
  return out;
}

inline const PipelineShape& shape_once(const CertifiedWay& way) {
  static std::map<std::tuple<WaySchedule, int64_t, int64_t>, PipelineShape> shapes;
  const std::tuple key(way.schedule, way.pp, way.virtual_stages);
  const auto found = shapes.find(key);
  if (found != shapes.end()) return found->second;
  return shapes.emplace(key, shape_of_schedule(schedule_of(way.schedule), way.pp, way.virtual_stages)).first->second;
}

using Runs = std::vector<CertifiedRun>;

inline StageProblem as_problem(const CertifiedWay& way, const CertifiedTable& table, const Runs& runs,
                               const CertifiedRoom& room) {
  StageProblem out{.shape = shape_once(way),
                   .micro_batches = way.micro_batches,
                   .crossing = table.crossing,
                   .memory = room.device,
                   .host = room.host,
                   .disk = room.disk};
  out.parts.push_back(as_price(table.parts.front()));
  for (const CertifiedRun& run : runs) {
    for (int64_t i = 0; i < run.blocks; ++i)
      out.parts.push_back(as_price(table.parts[static_cast<size_t>(run.kind) + 1]));
  }
  out.parts.push_back(as_price(table.parts.back()));
  if (way.pp == 1) in_one_stage(out.parts);
  return out;
}

inline CertifiedCut own_of(CertifiedCut cut) {
  cut.dp = 1;
  cut.zero = 0;
  cut.place = {};
  return cut;
}
inline CertifiedCut most_of(CertifiedCut cut) {
  cut.rows = 8;
  return own_of(std::move(cut));
}
inline bool is_more_than_few(const CertifiedCut& cut) {
  return cut.dp > 8 && cut.dp % 8 == 0;
}
inline CertifiedCut few_of(CertifiedCut cut) {
  cut.dp = 8;
  cut.kept_slices = false;
  cut.keep = Tier::kDevice;
  cut.place = {};
  return cut;
}
inline bool is_more_than_tp(const CertifiedCut& cut) {
  return cut.cp > 1 || cut.ep > 1 || cut.vocabulary;
}
inline CertifiedCut tp_of(CertifiedCut cut) {
  cut = most_of(std::move(cut));
  cut.recompute = WayRecompute::kNone;
  cut.kept_slices = false;
  cut.keep = Tier::kDevice;
  cut.cp = cut.ep = 1;
  cut.vocabulary = false;
  return cut;
}
inline bool is_more_than_tp_and_ep(const CertifiedCut& cut) {
  return cut.ep > 1 && (cut.cp > 1 || cut.vocabulary);
}
inline CertifiedCut tp_and_ep_of(const CertifiedCut& cut) {
  CertifiedCut out = tp_of(cut);
  out.ep = cut.ep;
  return out;
}
inline bool is_more_than_ep(const CertifiedCut& cut, int64_t ep) {
  return cut.ep > ep && cut.ep % ep == 0;
}
inline CertifiedCut fewer_ep_of(const CertifiedCut& cut, int64_t ep) {
  CertifiedCut out = tp_of(cut);
  out.ep = ep;
  return out;
}
inline bool is_more_than_half_cp(const CertifiedCut& cut) {
  return cut.cp == 4 || cut.cp == 8;
}
inline CertifiedCut half_cp_of(const CertifiedCut& cut) {
  CertifiedCut out = tp_and_ep_of(cut);
  out.cp = cut.cp / 2;
  return out;
}
// All of which bound the cut's blocks.
inline std::vector<CertifiedCut> fewer_axes_of(const CertifiedCut& cut) {
  std::vector<CertifiedCut> out;
  if (is_more_than_tp(cut)) out.push_back(tp_of(cut));
  if (is_more_than_tp_and_ep(cut)) out.push_back(tp_and_ep_of(cut));
  for (const int64_t ep : {2, 4, 8, 16}) {
    if (is_more_than_ep(cut, ep)) out.push_back(fewer_ep_of(cut, ep));
  }
  if (is_more_than_half_cp(cut)) out.push_back(half_cp_of(cut));
  return out;
}
inline void raise_moved_of(CertifiedTable& table, const CertifiedTable& few) {
  for (size_t part = 0; part < table.parts.size(); ++part) {
    for (const auto field : {&CertifiedPart::moving_forward, &CertifiedPart::moving_backward, &CertifiedPart::sync})
      table.parts[part].*field = std::max(table.parts[part].*field, few.parts[part].*field);
  }
}
inline CertifiedCut all_kept(CertifiedCut cut) {
  cut.recompute = WayRecompute::kNone;
  cut.kept_slices = false;
  cut.keep = Tier::kDevice;
  return cut;
}
inline CertifiedCut unsliced(CertifiedCut cut) {
  cut.rows = 1;
  cut.zero = 0;
  cut.vocabulary = false;
  cut.place = {};
  return all_kept(std::move(cut));
}
// Nothing takes less with one thing less.
inline void raise_times_of(CertifiedTable& to, const CertifiedTable& nearer) {
  const bool has_same_updates = to.cut.place.update == nearer.cut.place.update;
  for (size_t i = 0; i < to.parts.size(); ++i) {
    CertifiedPart& part = to.parts[i];
    const CertifiedPart& least = nearer.parts[i];
    for (size_t field = 0; field < kPasses; ++field)
      part.*kFields[field].first = std::max(part.*kFields[field].first, least.*kFields[field].first);
    part.sync = std::max(part.sync, least.sync);
    part.tied = std::max(part.tied, least.tied);
    for (const auto field :
         {&CertifiedPart::update, &CertifiedPart::coming, &CertifiedPart::going, &CertifiedPart::updating}) {
      if (has_same_updates) part.*field = std::max(part.*field, least.*field);
    }
    while (as_price(part).once() < as_price(least).once()) ++part.updating;
  }
}
// The search's rule.
inline void raise_exchanged_of(CertifiedTable& table, const CertifiedTable& alone, const CertifiedTable& summed,
                               const CertifiedTable& unsummed) {
  for (size_t block = 1; block + 1 < table.parts.size(); ++block) {
    CertifiedPart& part = table.parts[block];
    PartPrice least = as_price(part);
    const PartPrice own = as_price(alone.parts[block]), of_sums = as_price(summed.parts[block]),
                    of_one = as_price(unsummed.parts[block]);
    raise_exchanged(least, {own, of_sums, of_one, table.cut.zero});
    part.sync = least.sync;
    part.moving_backward = least.moving_backward;
  }
}
inline void raise_blocks(const CertifiedTable& least, CertifiedTable& table) {
  for (size_t block = 1; block + 1 < table.parts.size(); ++block) {
    for (size_t i = 0; i < kPasses; ++i) {
      int64_t& value = table.parts[block].*kFields[i].first;
      value = std::max(value, least.parts[block].*kFields[i].first);
    }
  }
}
// Its blocks are those of the vocabulary whole, whose table it needs.
inline void raise_by_whole(const CertifiedTable& whole, CertifiedTable& table) {
  if (whole.is_refused) table = {.cut = table.cut, .is_refused = true};
  if (table.is_refused) return;
  table.crossing = std::max(table.crossing, whole.crossing);
  raise_blocks(whole, table);
}
// What one stage has left of its last part is no less than of this.
inline void raise_last_of_one_stage(CertifiedPart& last, const CertifiedTable& by) {
  const CertifiedPart& part = by.parts.back();
  last.moving_forward = std::max(last.moving_forward, part.moving_forward - part.tied_forward);
  last.moving_backward = std::max(last.moving_backward, part.moving_backward - part.tied_backward);
}
inline std::vector<CertifiedCut> without_slices_of(const CertifiedCut& cut) {
  const CertifiedCut own = unsliced(cut);
  if (!is_more_than_few(own)) return {own};
  return {few_of(own), own};
}

}  // namespace trireme::verify_certificate_test
