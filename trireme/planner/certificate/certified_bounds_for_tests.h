// Which tables bound those of a cut, and how tables are raised by them, for tests of certificates: by the search's
// rules.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/planner/certificate/certified_problem_for_tests.h"
#include "trireme/planner/outer/least_part.h"

namespace trireme::verify_certificate_test {

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
inline bool is_more_than_fewer_tp(const CertifiedCut& cut) {
  return cut.tp > 8 && cut.tp % 8 == 0;
}
inline CertifiedCut fewer_tp_of(const CertifiedCut& cut) {
  CertifiedCut out = tp_of(cut);
  out.tp = 8;
  return out;
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
  if (is_more_than_fewer_tp(cut)) out.push_back(fewer_tp_of(cut));
  if (is_more_than_tp(cut)) out.push_back(tp_of(cut));
  if (is_more_than_tp_and_ep(cut)) out.push_back(tp_and_ep_of(cut));
  for (const int64_t ep : {2, 4, 8, 16}) {
    if (is_more_than_ep(cut, ep)) out.push_back(fewer_ep_of(cut, ep));
  }
  if (is_more_than_half_cp(cut)) out.push_back(half_cp_of(cut));
  return out;
}
inline bool is_kept_with_ep(const CertifiedCut& cut) {
  return cut.keep != Tier::kDevice && (cut.ep > 1 || cut.vocabulary);
}
inline CertifiedCut kept_without_ep(CertifiedCut cut) {
  cut = most_of(std::move(cut));
  cut.ep = 1;
  cut.vocabulary = false;
  return cut;
}
// The search's rule.
inline void raise_kept_moves_of(CertifiedTable& table, const CertifiedTable& of_known) {
  for (size_t block = 1; block + 1 < table.parts.size(); ++block) {
    PartPrice least = as_price(table.parts[block]);
    const PartPrice known = as_price(of_known.parts[block]);
    raise_kept_moves(least, {.known = known, .rows = table.cut.rows, .rows_of_table = of_known.cut.rows});
    table.parts[block].leaving = least.leaving;
    table.parts[block].returning = least.returning;
  }
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
// Of sums among few ranks: these do without cp and sp.
inline CertifiedCut fewest_sums_of(const CertifiedCut& without) {
  CertifiedCut out = few_of(without);
  out.cp = 1;
  out.sp = false;
  return out;
}
inline std::vector<CertifiedCut> without_slices_of(const CertifiedCut& cut) {
  const CertifiedCut own = unsliced(cut);
  if (!is_more_than_few(own)) return {own};
  return {fewest_sums_of(own), own};
}

}  // namespace trireme::verify_certificate_test
